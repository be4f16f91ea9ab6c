"""Lift a game of TextArena for one player: text in, text out, and a score when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar

import textarena
from textarena.envs.registration import ENV_REGISTRY

from canonical.adapter import Loss, Opened, SessionError
from canonical.bridge.generators import OwnGenerators
from canonical.bridge.imports import import_named
from canonical.bridge.plain import plain_json
from canonical.bridge.source import (
    TEXT_SPEC,
    TEXT_TOOL,
    LiftError,
    LiftOptions,
    SourceFacts,
    identifier,
    seed_of,
    seed_tasks,
)
from canonical.content import JSON, Block, Message, Observation, Text
from canonical.reward import Aggregation
from canonical.step import Cause, StepResult
from canonical.stone import Concern, PieceName
from canonical.transcript import Action

ResultT = TypeVar("ResultT")
_MAX_THREADS = 32
_PLAYER = 0


class LiftedSession:
    """Be one game after another, each played with an object of its own, because wrappers remember the game before."""

    def __init__(self, make: Callable[[], Any], threads: ThreadPoolExecutor) -> None:
        self._make = make
        self._threads = threads
        self._generators = OwnGenerators()
        self._env: Any = None
        self._shown: JSON = None
        self._is_over = False
        self._score = 0.0

    async def open(self, task: str, seed: int) -> Opened:  # noqa: ARG002 - the task is the seed
        """Begin a game with the seed that the task stands for.

        Raises:
            SessionError: The game cannot be made, or not be begun by one player.
        """

        def begin() -> tuple[Any, Any]:
            env = self._make()
            env.reset(num_players=1, seed=seed_of(task))
            return env, env.get_observation()[1]

        self._env, shown = await self._call(begin)
        self._shown, self._is_over, self._score = None, False, 0.0
        return Opened((Message("user", _blocks(shown)),), (TEXT_SPEC,))

    async def step(self, action: Action) -> StepResult:
        """Hand the text to the game. At its end nothing more is shown, as in TextArena's own loop, and the score is paid.

        Raises:
            SessionError: The action is no text, there is no game that goes on, or the game raised.
        """
        if not isinstance(action, str):
            raise SessionError("games of TextArena take text, not calls of tools")
        if self._env is None:
            raise SessionError("open an episode before stepping")
        if self._is_over:
            raise SessionError("the game is over; open another episode")
        done, info, seen = await self._call(partial(_act, self._env, action))
        self._shown, self._is_over = plain_json(info), done
        if not done:
            return StepResult(Observation(_blocks(seen)), 0.0, 0.0)
        rewards, told = seen
        mine = (told or {}).get(_PLAYER) or {}
        self._shown = plain_json({"info": info, "game_info": mine})
        self._score = float((rewards or {}).get(_PLAYER, 0.0))
        cause = Cause.FAILED if mine.get("invalid_move") else Cause.SUBMITTED
        return StepResult(Observation(()), self._score, self._score, cause)

    async def public_state(self) -> JSON:
        """Return the `info` of the last step, and what the game says of its end once it is over."""
        return self._shown

    async def reported_return(self) -> float:
        """Return the score; a game that was cut off before its end has none, and pays nothing."""
        return self._score

    async def close(self) -> None:
        """Forget the game. TextArena's `close` ends nothing; it reads the score."""
        self._env = None

    async def _call(self, work: Callable[[], ResultT]) -> ResultT:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self._generators.run, work)
        except Exception as error:
            raise SessionError(f"the game raised {type(error).__name__}: {error}") from error


def _act(env: Any, action: str) -> tuple[bool, Any, Any]:
    """Take a step, and return what follows it: an observation, or the rewards and what the game says of its end."""
    done, info = env.step(action=action)
    if done:
        return True, info, env.close()
    return False, info, env.get_observation()[1]


def _blocks(shown: Any) -> tuple[Block, ...]:
    if isinstance(shown, str):
        return (Text(shown),)
    if isinstance(shown, list):
        # Without wrappers: messages of senders, each with a kind.
        return tuple(Text(str(message)) for _sender, message, *_kind in shown)
    raise SessionError(f"the game shows a {type(shown).__name__}, and only text can be lifted")


@dataclass(frozen=True, slots=True)
class LiftedSource:
    """Hold a game that can be made as often as it is asked for."""

    facts: SourceFacts
    make: Callable[[], Any]
    threads: ThreadPoolExecutor

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[LiftedSession]:
        """Yield a session; leaving the context forgets its game."""
        session = LiftedSession(self.make, self.threads)
        try:
            yield session
        finally:
            await session.close()


class TextArenaLifter:
    """Lift `textarena:ID`, where the id is that of a registered game for one player."""

    @asynccontextmanager
    async def lift(self, reference: str, options: LiftOptions, /) -> AsyncIterator[LiftedSource]:
        """Make a source of a registered game, with `options.arguments` for its constructor.

        Raises:
            LiftError: There is no such game, it cannot be made, or one player cannot begin it.
        """
        for name in options.imports:
            import_named(name)
        if reference not in ENV_REGISTRY:
            near = ", ".join(_near(reference)) or "it has none that resembles it"
            raise LiftError(
                f"TextArena has no game {reference!r} ({near}); --import the module that registers it"
            )
        make = partial(textarena.make, reference, **options.arguments)
        with ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="textarena-source") as threads:
            loop = asyncio.get_running_loop()
            try:
                first = await loop.run_in_executor(threads, make)
            # NLTK and others raise what they cannot find in many forms, and some games do not compile.
            except Exception as error:
                raise LiftError(
                    f"textarena.make({reference!r}) failed: {type(error).__name__}: {_line(error)}"
                ) from error
            try:
                await loop.run_in_executor(threads, partial(_begin, first))
            except Exception as error:
                raise LiftError(
                    f"one player cannot begin {reference}, and only games for one player can be lifted: "
                    f"{type(error).__name__}: {_line(error)}"
                ) from error
            yield LiftedSource(_facts(reference, first, options), make, threads)


def _begin(env: Any) -> None:
    def begin() -> None:
        env.reset(num_players=1, seed=0)
        _blocks(env.get_observation()[1])

    OwnGenerators().run(begin)


def _facts(reference: str, env: Any, options: LiftOptions) -> SourceFacts:
    losses = list(_LOSSES)
    if reference.endswith("-raw"):
        losses.append(_RAW)
    return SourceFacts(
        name=identifier(reference),
        version=version("textarena"),
        source=f"textarena:{reference}",
        packages={"textarena": version("textarena")},
        tasks=seed_tasks(options.tasks),
        seeds_are_tasks=True,
        tools=(TEXT_SPEC,),
        text_tool=TEXT_TOOL,
        aggregation=Aggregation.TERMINAL,
        max_turns=_turns(env.state, options),
        losses=tuple(losses),
    )


def _turns(state: Any, options: LiftOptions) -> int:
    # More than the source takes, so that the source ends the episode, and not the bridge: moves that are invalid and are
    # forgiven are no turns of its.
    limit = getattr(state, "max_turns", None)
    forgiven = getattr(state, "error_allowance", None)
    if not isinstance(limit, int) or limit <= 0:
        return options.max_turns
    return (limit + 1) * ((forgiven if isinstance(forgiven, int) else 0) + 1) + 1


_LOSSES = (
    Loss(
        PieceName.TASKS,
        "approximated",
        "TextArena lists no tasks: the seeds from 0 became the tasks of one split, train",
    ),
    Loss(
        PieceName.INITIAL_STATE,
        "approximated",
        "the task decides the seed that reset is given, so the seed of an episode changes nothing",
        Concern.SEED,
    ),
    Loss(
        PieceName.OBSERVATION_FORMAT,
        "approximated",
        "an observation is what the wrappers of the id make of it; the usual ones begin each with the whole game so far, "
        "which a trainer that keeps the conversation shows twice",
    ),
    Loss(
        PieceName.OBSERVATION_FORMAT,
        "approximated",
        "nothing is shown for the action that ends the game, as in TextArena's own loop; the reason is in game_info, which "
        "the port does not carry",
        Concern.METADATA,
    ),
    Loss(
        PieceName.REWARD,
        "preserved",
        "what close says of the only player is paid at the end, once",
        Concern.REWARD_AGGREGATION,
    ),
    Loss(
        PieceName.EPISODE_END,
        "approximated",
        "TextArena says that a game is over, and only in words why: the cause is failed after invalid moves, else submitted",
        Concern.END_AND_CAUSE,
    ),
    Loss(
        PieceName.EPISODE_END,
        "approximated",
        "a game that its turn limit ends is submitted, too, and is not told apart from one that was played to its end; one "
        "without a turn limit is cut off at --max-turns and pays nothing then",
        Concern.TRUNCATION,
    ),
    Loss(
        PieceName.EPISODE_CONTROL,
        "approximated",
        "calls of all sessions are made one after the other, because games use the generators of the whole process; each "
        "session has its own states of them",
        Concern.CONCURRENCY,
    ),
    Loss(
        PieceName.STATE_BETWEEN_TURNS,
        "approximated",
        "the game lives in the source's process, where its state object cannot be reached",
    ),
)
_RAW = Loss(
    PieceName.OBSERVATION_FORMAT,
    "approximated",
    "messages of a game without wrappers are the blocks of one observation, without their senders and kinds",
)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _near(reference: str) -> list[str]:
    return get_close_matches(reference, sorted(ENV_REGISTRY), n=6, cutoff=0.4)


LIFTER = TextArenaLifter()
