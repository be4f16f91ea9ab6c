"""Verify a port: the same episodes on the source itself, over the bridge, and through the target, compared step by step."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from bench.client import Worker
from bench.porting.episodes import Played, PortEpisode, RawEpisode, play_raw, play_session
from bench.porting.records import Mismatch, ProofRecord
from bench.projection import project
from bench.session import connect_session
from canonical.adapter import Feature, SessionError
from canonical.bridge.environment import BridgedEnvironment
from canonical.content import ErrorCode, Observation
from canonical.reference import ReferenceSession
from canonical.reward import Aggregation
from canonical.step import StepResult
from canonical.transcript import Transcript, differences

WIDTH = 8
"""How many episodes are played at the same time."""
SESSION = "session"
"""The piece that differs where the target could not play an episode at all."""
_ROUNDING = 1e-9
_Difference: TypeAlias = tuple[int | None, str, str, str]
_Sides: TypeAlias = Literal["source and bridge", "bridge and target"]


@dataclass(frozen=True, slots=True)
class Side:
    """Hold the target of a port while it is being verified.

    Attributes:
        worker: The worker in the stack of the target.
        environment: The source, as the target's worker finds it.
        url: Where the target serves it, or None in process.
        absent: What the target declares that it cannot carry.
    """

    worker: Worker
    environment: str
    url: str | None
    absent: frozenset[Feature]


async def verify(
    environment: BridgedEnvironment,
    side: Side,
    episodes: Sequence[PortEpisode],
    *,
    on_episode: Callable[[int], None] = lambda _: None,
) -> ProofRecord:
    """Play episodes on all sides and compare.

    Raises:
        SessionError: The source refused, failed or is gone, so that there is nothing to compare with.
        WorkerError: The worker of the target broke down.
    """
    began = time.monotonic()
    gate = asyncio.Semaphore(WIDTH)
    found: list[list[Mismatch]] = [[] for _ in episodes]
    returns = 0
    done = 0

    async def play(index: int, episode: PortEpisode) -> None:
        nonlocal returns, done
        async with gate:
            raw = await play_raw(environment, episode)
            bridged = await play_session(ReferenceSession(environment), episode, environment)
            apart: list[tuple[_Sides, _Difference]] = [
                ("source and bridge", one) for one in _compare_raw(environment, raw, bridged.transcript)
            ]
            try:
                async with connect_session(side.worker, side.environment, url=side.url) as session:
                    through = await play_session(session, episode, environment)
            except SessionError as error:
                apart.append(("bridge and target", (None, SESSION, "an episode", f"failed: {error}")))
            else:
                apart += [
                    ("bridge and target", one) for one in _compare_target(side, environment, bridged, through)
                ]
                returns += through.total is not None
            found[index] = [_mismatch(index, episode, between, one) for between, one in apart]
            done += 1
            on_episode(done)

    async with asyncio.TaskGroup() as group:
        for index, episode in enumerate(episodes):
            group.create_task(play(index, episode))
    # The first of each side tells; the rest mostly follows from it.
    first = [one for of_episode in found for one in _firsts(of_episode)]
    return ProofRecord(
        episodes=len(episodes),
        steps=sum(len(episode.actions) for episode in episodes),
        kinds=dict(Counter(episode.kind for episode in episodes)),
        mismatches=first,
        returns=returns,
        seconds=time.monotonic() - began,
    )


def _firsts(mismatches: list[Mismatch]) -> Iterator[Mismatch]:
    seen = set()
    for one in mismatches:
        if one.between not in seen:
            seen.add(one.between)
            yield one


def _compare_raw(
    environment: BridgedEnvironment, raw: RawEpisode, bridged: Transcript
) -> Iterator[_Difference]:
    """Yield where the bridge shows something else than the source itself, beside what the contract makes of it."""
    yield from _unequal(
        None, "prompt", [m.to_json() for m in raw.opened.prompt], [m.to_json() for m in bridged.prompt]
    )
    pays_at_the_end = environment.facts.aggregation is Aggregation.TERMINAL
    for index, result in enumerate(raw.results):
        shown = bridged.steps[index].result
        if result is None:
            if not _cut_off(environment, index, shown) and (shown.reward or shown.cause is not None):
                yield index, "reward", "nothing, because the source was not asked", repr(shown.reward)
            continue
        yield from _unequal(
            index, "observation",
            _blocks(result.observation), _blocks(shown.observation),
        )  # fmt: skip
        if not _cut_off(environment, index, shown):
            yield from _unequal(index, "cause", _word(result), _word(shown))
        if not pays_at_the_end:
            yield from _unequal(index, "reward", result.reward, shown.reward)
    if raw.total is not None:
        at = bridged.steps[len(raw.results) - 1].result.total
        if not _near(raw.total, at):
            yield len(raw.results) - 1, "return", repr(raw.total), repr(at)
    for index in range(len(raw.results), len(bridged.steps)):
        shown = bridged.steps[index].result
        if shown.observation.error is not ErrorCode.EPISODE_OVER or shown.reward:
            yield index, "after the end", "nothing happens", json.dumps(shown.to_json())


def _cut_off(environment: BridgedEnvironment, index: int, shown: StepResult) -> bool:
    return shown.cause is not None and shown.cause.value == "budget" and index + 1 >= environment.max_turns


def _blocks(observation: Observation) -> Any:
    return [block.to_json() for block in observation.blocks]


def _word(result: StepResult) -> str | None:
    return None if result.cause is None else result.cause.value


def _unequal(step: int | None, piece: str, left: Any, right: Any) -> Iterator[_Difference]:
    a, b = (json.dumps(side, sort_keys=True) for side in (left, right))
    if a != b:
        yield step, piece, a, b


def _compare_target(
    side: Side, environment: BridgedEnvironment, bridged: Played, through: Played
) -> Iterator[_Difference]:
    expected, seen = (project(played.transcript, side.absent) for played in (bridged, through))
    # Nobody is told of a tool that text stands for where actions are text.
    described = tuple(tool.spec for tool in environment.described_tools)
    if seen.tools == described:
        expected = dataclasses.replace(expected, tools=described)
    for one in differences(expected, seen):
        yield one.step, one.piece, one.left, one.right
    a, b = bridged.total, through.total
    if (a is None) is not (b is None) or (a is not None and b is not None and not _near(a, b)):
        yield None, "return", repr(a), repr(b)


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= _ROUNDING * max(1.0, abs(a))


def _mismatch(index: int, episode: PortEpisode, between: _Sides, difference: _Difference) -> Mismatch:
    step, piece, source, target = difference
    return Mismatch(
        episode=index,
        task=episode.task,
        between=between,
        step=step,
        piece=piece,
        source=_cut(source),
        target=_cut(target),
    )


def _cut(text: str, limit: int = 400) -> str:
    return text if len(text) <= limit else f"{text[: limit // 2]} ... {text[-limit // 2 :]}"
