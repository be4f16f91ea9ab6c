"""Conformance: play scenarios through a framework's real server and client, and compare with the reference."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.client import RequestFailed, Worker, WorkerDied, WorkerError
from bench.features import FeatureProof, declared_features, prove_features
from bench.projection import COMPARED, project
from bench.scenarios import GENERAL, Fuzzer, Operation, Scenario, load_scenarios, place_scenarios
from bench.session import WorkerSession, connect_session, serve
from bench.workloads import Workload
from canonical.adapter import Feature, Level, Opened, SessionError
from canonical.catalogue import load_environment
from canonical.content import JSON
from canonical.environment import Environment
from canonical.episode import Episode, StartError
from canonical.reward import Aggregation, ScoringError
from canonical.task import Task
from canonical.transcript import (
    Action,
    Difference,
    Transcript,
    TranscriptStep,
    digest_of,
    first_difference,
)

TOUCHSTONE = str(Path(__file__).parent / "touchstone")
"""The environment that is played beside the one that was asked for, because it uses every part of the types."""
_TOUCHSTONE_SHARE = 4
WIDTH = 8
"""How many scenarios are played at the same time."""
RETURN = "return, as a trainer of the framework reads it"
"""The piece that differs when a framework's steps are right and its own reading of their reward is not."""
_ROUNDING = 1e-9
_SHORTEST_SECRET = 4
_LONG_SECRET = 8


@dataclass(frozen=True, slots=True)
class Divergence:
    """Hold the first place where a framework and the reference differ in one session.

    Attributes:
        scenario: The scenario and its promise.
        session: The session, with task id and seed.
        step: The 0-based step, or None before the first step.
        piece: What differs.
        reference: What the reference gives.
        framework: What the framework gives.
        action: The action of that step, when there is one.
    """

    scenario: str
    session: str
    step: int | None
    piece: str
    reference: str
    framework: str
    action: str = ""

    def render(self) -> str:
        """Return the divergence as text for a person."""
        place = "before the first step" if self.step is None else f"at step {self.step}"
        lines = [f"{self.scenario}", f"  session {self.session}: {self.piece} differs {place}"]
        if self.action:
            lines.append(f"    action:    {_cut(self.action)}")
        lines.append(f"    reference: {_cut(self.reference)}")
        lines.append(f"    framework: {_cut(self.framework)}")
        return "\n".join(lines)


class BrokenEnvironmentError(RuntimeError):
    """Report an environment that fails without any framework, so that there is nothing to compare a framework with.

    Attributes:
        failure: What its code raised, if it did.
    """

    failure: BaseException | None = None


class Misdeclaration(Divergence):
    """Be a divergence between what an adapter declares of a feature and what the feature does."""

    __slots__ = ()

    @classmethod
    def of(cls, proof: FeatureProof) -> Misdeclaration:
        """Return what is wrong with the declaration of a feature."""
        note = "" if proof.declared is None else proof.declared.note.strip()
        return cls(
            f"feature {proof.feature}: {proof.problem}",
            "(touchstone)",
            None,
            f"feature {proof.feature}",
            note or "(no note)",
            proof.evidence,
        )

    def render(self) -> str:
        """Return it as text for a person."""
        return "\n".join([
            self.scenario,
            f"    its note:        {_cut(self.reference)}",
            f"    what was tried:  {_cut(self.framework)}",
        ])  # fmt: skip


def _cut(text: str, limit: int = 600) -> str:
    return text if len(text) <= limit else f"{text[: limit // 2]} ... {text[-limit // 2 :]}"


@dataclass(slots=True)
class ConformanceResult:
    """Hold what a conformance run found.

    Attributes:
        episodes: How many episodes were played.
        steps: How many actions they took.
        scenarios: How many scenarios they belonged to.
        divergences: Everything that differed, in the order of the scenarios.
        not_compared: Features that the framework declares absent, so that what they carry is left out.
        features: What was proven of each feature.
        returns: How many returns were read in the framework's own way, and compared.
        raised: What tools and rules of the environment raised and should not have, and in how many episodes. Frameworks
            are to show the same all the same.
        digest: SHA-256 over the transcripts that the framework showed; runs of one plan have equal digests where nothing
            differs and nothing is left out.
        seconds: How long it took.
    """

    episodes: int = 0
    steps: int = 0
    scenarios: int = 0
    returns: int = 0
    divergences: list[Divergence] = field(default_factory=list)
    raised: Counter[str] = field(default_factory=Counter)
    not_compared: tuple[str, ...] = ()
    features: tuple[FeatureProof, ...] = ()
    digest: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether nothing differed and something was compared."""
        return not self.divergences and self.episodes > 0


@dataclass(slots=True)
class _Played:
    opened: Opened = field(default_factory=lambda: Opened((), ()))
    steps: list[TranscriptStep] = field(default_factory=list)
    exposed: list[tuple[int, JSON]] = field(default_factory=list)
    reported: float | None = None
    failure: str | None = None

    @property
    def waits_for_report(self) -> bool:
        """Whether the episode is over as far as the framework showed, and its return was not read yet."""
        return bool(self.steps) and self.steps[-1].result.cause is not None and self.reported is None


def plan_scenarios(
    environment: Environment[Any], *, source: str, episodes: int, seed: int
) -> Iterator[Scenario]:
    """Yield the scenarios of the places in splits and of the files, then fuzz until the budget of episodes is used up.

    Places are no part of the budget: with more splits an environment would be fuzzed less.

    Raises:
        bench.scenarios.ScenarioError: A scenario file is malformed.
    """
    files = [GENERAL]
    own = _own_scenarios(source)
    if own is not None:
        files.append(own)
    yield from place_scenarios(environment)
    planned = 0
    for path in files:
        for scenario in load_scenarios(path, environment):
            planned += len(scenario.sessions)
            yield scenario
    fuzzer = Fuzzer(environment, seed)
    index = 0
    while planned < episodes:
        scenario = fuzzer.scenario(index)
        index += 1
        planned += len(scenario.sessions)
        yield scenario


def _own_scenarios(source: str) -> Path | None:
    import canonical.environments as catalogue  # noqa: PLC0415 - a folder, not code

    folder = Path(source) if Path(source).is_dir() else Path(next(iter(catalogue.__path__))) / source
    path = folder / "scenarios.yaml"
    return path if path.is_file() else None


class _Urls:
    """Serve an environment once per tool time, on first use."""

    def __init__(self, host: Worker, source: str) -> None:
        self._host, self._source = host, source
        self._urls: dict[float, str | None] = {}
        self._lock = asyncio.Lock()

    async def get(self, tool_seconds: float) -> str | None:
        async with self._lock:
            if tool_seconds not in self._urls:
                serving = await serve(self._host, self._source, workload=paced(tool_seconds))
                self._urls[tool_seconds] = serving.url
        return self._urls[tool_seconds]


def paced(tool_seconds: float) -> Workload | None:
    """Return the workload of tools that take so many seconds, or None when they take none."""
    return Workload(turns=1, tool_ns=round(tool_seconds * 1e9)) if tool_seconds else None


async def run_conformance(
    host: Worker,
    driver: Worker,
    *,
    source: str,
    episodes: int = 200,
    seed: int = 0,
    stop_after: int = 20,
    leak_patience_s: float = 10.0,
    on_progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> ConformanceResult:
    """Play scenarios through a framework, compare every session with the reference, and prove the declared features.

    Args:
        host: The worker that serves the environment with the framework's own server.
        driver: The worker that plays with the framework's own client; it may be the same for in-process frameworks.
        source: Name or path of the environment. The touchstone is played too, a quarter as much.
        episodes: At least how many episodes to play in it.
        seed: Seed of the fuzzer.
        stop_after: Stop when this many divergences were found.
        leak_patience_s: How long the server may take to free what was closed, in seconds.
        on_progress: Called with the episodes played and planned.

    Raises:
        WorkerError: A worker broke down; a single failing session is a divergence instead.
    """
    declared = declared_features(driver)
    absent = frozenset(
        feature for feature in COMPARED if feature in declared and declared[feature].level is Level.ABSENT
    )
    result = ConformanceResult(not_compared=tuple(sorted(absent)))
    before = (await host.observe()).open_sessions
    started = time.monotonic()
    budgets = {source: episodes, TOUCHSTONE: max(1, episodes // _TOUCHSTONE_SHARE)}
    plans = {
        name: list(plan_scenarios(load_environment(name), source=name, episodes=budget, seed=seed))
        for name, budget in budgets.items()
    }
    planned = sum(len(scenario.sessions) for plan in plans.values() for scenario in plan)
    urls = {name: _Urls(host, name) for name in plans}
    digest = hashlib.sha256()
    for name, plan in plans.items():
        play = _Play(
            driver, name, urls[name], absent, result, stop_after,
            lambda: on_progress(result.episodes, planned),
        )  # fmt: skip
        digest.update((await play.all(plan)).encode("ascii"))
    result.features = await prove_features(driver, TOUCHSTONE, await urls[TOUCHSTONE].get(0.0))
    result.divergences.extend(Misdeclaration.of(proof) for proof in result.features if proof.problem)
    leaked = await _leaked(host, before, leak_patience_s)
    if leaked:
        result.divergences.append(
            Divergence(
                "after all scenarios: closed sessions free everything", "(all)", None, "open sessions on the server",
                "0 more than before", f"{leaked} more than before, {leak_patience_s:g} s after the last close",
            )
        )  # fmt: skip
    result.digest = digest.hexdigest()
    result.seconds = time.monotonic() - started
    return result


class _Play:
    """Play scenarios of one environment, several at a time."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        driver: Worker,
        source: str,
        urls: _Urls,
        absent: frozenset[Feature],
        result: ConformanceResult,
        stop_after: int,
        on_progress: Callable[[], None],
    ) -> None:
        self._driver = driver
        self._source = source
        self._environment = load_environment(source)
        self._absent = absent
        self._result = result
        self._stop_after = stop_after
        self._on_progress = on_progress
        self._urls = urls
        self._gate = asyncio.Semaphore(WIDTH)
        self._found: dict[int, list[Divergence]] = {}
        self._shown: dict[int, list[Transcript]] = {}

    async def all(self, scenarios: list[Scenario]) -> str:
        """Play all scenarios, add what differs to the result, and return a digest of the transcripts that were shown."""
        try:
            async with asyncio.TaskGroup() as group:
                for index, scenario in enumerate(scenarios):
                    group.create_task(self._one(index, scenario))
        except* (WorkerError, BrokenEnvironmentError) as group:
            # Where the environment itself is broken, that says more.
            raise _first(group.subgroup(BrokenEnvironmentError) or group) from None
        for index in sorted(self._found):
            self._result.divergences.extend(self._found[index])
        return digest_of(transcript for index in sorted(self._shown) for transcript in self._shown[index])

    async def _one(self, index: int, scenario: Scenario) -> None:
        async with self._gate:
            so_far = len(self._result.divergences) + sum(map(len, self._found.values()))
            if so_far >= self._stop_after:
                return
            raised: Counter[str] = Counter()
            try:
                url = await self._urls.get(scenario.tool_seconds)
                played = await _play(self._driver, scenario, self._source, url)
            except WorkerDied:
                raise
            except WorkerError:
                # Where the environment itself is broken, that says more.
                await _expected(self._environment, scenario, raised)
                raise
            expected = await _expected(self._environment, scenario, raised)
            if self._source != TOUCHSTONE:
                self._result.raised.update(raised)
            self._found[index] = list(_compare(self._environment, scenario, played, expected, self._absent))
            self._shown[index] = [_shown(played[name], expected[name]) for name in expected]
            self._result.returns += sum(one.reported is not None for one in played.values())
            self._result.scenarios += 1
            self._result.episodes += len(scenario.sessions)
            self._result.steps += sum(len(transcript.steps) for transcript in expected.values())
            self._on_progress()


async def check_scenario(
    driver: Worker,
    scenario: Scenario,
    *,
    source: str,
    url: str | None,
    absent: frozenset[Feature],
) -> tuple[list[Divergence], dict[str, Transcript]]:
    """Play a scenario, and return what differs, with the reference's transcripts of its sessions played one by one.

    Args:
        driver: The worker that plays.
        scenario: What to play.
        source: Name or path of the environment.
        url: Where it is served, or None for a framework that runs in process.
        absent: Features that the framework cannot carry, which are not compared.

    Raises:
        WorkerError: The worker broke down; a failing session is a divergence instead.
    """
    environment = load_environment(source)
    played = await _play(driver, scenario, source, url)
    expected = await _expected(environment, scenario, Counter())
    return list(_compare(environment, scenario, played, expected, absent)), expected


def absent_features(worker: Worker) -> frozenset[Feature]:
    """Return what the worker's framework declares absent of all that conformance compares."""
    features = {Feature(name): Level(value["level"]) for name, value in worker.started.features.items()}
    return frozenset(feature for feature in COMPARED if features.get(feature) is Level.ABSENT)


def _first(group: BaseExceptionGroup[Any]) -> Exception:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


async def _leaked(host: Worker, before: int, patience_s: float) -> int:
    patience = time.monotonic() + patience_s
    while True:
        leaked = (await host.observe()).open_sessions - before
        if leaked <= 0 or time.monotonic() > patience:
            return max(0, leaked)
        await asyncio.sleep(0.1)


async def _play(driver: Worker, scenario: Scenario, source: str, url: str | None) -> Mapping[str, _Played]:
    played = {name: _Played() for name in scenario.sessions}
    sessions: dict[str, WorkerSession] = {}
    async with AsyncExitStack() as stack:
        for name in scenario.sessions:
            try:
                sessions[name] = await stack.enter_async_context(
                    connect_session(driver, source, url=url, workload=paced(scenario.tool_seconds))
                )
            except SessionError as error:
                played[name].failure = f"the session could not be connected: {error}"
        for group in scenario.rounds:
            await asyncio.gather(
                *(
                    _operate(sessions[operation.session], operation, scenario, played[operation.session])
                    for operation in group
                    if played[operation.session].failure is None
                )
            )
    return played


async def _operate(session: WorkerSession, operation: Operation, scenario: Scenario, played: _Played) -> None:
    doing: str = operation.kind
    try:
        match operation.kind:
            case "open":
                played.opened = await _open(session, operation.session, scenario)
            case "step" if operation.action is not None:
                played.steps.append(TranscriptStep(operation.action, await session.step(operation.action)))
            case "expose":
                played.exposed.append((len(played.steps), await session.public_state()))
            case _:
                doing = "reread"
                await _reread(session)
                doing = operation.kind
                if played.waits_for_report:
                    played.reported = await session.reported_return()
                await session.close()
    except WorkerDied:
        raise
    except (WorkerError, SessionError, ValueError) as error:
        played.failure = f"'{doing}' failed: {error}"


async def _open(session: WorkerSession, name: str, scenario: Scenario) -> Opened:
    task, seed = scenario.sessions[name]
    if place := scenario.places.get(name):
        try:
            return await session.open_at(place.split, place.index, seed)
        except RequestFailed as error:
            if error.kind != "unsupported":
                raise
    return await session.open(task, seed)


async def _reread(session: WorkerSession) -> None:
    try:
        await session.reread()
    except SessionError:
        # What closing would complain of is the same, and is said already.
        with suppress(SessionError):
            await session.close()
        raise


async def _expected(
    environment: Environment[Any], scenario: Scenario, raised: Counter[str]
) -> dict[str, Transcript]:
    # One session after the other: whatever interleaving does in the framework, nothing is interleaved here.
    return {name: await _reference(environment, scenario, name, raised) for name in scenario.sessions}


async def _reference(
    environment: Environment[Any], scenario: Scenario, name: str, raised: Counter[str]
) -> Transcript:
    task, seed = scenario.sessions[name]
    actions = [
        operation.action
        for group in scenario.rounds
        for operation in group
        if operation.session == name and operation.action is not None
    ]
    steps: list[TranscriptStep] = []
    try:
        return await _played_alone(environment, (task, seed), actions, steps, raised)
    except (StartError, ScoringError) as error:
        at = (
            "before the first step"
            if isinstance(error, StartError)
            else f"at step {len(steps)}, {_cut(_written(actions[len(steps)]))}"
        )
        broken = BrokenEnvironmentError(
            f"{environment.name} fails without any framework: {error} (scenario {scenario.name}, task {task}, seed {seed}, {at})"
        )
        broken.failure = error.failure
        raise broken from error


def _written(action: Action) -> str:
    return json.dumps(action if isinstance(action, str) else action.to_json())


def _place_of(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" at {one.filename}, line {one.lineno}, in {one.name}" for one in frame)
    return f"{type(error).__name__}{place}: {_cut(str(error))}"


async def _played_alone(
    environment: Environment[Any],
    session: tuple[str, int],
    actions: list[Action],
    steps: list[TranscriptStep],
    raised: Counter[str],
) -> Transcript:
    task, seed = session
    episode = await Episode.open_async(environment, task, seed=seed)
    try:
        # One by one, so that it is known how far it went when a step fails.
        for action in actions:
            steps.append(TranscriptStep(action, await episode.step_async(action)))  # noqa: PERF401
        if episode.failure is not None:
            raised[_place_of(episode.failure)] += 1
        return Transcript(
            environment=environment.name,
            version=environment.version,
            task=task,
            seed=seed,
            prompt=episode.prompt,
            tools=tuple(tool.spec for tool in environment.tools),
            steps=tuple(steps),
        )
    finally:
        await episode.close_async()


def _compare(
    environment: Environment[Any],
    scenario: Scenario,
    played: Mapping[str, _Played],
    expected: Mapping[str, Transcript],
    absent: frozenset[Feature],
) -> Iterator[Divergence]:
    for name, reference in expected.items():
        mine = played[name]
        what = f"{environment.name} / {scenario.name}: {scenario.promise}"
        session = f"{name} (task {reference.task}, seed {reference.seed})"
        framework = _shown(mine, reference)
        different = first_difference(project(reference, absent), project(framework, absent))
        # An episode that broke off before it was open has shown nothing; why it did says more.
        is_cut = not framework.prompt or (different is not None and different.piece == "length")
        if different is not None and not (is_cut and mine.failure):
            yield Divergence(
                what, session, different.step, different.piece, different.left, different.right,
                _action_at(reference, different),
            )  # fmt: skip
        elif mine.failure is not None:
            yield Divergence(what, session, len(mine.steps), "session", "goes on", mine.failure)
        elif mine.reported is not None and not same_return(environment, reference.total, mine.reported):
            yield Divergence(
                what, session, len(mine.steps), RETURN, repr(reference.total), repr(mine.reported)
            )
        task = environment.tasks().get(reference.task)
        for after, state in mine.exposed:
            leak = _leak(task, reference, after, state)
            if leak is not None:
                yield Divergence(what, session, after, "secret", "no secret in what a client can read", leak)


def _shown(played: _Played, reference: Transcript) -> Transcript:
    return Transcript(
        environment=reference.environment,
        version=reference.version,
        task=reference.task,
        seed=reference.seed,
        prompt=played.opened.prompt,
        tools=played.opened.tools,
        steps=tuple(played.steps),
    )


def same_return(environment: Environment[Any], reference: float, reported: float) -> bool:
    """Return whether the return that a framework reports is the reference's.

    Payments that are differences of scores, as those of the aggregation `last`, sum to the return up to rounding; all
    others do exactly.
    """
    if environment.reward.aggregation is Aggregation.LAST:
        return abs(reference - reported) <= _ROUNDING
    return reference == reported


def _action_at(transcript: Transcript, difference: Difference) -> str:
    if difference.step is None or difference.step >= len(transcript.steps):
        return ""
    return json.dumps(transcript.steps[difference.step].to_json()["action"], ensure_ascii=True)


def _leak(task: Task, reference: Transcript, after: int, state: JSON) -> str | None:
    """Return what is wrong when a client can read a secret that neither the rules nor the agent had named by then."""
    steps = reference.steps[:after]
    if steps and steps[-1].result.cause is not None:
        return None
    public = json.loads(dataclasses.replace(reference, steps=steps).to_line())
    said = "\n".join(_texts(public))
    for secret in _texts(dict(task.secret)):
        if len(secret) < _SHORTEST_SECRET or _names(secret, said):
            continue
        told = next((text for text in _texts(state) if _names(secret, text)), None)
        if told is not None:
            return f"the secret {secret!r} stands in {_cut(told)!r}"
    return None


def _names(secret: str, text: str) -> bool:
    # A short secret may be part of any word or identifier; only standing alone does it say something.
    edge = r"\b" if len(secret) < _LONG_SECRET else ""
    return re.search(f"{edge}{re.escape(secret)}{edge}", text, re.IGNORECASE) is not None


def _texts(value: JSON) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
