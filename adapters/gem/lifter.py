"""Lift an environment that GEM makes: text in, text out, and a seed that decides the episode."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar
from zlib import crc32

import gem
from gem.envs.registration import ENV_REGISTRY

from adapters.gem.compiler import compile_environment
from canonical.adapter import Loss, Opened, SessionError
from canonical.bridge.generators import OwnGenerators
from canonical.bridge.imports import import_named
from canonical.bridge.plain import plain_json
from canonical.bridge.source import (
    COMPILED,
    TEXT_SPEC,
    TEXT_TOOL,
    LiftError,
    LiftOptions,
    SourceFacts,
    identifier,
    no_limit,
    seed_of,
    seed_tasks,
)
from canonical.catalogue import load_environment
from canonical.content import JSON, Message, Observation, Text
from canonical.step import Cause, StepResult
from canonical.stone import Concern, PieceName
from canonical.transcript import Action

ResultT = TypeVar("ResultT")
_MAX_THREADS = 32
_LIMITS = 16
_LIMITS_S = 2.0


class LiftedSession:
    """Be one environment object of GEM, as it is."""

    def __init__(self, env: Any, threads: ThreadPoolExecutor, generators: OwnGenerators) -> None:
        self._env = env
        self._threads = threads
        self._generators = generators
        self._sampler = OwnGenerators(0)
        self._shown: JSON = None
        self._total = 0.0
        self._is_over = False

    async def open(self, task: str, seed: int) -> Opened:  # noqa: ARG002 - the task is the seed
        """Reset with the seed that the task stands for.

        Raises:
            SessionError: GEM's environment raised.
        """
        observation, info = await self._call(partial(self._env.reset, seed=seed_of(task)))
        # With the seed of the episode itself, many a game would be told what it has drawn.
        self._sampler = OwnGenerators(crc32(f"actions for {task}".encode()))
        self._shown, self._total, self._is_over = plain_json(info), 0.0, False
        return Opened((Message("user", (Text(_text(observation, "reset")),)),), (TEXT_SPEC,))

    async def step(self, action: Action) -> StepResult:
        """Hand the text to the environment.

        Raises:
            SessionError: The action is no text, or GEM's environment raised.
        """
        if not isinstance(action, str):
            raise SessionError("environments of GEM take text, not calls of tools")
        observation, reward, terminated, truncated, info = await self._call(partial(self._env.step, action))
        self._shown = plain_json(info)
        paid = float(reward)
        self._total += paid
        # Some environments of GEM set both flags; under the contract, what the task ended is not cut off.
        cause = Cause.SUBMITTED if terminated else Cause.BUDGET if truncated else None
        self._is_over = cause is not None
        return StepResult(Observation.of(_text(observation, "step")), paid, self._total, cause)

    async def public_state(self) -> JSON:
        """Return the last `info`."""
        return self._shown

    async def reported_return(self) -> float:
        """Return the sum of the rewards.

        Raises:
            SessionError: The episode is not over.
        """
        if not self._is_over:
            raise SessionError("the episode is not over, so that it has no return yet")
        return self._total

    async def suggest(self) -> str | None:
        """Return a random action of the environment's own; asking for it does not change what happens next."""
        sample = self._env.sample_random_action
        try:
            suggested = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._sampler.run, sample
            )
        except Exception:  # noqa: BLE001 - GEM's own class raises, and some environments of GEM fail at it
            return None
        return suggested if isinstance(suggested, str) else None

    async def close(self) -> None:
        """Close the environment where it can be closed; GEM's own class has no `close`."""
        close = getattr(self._env, "close", None)
        if callable(close):
            await self._call(close)

    async def _call(self, work: Callable[[], ResultT]) -> ResultT:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self._generators.run, work)
        except Exception as error:
            raise SessionError(
                f"{type(self._env).__name__} raised {type(error).__name__}: {error}"
            ) from error


def _text(observation: Any, call: str) -> str:
    if not isinstance(observation, str):
        raise SessionError(f"{call} returned a {type(observation).__name__}, and only text can be lifted")
    return observation


@dataclass(frozen=True, slots=True)
class LiftedSource:
    """Hold an environment of GEM that can be made as often as it is asked for."""

    facts: SourceFacts
    make: Callable[[], Any]
    threads: ThreadPoolExecutor

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[LiftedSession]:
        """Let GEM make an object; leaving the context closes it.

        Raises:
            SessionError: It cannot be made.
        """
        generators = OwnGenerators()
        try:
            # Games draw when they are made, too, and would draw from the generators of whoever plays meanwhile.
            env = await asyncio.get_running_loop().run_in_executor(self.threads, generators.run, self.make)
        except Exception as error:
            raise SessionError(f"gem.make failed: {type(error).__name__}: {error}") from error
        session = LiftedSession(env, self.threads, generators)
        try:
            yield session
        finally:
            await session.close()


class GemLifter:
    """Lift `gem:ID`, where the id is one that GEM knows, perhaps after an import."""

    @asynccontextmanager
    async def lift(self, reference: str, options: LiftOptions, /) -> AsyncIterator[LiftedSource]:
        """Make a source of a registered environment.

        Raises:
            LiftError: GEM knows no such id, or cannot make it.
        """
        for name in options.imports:
            import_named(name)
        if reference.startswith(COMPILED):
            reference = compile_environment(load_environment(reference.removeprefix(COMPILED))).env_id
        if reference not in ENV_REGISTRY:
            near = ", ".join(_near(reference)) or "it has none that resembles it"
            raise LiftError(
                f"GEM has no environment {reference!r} ({near}); --import the module that registers it"
            )
        make = partial(gem.make, reference, **options.arguments)
        try:
            first = make()
        except Exception as error:
            raise LiftError(f"gem.make({reference!r}) failed: {type(error).__name__}: {error}") from error
        limit, unlimited = _last_turn(_limits(first), options)
        with ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="gem-source") as threads:
            yield LiftedSource(
                SourceFacts(
                    name=identifier(reference),
                    version=version("gem-llm"),
                    source=f"gem:{reference}",
                    packages={"gem-llm": version("gem-llm")},
                    tasks=seed_tasks(options.tasks),
                    seeds_are_tasks=True,
                    tools=(TEXT_SPEC,),
                    text_tool=TEXT_TOOL,
                    max_turns=limit,
                    losses=(*_LOSSES, *unlimited),
                ),
                make,
                threads,
            )


_LOSSES = (
    Loss(
        PieceName.TASKS,
        "approximated",
        "GEM lists no tasks: the seeds from 0 became the tasks of one split, train",
    ),
    Loss(
        PieceName.INITIAL_STATE,
        "approximated",
        "the task decides the seed that reset is given, so the seed of an episode changes nothing",
        Concern.SEED,
    ),
    Loss(
        PieceName.EPISODE_END,
        "approximated",
        "GEM says whether an episode was cut off, and not why it ended: causes are submitted or budget; where an "
        "environment sets both flags, it is submitted",
        Concern.END_AND_CAUSE,
    ),
    Loss(
        PieceName.STATE_BETWEEN_TURNS,
        "approximated",
        "the episode lives in the source's process, where get_state, set_state and spawn cannot be reached",
    ),
)


def _limits(env: Any) -> list[int]:
    """Play no turn of an environment, close it, and return the limits of turns that it has had: some draw another at each reset."""
    generators = OwnGenerators(0)
    found = [_limit(env)]
    enough = time.monotonic() + _LIMITS_S
    for seed in range(_LIMITS):
        try:
            generators.run(partial(env.reset, seed=seed))
        except Exception:  # noqa: BLE001 - what the task of this seed does will be seen when it is played
            break
        found.append(_limit(env))
        if time.monotonic() > enough:
            break
    # GEM's own class has no `close`; what has one may hold more than memory.
    close = getattr(env, "close", None)
    if callable(close):
        with contextlib.suppress(Exception):
            generators.run(close)
    return [limit for limit in found if limit is not None]


def _limit(env: Any) -> int | None:
    limit = getattr(env, "max_turns", None)
    return limit if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0 else None


def _last_turn(limits: Sequence[int], options: LiftOptions) -> tuple[int, tuple[Loss, ...]]:
    """Return how many actions an episode may take, and what that changes."""
    if not limits:
        return options.max_turns, (no_limit(options),)
    # One more than the source's own limit, so that the source ends the episode, and not the bridge.
    own = max(limits) + 1
    if len(set(limits)) == 1:
        return own, ()
    turns = max(own, options.max_turns)
    seen = ", ".join(map(str, sorted(set(limits))))
    note = (
        f"the source draws a limit of turns for each episode, such as {seen}: it ends episodes by that, and a port cuts off what "
        f"goes on after {turns} actions (--max-turns)"
    )
    return turns, (Loss(PieceName.EPISODE_END, "approximated", note, Concern.TRUNCATION),)


def _near(reference: str) -> list[str]:
    return get_close_matches(reference, sorted(ENV_REGISTRY), n=6, cutoff=0.3)


LIFTER = GemLifter()
