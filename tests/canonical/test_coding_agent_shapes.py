"""Tests of a source's shape pay right solutions of every shape in full."""

from __future__ import annotations

import asyncio

import pytest

from canonical.bundle import overlaid
from canonical.environments.coding_agent.environment import CodingAgent
from canonical.grading.readable import hidden_code
from canonical.sandbox.backends import load_backend
from canonical.sandbox.protocol import Snapshot
from tests.canonical.shapes import COUNTERS, REPORTS

AGENT = CodingAgent()
SOLUTIONS = {
    f"{task}: {name}": (task, path, source)
    for task, path, named in (
        ("validation/two-reports", "reports.py", REPORTS),
        ("test/no-globals", "counter.py", COUNTERS),
    )
    for name, source in named.items()
}


@pytest.mark.parametrize("solution", SOLUTIONS.values(), ids=SOLUTIONS)
def test_right_solutions_hide_no_code(solution: tuple[str, str, str]) -> None:
    assert hidden_code(solution[2]) == []


@pytest.mark.slow
@pytest.mark.parametrize("solution", SOLUTIONS.values(), ids=SOLUTIONS)
def test_right_solutions_of_other_shapes_score_one(solution: tuple[str, str, str]) -> None:
    task, path, source = solution
    bundle = AGENT.bundle(AGENT.tasks().get(task))
    solved = overlaid(bundle.given, Snapshot({path: source.encode()}))
    report = asyncio.run(AGENT.grade(load_backend(), bundle, solved))
    assert report.share == 1.0, [(one.name, one.reason) for one in report.results if not one.passed]
