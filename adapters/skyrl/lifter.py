"""Lift an environment that SkyRL Gym makes: conversations in, text out, and rows that the trainer owns."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar

import skyrl_gym

from adapters.skyrl.compiler import compile_environment
from adapters.skyrl.conversation import read_content
from canonical.adapter import Loss, Opened, SessionError
from canonical.bridge.generators import OwnGenerators
from canonical.bridge.imports import import_named, read_rows
from canonical.bridge.plain import plain_json
from canonical.bridge.source import (
    COMPILED,
    TEXT_SPEC,
    TEXT_TOOL,
    LiftError,
    LiftOptions,
    SourceFacts,
    identifier,
)
from canonical.catalogue import load_environment
from canonical.content import JSON, Block, Message, Observation
from canonical.step import Cause, StepResult
from canonical.stone import Concern, PieceName
from canonical.task import Task
from canonical.transcript import Action

ResultT = TypeVar("ResultT")
Row = Mapping[str, Any]
_MAX_ENV_WORKERS = 32
"""As many threads as SkyRL's generator has by default."""
_NOT_EXTRAS = frozenset({"prompt", "env_class"})


class LiftedSession:
    """Be one trajectory after another, driven as SkyRL's generator drives them."""

    def __init__(self, source: LiftedSource) -> None:
        self._source = source
        self._generators = OwnGenerators()
        self._env: Any = None
        self._shown: JSON = None
        self._total = 0.0
        self._is_over = False

    async def open(self, task: str, seed: int) -> Opened:  # noqa: ARG002 - SkyRL knows no seeds
        """Make the environment of a row, and begin with the row's conversation.

        Raises:
            SessionError: There is no such row, or the environment raised.
        """
        await self.close()
        row = self._source.rows[task]
        extras = {key: copy.deepcopy(value) for key, value in row.items() if key not in _NOT_EXTRAS}
        extras["max_turns"] = self._source.max_turns
        make = partial(
            skyrl_gym.make, self._source.env_id, env_config=dict(self._source.config), extras=extras
        )
        self._env = await self._call(make)
        conversation, metadata = await self._call(
            partial(self._env.init, copy.deepcopy(list(row.get("prompt", ()))))
        )
        self._shown, self._total, self._is_over = plain_json(metadata), 0.0, False
        return Opened(_read_conversation(conversation), (TEXT_SPEC,))

    async def step(self, action: Action) -> StepResult:
        """Hand over what the model wrote.

        Raises:
            SessionError: The action is no text, there is no episode, or the environment raised.
        """
        if not isinstance(action, str):
            raise SessionError("environments of SkyRL Gym take text, not calls of tools")
        if self._env is None:
            raise SessionError("open an episode before stepping")
        output = await self._call(partial(self._env.step, action))
        paid = float(output["reward"])
        self._total += paid
        self._is_over = bool(output["done"])
        self._shown = plain_json(output.get("metadata"))
        blocks: list[Block] = []
        for message in _read_conversation(output["observations"] or ()):
            blocks += message.blocks
        # SkyRL knows that an episode is over, and neither how nor why.
        cause = Cause.SUBMITTED if self._is_over else None
        return StepResult(Observation(tuple(blocks)), paid, self._total, cause)

    async def public_state(self) -> JSON:
        """Return the metadata of the last call."""
        return self._shown

    async def reported_return(self) -> float:
        """Return the sum of the rewards.

        Raises:
            SessionError: The episode is not over.
        """
        if not self._is_over:
            raise SessionError("the episode is not over, so that it has no return yet")
        return self._total

    async def close(self) -> None:
        """Close the environment. Closing twice is harmless."""
        env, self._env = self._env, None
        if env is not None:
            await self._call(env.close)

    async def _call(self, work: Callable[[], ResultT]) -> ResultT:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._source.threads, self._generators.run, work)
        except Exception as error:
            raise SessionError(f"{self._source.env_id} raised {type(error).__name__}: {error}") from error


def _read_conversation(conversation: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    try:
        return tuple(Message(said["role"], read_content(said["content"])) for said in conversation)
    except (KeyError, TypeError, ValueError) as error:
        raise SessionError(f"a message of the environment cannot be lifted: {error}") from error


@dataclass(frozen=True, slots=True)
class LiftedSource:
    """Hold the rows of a data set and the environment that plays them.

    Attributes:
        facts: What is known of it.
        env_id: The id under which SkyRL makes it.
        rows: Task id -> row.
        config: What the trainer's configuration would give the environment.
        max_turns: How many turns the trainer would allow.
        threads: Where it runs.
    """

    facts: SourceFacts
    env_id: str
    rows: Mapping[str, Row]
    config: Mapping[str, JSON]
    max_turns: int
    threads: ThreadPoolExecutor

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[LiftedSession]:
        """Yield a session; leaving the context closes its environment."""
        session = LiftedSession(self)
        try:
            yield session
        finally:
            await session.close()


class SkyRLLifter:
    """Lift `skyrl:ID`, where the id is one that SkyRL Gym knows, with the rows of `options.data`."""

    @asynccontextmanager
    async def lift(self, reference: str, options: LiftOptions, /) -> AsyncIterator[LiftedSource]:
        """Make a source of a registered environment and the rows that it is trained on.

        Raises:
            LiftError: SkyRL knows no such id, there are no rows, or the first cannot be played.
        """
        for name in options.imports:
            import_named(name)
        if reference.startswith(COMPILED):
            reference, rows = _compile(reference.removeprefix(COMPILED))
            async with self._lift(reference, rows, options) as source:
                yield source
            return
        if reference not in skyrl_gym.registry:
            known = ", ".join(sorted(skyrl_gym.registry))
            raise LiftError(
                f"SkyRL Gym has no environment {reference!r}; it has {known}; --import the module that registers another"
            )
        if options.data is None:
            raise LiftError(
                f"skyrl:{reference} needs rows, which SkyRL's trainer owns: name them with --data, a JSON Lines file or "
                "module:name, with the columns prompt, reward_spec and whatever else the environment reads"
            )
        rows = _numbered(read_rows(options.data), reference)
        async with self._lift(reference, rows, options) as source:
            yield source

    @asynccontextmanager
    async def _lift(
        self, reference: str, rows: Mapping[str, Row], options: LiftOptions
    ) -> AsyncIterator[LiftedSource]:
        with ThreadPoolExecutor(_MAX_ENV_WORKERS, thread_name_prefix="skyrl-source") as threads:
            source = LiftedSource(
                SourceFacts(
                    name=identifier(reference),
                    version=version("skyrl-gym"),
                    source=f"skyrl:{reference}",
                    packages={"skyrl-gym": version("skyrl-gym")},
                    tasks=tuple(Task(id=task) for task in rows),
                    tools=(TEXT_SPEC,),
                    text_tool=TEXT_TOOL,
                    # One more than the source is told, so that the source ends the episode, and not the bridge.
                    max_turns=options.max_turns + 1,
                    losses=_LOSSES,
                ),
                reference,
                rows,
                options.arguments,
                options.max_turns,
                threads,
            )
            first = LiftedSession(source)
            try:
                await first.open(next(iter(rows)), 0)
            except SessionError as error:
                where = options.data or reference
                raise LiftError(f"the first row of {where} cannot be played: {error}") from error
            finally:
                await first.close()
            yield source


def _compile(name: str) -> tuple[str, dict[str, Row]]:
    environment = load_environment(name)
    env_id = f"compiled_{environment.name}"
    # `register` takes classes too, and its annotation does not say so.
    compiled: Any = compile_environment(environment)
    skyrl_gym.register(id=env_id, entry_point=compiled)
    # Named by their tasks and without prompts, which would start an episode of each.
    rows: dict[str, Row] = {
        task.id: {"prompt": [], "extra_info": {"task": task.id, "seed": 0}} for task in environment.tasks()
    }
    return env_id, rows


def _numbered(rows: Sequence[tuple[str, Row]], reference: str) -> dict[str, Row]:
    numbered: dict[str, Row] = {}
    counts: dict[str, int] = {}
    for split, row in rows:
        if row.get("env_class", reference) != reference:
            continue  # data sets of SkyRL may hold rows of several environments
        index = counts.get(split, 0)
        counts[split] = index + 1
        numbered[f"{split}/{index:04d}"] = row
    if not numbered:
        raise LiftError(f"no row is of the environment {reference}: their env_class names others")
    return numbered


_LOSSES = (
    Loss(
        PieceName.INITIAL_STATE,
        "approximated",
        "SkyRL Gym knows no seeds: a row decides the episode, and the seed of an episode changes nothing",
        Concern.SEED,
    ),
    Loss(
        PieceName.EPISODE_END,
        "approximated",
        "SkyRL Gym says that an episode is done, and neither how nor why: every end is submitted, also at the last turn",
        Concern.END_AND_CAUSE,
    ),
    Loss(
        PieceName.OBSERVATION_FORMAT,
        "approximated",
        "an observation of several messages becomes the blocks of one",
    ),
    Loss(
        PieceName.EPISODE_CONTROL,
        "approximated",
        "the trainer's max_turns is fixed when the source is lifted (--max-turns)",
    ),
    Loss(
        PieceName.STATE_BETWEEN_TURNS,
        "approximated",
        "the episode lives in the source's process, where it cannot be copied",
    ),
)


LIFTER = SkyRLLifter()
