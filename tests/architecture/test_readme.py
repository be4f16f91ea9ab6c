"""What the README shows is what the repository holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from canonical.catalogue import load_environment
from canonical.checker import check_environment

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "docs" / "examples" / "higher_lower.py"


def test_the_example_is_the_file_and_keeps_every_promise() -> None:
    assert EXAMPLE.read_text(encoding="utf-8").strip() in README
    assert check_environment(load_environment(str(EXAMPLE)), episodes=10).passed


def test_the_example_takes_25_lines_of_definition() -> None:
    lines = EXAMPLE.read_text(encoding="utf-8").split("class ", 1)[1].splitlines()
    code = [line for line in lines if line.strip()]
    assert len(code) <= 25


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!http)([^)#]+)\)", README))))
def test_every_link_leads_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


def test_no_mark_was_left_to_fill_in() -> None:
    assert "@@" not in README
