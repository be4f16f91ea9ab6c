"""Tasks: which splits and tasks of an environment users of a framework see, and how they choose one."""

from __future__ import annotations

import re

from bench.client import RequestFailed
from bench.facts import Fact, Probe
from bench.session import list_tasks
from bench.stacks import ROOT
from bench.stone.pieces import proof_of
from bench.stone.places import code_of
from bench.stone.play import standing
from bench.stone.subject import Subject
from canonical.adapter import Feature, SessionError
from canonical.catalogue import load_environment

TABLE = "tasks"
SOURCE = "wordle"

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
        proof = proof_of(subject, feature)
        facts.append(subject.fact(TABLE, row, proof.seen, "probed", [proof]))
    tasks = load_environment(SOURCE).tasks()
    place = code_of(ROOT / "bench" / "stone" / "tasks.py", "gather")
    async with standing(subject, SOURCE) as url:
        for split in (*tasks.splits, "no such split"):
            try:
                listed = await list_tasks(subject.worker, SOURCE, split, url=url)
            except SessionError as error:
                # Every server has another port.
                value = f"refused: {_ADDRESS.sub('http://127.0.0.1', str(error).splitlines()[0])}"
            except RequestFailed as error:
                if error.kind != "unsupported":
                    raise
                value = "cannot be listed"
            else:
                mine = [task.id for task in tasks.split(split)] if split in tasks.splits else []
                value = f"{len(listed)} tasks, {'as defined' if listed == mine else 'other than defined'}"
            probe = Probe(
                name="tasks", sent=f"the tasks of split {split} of {SOURCE}", seen=value, file=place.file,
                line=place.first, function=place.name,
            )  # fmt: skip
            facts.append(subject.fact(TABLE, f"listing {split}", value, "probed", [probe]))
    return facts
