"""What Verifiers loads by the id `adapters.verifiers.tasks`: a task set with its harness, or an environment."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from adapters.verifiers.compiler import Target, targets
from canonical.catalogue import load_environment as load

__all__ = ["load_environment"]

if Target.TASK_SET in targets():
    from adapters.verifiers.taskset_target import EpisodeEnv, EpisodeHarness, EpisodeTaskset

    __all__ += ["EpisodeEnv", "EpisodeHarness", "EpisodeTaskset"]


def load_environment(environment: str = "wordle", **options: Any) -> Any:
    """Return an environment, as `verifiers.load_environment` asks for it in releases before 0.4.

    Args:
        environment: Name of the catalogue, or path of an `environment.py`.
        options: Passed on, such as `split`, `eval_split`, `seed` and `timeout_seconds`.
    """
    target = import_module(f"adapters.verifiers.{Target.ENVIRONMENT}_target")
    return target.compile_environment(load(environment), **options)
