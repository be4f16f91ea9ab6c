"""Generated parts of documents equal what the facts say; `python -m reports.generated --write` renews them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from canonical.catalogue import load_environment
from canonical.golden import Case, record
from canonical.transcript import Transcript
from reports.generated import EXAMPLE, MissingMarkers, generated_documents, renew

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "document", sorted(generated_documents(ROOT)), ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_generated_part_is_not_stale(document: Path) -> None:
    assert document.read_text(encoding="utf-8") == generated_documents(ROOT)[document]


def test_what_stands_around_the_markers_stays() -> None:
    text = "before\n<a>\nold | \\1\n</a>\nafter"
    assert renew(text, ("<a>", "</a>"), r"new \1") == "before\n<a>\nnew \\1\n</a>\nafter"


def test_missing_markers_are_named() -> None:
    with pytest.raises(MissingMarkers, match="<a>"):
        renew("nothing", ("<a>", "</a>"), "x")


@pytest.mark.slow
def test_the_episode_that_is_shown_is_what_the_environment_shows_today() -> None:
    line = (ROOT / EXAMPLE).read_text(encoding="ascii")
    shown = Transcript.from_line(line)
    case = Case("shown", shown.task, shown.seed, [step.action for step in shown.steps])
    golden = asyncio.run(record(load_environment(shown.environment), [case]))
    assert golden.episodes[0].transcript.to_line() + "\n" == line
