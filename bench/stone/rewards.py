"""Reward: when it arrives, and what trainers that sum, take the last value, or ask for the return make of the same episode."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from bench.facts import Fact, Probe
from bench.stacks import ROOT
from bench.stone.pieces import declared_of, shown_of
from bench.stone.places import code_of, find_place
from bench.stone.play import session_of
from bench.stone.subject import Subject
from canonical.adapter import Feature
from canonical.catalogue import load_environment
from canonical.tool import ToolCall

TABLE = "reward"
DENSE = ROOT / "bench" / "touchstone" / "environment.py"


async def gather(subject: Subject) -> list[Fact]:
    """Return what one episode that pays at every step and one that pays at its end show through a framework.

    Raises:
        SessionError: The framework refused a session.
        WorkerError: The worker broke down.
    """
    touchstone, wordle = load_environment(str(DENSE)), load_environment("wordle")
    task = next(iter(touchstone.tasks()))
    rolls = [ToolCall("roll", {"times": 3}), ToolCall("wait", {}), ToolCall("roll", {})]

    dense = [*rolls, ToolCall("answer", {"code": task.secret["code"]})]
    word = next(iter(wordle.tasks()))
    late = [ToolCall("guess", {"word": "crane"}), ToolCall("guess", {"word": word.secret["answer"]})]
    declared, shown = (
        declared_of(subject.stack, Feature.STEP_REWARD),
        shown_of(subject.stack, Feature.STEP_REWARD),
    )
    return [
        subject.fact(TABLE, "reward of a step", declared, "probed", shown),
        *await _play(subject, "paid at every step", str(DENSE), task.id, dense),
        *await _play(subject, "paid at the end", "wordle", word.id, late),
    ]


async def _play(subject: Subject, row: str, source: str, task: str, calls: Sequence[ToolCall]) -> list[Fact]:
    async with session_of(subject, source) as session:
        await session.open(task, 1)
        results = [await session.step(call) for call in calls]
        after = await session.step(calls[0])
        returned = await session.reported_return()
    paid = [result.reward for result in results]
    place = code_of(ROOT / "bench" / "stone" / "rewards.py", "_play")
    told = f"rewards {json.dumps(paid)}, after the end {after.reward:g}, return {returned:g}"
    probe = Probe(
        name="rewards", sent=f"{len(calls)} calls that end an episode, and one after the end", seen=told,
        file=place.file, line=place.first, function=place.name,
    )  # fmt: skip
    found: list[tuple[str, str]] = [
        ("on the trace", ", ".join(f"{one:g}" for one in paid)),
        ("a trainer that sums reads", f"{math.fsum([*paid, after.reward]):g}"),
        ("a trainer that takes the last step's value reads", f"{paid[-1]:g}"),
    ]
    whose = subject.stack.facts.words["return"].removeprefix("no word of its own; ")
    at = subject.stone.words["return"].at
    read = subject.fact(
        TABLE, f"{row}: return as the adapter reads it", f"{returned:g}: {whose}", "probed",
        [probe, find_place(subject.folder, at)], returned,
    )  # fmt: skip
    return [
        *(subject.fact(TABLE, f"{row}: {name}", value, "probed", [probe]) for name, value in found), read
    ]  # fmt: skip
