"""Round trips: a source ported to another framework, lifted out of it there, and ported back to its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
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
from canonical.bridge.source import COMPILED, LiftError, LiftOptions, SourceFacts
from canonical.dialect import write_calls
from canonical.reference import ReferenceSession
from canonical.tool import ToolCall
from canonical.transcript import Action, Transcript

LAST_WORD = "I have nothing more to do."
"""What is said to an episode that is over at its origin and still goes on at the end of the way."""


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
        # Where tasks are seeds, as many as the origin has tasks; where no turn is the last, the origin's last.
        facts = surveyed.running.facts
        options = LiftOptions(tasks=len(facts.tasks), max_turns=facts.max_turns)
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

    async def play_back(episode: PortEpisode) -> Transcript:
        async with connect_session(side.worker, side.environment, url=side.url) as session:
            return (await play_session(session, episode, returned)).transcript

    async def both(episode: PortEpisode) -> tuple[Transcript, Transcript]:
        async with gate:
            whole = (await play_session(ReferenceSession(origin), episode, origin)).transcript
            steps = next((i + 1 for i, step in enumerate(whole.steps) if step.result.cause), len(whole.steps))
            first = replace(whole, steps=whole.steps[:steps])
            actions = [
                as_json(translated(action, origin.facts, returned.facts))
                for action in episode.read_actions()[:steps]
            ]
            back = episode.model_copy(update={"task": places[episode.task], "actions": actions})
            last = await play_back(back)
            if _is_over(first) and not _is_over(last):
                # A framework that shows no end scores an episode when its model has nothing more to call.
                last = await play_back(back.model_copy(update={"actions": [*actions, LAST_WORD]}))
            return first, last

    chosen = [episode for episode in surveyed.episodes if episode.task in places]
    played = await asyncio.gather(*map(both, chosen))
    equal = dict.fromkeys(ASPECTS, 0)
    differing: dict[str, str] = {}
    for first, last in played:
        for aspect in ASPECTS:
            steps = min(len(first.steps), len(last.steps))
            one, other = _shown(aspect, first, steps), _shown(aspect, last, steps)
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


def _is_over(transcript: Transcript) -> bool:
    return any(step.result.cause is not None for step in transcript.steps)


def translated(action: Action, origin: SourceFacts, returned: SourceFacts) -> Action:
    """Return an action of a source as it is said to what came back of it: a call as text, or text as a call."""
    names = {tool.name for tool in returned.tools}
    if isinstance(action, ToolCall):
        if action.name in names or not (_takes_text_alone(origin) or _takes_text_alone(returned)):
            return action
        action = write_calls([action])
    # On the way, the text of the origin may have become a tool among others.
    if origin.text_tool in names - {returned.text_tool}:
        return ToolCall(str(origin.text_tool), {"text": action})
    return action


def _takes_text_alone(facts: SourceFacts) -> bool:
    return [tool.name for tool in facts.tools] == [facts.text_tool]


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
            return [transcript.steps[-1].result.total if transcript.steps else 0.0]


def _apart(one: Sequence[Any], other: Sequence[Any]) -> str:
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return f"at {index}: {_cut(json.dumps(a))} became {_cut(json.dumps(b))}"
    return f"{len(one)} became {len(other)}"


def _cut(text: str, limit: int = 160) -> str:
    return text if len(text) <= limit else f"{text[: limit // 2]} ... {text[-limit // 2 :]}"
