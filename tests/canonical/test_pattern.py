"""Globs: what they match, and that no pattern takes long."""

from __future__ import annotations

import re
from fnmatch import translate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical.pattern import find_flaw, matches


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", "a.py", True),
        ("*.py", "src/a.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "src/deep/a.py", True),
        ("src/**", "src/a/b.txt", True),
        ("src/**", "src", True),
        ("src/**/test_*.py", "src/test_a.py", True),
        ("src/**/test_*.py", "src/x/y/test_a.py", True),
        ("**", "any/thing", True),
        ("a**b/c", "axxb/c", True),
        ("a**b", "a/b", False),
        ("?.py", "ab.py", False),
        ("[a-c].py", "b.py", True),
        ("[!a-c].py", "b.py", False),
        ("[]].py", "].py", True),
        ("[a", "[a", True),
        ("*.{py,txt}", "a.txt", True),
        ("{a,b}/{c,d}.py", "b/c.py", True),
        ("{a,{b,c}}.py", "c.py", True),
        ("{a.py", "{a.py", True),
        ("./a.py", "a.py", True),
        (".*", ".hidden", True),
        ("*", ".hidden", True),
        ("A.py", "a.py", False),
    ],
)
def test_what_matches(pattern: str, path: str, *, expected: bool) -> None:
    assert matches(pattern, path) is expected


@given(st.text("ab*?", max_size=8), st.text("ab", min_size=1, max_size=8))
def test_within_a_name_it_is_what_the_standard_library_matches(pattern: str, name: str) -> None:
    if pattern in {"", "**"}:
        return
    assert matches(pattern, name) == bool(re.match(translate(pattern), name))


def test_stars_do_not_multiply() -> None:
    """With backtracking this pattern would need more steps than can be made."""
    assert not matches("a*" * 60 + "b", "a" * 2_000)
    assert not matches("/".join(["**", "a"] * 30) + "/b", "/".join(["a"] * 200))


def test_braces_do_not_multiply() -> None:
    assert not matches("{a,b}" * 40, "c")


@pytest.mark.parametrize(
    ("pattern", "flaw"),
    [
        ("../*", "leads out of the folder"),
        ("a/../*", "leads out of the folder"),
        ("/etc/*", "begins with a slash"),
        ("[", "a [ in the pattern is never closed"),
        ("src/[a-c", "a [ in the pattern is never closed"),
        ("{a,b", "a { in the pattern is never closed"),
        ("[[]", None),
        ("[a-c]*.{py,txt}", None),
        ("**/..x", None),
    ],
)
def test_a_pattern_that_says_something_else_than_it_seems_to_has_a_flaw(
    pattern: str, flaw: str | None
) -> None:
    found = find_flaw(pattern)
    assert found is None if flaw is None else flaw in (found or "")
