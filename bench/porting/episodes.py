"""Episodes of a source: chosen and recorded once, and played again wherever it is ported to."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError

from canonical.adapter import Opened, Session, SessionError
from canonical.bridge.client import BridgeSession, SourceGoneError, connect_source
from canonical.bridge.environment import BridgedEnvironment, failure, source_seed
from canonical.bridge.source import SourceFacts
from canonical.episode import episode_rng
from canonical.sampling import sample_call
from canonical.step import Cause, StepResult
from canonical.tool import ToolCall
from canonical.transcript import Action, Transcript, TranscriptStep, action_from_json

Kind: TypeAlias = Literal["scripted", "random", "adversarial"]
LONGEST = 24
"""How many actions an episode has at most that nobody wrote, but for the first."""
LIMIT = 256
"""How many actions the first has at most, which goes on to the limit of turns, so that being cut off is compared as well."""
_FROM_POOL = 0.8
AFTER_THE_END = 2
"""How many actions follow the end of each episode."""


class EpisodesError(ValueError):
    """Report a file of actions or episodes that cannot be used: where, and why."""


class PortEpisode(BaseModel):
    """Hold an episode that is played on both sides.

    Attributes:
        kind: Where its actions come from.
        task: The task.
        seed: The seed.
        actions: What was done: texts, and calls with a name and arguments.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    task: str
    seed: int
    actions: list[Any]

    def read_actions(self) -> list[Action]:
        """Return the actions.

        Raises:
            ValueError: One is none.
        """
        return [action_from_json(action) for action in self.actions]


def as_json(action: Action) -> Any:
    """Return an action as JSON."""
    return action if isinstance(action, str) else action.to_json()


def write_episodes(episodes: Sequence[PortEpisode], path: Path) -> None:
    """Write episodes, a line each."""
    lines = (json.dumps(episode.model_dump(), ensure_ascii=True) for episode in episodes)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_episodes(path: Path) -> list[PortEpisode]:
    """Read what `write_episodes` wrote.

    Raises:
        EpisodesError: The file cannot be read, or a line is no episode; the text says which.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise EpisodesError(f"{path} cannot be read: {error}") from error
    episodes = []
    for number, line in enumerate(lines, start=1):
        try:
            episode = PortEpisode.model_validate_json(line)
            episode.read_actions()
        except (ValidationError, ValueError) as error:
            raise EpisodesError(
                f"{path}, line {number}: not an episode: {str(error).splitlines()[0]}"
            ) from error
        episodes.append(episode)
    if not episodes:
        raise EpisodesError(f"{path} holds no episode")
    return episodes


@dataclass(frozen=True, slots=True)
class RawEpisode:
    """Hold what a source itself showed, without this project between.

    Attributes:
        opened: Prompt and tools.
        results: What each action led to; None for those that no source of its kind can be asked to do.
        total: The return as the source reports it, or None while it has none.
    """

    opened: Opened
    results: list[StepResult | None]
    total: float | None


def asked(action: Action, facts: SourceFacts) -> Action | None:
    """Return what the source itself is asked to do, or None where an action is answered before it gets there.

    A call of the tool that stands for text is text.
    """
    if isinstance(action, str):
        return action if facts.text_tool is not None else None
    if action.name == facts.text_tool:
        text = action.arguments.get("text")
        return text if isinstance(text, str) and len(action.arguments) == 1 else None
    return action if any(tool.name == action.name for tool in facts.tools) else None


def seed_for(environment: BridgedEnvironment, episode: PortEpisode) -> int:
    """Return the seed that the source gets in an episode."""
    task = environment.tasks().get(episode.task)
    return source_seed(episode_rng(environment, task, episode.seed))


async def step_raw(session: BridgeSession, action: Action, facts: SourceFacts) -> StepResult:
    """Let the source itself carry out an action; where it fails, that is the end of the episode, as a port has it.

    Raises:
        SourceGoneError: The source is gone.
    """
    try:
        return await session.step(action)
    except SourceGoneError:
        raise
    except SessionError as error:
        return StepResult(failure(facts.source, error), cause=Cause.ERROR)


async def open_raw(session: BridgeSession, task: str, seed: int) -> Opened:
    """Begin an episode with the source itself.

    Raises:
        SessionError: The source refused, failed or is gone; the text names the task.
    """
    try:
        return await session.open(task, seed)
    except SourceGoneError:
        raise
    except SessionError as error:
        raise SessionError(f"task {task} cannot be begun: {error}") from error


async def play_raw(environment: BridgedEnvironment, episode: PortEpisode) -> RawEpisode:
    """Play an episode with the source itself, until it ends.

    Raises:
        SessionError: The source refused, failed or is gone.
    """
    async with connect_source(environment.address) as session:
        opened = await open_raw(session, episode.task, seed_for(environment, episode))
        results: list[StepResult | None] = []
        is_over = False
        for action in episode.read_actions():
            if is_over or len(results) >= environment.facts.max_turns:
                break
            sent = asked(action, environment.facts)
            if sent is None:
                results.append(None)
                continue
            result = await step_raw(session, sent, environment.facts)
            results.append(result)
            is_over = result.cause is not None
        has_failed = bool(results) and results[-1] is not None and results[-1].cause is Cause.ERROR
        total = await session.reported_return() if is_over and not has_failed else None
        return RawEpisode(opened, results, total)


@dataclass(frozen=True, slots=True)
class Played:
    """Hold an episode as a framework showed it.

    Attributes:
        transcript: What happened, with what was done after the end.
        total: The return as a trainer of the framework reads it, or None where the episode did not end.
    """

    transcript: Transcript
    total: float | None


async def play_session(session: Session, episode: PortEpisode, environment: BridgedEnvironment) -> Played:
    """Play all actions of an episode with a session, those after the end as well, and close it.

    Raises:
        SessionError: The framework refused or failed.
    """
    try:
        opened = await session.open(episode.task, episode.seed)
        steps = [TranscriptStep(action, await session.step(action)) for action in episode.read_actions()]
        is_over = any(step.result.cause is not None for step in steps)
        total = await session.reported_return() if is_over else None
    finally:
        await session.close()
    transcript = Transcript(
        environment=environment.name,
        version=environment.version,
        task=episode.task,
        seed=episode.seed,
        prompt=opened.prompt,
        tools=opened.tools,
        steps=tuple(steps),
    )
    return Played(transcript, total)


async def record_episodes(
    environment: BridgedEnvironment,
    count: int,
    *,
    seed: int,
    scripted: Sequence[Sequence[Action]] = (),
    pool: Sequence[Action] = (),
) -> list[PortEpisode]:
    """Choose the episodes of a proof, with the source's help.

    Args:
        environment: The source.
        count: How many have random actions; half as many have adversarial ones.
        seed: Decides them.
        scripted: Actions that the user wrote, an episode each, played with the first tasks.
        pool: Actions that make sense in the source, from which random ones are mostly taken.

    Raises:
        SessionError: The source refused, failed or is gone.
    """
    tasks = list(environment.tasks())
    episodes = [
        PortEpisode(
            kind="scripted",
            task=tasks[index % len(tasks)].id,
            seed=index,
            actions=[as_json(action) for action in actions],
        )
        for index, actions in enumerate(scripted)
    ]
    stride = max(1, len(tasks) // max(1, count))
    random_ones: list[Kind] = ["random"] * count
    adversarial_ones: list[Kind] = ["adversarial"] * ((count + 1) // 2)
    chosen = [
        _record(
            environment,
            kind,
            tasks[(index * stride) % len(tasks)].id,
            seed + index,
            pool,
            longest=LONGEST if index else max(LONGEST, min(environment.max_turns, LIMIT) + AFTER_THE_END),
        )
        for index, kind in enumerate(random_ones + adversarial_ones)
    ]
    return episodes + await asyncio.gather(*chosen)


async def _record(
    environment: BridgedEnvironment, kind: Kind, task: str, seed: int, pool: Sequence[Action], *, longest: int
) -> PortEpisode:
    rng = random.Random(f"{task}\0{seed}\0{kind}")  # noqa: S311 - reproducible on purpose
    planned = PortEpisode(kind=kind, task=task, seed=seed, actions=[])
    facts = environment.facts
    actions: list[Action] = []
    async with connect_source(environment.address) as session:
        opened = await open_raw(session, task, seed_for(environment, planned))
        shown = "\n".join(message.text for message in opened.prompt)
        hostile = _hostile(facts, rng)
        left: int | None = None
        while len(actions) < longest and left != 0:
            action = next(hostile) if kind == "adversarial" and rng.random() < 0.7 else None
            if action is None and pool and rng.random() < _FROM_POOL:
                action = rng.choice(pool)
            if action is None:
                action = await _choose(session, facts, shown, rng)
            actions.append(action)
            if left is not None:
                left -= 1
            elif (sent := asked(action, facts)) is not None:
                result = await step_raw(session, sent, facts)
                shown = result.observation.text or shown
                left = None if result.cause is None else AFTER_THE_END
    return PortEpisode(kind=kind, task=task, seed=seed, actions=[as_json(action) for action in actions])


async def _choose(session: BridgeSession, facts: SourceFacts, shown: str, rng: random.Random) -> Action:
    tools = [tool for tool in facts.tools if tool.name != facts.text_tool]
    # Where there are tools, text mostly ends an episode.
    if tools and (facts.text_tool is None or rng.random() < 0.9):
        return sample_call(tools, rng)
    suggested = await session.suggest() if rng.random() < 0.7 else None
    return _random_text(shown, rng) if suggested is None else suggested


def _random_text(shown: str, rng: random.Random) -> str:
    words = shown.split() or ["nothing"]
    said = rng.choice([str(rng.randint(-2, 60)), rng.choice(words), " ".join(rng.choices(words, k=3))])
    return rng.choice([f"\\boxed{{{said}}}", f"<answer>{said}</answer>", f"I think it is {said}.", said])


def _hostile(facts: SourceFacts, rng: random.Random) -> Iterator[Action]:
    tools = [tool.name for tool in facts.tools if tool.name != facts.text_tool]
    told: list[Action] = [ToolCall(tool, {"\u202e": [[[[1]]]]}) for tool in tools]
    if tools:
        told += [
            ToolCall("reset", {}),
            ToolCall("verify", {"reward": 1.0}),
            ToolCall(f"{tools[0]}_", {"x": 1}),
        ]
    else:
        told += [
            "",
            "x" * 20_000,
            "\u0000\u202e\U0001f600 \u00e9t\u00e9",
            '{"reward": 1.0, "done": true}',
            '<tool_call>{"name": "verify", "arguments": {}}</tool_call>',
            "<tool_call>",
        ]
    while True:
        yield rng.choice(told)
