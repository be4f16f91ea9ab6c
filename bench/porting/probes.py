"""Probes: what a source does that a port must not hide, found by playing it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from bench.porting.episodes import (
    PortEpisode,
    RawEpisode,
    asked,
    open_raw,
    play_raw,
    record_episodes,
    seed_for,
    step_raw,
)
from canonical.adapter import Loss, SessionError
from canonical.bridge.client import connect_source
from canonical.bridge.environment import BridgedEnvironment
from canonical.content import JSON
from canonical.step import Cause, StepResult
from canonical.stone import Concern, PieceName
from canonical.transcript import Action

_TELLING = re.compile(
    r"(?i)(?:^|_)(answer|answers|solution|secret|target|ground_?truth|gold|label|expected)s?$"
)
_EPISODES = 6


async def probe_source(
    environment: BridgedEnvironment, *, seed: int = 0, pool: Sequence[Action] = ()
) -> list[Loss]:
    """Play a source in ways that show whether it keeps the contract, and return what it does not keep.

    Found are: episodes that do not repeat, seeds that change nothing, a reward that is paid after the end, and what a client
    can read beside the observations, with names that promise an answer told apart.

    Args:
        environment: The source.
        seed: Decides what is played.
        pool: Actions that make sense in it.

    Raises:
        SessionError: The source refused, failed or is gone.
    """
    episodes = await record_episodes(environment, _EPISODES, seed=seed, pool=pool)
    chosen = [episode for episode in episodes if episode.kind == "random"]
    found: list[Loss] = []
    first = [await play_raw(environment, episode) for episode in chosen]
    again = [await play_raw(environment, episode) for episode in chosen]
    differing = [episode.task for episode, a, b in zip(chosen, first, again, strict=True) if a != b]
    if differing:
        found.append(
            Loss(
                PieceName.INITIAL_STATE,
                "lost",
                f"the source is not reproducible: {len(differing)} of {len(chosen)} episodes, played twice with the same task, "
                f"seed and actions, differed (first {differing[0]}); a port cannot be either",
                Concern.SEED,
            )
        )
    elif environment.facts.seeds_are_tasks:
        found += await _ignored_seeds(environment, chosen[0].read_actions(), first[0])
    for episode in chosen:
        if loss := await _paid_after_the_end(
            environment, episode.task, episode.read_actions(), seed_for(environment, episode)
        ):
            found.append(loss)
            break
    found += _failures(first)
    found += await _shown_beside(environment, chosen)
    return found


def _failures(episodes: Sequence[RawEpisode]) -> list[Loss]:
    failed = [
        result for episode in episodes for result in episode.results if result and result.cause is Cause.ERROR
    ]
    if not failed:
        return []
    return [
        Loss(
            PieceName.EPISODE_END,
            "approximated",
            f"the source fails at some actions, which ends an episode of the port with the cause error, "
            f"in {len(failed)} of {len(episodes)} that were played: {failed[0].observation.text}",
            Concern.ERRORS,
        )
    ]


async def _ignored_seeds(
    environment: BridgedEnvironment, actions: list[Action], first: RawEpisode
) -> list[Loss]:
    tasks = [task.id for task in environment.tasks()][1 : _EPISODES + 2]
    for task in tasks:
        async with connect_source(environment.address) as session:
            opened = await open_raw(session, task, 0)
            results: list[StepResult | None] = []
            for action in actions:
                sent = asked(action, environment.facts)
                if sent is None:
                    results.append(None)
                    continue
                result = await step_raw(session, sent, environment.facts)
                results.append(result)
                if result.cause is not None:
                    break
        if (opened, results) != (first.opened, first.results[: len(results)]):
            return []
    if not tasks:
        return []
    return [
        Loss(
            PieceName.INITIAL_STATE,
            "approximated",
            f"the source seems to ignore its seed: {len(tasks) + 1} seeds gave the same episode under the same actions",
            Concern.SEED,
        )
    ]


async def _paid_after_the_end(
    environment: BridgedEnvironment, task: str, actions: list[Action], seed: int
) -> Loss | None:
    async with connect_source(environment.address) as session:
        await session.open(task, seed)
        is_over = False
        for action in actions:
            sent = asked(action, environment.facts)
            if sent is None:
                continue
            try:
                result = await session.step(sent)
            except SessionError:
                return None  # after the end, failing is a way to refuse
            if is_over and result.reward:
                return Loss(
                    PieceName.REWARD,
                    "approximated",
                    f"the source goes on paying after the end of an episode ({result.reward:g} in {task}); the port pays "
                    "nothing then",
                    Concern.REWARD_AGGREGATION,
                )
            is_over = is_over or result.cause is not None
    return None


async def _shown_beside(environment: BridgedEnvironment, episodes: Sequence[PortEpisode]) -> list[Loss]:
    names: set[str] = set()
    telling: set[str] = set()
    for episode in episodes:
        async with connect_source(environment.address) as session:
            await open_raw(session, episode.task, seed_for(environment, episode))
            is_over = False
            for action in [None, *episode.read_actions()]:
                if action is not None:
                    sent = asked(action, environment.facts)
                    if sent is None:
                        continue
                    cause = (await step_raw(session, sent, environment.facts)).cause
                    if cause is Cause.ERROR:
                        break
                    is_over = cause is not None
                for name, value in _leaves(await session.public_state()):
                    names.add(name)
                    tells = _TELLING.search(name.rpartition(".")[2]) and value not in (None, "", [], {})
                    if tells and not is_over:
                        telling.add(name)
                if is_over:
                    break
    return _told(names, telling)


def _told(names: set[str], telling: set[str]) -> list[Loss]:
    found = []
    if telling:
        found.append(
            Loss(
                PieceName.OBSERVATION_FORMAT,
                "approximated",
                f"before the end the source shows {', '.join(sorted(telling))} to whoever drives it, which may be the "
                "answer; the port shows it to nobody",
                Concern.SECRETS,
            )
        )
    if others := names - telling:
        found.append(
            Loss(
                PieceName.OBSERVATION_FORMAT,
                "lost",
                f"what the source shows beside its observations: {', '.join(sorted(others)[:12])}"
                f"{'' if len(others) <= 12 else f' and {len(others) - 12} more'}",
                Concern.METADATA,
            )
        )
    return found


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, JSON]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif path:
        yield path, value
