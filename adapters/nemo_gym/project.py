"""Write what NeMo Gym's own commands take: a folder of the server, its configuration, and rows of tasks.

`python -P -m adapters.nemo_gym.project wordle --to FOLDER` writes it; `gym env start` and `gym eval run` play it there.

Rows can be made where NeMo Gym is not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from adapters.nemo_gym.wire import write_input, write_message, write_tool
from canonical.catalogue import UnknownEnvironmentError, load_environment
from canonical.content import JSON
from canonical.environment import Environment
from canonical.episode import Episode
from canonical.task import Task

EXAMPLES = 5
"""How many rows the example file of a server has."""

_APP = '''"""A resources server of NeMo Gym that plays {name}."""

from __future__ import annotations

from adapters.nemo_gym.compiler import compile_environment
from canonical.catalogue import load_environment

{class_name} = compile_environment(load_environment({source!r}))

if __name__ == "__main__":
    {class_name}.run_webserver()
'''


def server_name(environment: Environment[Any]) -> str:
    """Return the name of the server, of its folder and of its instance.

    NeMo Gym's own servers lie in the same namespace, and one of them is called `wordle`.
    """
    return f"rosetta_{environment.name}"


def agent_name(environment: Environment[Any]) -> str:
    """Return the name of the agent's instance."""
    return f"{server_name(environment)}_simple_agent"


async def make_row(
    environment: Environment[Any], task: Task, seed: int, *, salt: str = ""
) -> dict[str, JSON]:
    """Return a row of a JSONL file: what the model reads first, its tools, and which episode is meant.

    Args:
        environment: The environment.
        task: The task.
        seed: The seed of the episode.
        salt: Goes into the key that `/verify` asks for, so that nobody who knows the task can compute it.

    Raises:
        StartError: The environment's `start` or `prompt` failed.
    """
    episode = await Episode.open_async(environment, task, seed=seed)
    prompt = [write_message(message) for message in episode.prompt]
    await episode.close_async()
    named = "\0".join((environment.name, environment.version, task.id, str(seed), salt))
    return {
        "responses_create_params": {
            "input": [write_input(message) for message in prompt],
            "tools": [write_tool(tool.spec) for tool in environment.tools],
        },
        "task": task.id,
        "seed": seed,
        "verify_key": hashlib.sha256(named.encode()).hexdigest()[:32],
        "agent_ref": {"type": "responses_api_agents", "name": agent_name(environment)},
    }


def make_config(environment: Environment[Any], model_server: str = "policy_model") -> dict[str, Any]:
    """Return the configuration of the server and of an agent that plays it.

    The agent takes as many steps as an episode can have turns and free errors, and one to say that it is done.
    """
    server = server_name(environment)
    folder = f"resources_servers/{server}/data"
    datasets = [{"name": "example", "type": "example", "jsonl_fpath": f"{folder}/example.jsonl"}]
    datasets += [
        {"name": split, "type": split, "jsonl_fpath": f"{folder}/{split}.jsonl", "license": "Apache 2.0"}
        for split in environment.tasks().splits
        if split in {"train", "validation"}
    ]
    return {
        server: {"resources_servers": {server: {"entrypoint": "app.py", "domain": "other"}}},
        agent_name(environment): {
            "responses_api_agents": {
                "simple_agent": {
                    "entrypoint": "app.py",
                    "max_steps": environment.max_turns + environment.free_errors + 1,
                    "resources_server": {"type": "resources_servers", "name": server},
                    "model_server": {"type": "responses_api_models", "name": model_server},
                    "datasets": datasets,
                }
            }
        },
    }


def write_project(
    environment: Environment[Any], source: str, folder: Path, *, seed: int = 0, salt: str | None = None
) -> Path:
    """Write the folder `resources_servers/rosetta_<name>` as NeMo Gym wants it, and return it.

    Args:
        environment: The environment.
        source: The name or path that it was loaded from.
        folder: Where `resources_servers` lies or is to lie.
        seed: The seed of the rows' episodes.
        salt: See `make_row`; by default a random one, so that two folders have different keys.

    Raises:
        OSError: The folder cannot be written.
        StartError: The environment's `start` or `prompt` failed.
    """
    from omegaconf import OmegaConf  # noqa: PLC0415 - see above

    salt = secrets.token_hex(16) if salt is None else salt
    name = server_name(environment)
    place = folder / "resources_servers" / name
    (place / "configs").mkdir(parents=True, exist_ok=True)
    (place / "data").mkdir(exist_ok=True)
    app = _APP.format(name=environment.name, class_name=type(environment).__name__, source=source)
    (place / "app.py").write_text(app, encoding="utf-8")
    (place / "requirements.txt").write_text("rosetta-environments[nemo-gym]\n", encoding="utf-8")
    OmegaConf.save(OmegaConf.create(make_config(environment)), place / "configs" / f"{name}.yaml")
    tasks = environment.tasks()
    files: dict[str, Sequence[Task]] = {split: tasks.split(split) for split in tasks.splits}
    files["example"] = tasks.split(tasks.training_split)[:EXAMPLES]
    for split, rows in files.items():
        with (place / "data" / f"{split}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(_lines(environment, rows, seed, salt))
    return place


def _lines(environment: Environment[Any], tasks: Sequence[Task], seed: int, salt: str) -> Iterator[str]:
    with asyncio.Runner() as runner:
        for task in tasks:
            row = runner.run(make_row(environment, task, seed, salt=salt))
            yield json.dumps(row, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the project of the environment that the command line names.

    Raises:
        SystemExit: There is no such environment; the text says so in one line.
    """
    parser = argparse.ArgumentParser(prog="python -P -m adapters.nemo_gym.project", description=__doc__)
    parser.add_argument("environment", help="name of the catalogue, or path of an environment.py")
    parser.add_argument("--to", type=Path, default=Path(), help="where resources_servers is to lie")
    parser.add_argument("--seed", type=int, default=0, help="seed of the rows' episodes")
    parser.add_argument("--salt", help="a secret that goes into the keys of the rows; random by default")
    options = parser.parse_args()
    try:
        environment = load_environment(options.environment)
    except UnknownEnvironmentError as error:
        raise SystemExit(str(error)) from None
    write_project(environment, options.environment, options.to, seed=options.seed, salt=options.salt)


if __name__ == "__main__":
    main()
