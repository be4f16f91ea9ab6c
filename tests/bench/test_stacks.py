"""Stacks are found from the folders of adapters and libraries, and what is missing is said with the command that mends it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import stacks
from bench.stacks import (
    ReleaseStack,
    StackError,
    adapter_names,
    all_stacks,
    builder_of,
    find_library,
    find_owner,
    find_python,
    find_stack,
    library_names,
    library_stacks,
    releases_of,
    require_stack,
    stack_environment,
)


def test_every_adapter_has_exactly_one_default_release() -> None:
    assert adapter_names()
    for name in adapter_names():
        defaults = [stack for stack in all_stacks() if stack.adapter == name and stack.release.default]
        assert [stack.label for stack in defaults] == [find_stack(name).label]


def test_a_release_is_found_by_version_label_or_requirement() -> None:
    for stack in all_stacks():
        release = stack.release
        for name in (release.version, release.label, f"{release.package}=={release.version}"):
            assert find_stack(stack.adapter, name).label == stack.label


def test_unknown_names_list_what_there_is() -> None:
    with pytest.raises(StackError, match=f"no framework 'gymnastics'.*{adapter_names()[0]}"):
        find_stack("gymnastics")
    with pytest.raises(StackError, match=r"no supported release '0\.0\.1'"):
        find_stack(adapter_names()[0], "0.0.1")


@pytest.mark.parametrize("name", library_names())
def test_a_library_of_tasks_has_a_stack_and_is_no_framework(name: str) -> None:
    stack = find_library(name.replace("_", "-"))
    assert stack == find_owner(name)
    assert stack in library_stacks()
    assert (stack.module, stack.entry) == (f"libraries.{name}", f"libraries.{name}.lifter")
    assert stack.build_command() == f"rosetta stack build {name} --release {stack.release.version}"
    assert name not in adapter_names()
    assert stack.label not in {one.label for one in all_stacks(supported=True)}
    with pytest.raises(StackError, match=f"no framework {name!r}, and nothing is compiled to a library"):
        find_stack(name)
    with pytest.raises(StackError, match=r"no supported release '0\.0\.1'"):
        find_library(name, "0.0.1")


def test_an_owner_of_sources_is_a_framework_or_a_library() -> None:
    assert find_owner("gem", "0.0.4") == find_stack("gem", "0.0.4")
    with pytest.raises(
        StackError, match=f"no framework 'gymnastics'.*the libraries of tasks {library_names()[0]}"
    ):
        find_owner("gymnastics")
    with pytest.raises(StackError, match="no library of tasks 'gem'"):
        find_library("gem")


@pytest.mark.parametrize("stack", [*all_stacks(), *library_stacks()], ids=lambda stack: stack.label)
def test_what_a_stack_is_built_from_lies_in_one_folder(stack: ReleaseStack) -> None:
    assert stack.constraints.parent.parent == stack.home
    assert (stack.home / "__init__.py").is_file()
    assert (stack.home / f"{stack.entry.rpartition('.')[2]}.py").is_file()
    assert stack.requirements[0].endswith(f"[{stack.release.extra}]")


def test_a_release_that_knows_two_kinds_of_environment_is_a_stack_for_each() -> None:
    stacks = find_stack("verifiers", "0.3.1").per_target()
    assert [stack.worker for stack in stacks] == ["verifiers:environment", "verifiers:taskset"]
    assert len({stack.label for stack in stacks}) == 2
    assert len({stack.folder for stack in stacks}) == 1
    assert [stack.worker for stack in find_stack("gem").per_target()] == ["gem"]


def test_a_target_chooses_what_environments_become_and_the_releases_that_have_it() -> None:
    assert find_stack("verifiers:taskset", "0.3.1").worker == "verifiers:taskset"
    assert [stack.label for stack in releases_of("verifiers:taskset")] == ["verifiers-0.3.1-taskset"]
    assert {stack.label for stack in releases_of("nemo-gym")} == {"nemo-gym-0.4.0"}
    for name in ("gem:thing", "verifiers:thing"):
        with pytest.raises(StackError, match="thing"):
            releases_of(name)
    with pytest.raises(StackError, match="only one"):
        find_stack("gem:thing")


def test_a_stack_that_is_not_built_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "STACKS", tmp_path)
    stack = find_stack(adapter_names()[0])
    assert not stack.is_ready()
    with pytest.raises(StackError, match=r"not built; build it with: rosetta stack build"):
        require_stack(stack)


def test_a_stack_is_out_of_date_once_its_constraints_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "STACKS", tmp_path)
    stack = find_stack(adapter_names()[0])
    (stack.folder / "bin").mkdir(parents=True)
    stack.python.symlink_to(sys.executable)
    (stack.folder / "rosetta-stack.json").write_text(
        f'{{"inputs_sha256": "{stack.inputs_sha256}"}}', encoding="utf-8"
    )
    assert stack.is_ready()
    (stack.folder / "rosetta-stack.json").write_text('{"inputs_sha256": "0"}', encoding="utf-8")
    with pytest.raises(StackError, match="out of date or damaged"):
        require_stack(stack)


def test_pythons_are_run_before_they_are_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind pyenv's shims a name on PATH may lead nowhere."""
    shim = tmp_path / "python3.12"
    shim.write_text(
        "#!/bin/sh\necho 'pyenv: python3.12: command not found' >&2\nexit 127\n", encoding="utf-8"
    )
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "none"))
    assert find_python("3.12") is None or find_python("3.12") == Path(sys.executable)
    working = tmp_path / "pyenv" / "versions" / "3.12.9" / "bin"
    working.mkdir(parents=True)
    (working / "python").write_text("#!/bin/sh\necho 3.12\n", encoding="utf-8")
    (working / "python").chmod(0o755)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert find_python("3.12") in {working / "python", Path(sys.executable)}


def test_programs_in_a_stack_find_uv_where_the_harness_found_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verifiers starts the chat program of its default path by `uv`, and would install it where there is none."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(stacks, "find_uv", lambda: "/somewhere/bin/uv")
    assert stack_environment()["PATH"].split(os.pathsep) == ["/nowhere", "/somewhere/bin"]


def test_this_interpreter_is_found() -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert find_python(version) == Path(sys.executable)


def test_an_installation_that_fails_says_why_and_leaves_no_half_built_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "STACKS", tmp_path)
    stack = find_stack(adapter_names()[0])
    release = stack.release.model_copy(update={"extra": "no-such-extra", "version": "0.0.0-none"})
    broken = stacks.Stack(stack.adapter, stack.facts, release)
    with pytest.raises(StackError, match="is missing; every supported release has its constraints"):
        stacks.build_stack(broken)
    assert not broken.folder.exists()


def test_a_stack_whose_interpreter_does_not_run_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "STACKS", tmp_path)
    stack = find_stack(adapter_names()[0])
    (stack.folder / "bin").mkdir(parents=True)
    (stack.folder / "rosetta-stack.json").write_text(
        f'{{"inputs_sha256": "{stack.inputs_sha256}"}}', encoding="utf-8"
    )
    stack.python.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    for mode in (0o755, 0o644):
        stack.python.chmod(mode)
        assert not stack.works()
        with pytest.raises(StackError, match=r"damaged; build it with"):
            require_stack(stack)


def test_a_stack_that_somebody_is_building_is_not_called_damaged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stacks, "STACKS", tmp_path)
    stack = find_stack("gem")
    stack.python.parent.mkdir(parents=True)
    stack.python.write_text("half", encoding="utf-8")
    lock = tmp_path / f"{stack.release.label}.lock"
    assert builder_of(stack) is None
    building = (
        "import fcntl, os, sys; file = open(sys.argv[1], 'a+'); fcntl.flock(file, fcntl.LOCK_EX);"
        "file.write(str(os.getpid())); file.flush(); print('begun', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", building, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        assert builder_of(stack) == f"process {process.pid}"
        with pytest.raises(StackError, match=f"is being built by process {process.pid}; try again"):
            require_stack(stack)
        process.communicate()
    assert builder_of(stack) is None
    with pytest.raises(StackError, match="is out of date or damaged; build it with"):
        require_stack(stack)
