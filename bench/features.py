"""Features: prove what an adapter declares, in both directions, by playing the touchstone through the framework.

What is declared native or emulated must work, and what is declared absent must not: a feature that works although it is
declared absent is as wrong as one that does not work. Each probe says what it saw.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.client import RequestFailed, Worker
from bench.session import connect_session, list_tasks
from canonical.adapter import Feature, Level, Opened, Session, SessionError, Support
from canonical.catalogue import load_environment
from canonical.content import JSON, Image
from canonical.dialect import write_calls
from canonical.reference import ReferenceSession
from canonical.step import StepResult
from canonical.tool import ToolCall
from canonical.transcript import Action

_WIDTH = 8
_TASK = "test/17"
_ELSEWHERE = ("train/03", "test/12", "test/23")
_NO_SPLIT = "no such split"


@dataclass(frozen=True, slots=True)
class FeatureProof:
    """Hold what a probe found out about one feature.

    Attributes:
        feature: The feature.
        declared: What the adapter says of it, or None when it says nothing.
        works: Whether it works.
        evidence: What the probe saw, in one sentence.
    """

    feature: Feature
    declared: Support | None
    works: bool
    evidence: str

    @property
    def problem(self) -> str | None:
        """What is wrong with the declaration, as the end of a sentence that begins with the feature; None when nothing is."""
        if self.declared is None:
            return "is not declared at all"
        level, note = self.declared.level, self.declared.note.strip()
        if level is Level.ABSENT and self.works:
            return "is declared absent, but works"
        if level is not Level.ABSENT and not self.works:
            return f"is declared {level}, but does not work"
        if level is not Level.NATIVE and not note:
            missing = "why it is absent" if level is Level.ABSENT else "by which rewrite it works"
            return f"is declared {level} without a note that says {missing}"
        return None

    def to_json(self) -> dict[str, JSON]:
        """Return the proof as JSON."""
        return {
            "feature": self.feature.value,
            "level": None if self.declared is None else self.declared.level.value,
            "note": "" if self.declared is None else self.declared.note,
            "works": self.works,
            "evidence": self.evidence,
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True)
class _Seen:
    """Hold what one episode showed."""

    opened: Opened
    results: tuple[StepResult, ...]

    @property
    def texts(self) -> list[str]:
        """What a model reads: the prompt, then every observation."""
        return [
            "\n".join(message.text for message in self.opened.prompt),
            *(result.observation.text for result in self.results),
        ]


_Verdict = tuple[bool, str]


async def prove_features(
    driver: Worker,
    source: str,
    url: str | None,
    declared: Mapping[Feature, Support] | None = None,
) -> tuple[FeatureProof, ...]:
    """Probe every feature, and hold what works against what is declared.

    Args:
        driver: The worker that runs the framework's client.
        source: Path of the touchstone, whose tasks and tools the probes know.
        url: Where it is served by another worker, or None for a framework that runs in process.
        declared: What the adapter declares; by default, what the worker said when it started.

    Raises:
        WorkerError: A worker broke down; a refusal by the framework is a feature that does not work.
    """
    said = declared_features(driver) if declared is None else declared
    probes = _Probes(driver, source, url)
    proofs = []
    for feature in Feature:
        works, evidence = await probes.verdict(feature)
        proofs.append(FeatureProof(feature, said.get(feature), works, evidence))
    return tuple(proofs)


def declared_features(worker: Worker) -> dict[Feature, Support]:
    """Return what the adapter of a worker declares."""
    return {
        Feature(name): Support(Level(value["level"]), value["note"])
        for name, value in worker.started.features.items()
    }


def keep_proven(path: Path, label: str, proofs: Sequence[FeatureProof]) -> None:
    """Write level, note and evidence of every feature of a release into a file that keeps those of the other releases too.

    Raises:
        OSError: The file cannot be written.
    """
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    kept[label] = {
        proof.feature.value: {
            "level": proof.declared.level.value,
            "note": proof.declared.note,
            "evidence": proof.evidence,
        }
        for proof in proofs
        if proof.declared is not None
    }
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


class _Probes:
    """Know one probe per feature."""

    def __init__(self, driver: Worker, source: str, url: str | None) -> None:
        self._driver = driver
        self._source = source
        self._url = url
        self._environment = load_environment(source)
        self._games: tuple[list[_Seen], list[_Seen]] | None = None
        self._probes: dict[Feature, Callable[[], Awaitable[_Verdict]]] = {
            Feature.SEEDED_RESET: self._seeded_reset,
            Feature.TASK_SELECTION: self._task_selection,
            Feature.SPLITS: self._splits,
            Feature.TOOL_CALLS: self._tool_calls,
            Feature.TEXT_ACTIONS: self._text_actions,
            Feature.CONCURRENT_SESSIONS: self._concurrent_sessions,
            Feature.REMOTE: self._remote,
            Feature.SNAPSHOT: self._snapshot,
        }

    async def verdict(self, feature: Feature) -> _Verdict:
        """Return whether a feature works, and what was seen."""
        try:
            if feature in _SHOWN:
                return await self._shown(feature)
            return await self._probes[feature]()
        except SessionError as error:
            return False, f"the framework refused: {error}"
        except RequestFailed as error:
            if error.kind == "unsupported":
                return False, f"not offered: {error.reason}"
            # A session that breaks is what a probe may find, and no reason to learn nothing of the other features.
            return False, f"the session broke: {error.reason}"

    async def _play(self, task: str, seed: int, actions: Sequence[Action]) -> _Seen:
        async with connect_session(self._driver, self._source, url=self._url) as session:
            return await _play(session, task, seed, actions)

    async def _expected(self, task: str, seed: int, actions: Sequence[Action]) -> _Seen:
        session = ReferenceSession(self._environment)
        try:
            return await _play(session, task, seed, actions)
        finally:
            await session.close()

    def _answer(self, task: str) -> ToolCall:
        return ToolCall("answer", {"code": self._environment.tasks().get(task).secret["code"]})

    async def _seeded_reset(self) -> _Verdict:
        rolls = [ToolCall("roll", {"sides": 32, "times": 3})] * 2
        seeds = (0, 1, 2, 1)
        mine = [(await self._play(_TASK, seed, rolls)).texts for seed in seeds]
        theirs = [(await self._expected(_TASK, seed, rolls)).texts for seed in seeds]
        return _same(mine, theirs, "seeds 0, 1, 2 and 1 again give the reference's dice")

    async def _task_selection(self) -> _Verdict:
        mine = [(await self._play(task, 0, ())).texts for task in _ELSEWHERE]
        theirs = [(await self._expected(task, 0, ())).texts for task in _ELSEWHERE]
        return _same(mine, theirs, f"{', '.join(_ELSEWHERE)} were asked for, and those prompts came")

    async def _splits(self) -> _Verdict:
        tasks = self._environment.tasks()
        for split in tasks.splits:
            mine = await list_tasks(self._driver, self._source, split, url=self._url)
            works, evidence = _same(mine, [task.id for task in tasks.split(split)], "")
            if not works:
                return False, f"split {split}: {evidence}"
        try:
            await list_tasks(self._driver, self._source, _NO_SPLIT, url=self._url)
        except SessionError:
            counts = ", ".join(f"{len(tasks.split(split))} tasks of {split}" for split in tasks.splits)
            return True, f"the framework lists {counts}, and refuses a split that there is not"
        return False, "the framework lists tasks of a split that there is not"

    async def _tool_calls(self) -> _Verdict:
        calls = (
            ToolCall("order", {"items": [{"name": "Tee \u8336", "size": {"width": 3}}], "urgent": True}),
            ToolCall("echo", {"text": ' "<a>" \n\t', "style": "quoted"}),
        )
        mine = (await self._play(_TASK, 0, calls)).texts
        theirs = (await self._expected(_TASK, 0, calls)).texts
        return _same(mine, theirs, "calls with nested arguments reach their tools and are answered")

    async def _text_actions(self) -> _Verdict:
        texts = (
            f"I roll.\n{write_calls([ToolCall('roll', {'times': 2}), ToolCall('echo', {'text': 'x'})])}",
            "I would rather think about it.",
        )
        mine = (await self._play(_TASK, 0, texts)).texts
        theirs = (await self._expected(_TASK, 0, texts)).texts
        return _same(
            mine, theirs, "two calls in one text are carried out, and a text without a call is answered"
        )

    async def _shown(self, feature: Feature) -> _Verdict:
        view, what = _SHOWN[feature]
        if self._games is None:
            self._games = (
                [await self._play(*game) for game in self._three_games()],
                [await self._expected(*game) for game in self._three_games()],
            )
        mine, theirs = ([view(seen) for seen in side] for side in self._games)
        return _same(mine, theirs, f"{what} in {len(theirs)} episodes equal the reference's")

    def _three_games(self) -> list[tuple[str, int, list[Action]]]:
        everything: list[Action] = [
            ToolCall("roll", {}),
            ToolCall("draw", {"shade": 0.25}),
            ToolCall("teleport", {}),
            ToolCall("echo", {"times": "many"}),
            ToolCall("fail", {"how": "politely"}),
            ToolCall("fail", {"how": "loudly"}),
        ]
        return [
            (_TASK, 0, [*everything, self._answer(_TASK), ToolCall("roll", {})]),
            (_TASK, 1, [*everything, ToolCall("answer", {"code": "a guess"})]),
            (_TASK, 2, [ToolCall("roll", {})] * self._environment.max_turns),
        ]

    async def _concurrent_sessions(self) -> _Verdict:
        tasks = [task.id for task in self._environment.tasks()][-_WIDTH:]
        actions = [
            [ToolCall("roll", {"sides": 32, "times": 3}), ToolCall("wait", {"turns": 2}), self._answer(task)]
            for task in tasks
        ]
        async with AsyncExitStack() as stack:
            sessions = [
                await stack.enter_async_context(connect_session(self._driver, self._source, url=self._url))
                for _ in tasks
            ]
            opened = await _together(
                session.open(task, seed)
                for seed, (session, task) in enumerate(zip(sessions, tasks, strict=True))
            )
            rounds = [
                await _together(session.step(action) for session, action in zip(sessions, group, strict=True))
                for group in zip(*actions, strict=True)
            ]
        mine = [
            _Seen(one, tuple(results)).texts
            for one, results in zip(opened, zip(*rounds, strict=True), strict=True)
        ]
        theirs = [
            (await self._expected(task, seed, script)).texts
            for seed, (task, script) in enumerate(zip(tasks, actions, strict=True))
        ]
        return _same(mine, theirs, f"{_WIDTH} sessions stepped at the same time each show their own episode")

    async def _remote(self) -> _Verdict:
        if self._url is None:
            return False, "serving gives no address"
        script = (ToolCall("roll", {}), self._answer(_TASK))
        # The client gets the address, and no name of an environment that it could run itself.
        async with connect_session(self._driver, "", url=self._url) as session:
            mine = (await _play(session, _TASK, 0, script)).texts
        theirs = (await self._expected(_TASK, 0, script)).texts
        return _same(mine, theirs, "a client that knows the address alone plays an episode")

    async def _snapshot(self) -> _Verdict:
        before = [ToolCall("roll", {"sides": 32}), ToolCall("teleport", {})]
        rest = [ToolCall("roll", {"sides": 32, "times": 3}), ToolCall("roll", {}), self._answer(_TASK)]
        other = [ToolCall("echo", {"text": "elsewhere"}), *rest]
        async with connect_session(self._driver, self._source, url=self._url) as session:
            await session.open(_TASK, 0)
            await _steps(session, before)
            kept = await session.snapshot()
            fork = await session.fork()
            try:
                mine = [await _ending(session, rest)]
                await session.restore(kept)
                mine.append(await _ending(session, other))
                await session.restore(kept)
                mine.append(await _ending(session, rest))
                mine.append(await _ending(fork, rest))
            finally:
                await fork.close()
        theirs = [await self._played_out(before, script) for script in (rest, other, rest, rest)]
        told = "an episode was stored, played to its end, restored twice and played on, and forked; all went on alike"
        return _same(mine, theirs, told)

    async def _played_out(self, before: Sequence[Action], rest: Sequence[Action]) -> list[Any]:
        session = ReferenceSession(self._environment)
        try:
            await _play(session, _TASK, 0, before)
            return await _ending(session, rest)
        finally:
            await session.close()


async def _play(session: Session, task: str, seed: int, actions: Sequence[Action]) -> _Seen:
    opened = await session.open(task, seed)
    return _Seen(opened, await _steps(session, actions))


async def _steps(session: Session, actions: Sequence[Action]) -> tuple[StepResult, ...]:
    return tuple([await session.step(action) for action in actions])


async def _together(work: Any) -> list[Any]:
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


async def _ending(session: Session, actions: Sequence[Action]) -> list[Any]:
    # Whether it is over is part of it; why it is over may be a feature that the framework lacks.
    told = [[result.observation.text, result.cause is not None] for result in await _steps(session, actions)]
    return [told, await session.reported_return()]


_SHOWN: dict[Feature, tuple[Callable[[_Seen], list[Any]], str]] = {
    Feature.TOOL_SCHEMAS: (lambda seen: [tool.to_json() for tool in seen.opened.tools], "the tools' schemas"),
    Feature.ERROR_CODES: (
        lambda seen: [result.observation.error for result in seen.results],
        "the error codes",
    ),
    Feature.STEP_REWARD: (
        lambda seen: [result.reward for result in seen.results],
        "the rewards of the steps",
    ),
    Feature.REWARD_COMPONENTS: (
        lambda seen: [dict(result.components) for result in seen.results],
        "the components of the rewards",
    ),
    Feature.TRUNCATION: (
        lambda seen: [result.ending for result in seen.results],
        "terminated and truncated ends",
    ),
    Feature.CAUSE: (lambda seen: [result.cause for result in seen.results], "the causes of the ends"),
    Feature.IMAGES: (
        lambda seen: [
            [block.to_json() for block in result.observation.blocks if isinstance(block, Image)]
            for result in seen.results
        ],
        "the images",
    ),
}
"""What a framework shows of each compared feature, and what it is called."""


def _same(mine: Any, theirs: Any, evidence: str) -> _Verdict:
    """Return whether both sides are equal, with the evidence, or with the first place where they differ."""
    if mine == theirs:
        return True, evidence
    shown, wanted = mine, theirs
    while (
        isinstance(shown, list)
        and isinstance(wanted, list)
        and (place := next((i for i, (a, b) in enumerate(zip(shown, wanted, strict=False)) if a != b), None))
        is not None
    ):
        shown, wanted = shown[place], wanted[place]
    return False, f"it shows {_short(shown)} where the reference has {_short(wanted)}"


def _short(value: Any, limit: int = 120) -> str:
    text = repr(getattr(value, "value", value))
    return text if len(text) <= limit else f"{text[:limit]} ..."
