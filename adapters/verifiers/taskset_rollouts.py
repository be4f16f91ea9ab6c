"""Whole rollouts of a task set, as Verifiers takes them: by its default processes, and by the harness in process."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import verifiers.v1 as vf

from adapters.verifiers.scripted_model import serve_script
from adapters.verifiers.taskset_target import make_text
from canonical.adapter import SessionError
from canonical.executor import Part, Played, RolloutPath

_MODULE = "rosetta_rollouts"
_KEY = "ROSETTA_SCRIPTED_KEY"
_PACKAGE = """
from adapters.verifiers.tasks import EpisodeEnv, EpisodeHarness, EpisodeTaskset
__all__ = ["EpisodeEnv", "EpisodeHarness", "EpisodeTaskset"]
"""


def rollout_paths() -> Mapping[str, RolloutPath]:
    """Return the ways in which Verifiers takes rollouts of a task set by itself, its own default first."""
    return {
        "tool server and chat program": _TasksetPath(
            "Verifiers' default: for each rollout, the tools in a server process and the conversation in a program (`null`)",
            served=True,
        ),
        "harness in process": _TasksetPath(
            "the harness of the compiled environment: no processes; the model is asked through Verifiers' interception server",
            served=False,
        ),
    }


@dataclass(frozen=True, slots=True)
class _TasksetPath:
    note: str
    served: bool

    async def roll(self, source: str, parts: Sequence[Part]) -> Sequence[Played]:
        if self.served and shutil.which("uv") is None:
            raise SessionError("Verifiers' chat program is started by `uv`, which is not on the path")
        by_id = {part.start.task: part for part in parts}
        seeds = {part.start.seed for part in parts}
        splits = {task.partition("/")[0] for task in by_id}
        if len(seeds) != 1 or len(splits) != 1:
            raise SessionError("a task set plays one split with one seed")
        agent = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}} if self.served else {}
        with _user_package() as package:
            config = vf.resolve_env_config(
                {
                    "taskset": {
                        "id": package,
                        "environment": source,
                        "split": splits.pop(),
                        "seed": seeds.pop(),
                        "task": {"served": self.served},
                    },
                    "agent": agent,
                }
            )
            env: Any = vf.load_environment(config)
            found = {task.data.task: task for task in env.taskset.load() if task.data.task in by_id}
            if missing := by_id.keys() - found.keys():
                raise SessionError(f"the task set has no {', '.join(sorted(missing))}")
            async with serve_script([part.calls for part in parts]) as url, env.serving():
                runs = [
                    env.run_episode(
                        found[part.start.task],
                        vf.ModelContext(
                            model=str(number), client=vf.EvalClientConfig(base_url=url, api_key_var=_KEY)
                        ),
                    )
                    for number, part in enumerate(parts)
                ]
                episodes = await asyncio.gather(*runs)
        return [_read(episode.traces[0]) for episode in episodes]


def _read(trace: Any) -> Played:
    if not trace.ok:
        raise SessionError(f"a rollout failed: {trace.errors}")
    messages = [node.message for node in trace.nodes]
    first = next(index for index, message in enumerate(messages) if message.role == "assistant")
    texts = [make_text(message.content) for message in messages[first:] if message.role != "assistant"]
    return Played(texts, float(trace.reward))


@contextmanager
def _user_package() -> Iterator[str]:
    """Make the package of two lines by which Verifiers finds a task set, and a home for what it writes there."""
    home = Path.home()
    # What `uv` has fetched before stays useful; everything else that is written to a home is thrown away.
    changed = {"UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR") or str(home / ".cache" / "uv"), _KEY: "none"}
    kept = {name: os.environ.get(name) for name in (*changed, "HOME")}
    with tempfile.TemporaryDirectory(prefix="rosetta-verifiers-") as folder:
        package = Path(folder) / _MODULE
        package.mkdir()
        (package / "__init__.py").write_text(_PACKAGE, encoding="utf-8")
        os.environ.update(changed, HOME=folder)
        sys.path.insert(0, folder)
        try:
            import_module(_MODULE)
            yield _MODULE
        finally:
            sys.path.remove(folder)
            sys.modules.pop(_MODULE, None)
            for name, value in kept.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
