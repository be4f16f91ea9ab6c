"""Round trips: a source ported to another framework, lifted out of it there, and ported back to its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

from bench.client import WorkerError
from bench.porting.episodes import PortEpisode, as_json, play_session
from bench.porting.port import Surveyed, bridged, open_side
from bench.porting.records import ASPECTS, RoundTrip
from bench.porting.sources import SourceRequest, find_source, run_source
from bench.porting.verify import WIDTH, Side
from bench.session import connect_session
from bench.stacks import Stack
from canonical.adapter import SessionError
from canonical.bridge.environment import BridgedEnvironment
from canonical.bridge.source import COMPILED, TEXT_TOOL, LiftError, LiftOptions
from canonical.dialect import write_calls
from canonical.reference import ReferenceSession
from canonical.tool import ToolCall
from canonical.transcript import Action, Transcript


async def go_round(request: SourceRequest, surveyed: Surveyed, home: Stack, through: Stack) -> RoundTrip:
    """Bring a running source to another framework and back, and play its episodes at both ends.

    Args:
        request: The source.
        surveyed: The source, running, with its episodes.
        home: The stack of the framework that owns it.
        through: The stack of the framework in between.
    """
    trip = RoundTrip(source=request.name, framework=request.framework, through=through.adapter)
    name = f"{through.adapter}:{COMPILED}{surveyed.running.environment}"
    try:
        # Where tasks are seeds, as many as the origin has tasks.
        options = LiftOptions(tasks=len(surveyed.running.facts.tasks))
        lifted = find_source(name, release=through.release.label, options=options)
        async with run_source(lifted) as running, open_side(home, running.environment) as side:
            return await _compare(trip, surveyed, bridged(running), side)
    except (LiftError, SessionError, WorkerError) as error:
        return trip.model_copy(update={"reason": str(error).splitlines()[0]})


async def _compare(
    trip: RoundTrip, surveyed: Surveyed, returned: BridgedEnvironment, side: Side
) -> RoundTrip:
    gate = asyncio.Semaphore(WIDTH)
    origin = surveyed.environment
    places = dict(_places(origin, returned))

    async def both(episode: PortEpisode) -> tuple[Transcript, Transcript]:
        async with gate:
            first = (await play_session(ReferenceSession(origin), episode, origin)).transcript
            steps = next((i + 1 for i, step in enumerate(first.steps) if step.result.cause), len(first.steps))
            actions = [as_json(translated(action, returned)) for action in episode.read_actions()[:steps]]
            back = episode.model_copy(update={"task": places[episode.task], "actions": actions})
            async with connect_session(side.worker, side.environment, url=side.url) as session:
                return first, (await play_session(session, back, returned)).transcript

    chosen = [episode for episode in surveyed.episodes if episode.task in places]
    played = await asyncio.gather(*map(both, chosen))
    equal = dict.fromkeys(ASPECTS, 0)
    differing: dict[str, str] = {}
    for first, last in played:
        for aspect in ASPECTS:
            one, other = _shown(aspect, first, len(last.steps)), _shown(aspect, last, len(last.steps))
            if one == other:
                equal[aspect] += 1
            else:
                differing.setdefault(aspect, f"task {first.task}: {_apart(one, other)}")
    return trip.model_copy(
        update={
            "episodes": len(played),
            "steps": sum(len(last.steps) for _, last in played),
            "equal": equal,
            "differing": differing,
        }
    )


def _places(origin: BridgedEnvironment, returned: BridgedEnvironment) -> Iterator[tuple[str, str]]:
    """Yield the tasks of the origin with those at the same place of the same split at the end of the way."""
    tasks, others = origin.tasks(), returned.tasks()
    for split in tasks.splits:
        if split in others.splits:
            for mine, other in zip(tasks.split(split), others.split(split), strict=False):
                yield mine.id, other.id


def translated(action: Action, environment: BridgedEnvironment) -> Action:
    """Return an action as an environment takes it that went through another framework: a call as text, or text as a call."""
    names = {tool.name for tool in environment.tools}
    if isinstance(action, str):
        if environment.text_tool is None and TEXT_TOOL in names:
            return ToolCall(TEXT_TOOL, {"text": action})
        return action
    if environment.text_tool is not None and action.name not in names:
        return write_calls([action])
    return action


def _shown(aspect: str, transcript: Transcript, steps: int) -> Sequence[Any]:
    results = [step.result for step in transcript.steps[:steps]]
    match aspect:
        case "prompt":
            return [message.text for message in transcript.prompt]
        case "observations":
            return [result.observation.text for result in results]
        case "rewards":
            return [result.reward for result in results]
        case "ends":
            return [result.cause is not None for result in results]
        case "causes":
            return [None if result.cause is None else result.cause.value for result in results]
        case _:
            return [results[-1].total if results else 0.0]


def _apart(one: Sequence[Any], other: Sequence[Any]) -> str:
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return f"at {index}: {_cut(json.dumps(a))} became {_cut(json.dumps(b))}"
    return f"{len(one)} became {len(other)}"


def _cut(text: str, limit: int = 160) -> str:
    return text if len(text) <= limit else f"{text[: limit // 2]} ... {text[-limit // 2 :]}"
