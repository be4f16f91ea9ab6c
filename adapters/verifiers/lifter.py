"""Lift what Verifiers loads: an environment of releases before 0.4, or a task set of those from 0.3.1 on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version

from adapters.verifiers.compiler import Target, targets
from adapters.verifiers.lifted_session import LiftedSource
from canonical.bridge.imports import import_named
from canonical.bridge.source import COMPILED, LiftError, LiftOptions

_COMPILED_MODULE = "adapters.verifiers.tasks"
"""What Verifiers loads when it plays an environment of ours."""


class VerifiersLifter:
    """Lift `verifiers:MODULE`, a module with `load_environment`, or one that exports a task set.

    The arguments of the source are the keyword arguments of `load_environment`, or the keys of the task set's config.
    """

    @asynccontextmanager
    async def lift(self, reference: str, options: LiftOptions, /) -> AsyncIterator[LiftedSource]:
        """Make a source of what a module holds.

        Raises:
            LiftError: There is no such module, it holds neither, or what it holds cannot be played.
        """
        for name in options.imports:
            import_named(name)
        if reference.startswith(COMPILED):
            named = {"environment": reference.removeprefix(COMPILED)}
            options = replace(options, arguments={**options.arguments, **named})
            reference = _COMPILED_MODULE
        module = import_named(reference)
        found = targets()
        if Target.ENVIRONMENT in found:
            environments = import_module("adapters.verifiers.environment_lifter")
            if environments.has_environment(module):
                async with environments.lift_environment(module, reference, options) as source:
                    yield source
                return
        if Target.TASK_SET in found:
            task_sets = import_module("adapters.verifiers.taskset_lifter")
            if task_sets.has_task_set(module):
                async with task_sets.lift_task_set(module, reference, options) as source:
                    yield source
                return
        kinds = {
            Target.ENVIRONMENT: "a function load_environment",
            Target.TASK_SET: "a Taskset in its __all__",
        }
        raise LiftError(
            f"{reference} has nothing that Verifiers {version('verifiers')} loads: "
            f"{' or '.join(kinds[target] for target in found)}"
        )


LIFTER = VerifiersLifter()
