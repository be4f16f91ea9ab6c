"""Choose the target: an environment becomes what the installed release of Verifiers knows."""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from canonical.environment import Environment


class Target(StrEnum):
    """Name what an environment can become."""

    ENVIRONMENT = "environment"
    """A `StatefulToolEnv`, in releases before 0.4."""
    TASK_SET = "taskset"
    """A task set with a harness, in releases from 0.3.1 on."""


def targets() -> tuple[Target, ...]:
    """Return what the installed release has; the first is the one that its documentation begins with."""
    found = []
    if find_spec("verifiers.types") is not None:
        found.append(Target.ENVIRONMENT)
    # Releases 0.1 have another `verifiers.v1`, which shares names and nothing else; those of 0.2 know no agents in it.
    if (files("verifiers") / "v1" / "configs" / "agent.py").is_file():
        found.append(Target.TASK_SET)
    return tuple(found)


def compile_environment(environment: Environment[Any], **options: Any) -> Any:
    """Return the environment as an object of the installed release of Verifiers.

    Args:
        environment: The environment.
        options: Passed on to the `compile_environment` of the target.
    """
    return import_module(f"adapters.verifiers.{targets()[0]}_target").compile_environment(
        environment, **options
    )
