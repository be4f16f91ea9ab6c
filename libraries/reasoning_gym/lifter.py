"""Lift a data set of Reasoning Gym: a question, an answer, and the score that the data set gives it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar

from reasoning_gym.factory import DATASETS, create_dataset

from canonical.adapter import Loss, Opened, SessionError
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
)
from canonical.content import JSON, ErrorCode, Message, Observation, Text
from canonical.reward import Aggregation
from canonical.step import Cause, StepResult
from canonical.stone import Concern, PieceName
from canonical.task import Task
from canonical.transcript import Action

ResultT = TypeVar("ResultT")


class LiftedSession:
    """Be one question after another, each answered once."""

    def __init__(self, dataset: Any, thread: ThreadPoolExecutor) -> None:
        self._dataset = dataset
        self._thread = thread
        self._entry: dict[str, Any] | None = None
        self._score: float | None = None
        self._suggested = 0

    async def open(self, task: str, seed: int) -> Opened:  # noqa: ARG002 - the data set has a seed of its own
        """Let the data set make the question at the place of a task.

        Raises:
            SessionError: The data set raised.
        """
        entry = await self._call(partial(self._dataset.__getitem__, seed_of(task)))
        self._entry, self._score, self._suggested = entry, None, 0
        return Opened((Message("user", (Text(_question(entry)),)),), (TEXT_SPEC,))

    async def step(self, action: Action) -> StepResult:
        """Let the data set score a text as the answer. Where it raises, the answer pays nothing, and the observation says so.

        Raises:
            SessionError: The action is no text, or there is no question that waits for an answer.
        """
        if not isinstance(action, str):
            raise SessionError("data sets of Reasoning Gym take text, not calls of tools")
        if self._entry is None:
            raise SessionError("open an episode before stepping")
        if self._score is not None:
            raise SessionError("the question was answered; open another episode")
        try:
            self._score = float(await self._call(partial(self._dataset.score_answer, action, self._entry)))
        except SessionError as error:
            self._score = 0.0
            return StepResult(Observation.of(str(error), ErrorCode.TOOL_ERROR), 0.0, 0.0, Cause.SUBMITTED)
        return StepResult(Observation(()), self._score, self._score, Cause.SUBMITTED)

    async def public_state(self) -> JSON:
        """Return what the data set hands out beside the question: its own answer, and metadata."""
        if self._entry is None:
            return None
        return plain_json({name: value for name, value in self._entry.items() if name != "question"})

    async def reported_return(self) -> float:
        """Return the score; nothing is paid for a question that was not answered when the episode was cut off."""
        return 0.0 if self._score is None else self._score

    async def suggest(self) -> str | None:
        """Return the data set's own answer, or one that resembles it; asking for it does not change what happens next."""
        answer = None if self._entry is None else self._entry.get("answer")
        if not isinstance(answer, str) or self._entry is None:
            return None
        self._suggested += 1
        rng = random.Random(f"{self._entry['question']}\0{self._suggested}")  # noqa: S311 - reproducible on purpose
        return rng.choice([answer, answer, f"It is {answer}", answer[:-1], answer[::-1]])

    async def close(self) -> None:
        """Forget the question."""
        self._entry = None

    async def _call(self, work: Callable[[], ResultT]) -> ResultT:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, work)
        except Exception as error:
            raise SessionError(
                f"{type(self._dataset).__name__} raised {type(error).__name__}: {error}"
            ) from error


def _question(entry: dict[str, Any]) -> str:
    question = entry.get("question")
    if not isinstance(question, str):
        raise SessionError(f"the question is a {type(question).__name__}, and only text can be lifted")
    return question


@dataclass(frozen=True, slots=True)
class LiftedSource:
    """Hold a data set.

    Attributes:
        facts: What is known of it.
        dataset: The data set.
        thread: Where it runs. One for all sessions: data sets seed generators of the whole process, and draw from them.
    """

    facts: SourceFacts
    dataset: Any
    thread: ThreadPoolExecutor

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[LiftedSession]:
        """Yield a session; leaving the context forgets its question."""
        session = LiftedSession(self.dataset, self.thread)
        try:
            yield session
        finally:
            await session.close()


class ReasoningGymLifter:
    """Lift `reasoning_gym:NAME`, where the name is that of a registered data set."""

    @asynccontextmanager
    async def lift(self, reference: str, options: LiftOptions, /) -> AsyncIterator[LiftedSource]:
        """Make a source of a data set: as many questions as `options.tasks` says, with `options.arguments` as its configuration.

        Raises:
            LiftError: There is no such data set, or it cannot be made, or makes no question.
        """
        for name in options.imports:
            import_named(name)
        if reference not in DATASETS:
            near = ", ".join(_near(reference)) or "it has none that resembles it"
            raise LiftError(
                f"Reasoning Gym has no data set {reference!r} ({near}); --import the module that registers it"
            )
        given = {"seed": 0, "size": options.tasks, **options.arguments}
        with ThreadPoolExecutor(1, thread_name_prefix="reasoning-gym-source") as thread:
            loop = asyncio.get_running_loop()
            try:
                dataset = await loop.run_in_executor(thread, partial(create_dataset, reference, **given))
            except Exception as error:
                said = ", ".join(f"{name}={value!r}" for name, value in given.items())
                raise LiftError(
                    f"reasoning_gym.create_dataset({reference!r}, {said}) failed: {type(error).__name__}: {error}; "
                    "--argument NAME=VALUE changes its configuration"
                ) from error
            source = LiftedSource(_facts(reference, dataset), dataset, thread)
            first = LiftedSession(dataset, thread)
            try:
                await first.open(source.facts.tasks[0].id, 0)
            except SessionError as error:
                raise LiftError(f"the first question of {reference} cannot be made: {error}") from error
            yield source


def _facts(reference: str, dataset: Any) -> SourceFacts:
    return SourceFacts(
        name=identifier(reference),
        version=version("reasoning-gym"),
        source=f"reasoning_gym:{reference}",
        packages={"reasoning-gym": version("reasoning-gym")},
        tasks=tuple(
            Task(id=f"train/{place}", inputs={"dataset": reference, "seed": dataset.seed, "place": place})
            for place in range(len(dataset))
        ),
        seeds_are_tasks=True,
        tools=(TEXT_SPEC,),
        text_tool=TEXT_TOOL,
        aggregation=Aggregation.TERMINAL,
        # One more than the source takes, so that the source ends the episode, and not the bridge.
        max_turns=2,
        losses=_LOSSES,
    )


_LOSSES = (
    Loss(
        PieceName.TASKS,
        "approximated",
        "a data set makes its questions by their places: the places from 0 became the tasks of one split, train (--tasks "
        "is its size, which decides the questions of some data sets, too)",
    ),
    Loss(
        PieceName.TASKS,
        "approximated",
        "the configuration is fixed when the source is lifted (--argument NAME=VALUE); a curriculum, which changes it "
        "while a model is trained, needs a source for each of its levels",
    ),
    Loss(
        PieceName.INITIAL_STATE,
        "approximated",
        "the seed of the data set (--argument seed=NUMBER, 0 when left out) and the place decide the question, so the "
        "seed of an episode changes nothing",
        Concern.SEED,
    ),
    Loss(
        PieceName.PROMPT_TEMPLATE,
        "approximated",
        "the prompt is the question; the system prompts that come with Reasoning Gym are the trainer's to add",
    ),
    Loss(
        PieceName.REWARD,
        "approximated",
        "the whole text of the model is scored as its answer: where models write more than that, the answer has to be cut "
        "out before, as reasoning_gym.utils.extract_answer does",
    ),
    Loss(
        PieceName.REWARD,
        "preserved",
        "what score_answer says is paid once, for the answer, which ends the episode",
        Concern.REWARD_AGGREGATION,
    ),
    Loss(
        PieceName.REWARD,
        "approximated",
        "an answer at which score_answer raises, as that of some data sets does at what it cannot read, pays nothing; what "
        "it raised is the observation",
        Concern.ERRORS,
    ),
    Loss(
        PieceName.EPISODE_END,
        "approximated",
        "an episode is one answer, and its cause is submitted; Reasoning Gym itself scores as many answers as it is asked",
        Concern.END_AND_CAUSE,
    ),
    Loss(
        PieceName.EPISODE_CONTROL,
        "approximated",
        "questions of all sessions are made and scored one after the other, because data sets use generators of the whole "
        "process",
        Concern.CONCURRENCY,
    ),
)


def _near(reference: str) -> list[str]:
    return get_close_matches(reference, sorted(DATASETS), n=6, cutoff=0.4)


LIFTER = ReasoningGymLifter()
