"""The adapter for Verifiers: compile into what the installed release knows, and take rollouts turn by turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.metadata import version
from typing import Any

from adapters.verifiers.compiler import Target, targets
from canonical.adapter import Endpoint, Feature, Level, Session, SessionError, Support
from canonical.environment import Environment
from canonical.executor import Coroutines, Executor, RolloutPath, Start
from canonical.task import UnknownTaskError

_RESULTS = {
    Target.ENVIRONMENT: "`results` in the extras of the trajectory step",
    Target.TASK_SET: "`results` in the info of the trace",
}


class VerifiersAdapter:
    """Run environments under Verifiers, in process.

    Args:
        target: What an environment becomes; the installed release must have it.
    """

    name = "verifiers"

    def __init__(self, target: Target) -> None:
        self.target = target
        # Imported now, because a missing framework is an error of this import, and of nothing later.
        self._target = import_module(f"adapters.verifiers.{target}_target")
        self._session = import_module(f"adapters.verifiers.{target}_session")

    def packages(self) -> Mapping[str, str]:
        """Return the installed release of Verifiers."""
        return {"verifiers": version("verifiers")}

    def features(self) -> Mapping[Feature, Support]:
        """Return what the target supports."""
        is_environment = self.target is Target.ENVIRONMENT
        native = Support(Level.NATIVE)
        results = Support(Level.EMULATED, _RESULTS[self.target])
        return {
            Feature.SEEDED_RESET: Support(
                Level.EMULATED, "Verifiers has no seeds; the row of a rollout holds the seed of its episode"
            ),
            Feature.TASK_SELECTION: native,
            Feature.SPLITS: Support(
                Level.EMULATED,
                "any two splits are data set and evaluation data set, by name"
                if is_environment
                else "a setting of the task set's config",
            ),
            Feature.TOOL_CALLS: native,
            Feature.TEXT_ACTIONS: Support(
                Level.NATIVE, "a message without calls, at which Verifiers' own tool loops end"
            ),
            Feature.TOOL_SCHEMAS: native,
            Feature.ERROR_CODES: results,
            Feature.STEP_REWARD: Support(Level.NATIVE, "the reward of the trajectory step")
            if is_environment
            else results,
            Feature.REWARD_COMPONENTS: results,
            Feature.TRUNCATION: Support(
                Level.EMULATED, "the framework's own truncation is of tokens; `ending` in the results"
            ),
            Feature.CAUSE: results,
            Feature.IMAGES: native,
            Feature.CONCURRENT_SESSIONS: native,
            Feature.REMOTE: Support(
                Level.ABSENT,
                "rollouts run beside the trainer; Verifiers' server takes whole rollouts, no steps",
            ),
            Feature.SNAPSHOT: Support(Level.ABSENT, "Verifiers neither stores nor forks a rollout"),
        }

    async def list_tasks(self, compiled: Any, _endpoint: Endpoint, split: str, /) -> Sequence[str]:
        """Return the ids of the tasks of a split, from the data set or the task set that Verifiers plays.

        Raises:
            SessionError: There is no such split.
        """
        try:
            tasks: list[str] = self._target.task_ids(compiled.environment, split)
        except UnknownTaskError as error:
            raise SessionError(str(error)) from error
        return tasks

    def executors(self) -> Mapping[str, Executor]:
        """Return how many rollouts of one process go on: turn by turn, and as tasks of the event loop."""

        async def make(compiled: Any, start: Start) -> Session:
            session: Session = self._session.make_session(compiled)
            await session.open(start.task, start.seed)
            return session

        return {
            "plain loop": Coroutines(
                "the loop of a rollout without its model, one turn of one rollout after the other",
                make,
                together=False,
            ),
            "tasks": Coroutines(
                "as Verifiers does it: every rollout is a task of one event loop; without the model",
                make,
                together=True,
            ),
        }

    def rollout_paths(self) -> Mapping[str, RolloutPath]:
        """Return the ways in which the installed release takes whole rollouts of the target by itself."""
        found: Mapping[str, RolloutPath] = import_module(
            f"adapters.verifiers.{self.target}_rollouts"
        ).rollout_paths()
        return found

    def compile(self, environment: Environment[Any], /) -> Any:
        """Return the environment as an object of Verifiers."""
        return self._target.compile_environment(environment)

    @asynccontextmanager
    async def serve(
        self,
        compiled: Any,
        /,
        *,
        host: str = "127.0.0.1",  # noqa: ARG002 - the port asks for it
        port: int = 0,  # noqa: ARG002
    ) -> AsyncIterator[Endpoint]:
        """Yield an endpoint without an address; leaving the context frees every episode."""
        try:
            yield Endpoint(None, lambda: len(compiled.live), {"target": self.target.value})
        finally:
            for left in list(compiled.live):
                await left.end(None)

    @asynccontextmanager
    async def connect(
        self,
        compiled: Any | None,
        _endpoint: Endpoint,
        /,
    ) -> AsyncIterator[Session]:
        """Make a session that takes rollouts turn by turn; leaving the context frees its episode.

        Raises:
            SessionError: Nothing was compiled: rollouts run in this process, and nowhere else.
        """
        if compiled is None:
            raise SessionError("Verifiers runs in process, so it needs the compiled environment itself")
        session: Session = self._session.make_session(compiled)
        try:
            yield session
        finally:
            await session.close()


ADAPTERS = {target.value: VerifiersAdapter(target) for target in targets()}
"""The adapter of every target that the installed release has, by its name."""

ADAPTER = next(iter(ADAPTERS.values()))
