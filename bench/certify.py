"""Certify: replay a golden set through the real server and client of every framework, and compare byte for byte."""

from __future__ import annotations

import asyncio
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

from bench.certificate import Certificate, DivergenceRow, FeatureRow, Golden, Proof, Section, specify
from bench.client import Worker, WorkerDied, WorkerError, start_worker
from bench.conformance import RETURN, Divergence, same_return
from bench.machine import read_revision
from bench.progress import OnProgress, Progress
from bench.projection import COMPARED, project
from bench.session import WorkerSession, connect_session, serve
from bench.stacks import ROOT, Stack
from canonical.adapter import Feature, Level, SessionError
from canonical.catalogue import definition_sha256, load_environment
from canonical.environment import Environment
from canonical.golden import EPISODES, GoldenEpisode, GoldenError, GoldenSet, golden_folder
from canonical.transcript import Transcript, TranscriptStep, digest_of, first_difference

WIDTH = 8
"""How many episodes are played at the same time."""
SHOWN = 10
"""How many divergences of a framework a certificate holds in full."""
PATIENCE = 20
"""After how many episodes that broke off the others are not played any more."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Hold what is certified: an adapter, and the stack that it runs in.

    Attributes:
        adapter: The adapter as a worker takes it.
        python: The interpreter of the stack.
        title: The framework's name as its makers write it.
        release: The label of the release.
        reading: How a trainer of this framework reads the return of an episode.
        is_server: Whether the framework serves environments, so that a second worker does that.
    """

    adapter: str
    python: Path
    title: str
    release: str
    reading: str
    is_server: bool

    @classmethod
    def of(cls, stack: Stack) -> Subject:
        """Return what certifying a stack means."""
        facts = stack.facts
        return cls(
            stack.worker, stack.python, facts.title, stack.label, facts.words.get("return", ""),
            facts.kind == "server",
        )  # fmt: skip


REFERENCE = Subject(
    "canonical.reference", Path(sys.executable), "The reference", "reference", "the ledger of the episode", False
)  # fmt: skip


def read_golden(environment: Environment[Any], source: str) -> GoldenSet:
    """Return the golden set that lies beside an environment.

    Args:
        environment: The environment.
        source: Its name or path, for the message.

    Raises:
        GoldenError: There is none, it cannot be read, or it belongs to another version of the environment.
    """
    path = golden_folder(environment) / EPISODES
    if not path.is_file():
        raise GoldenError(
            f"{environment.name} has no golden set; `rosetta golden {source} --write` records one in {path.parent}"
        )
    golden = GoldenSet.read(path)
    first = golden.episodes[0].transcript
    if (first.environment, first.version) != (environment.name, environment.version):
        raise GoldenError(
            f"{path} belongs to {first.environment} {first.version}, and this is {environment.name} "
            f"{environment.version}; `rosetta golden {source} --write` records it anew"
        )
    return golden


async def certify(
    source: str,
    subjects: Sequence[Subject],
    *,
    sections: Iterable[Section] = (),
    on_progress: OnProgress = lambda _: None,
) -> Certificate:
    """Replay the golden set of an environment through the reference and through frameworks, one after the other.

    A framework whose worker breaks down does not pass, and the others go on.

    Args:
        source: Name or path of the environment.
        subjects: The frameworks.
        sections: What else was proven, to be certified with it.
        on_progress: Called with the episodes played by each of them.

    Raises:
        GoldenError: The environment has no golden set, or one of another version.
    """
    environment = load_environment(source)
    golden = read_golden(environment, source)
    started = datetime.now(UTC)
    revision = read_revision(ROOT)
    proofs = [
        await prove(source, golden, subject, on_progress=on_progress) for subject in (REFERENCE, *subjects)
    ]
    transcripts = [episode.transcript for episode in golden.episodes]
    return Certificate(
        environment=specify(environment, definition_sha256=definition_sha256(environment)),
        golden=Golden(
            episodes=len(golden.episodes),
            steps=golden.steps,
            groups=golden.groups,
            ends=dict(Counter(str(transcript.cause or "none") for transcript in transcripts).most_common()),
            digest=golden.digest(),
        ),
        reference=proofs[0],
        frameworks=proofs[1:],
        sections=list(sections),
        project=version("rosetta-environments"),
        commit=None if revision is None else revision.commit,
        dirty=None if revision is None else revision.dirty,
        started=f"{started:%Y-%m-%dT%H:%M:%SZ}",
    )


@dataclass(frozen=True, slots=True)
class Shown:
    """Hold what a framework showed of one episode.

    Attributes:
        transcript: What it showed.
        reported: The return that a trainer of the framework reads; None when the episode was not played to its end.
        failure: Why the episode broke off, if it did.
    """

    transcript: Transcript
    reported: float | None = None
    failure: str | None = None


async def prove(
    source: str,
    golden: GoldenSet,
    subject: Subject,
    *,
    on_progress: OnProgress = lambda _: None,
) -> Proof:
    """Replay a golden set through one framework and compare everything that it shows.

    Args:
        source: Name or path of the environment.
        golden: The golden set.
        subject: The framework.
        on_progress: Called with the episodes played.
    """
    started = time.monotonic()
    environment = load_environment(source)
    shown: dict[int, Shown] = {}
    features: dict[str, dict[str, str]] = {}
    packages: dict[str, str] = {}
    python, failure = platform.python_version(), None

    def played(index: int, what: Shown) -> None:
        shown[index] = what
        on_progress(Progress(subject.release, len(shown), len(golden.episodes), "episodes"))

    try:
        async with _workers(subject) as (host, driver):
            who = driver.started
            features, packages, python = who.features, who.packages, who.python
            url = (await serve(host, source)).url if subject.is_server else None
            await _replay(driver, source, url, golden, played)
    except WorkerError as error:
        failure = str(error)
    absent = frozenset(
        feature
        for feature in COMPARED
        if features.get(feature.value, {}).get("level") == Level.ABSENT.value
    )  # fmt: skip
    found = [
        divergence
        for index, what in sorted(shown.items())
        if (divergence := compare(environment, golden.episodes[index], what, absent))
    ]  # fmt: skip
    return Proof(
        framework=subject.adapter,
        title=subject.title,
        release=subject.release,
        packages=packages,
        python=python,
        dependencies=_dependencies(subject.python),
        reading=subject.reading,
        episodes=len(shown),
        steps=sum(len(what.transcript.steps) for what in shown.values()),
        returns=sum(what.reported is not None for what in shown.values()),
        divergences=len(found),
        shown=[DivergenceRow(**asdict(divergence)) for divergence in found[:SHOWN]],
        failure=failure,
        not_compared=sorted(absent),
        features={name: FeatureRow(**row) for name, row in features.items()},
        digest=digest_of(what.transcript for _, what in sorted(shown.items())),
        seconds=round(time.monotonic() - started, 3),
    )


@asynccontextmanager
async def _workers(subject: Subject) -> AsyncIterator[tuple[Worker, Worker]]:
    async with start_worker(subject.python, subject.adapter, label=f"the {subject.release} client") as driver:
        if not subject.is_server:
            yield driver, driver
            return
        async with start_worker(
            subject.python, subject.adapter, label=f"the {subject.release} server"
        ) as host:
            yield host, driver


async def _replay(
    driver: Worker,
    source: str,
    url: str | None,
    golden: GoldenSet,
    played: Callable[[int, Shown], None],
) -> None:
    waiting = iter(enumerate(golden.episodes))

    failures = 0

    async def play() -> None:
        nonlocal failures
        for index, episode in waiting:
            shown = await _play(driver, source, url, episode.transcript)
            played(index, shown)
            failures += shown.failure is not None
            if failures >= PATIENCE:
                raise WorkerError(f"{failures} episodes broke off, the last because: {shown.failure}")

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(WIDTH):
                group.create_task(play())
    except* WorkerError as broken:
        raise _first(broken) from None


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


async def _play(driver: Worker, source: str, url: str | None, golden: Transcript) -> Shown:
    """Play the actions of a golden episode, and keep what the framework shows."""
    prompt: Any = ()
    tools: Any = ()
    steps: list[TranscriptStep] = []
    reported = failure = None
    try:
        async with connect_session(driver, source, url=url) as session:
            opened = await session.open(golden.task, golden.seed)
            prompt, tools = opened.prompt, opened.tools
            for step in golden.steps:
                # One by one, so that what was played stays when a step fails.
                steps.append(TranscriptStep(step.action, await session.step(step.action)))  # noqa: PERF401
            await session.reread()
            if golden.cause is not None:
                reported = await _read_return(session, steps)
    except WorkerDied:
        raise
    except (WorkerError, SessionError, ValueError, KeyError, TypeError) as error:
        # What a worker sends is read back strictly; an answer that is no step result is the framework's fault.
        failure = str(error) or type(error).__name__
    transcript = Transcript(
        environment=golden.environment,
        version=golden.version,
        task=golden.task,
        seed=golden.seed,
        prompt=prompt,
        tools=tools,
        steps=tuple(steps),
    )
    return Shown(transcript, reported, failure)


async def _read_return(session: WorkerSession, steps: Sequence[TranscriptStep]) -> float | None:
    # Where the framework does not know that the episode is over, its steps differ already, and say more.
    return await session.reported_return() if steps[-1].result.cause is not None else None


def compare(
    environment: Environment[Any], episode: GoldenEpisode, shown: Shown, absent: frozenset[Feature]
) -> Divergence | None:
    """Return the first place where an episode differs from the golden one, or None.

    Args:
        environment: The environment.
        episode: The golden episode.
        shown: What the framework showed of it.
        absent: Features that the framework cannot carry.
    """
    golden = episode.transcript
    session = f"task {golden.task}, seed {golden.seed}"
    found = first_difference(project(golden, absent), project(shown.transcript, absent))
    if found is not None and not (shown.failure and (found.piece == "length" or not shown.transcript.prompt)):
        at = golden.steps[found.step : found.step + 1] if found.step is not None else ()
        action = "".join(json.dumps(step.to_json()["action"]) for step in at)
        return Divergence(episode.name, session, found.step, found.piece, found.left, found.right, action)
    if shown.failure is not None:
        return Divergence(
            episode.name, session, len(shown.transcript.steps), "session", "goes on", shown.failure
        )
    if shown.reported is not None and not same_return(environment, golden.total, shown.reported):
        return Divergence(
            episode.name, session, len(golden.steps), RETURN, repr(golden.total), repr(shown.reported)
        )  # fmt: skip
    return None


def _dependencies(python: Path) -> dict[str, str]:
    """Return every distribution that is installed in the virtual environment of an interpreter."""
    places = [str(path) for path in sorted(python.parent.parent.glob("lib/python*/site-packages"))]
    found = {
        str(distribution.metadata["Name"]).lower().replace("_", "-"): distribution.version
        for distribution in distributions(path=places)
    }
    return dict(sorted(found.items()))
