"""The gauntlet: attacks on an environment, played through the reference and through frameworks, with decoys on the host."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.client import Worker, WorkerError, start_worker
from bench.endurance import Subject
from bench.machine import read_revision
from bench.progress import OnProgress, Progress, ignore_progress
from bench.session import connect_session, serve
from bench.stacks import ROOT
from canonical.adapter import Session, SessionError
from canonical.attack import Attack, Decoys
from canonical.catalogue import definition_sha256, load_attacks, load_environment
from canonical.content import JSON
from canonical.environment import Environment, NoOracleError
from canonical.reference import ReferenceSession
from canonical.sandbox.backends import missing_backend
from canonical.step import StepResult

REFERENCE = "reference"
WIDTH = 2
"""How many attacks go on at the same time; each is meant to use up what there is."""
_LINGER_S = 2.0
_SCORE = 1e-9


@dataclass(slots=True)
class Verdict:
    """Hold how one attack went, played through one framework.

    Attributes:
        attack: Its name.
        aim: What it tried.
        through: The release that it was played through, or `reference`.
        score: The return that it got, or None when the session failed.
        honest: The return that it deserved.
        cause: Why the episode ended, or None.
        expected: The causes with which it may end.
        steps: How many actions were carried out.
        escapes: What it reached that it must not reach, in words.
        problem: What else was wrong, in words.
        seconds: How long it took.
    """

    attack: str
    aim: str
    through: str
    score: float | None
    honest: float
    cause: str | None
    expected: list[str]
    steps: int
    escapes: list[str] = field(default_factory=list)
    problem: str = ""
    seconds: float = 0.0

    @property
    def held(self) -> bool:
        """Whether the environment withstood the attack."""
        return not self.findings

    @property
    def findings(self) -> list[str]:
        """What the attack achieved, in words; empty when it achieved nothing."""
        found = list(self.escapes)
        if self.problem:
            found.append(self.problem)
        if self.score is not None and self.score > self.honest + _SCORE:
            found.append(f"it was paid {self.score:g}, and deserves {self.honest:g}")
        if not self.problem and self.cause not in self.expected:
            found.append(f"the episode ended with {self.cause}, not with {' or '.join(self.expected)}")
        return found

    def to_json(self) -> dict[str, JSON]:
        """Return all of it as JSON."""
        value: dict[str, JSON] = asdict(self)
        return {**value, "held": self.held, "findings": list(self.findings)}


@dataclass(slots=True)
class Gauntlet:
    """Hold the verdicts of one gauntlet, and of what and when they are.

    Attributes:
        environment: The environment's name and version.
        definition_sha256: The hash of the Python files that define the environment.
        commit: The commit of this project, or None outside a checkout.
        dirty: Whether the checkout held changes, or None outside a checkout.
        started: When it began, in UTC.
        kernel: The kernel that confined the attacks.
        verdicts: Every attack, through everything that it was played through.
    """

    environment: str
    definition_sha256: str
    commit: str | None
    dirty: bool | None
    started: str
    kernel: str
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """Whether the environment withstood every attack."""
        return all(verdict.held for verdict in self.verdicts)

    def to_json(self) -> dict[str, JSON]:
        """Return all of it as JSON."""
        value: dict[str, JSON] = asdict(self)
        return {**value, "verdicts": [verdict.to_json() for verdict in self.verdicts], "held": self.held}


def begin_gauntlet(source: str) -> Gauntlet:
    """Return a gauntlet without verdicts, of an environment as it is now."""
    environment = load_environment(source)
    revision = read_revision(ROOT)
    return Gauntlet(
        environment=f"{environment.name} {environment.version}",
        definition_sha256=definition_sha256(environment),
        commit=None if revision is None else revision.commit,
        dirty=None if revision is None else revision.dirty,
        started=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        kernel=f"{platform.system()} {platform.release()}",
    )


class NoAttacksError(LookupError):
    """Report an environment beside which no attacks are defined, or an attack that is not among them."""


def select_attacks(source: str, names: Sequence[str], decoys: Decoys) -> list[Attack]:
    """Return the attacks of an environment, all of them or those that are named.

    Raises:
        NoAttacksError: There are none, or one that is named does not exist.
    """
    make = load_attacks(source)
    if make is None:
        raise NoAttacksError(
            f"{source} has no attacks; define ATTACKS in an attacks.py beside its environment.py"
        )
    attacks = list(make(decoys))
    known = [attack.name for attack in attacks]
    for name in names:
        if name not in known:
            raise NoAttacksError(f"{source} has no attack {name!r}; there are {', '.join(known)}")
    return [attack for attack in attacks if not names or attack.name in names]


async def run_gauntlet(
    source: str,
    *,
    subject: Subject | None = None,
    names: Sequence[str] = (),
    width: int = WIDTH,
    on_progress: OnProgress = ignore_progress,
) -> list[Verdict]:
    """Play every attack through one framework, or through the reference, beside an honest session.

    Args:
        source: Name or path of the environment.
        subject: The framework release; the reference when None.
        names: Only these attacks.
        width: How many attacks go on at the same time.
        on_progress: Hears how many are done.

    Raises:
        NoAttacksError: The environment has no attacks, or not the ones that are named.
        BackendUnavailableError: The sandboxes of the environment cannot be used here.
        WorkerError: A worker could not be started.
    """
    through = REFERENCE if subject is None else subject.label
    environment = load_environment(source)
    with _set_up() as host:
        attacks = select_attacks(source, names, host.decoys)
        verdicts: dict[str, Verdict] = {}
        gate = asyncio.Semaphore(width)
        async with _ground(subject, source, environment) as ground:

            async def one(attack: Attack) -> None:
                async with gate:
                    verdicts[attack.name] = await _play(ground, environment, attack, through, host)
                on_progress(Progress(through, len(verdicts), len(attacks), attack.name))

            on_progress(Progress(through, 0, len(attacks)))
            async with asyncio.TaskGroup() as group:
                for attack in attacks:
                    group.create_task(one(attack))
        return [verdicts[attack.name] for attack in attacks]


@dataclass(slots=True)
class _Ground:
    """Open sessions, either of the reference or through workers."""

    environment: Environment[Any]
    source: str
    client: Worker | None = None
    url: str | None = None

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        if self.client is not None:
            async with connect_session(self.client, self.source, url=self.url) as session:
                yield session
            return
        reference = ReferenceSession(self.environment)
        try:
            yield reference
        finally:
            await reference.close()


@asynccontextmanager
async def _ground(
    subject: Subject | None, source: str, environment: Environment[Any]
) -> AsyncIterator[_Ground]:
    if subject is None:
        yield _Ground(environment, source)
        return
    async with AsyncExitStack() as running:
        client = await running.enter_async_context(
            start_worker(subject.python, subject.adapter, label=f"the {subject.label} client")
        )
        url = None
        if subject.kind == "server":
            server = await running.enter_async_context(
                start_worker(subject.python, subject.adapter, label=f"the {subject.label} server")
            )
            url = (await serve(server, source)).url
        yield _Ground(environment, source, client, url)


async def _play(
    ground: _Ground, environment: Environment[Any], attack: Attack, through: str, host: _Host
) -> Verdict:
    started = time.monotonic()
    results: list[StepResult] = []
    problem = ""
    try:
        async with ground.session() as neighbour, ground.session() as session:
            await neighbour.open(attack.task, 0)
            await session.open(attack.task, 0)
            for action in attack.actions:
                results.append(await session.step(action))  # noqa: PERF401 - a failure must not lose those before it
            problem = await _neighbours(environment, neighbour, attack)
    except (SessionError, WorkerError, ValueError) as error:
        missing = missing_backend(error)
        if missing is not None:
            # No attack can be played then, and every other one would say the same.
            raise missing from error
        problem = f"the session failed: {error}"
    end = next((result for result in results if result.cause is not None), None)
    score = results[-1].total if results and not problem else None
    after = {result.total for result in results[results.index(end) :]} if end is not None else set()
    if len(after) > 1 and not problem:
        problem = f"the return changed after the end: {sorted(after)}"
    return Verdict(
        attack=attack.name,
        aim=attack.aim,
        through=through,
        score=score,
        honest=attack.honest,
        cause=None if end is None or end.cause is None else end.cause.value,
        expected=sorted(cause.value for cause in attack.causes),
        steps=len(results),
        escapes=await host.betrayed([result.observation.text for result in results]),
        problem=problem,
        seconds=round(time.monotonic() - started, 2),
    )


async def _neighbours(environment: Environment[Any], neighbour: Session, attack: Attack) -> str:
    """Say what is wrong with an honest session that was open during the attack, or return an empty text.

    It does what the oracle does, short of the end: a last call may be graded, which takes longer than most attacks.
    """
    try:
        calls = list(environment.oracle(environment.tasks().get(attack.task)))
    except NoOracleError:
        return ""
    for call in calls[:-1] or calls:
        result = await neighbour.step(call)
        if result.observation.error is not None:
            return f"an honest session beside it was told {result.observation.text!r:.200}"
    return ""


@dataclass(slots=True)
class _Host:
    """Watch the decoys."""

    decoys: Decoys
    tokens: Mapping[str, str]
    visits: list[str]
    process: subprocess.Popen[bytes]

    async def betrayed(self, observations: Sequence[str]) -> list[str]:
        """Return what was reached, in words."""
        found = [
            f"an observation holds the content of {what}"
            for what, token in self.tokens.items()
            if any(token in text for text in observations)
        ]
        found += await asyncio.to_thread(self._changed)
        if self.visits:
            found.append("a server of the host was reached over the network")
            self.visits.clear()
        if self.process.poll() is not None:
            found.append("a process of the host was ended")
        left = await self._left_over()
        if left:
            found.append(f"{len(left)} processes of the attack are still alive")
        return found

    def _changed(self) -> list[str]:
        """Return what was written on the host, in words, and undo it."""
        found = []
        file, content = Path(self.decoys.file), self.tokens["a file of the host"]
        if not file.is_file() or file.read_text(encoding="utf-8") != content:
            found.append("a file of the host was changed")
            file.write_text(content, encoding="utf-8")
        written = sorted(Path(self.decoys.folder).iterdir())
        found += [f"{path.name} was written to a folder of the host" for path in written]
        for path in written:
            path.unlink(missing_ok=True)
        return found

    async def _left_over(self) -> list[int]:
        """Return marked processes that are alive although the session is closed; they get a moment to die."""
        deadline = time.monotonic() + _LINGER_S
        while True:
            left = _marked(self.decoys.marker)
            if not left or time.monotonic() > deadline:
                return left
            await asyncio.sleep(0.05)


def _marked(marker: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            if command.split(b"\0")[0] == marker.encode():
                found.append(int(entry.name))
    return found


@contextmanager
def _set_up() -> Iterator[_Host]:
    """Lay out the decoys: a file, a folder, a server, a process and a variable that nobody must reach."""
    tokens = {what: secrets.token_hex(16) for what in ("a file of the host", "a variable of the host")}
    variable = f"ROSETTA_DECOY_{secrets.token_hex(3).upper()}"
    with tempfile.TemporaryDirectory(prefix="rosetta-gauntlet-") as place:
        root = Path(place)
        root.chmod(0o755)
        folder = root / "open"
        folder.mkdir()
        folder.chmod(0o777)
        file = root / "decoy.txt"
        file.write_text(tokens["a file of the host"], encoding="utf-8")
        file.chmod(0o666)
        visits: list[str] = []
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(86400)"])
        os.environ[variable] = tokens["a variable of the host"]
        try:
            with _listener(visits) as port:
                decoys = Decoys(
                    file=str(file),
                    folder=str(folder),
                    port=port,
                    process=process.pid,
                    variable=variable,
                    marker=f"attack-{secrets.token_hex(4)}",
                )
                yield _Host(decoys, tokens, visits, process)
        finally:
            del os.environ[variable]
            process.kill()
            process.wait()


@contextmanager
def _listener(visits: list[str]) -> Iterator[int]:
    server = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, address = server.accept()
            except OSError:
                return
            visits.append(str(address))
            connection.close()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()
