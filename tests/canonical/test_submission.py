"""What is carried from a workspace into grading: plain files of the allow-list, and nothing that changes how tests run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical.grading.submission import MAX_FILE_BYTES, SubmissionError, may_be_carried, submission
from canonical.sandbox.protocol import Snapshot

ALL = ("**",)


@pytest.mark.parametrize(
    "path",
    ["conftest.py", "src/conftest.py", "pytest.ini", "tox.ini", "setup.cfg", "sitecustomize.py", "usercustomize.py",
     "evil.pth", "a/__pycache__/a.cpython-311.pyc", "a.pyc", "__pycache__/a.py", ".git/hooks/x", "a\nb.py", "a\0b",
     "a\u202eyp.py", "\uff41.py", "../a.py", "/a.py", "a//b.py", "a\\b.py", " a.py", "a.py ", "./a.py", ""],
)  # fmt: skip
def test_what_is_never_carried(path: str) -> None:
    assert not may_be_carried(path, ALL)


@pytest.mark.parametrize("path", ["a.py", "src/deep/b.txt", "données.csv", ".config", "a b.txt"])
def test_ordinary_files_are_carried(path: str) -> None:
    assert may_be_carried(path, ALL)


names = st.sampled_from(["a.py", "b.py", "c.txt", "d", "d/a.py", "conftest.py", "d/e/f.py"])


@given(st.dictionaries(names, st.binary(max_size=3)), st.dictionaries(names, st.binary(max_size=3)))
def test_what_may_change_is_the_agents_and_the_rest_is_as_given(
    workspace: dict[str, bytes], given_files: dict[str, bytes]
) -> None:
    patterns = ("**/*.py",)
    graded = submission(Snapshot(workspace), Snapshot(given_files), patterns).files
    for path, data in graded.items():
        source = workspace if may_be_carried(path, patterns) else given_files
        assert source[path] == data
    for path in given_files:
        assert may_be_carried(path, patterns) or path in graded
    folders = {path.rpartition("/")[0] for path in graded} | {"d" for path in graded if path.startswith("d/")}
    assert not folders & graded.keys() or "d" in given_files


def test_a_file_in_the_place_of_a_given_folder_is_left_out() -> None:
    graded = submission(Snapshot({"d": b"x"}), Snapshot({"d/data.txt": b"1"}), ("d",))
    assert graded.files == {"d/data.txt": b"1"}


def test_a_solution_that_is_too_large_is_refused_by_name() -> None:
    with pytest.raises(SubmissionError, match=r"big\.py"):
        submission(Snapshot({"big.py": bytes(MAX_FILE_BYTES + 1)}), Snapshot({}), ALL)


def test_what_is_executable_stays_so() -> None:
    workspace = Snapshot({"a": b"", "b": b""}, frozenset({"a"}))
    assert submission(workspace, Snapshot({"b": b""}, frozenset({"b"})), ALL).executable == {"a"}
