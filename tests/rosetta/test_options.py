"""Options mean the same in every verb: frameworks and releases are chosen alike, and a bad place is refused at once."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from bench.stacks import UnknownStackError, adapter_names, all_stacks
from rosetta.__main__ import cli
from rosetta.options import ALL, DEFAULT, choose_stack, choose_stacks, folder_problem

VERBS: dict[str, Any] = {**cli.commands, "stack build": cli.commands["stack"].commands["build"]}  # type: ignore[attr-defined]
HERE = "docs/examples/higher_lower.py"


def labels(*names: str, release: str) -> list[str]:
    return [stack.label for stack in choose_stacks(names, release)]


def targets(stacks: Any) -> list[str]:
    return [target.label for stack in stacks for target in stack.per_target()]


def test_every_release_and_the_default_ones_can_be_asked_for_with_and_without_a_framework() -> None:
    assert labels(release=ALL) == targets(all_stacks())
    assert labels(release=DEFAULT) == targets(stack for stack in all_stacks() if stack.release.default)
    for name in adapter_names():
        mine = [stack for stack in all_stacks() if stack.adapter == name]
        assert labels(name, release=ALL) == targets(mine)
        assert labels(name, release=DEFAULT) == targets(stack for stack in mine if stack.release.default)


def test_a_release_is_found_by_its_label_alone_and_by_its_version_with_its_framework() -> None:
    for stack in all_stacks():
        assert labels(release=stack.label) == labels(stack.adapter, release=stack.release.version)
        assert choose_stack(stack.adapter, stack.release.version) == stack
    with pytest.raises(click.UsageError, match="names no single release"):
        choose_stacks((), "99")
    with pytest.raises(click.UsageError, match="one release at a time"):
        choose_stack("gem", ALL)


def test_a_framework_counts_once_however_often_and_in_whatever_spelling_it_is_named() -> None:
    for release in (ALL, DEFAULT):
        assert labels("nemo_gym", "nemo-gym", "nemo_gym", release=release) == labels(
            "nemo_gym", release=release
        )
    several = next(stack for stack in all_stacks() if stack.release.targets)
    target = f"{several.adapter}:{several.release.targets[0]}"
    assert sorted(labels(target, several.adapter, release=ALL)) == sorted(
        labels(several.adapter, release=ALL)
    )
    assert labels(target, target, release=ALL) == [f"{several.label}-{several.release.targets[0]}"]
    with pytest.raises(UnknownStackError):
        choose_stacks([f"{several.adapter}:nonsense"], ALL)


def test_the_same_option_is_explained_in_the_same_words_by_every_verb() -> None:
    said: dict[str, set[str]] = {}
    for command in VERBS.values():
        for option in command.params:
            name = option.opts[0]
            if name in {"--release", "--framework"}:
                said.setdefault(name, set()).add(option.help.partition("; ")[0].partition(", or ")[0])
    assert {words.rstrip(".") for words in said["--framework"]} == {"A framework"}
    assert {words.partition(",")[0] for words in said["--release"]} == {"A release by its version or label"}


def test_every_place_for_results_is_checked_the_same_way(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine", encoding="utf-8")
    outs = {name: option for name, verb in VERBS.items() for option in verb.params if "--out" in option.opts}
    assert set(outs) >= {
        "certify",
        "endure",
        "gauntlet",
        "bench",
        "bench-sandbox",
        "report",
        "rollout",
        "plan",
    }
    for name, option in outs.items():
        for out in (taken / "inside", "", Path("/proc") / "nothing", *([] if name == "rollout" else [taken])):
            with pytest.raises(click.BadParameter):
                option.callback(click.Context(VERBS[name]), option, str(out))
        assert option.callback(click.Context(VERBS[name]), option, str(tmp_path / "new")) == tmp_path / "new"
    done = CliRunner().invoke(cli, ["certify", "wordle", "--out", str(taken)])
    assert (done.exit_code, "'--out'" in done.output) == (2, True)
    assert taken.read_text(encoding="utf-8") == "mine"
    assert list(tmp_path.iterdir()) == [taken]


def test_a_folder_takes_results_unless_something_else_stands_where_they_would(tmp_path: Path) -> None:
    assert folder_problem(tmp_path / "new" / "folder", ("a.json",)) is None
    (tmp_path / "a.json").write_text("old", encoding="utf-8")
    assert folder_problem(tmp_path, ("a.json",)) is None
    (tmp_path / "b.md").mkdir()
    assert "b.md is there and is not a file" in str(folder_problem(tmp_path, ("a.json", "b.md")))
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    assert "is not a folder" in str(folder_problem(tmp_path / "nowhere" / "x"))
    assert "too long" in str(folder_problem(tmp_path / ("x" * 5000)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.md", "nowhere"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_without_the_right_to_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "cannot be written" in str(folder_problem(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [(["bench", "openenv"], "records.jsonl"), (["bench-sandbox", "--plan", "smoke"], "sandboxes.jsonl")],
    ids=("bench", "bench-sandbox"),
)
def test_a_run_that_is_there_is_never_written_over(arguments: list[str], name: str, tmp_path: Path) -> None:
    records = tmp_path / name
    records.write_text("somebody's", encoding="utf-8")
    with pytest.raises(click.UsageError, match="already holds a run; choose another folder with --out"):
        cli.main([*arguments, "--out", str(tmp_path)], standalone_mode=False)
    assert list(tmp_path.iterdir()) == [records]
    assert records.read_text(encoding="utf-8") == "somebody's"


def test_a_release_without_its_framework_is_no_silent_wish() -> None:
    with pytest.raises(click.UsageError, match="about a framework"):
        cli.main(["rollout", "wordle", "--release", DEFAULT], standalone_mode=False)


def test_every_verb_that_plays_through_a_framework_takes_both_names_of_the_option() -> None:
    both = {name for name, verb in VERBS.items() for option in verb.params if "--as" in option.opts}
    one = {name for name, verb in VERBS.items() for option in verb.params if "--framework" in option.opts}
    assert both == one >= {"certify", "endure", "gauntlet", "serve", "rollout"}
    assert "--as" not in chain.from_iterable(option.opts for option in VERBS["bench"].params)
