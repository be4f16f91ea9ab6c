"""Tasks: which splits and tasks of an environment users of a framework see, and how they choose one."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bench.client import RequestFailed
from bench.facts import Fact, Probe
from bench.session import list_tasks
from bench.stacks import ROOT
from bench.stone.pieces import declared_of, shown_of
from bench.stone.places import code_of
from bench.stone.play import standing
from bench.stone.subject import Subject
from canonical.adapter import Feature, SessionError
from canonical.catalogue import load_environment

TABLE = "tasks"
SOURCE = "wordle"
NO_SPLIT = "no such split"

_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


async def gather(subject: Subject) -> list[Fact]:
    """Return what is declared and proven of tasks and splits, and what listing the tasks of every split shows.

    Raises:
        WorkerError: The worker broke down.
    """
    facts = []
    for row, feature in (
        ("splits", Feature.SPLITS),
        ("choice of a task", Feature.TASK_SELECTION),
        ("choice of a seed", Feature.SEEDED_RESET),
    ):
        declared = declared_of(subject.stack, feature)
        facts.append(subject.fact(TABLE, row, declared, "probed", shown_of(subject.stack, feature)))
    tasks = load_environment(SOURCE).tasks()
    place = code_of(ROOT / "bench" / "stone" / "tasks.py", "gather")
    counted: dict[str, str] = {}
    async with standing(subject, SOURCE) as url:
        for split in (*tasks.splits, NO_SPLIT):
            try:
                listed = await list_tasks(subject.worker, SOURCE, split, url=url)
            except SessionError as error:
                # Every server has another port.
                told = f"refused: {_ADDRESS.sub('http://127.0.0.1', str(error).splitlines()[0])}"
            except RequestFailed as error:
                if error.kind != "unsupported":
                    raise
                told = "cannot be listed"
            else:
                mine = [task.id for task in tasks.split(split)] if split in tasks.splits else []
                told = f"{len(listed)} tasks, {'as defined' if listed == mine else 'other than defined'}"
            counted[split] = told
    refused = counted.pop(NO_SPLIT)
    sent = {
        f"the tasks of {', '.join(counted)} of {SOURCE}": _together(counted),
        f"the tasks of {NO_SPLIT!r} of {SOURCE}": refused,
    }
    for row, (asked, value) in zip(
        ("listing the splits", "listing a split that there is not"), sent.items(), strict=True
    ):
        probe = Probe(
            name="tasks", sent=asked, seen=value, file=place.file, line=place.first, function=place.name
        )
        facts.append(subject.fact(TABLE, row, value, "probed", [probe]))
    return facts


def _together(counted: Mapping[str, str]) -> str:
    """Say what came of every split, and once what came of all."""
    parts = {split: told.partition(" tasks, ") for split, told in counted.items()}
    ends = {end for _, _, end in parts.values()}
    if len(ends) == 1 and (end := ends.pop()):
        return f"{', '.join(f'{count} tasks of {split}' for split, (count, _, _) in parts.items())}: {end}"
    return "; ".join(f"{split}: {told}" for split, told in counted.items())
