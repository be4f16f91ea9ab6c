"""The catalogue: environments by name and by path, and a sentence for everything that is none."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from canonical.catalogue import (
    UnknownEnvironmentError,
    definition_sha256,
    environment_names,
    load_environment,
)
from tests.canonical.miniatures import Counter

SOURCE = """
from __future__ import annotations
from canonical.environment import Environment
from canonical.reward import Criterion
from canonical.task import Task, TaskSet
from canonical.tool import tool

class Tiny(Environment):
    name = "tiny"
    max_turns = 1
    rubric = Criterion("one", lambda state: 1.0)

    def tasks(self):
        return TaskSet([Task(id="train/0")])

    def start(self, task, rng):
        return {}

    def prompt(self, task, state):
        return "Go."

    @tool
    def go(self, state) -> str:
        \"\"\"Go.\"\"\"
        return "Gone."
"""


def write(folder: Path, source: str, name: str = "environment.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(source))
    return path


def refused(source: str, *parts: str) -> None:
    with pytest.raises(UnknownEnvironmentError) as caught:
        load_environment(source)
    for part in parts:
        assert part in str(caught.value)


def test_wordle_is_in_the_catalogue_under_its_name() -> None:
    assert "wordle" in environment_names()
    assert load_environment("wordle").name == "wordle"
    assert load_environment("wordle") is load_environment("wordle")


def test_every_environment_of_the_catalogue_is_called_as_its_folder() -> None:
    assert list(environment_names()) == sorted(environment_names())
    assert [load_environment(name).name for name in environment_names()] == list(environment_names())


def test_a_path_to_a_file_or_to_its_folder_is_accepted(tmp_path: Path) -> None:
    path = write(tmp_path, SOURCE)
    assert load_environment(str(path)).name == "tiny"
    assert load_environment(str(tmp_path)).name == "tiny"


def test_two_files_of_one_name_are_two_environments(tmp_path: Path) -> None:
    for folder, name in (("a", "tiny"), ("b", "other")):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, SOURCE.replace('"tiny"', f'"{name}"'))
    assert load_environment(str(tmp_path / "a")).name == "tiny"
    assert load_environment(str(tmp_path / "b")).name == "other"


def test_an_imported_environment_class_does_not_count(tmp_path: Path) -> None:
    source = SOURCE + "\nfrom canonical.environments.wordle.environment import Wordle\n"
    assert load_environment(str(write(tmp_path, source))).name == "tiny"


def test_an_abstract_base_class_does_not_count(tmp_path: Path) -> None:
    source = SOURCE + "\nclass Base(Environment):\n    pass\n"
    assert load_environment(str(write(tmp_path, source))).name == "tiny"


@pytest.mark.parametrize("source", ["nothing", "", "wordle2", "a\0b", "a/\0b", "x" * 5000])
def test_an_unknown_name_lists_what_exists(source: str) -> None:
    refused(source, "there is no environment", "wordle", "a path to an environment.py is accepted too")


def test_a_folder_without_an_environment_is_refused(tmp_path: Path) -> None:
    refused(str(tmp_path), "there is no environment", f"{tmp_path / 'environment.py'} is missing")


@pytest.mark.parametrize("source", ["/nowhere/environment.py", "mine.py", "mine/environment.py"])
def test_a_path_that_leads_nowhere_is_said_to_be_missing(source: str) -> None:
    refused(source, "there is no environment", f"{source} is missing")


def test_a_path_to_something_else_is_said_to_be_no_file() -> None:
    refused("/nowhere/mine", "/nowhere/mine is neither a Python file nor a folder")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("", "must define exactly one Environment class; it defines none"),
        ("x = 1", "must define exactly one Environment class; it defines none"),
        (
            SOURCE + "\nclass Second(Tiny):\n    name = 'second'\n",
            "must define exactly one Environment class; it defines Tiny, Second",
        ),
        ("def f(:\n", "cannot be imported: SyntaxError"),
        ("import nothing_of_this_name", "cannot be imported: ModuleNotFoundError"),
        ("1 / 0", "cannot be imported: ZeroDivisionError"),
        ("import sys\nsys.exit(3)", "cannot be imported: SystemExit"),
        (SOURCE + "\n    def __init__(self, size):\n        pass\n", "Tiny() cannot be made: TypeError"),
        (
            SOURCE + "\n    def __init__(self):\n        raise OSError('no disk')\n",
            "cannot be made: OSError: no disk",
        ),
        (SOURCE + "\n    def __init__(self):\n        raise SystemExit(3)\n", "cannot be made: SystemExit"),
    ],
)
def test_a_bad_file_is_reported_with_the_reason(tmp_path: Path, source: str, reason: str) -> None:
    path = write(tmp_path, source)
    refused(str(path), str(path), reason)


def test_a_file_that_is_no_python_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "words", "words.txt")
    refused(str(path), str(path), "is not a Python file")


def test_a_file_that_was_mended_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path, "1 / 0")
    refused(str(path), "ZeroDivisionError")
    path.unlink()
    write(tmp_path, SOURCE)
    assert load_environment(str(path)).name == "tiny"


def test_the_hash_of_a_definition_follows_its_files(tmp_path: Path) -> None:
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, SOURCE)
    write(tmp_path / "b", "x = 1", "words.py")
    hashes = [definition_sha256(load_environment(str(tmp_path / folder))) for folder in ("a", "b", "c")]
    assert hashes[0] == hashes[2] != hashes[1]
    assert definition_sha256(Counter()) == definition_sha256(Counter())
