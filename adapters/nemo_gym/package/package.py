"""The parts of a package that are computed: the configuration, and the rows of tasks. No framework is imported."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from adapters.nemo_gym.project import EXAMPLES, agent_name, make_config, make_row, server_name
from canonical.environment import Environment
from canonical.task import Task


def values(environment: Environment[Any]) -> Mapping[str, Any]:
    """Return what the templates use beside what all packages have."""
    return {
        "server": server_name(environment),
        "agent": agent_name(environment),
        "config": make_config(environment),
    }


def files(environment: Environment[Any], digest: str) -> Iterator[tuple[str, str]]:
    """Yield the files of rows, one for each split and one of examples.

    Args:
        environment: The environment.
        digest: The hash of the rest of the package; it goes into the keys that `/verify` asks for, which a model cannot
            compute without having the package.

    Raises:
        canonical.episode.StartError: The environment's `start` or `prompt` failed.
    """
    folder = f"resources_servers/{server_name(environment)}/data"
    tasks = environment.tasks()
    for split in tasks.splits:
        yield f"{folder}/{split}.jsonl", _rows(environment, tasks.split(split), digest)
    yield f"{folder}/example.jsonl", _rows(environment, tasks.split(tasks.training_split)[:EXAMPLES], digest)


def _rows(environment: Environment[Any], tasks: Sequence[Task], salt: str) -> str:
    with asyncio.Runner() as runner:
        made = [runner.run(make_row(environment, task, 0, salt=salt)) for task in tasks]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made)
