"""The search program: the same lines with ripgrep as without, and a plain model of what they are."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from canonical.environments.coding_agent import search

lines = st.lists(st.text("ab .", max_size=5), max_size=6)
trees = st.dictionaries(st.sampled_from(["a.py", "b.txt", "d/a.py", "d.py", "d/e/c.txt", ".x/y.py", "a b.py"]), lines, max_size=5)  # fmt: skip
requests = st.fixed_dictionaries(
    {
        "pattern": st.sampled_from(["a", "^b", "a.b", "[ab]+$", "A", r"\bb", "^$", "c"]),
        "path": st.sampled_from([".", "d", "a.py"]),
        "glob": st.sampled_from([None, "*.py", "d/*.py", "**/*.txt", "*.{py,txt}", "[a-c].*"]),
        "context": st.integers(0, 2),
        "ignore_case": st.booleans(),
    }
)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(workspace: Path, tree: dict[str, list[str]]) -> None:
    for one in workspace.iterdir():
        shutil.rmtree(one) if one.is_dir() else one.unlink()
    (workspace / "d").mkdir()
    (workspace / "a.py").write_text("a\nb\n")
    for name, rows in tree.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text("".join(f"{row}\n" for row in rows))


def own(request: dict[str, Any]) -> list[str]:
    flags = re.IGNORECASE if request["ignore_case"] else 0
    return list(
        search._own_grep(request, search._start(request["path"]), re.compile(request["pattern"], flags))
    )


in_a_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)


@in_a_folder
@given(trees, requests)
def test_every_line_that_matches_is_shown_once_in_order(
    workspace: Path, tree: dict[str, list[str]], question: dict[str, Any]
) -> None:
    put(workspace, tree)
    request = {**question, "path": ".", "glob": None, "context": 0}
    flags = re.IGNORECASE if request["ignore_case"] else 0
    expected = [
        f"{path.relative_to(workspace)}:{number}:{line}"
        for path in sorted(workspace.rglob("*"), key=lambda path: path.relative_to(workspace).parts)
        if path.is_file()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(request["pattern"], line, flags)
    ]
    assert own(request) == expected


@pytest.mark.skipif(shutil.which("rg") is None, reason="needs ripgrep")
@in_a_folder
@given(trees, requests)
def test_ripgrep_shows_the_same(
    workspace: Path, tree: dict[str, list[str]], question: dict[str, Any]
) -> None:
    put(workspace, tree)
    assert list(search._ripgrep(question, search._start(question["path"]))) == own(question)


@pytest.mark.parametrize("has_ripgrep", [False, True], ids=["alone", "with ripgrep"])
@pytest.mark.parametrize("glob", ["[", "!a.py", "a.p[y]", "{a.py,b}", "*.py", "d/*.py", "**/a.py", "a\\.py"])
def test_a_glob_chooses_the_same_files_with_ripgrep_as_without(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, glob: str, has_ripgrep: bool
) -> None:
    """Ripgrep refuses an open bracket, and takes a leading exclamation mark for "all but these"."""
    if has_ripgrep and shutil.which("rg") is None:
        pytest.skip("needs ripgrep")
    put(workspace, {"d/a.py": ["a"], "[": ["a"], "!a.py": ["a"], "b": ["a"]})
    request = {"pattern": "a", "path": ".", "glob": glob, "context": 0, "ignore_case": False}
    if not has_ripgrep:
        monkeypatch.setattr(shutil, "which", lambda _: None)
    assert list(search._grep(request)) == own(request)


def test_what_is_no_plain_text_file_is_passed_over(workspace: Path) -> None:
    put(workspace, {"d/a.py": ["a"]})
    (workspace / "link.py").symlink_to("a.py")
    (workspace / "binary").write_bytes(b"a\0a\n")
    (workspace / "latin").write_bytes(b"a\xe9\n")
    (workspace / ".git").mkdir()
    (workspace / ".git" / "config").write_text("a\n")
    request = {"pattern": "a", "path": ".", "glob": None, "context": 0, "ignore_case": False}
    assert own(request) == ["a.py:1:a", "d/a.py:1:a", "latin:1:a\ufffd"]


@pytest.mark.parametrize("has_ripgrep", [False, True], ids=["alone", "with ripgrep"])
@pytest.mark.parametrize("pattern", ["(", "*a", "[z-a]"])
def test_a_pattern_that_is_no_regular_expression_is_refused_with_the_reason(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, has_ripgrep: bool
) -> None:
    if has_ripgrep and shutil.which("rg") is None:
        pytest.skip("needs ripgrep")
    if not has_ripgrep:
        monkeypatch.setattr(shutil, "which", lambda _: None)
    put(workspace, {})
    request = {"pattern": pattern, "path": ".", "glob": None, "context": 0, "ignore_case": False}
    with pytest.raises(search._RefusedError, match="pattern") as told:
        list(search._grep(request))
    with pytest.raises(re.error) as reason:
        re.compile(pattern)
    assert told.value.reason == str(reason.value)


def test_a_link_that_leads_back_to_itself_is_said_to_loop(workspace: Path) -> None:
    (workspace / "self").symlink_to("self")
    with pytest.raises(search._RefusedError, match="loop"):
        search._start("self")


@pytest.mark.parametrize("path", ["..", "/", "../x", "link"])
def test_no_search_leaves_the_workspace(workspace: Path, path: str) -> None:
    (workspace / "link").symlink_to("/etc")
    with pytest.raises(search._RefusedError):
        search._start(path)
