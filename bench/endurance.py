"""Endurance: sessions that are played side by side, given up in great number, and listened to for what nobody may say."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench import protocol
from bench.canary.environment import BROKEN, Canary
from bench.client import Worker, start_worker
from bench.conformance import absent_features, check_scenario
from bench.endurance_records import Cycles, Endurance, Isolation, Reading, Secrecy, Way
from bench.progress import OnProgress, Progress
from bench.relay import Relay, start_relay
from bench.scenarios import Operation, Scenario, make_actions
from bench.session import WorkerSession, connect_session, open_session, serve
from canonical.adapter import SessionError
from canonical.catalogue import load_environment
from canonical.content import JSON
from canonical.environment import Environment
from canonical.sampling import random_call
from canonical.spelling import find_secret
from canonical.task import Task
from canonical.tool import ToolCall
from canonical.transcript import Action

CANARY = str(Path(__file__).parent / "canary")
"""The environment that is searched for secrets, whatever environment was asked for."""

WIDTH = 16
"""How many sessions are under way at the same time while they are opened and given up."""

SPARE_DESCRIPTORS = 8
"""How many more descriptors a process may have after the cycles than before: those of connections that are kept."""

SPARE_THREADS = 32
"""How many more threads a process may have after the cycles than before.

Pools take a thread more whenever more calls than ever overlap, up to their size; a thread for every cycle is far more.
"""

BYTES_PER_CYCLE = 1024
"""By how many bytes for each cycle the memory that a process shares with nobody may grow.

A live episode of Wordle alone weighs more than that, and every framework keeps objects of its own beside it.
"""

ROUNDS = 4
"""How often as many sessions are given up again while memory is all that grows.

What leaks does so in every round. An allocator takes what it needs for a crowd over several: a server of ORS that held a
thousand sessions, gave them up, and held as many again, grew in three rounds and in none of the next five.
"""

SPARE_BYTES = 1 << 20
"""By how many bytes memory may grow whatever the cycles: an allocator takes whole arenas, and a process warms up."""

SESSION_TTL_S = 10.0
"""After how many idle seconds servers are told to free a session, where they hear nothing of clients that are gone."""

_GREW = "memory grew"
_LONGEST_POLL_S = 5.0
_POLL_S = 0.5

_Leave = Callable[["_Ground", int, Callable[[int], None]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Subject:
    """Say what is put to the test.

    Attributes:
        python: The interpreter of the stack.
        adapter: The adapter as `bench.client.start_worker` takes it.
        kind: Whether it serves environments or runs them in process.
        label: What the result calls it.
    """

    python: Path
    adapter: str
    kind: Literal["server", "in_process"]
    label: str


@dataclass(slots=True)
class _Ground:
    """Hold what all parts of one run share."""

    subject: Subject
    source: str
    environment: Environment[Any]
    tasks: list[Task]
    host: Worker
    client: Worker
    url: str | None
    ttl_s: float | None
    patience_s: float
    kept_s: float
    rng: random.Random


async def run_endurance(
    subject: Subject,
    *,
    source: str,
    sessions: int = 64,
    cycles: int = 2000,
    patience_s: float = 120.0,
    seed: int = 0,
    on_progress: OnProgress = lambda _: None,
) -> Endurance:
    """Interleave sessions, open sessions and give them up, and search for secrets.

    Args:
        subject: The framework release.
        source: Name or path of the environment that is interleaved and cycled.
        sessions: How many sessions are held at the same time.
        cycles: How many sessions are opened and given up; half of them politely.
        patience_s: How long a server may take to free what was given up, in seconds.
        seed: Decides the order and the actions.
        on_progress: Hears how far each part has come.

    Raises:
        WorkerError: A worker broke down.
    """
    started = time.monotonic()
    environment = load_environment(source)
    rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
    async with _stand(subject, source) as (host, client, serving):
        ground = _Ground(
            subject, source, environment, list(environment.tasks()), host, client, serving.url, None, patience_s, 0.0, rng
        )  # fmt: skip
        isolation = await _interleave(ground, sessions, on_progress)
    # Only now: a session that is interleaved may rest longer than a server that is impatient waits.
    async with _stand(subject, source, session_ttl_s=SESSION_TTL_S) as (host, client, serving):
        ttl = serving.settings.get("session_ttl_seconds")
        ground = _Ground(
            subject, source, environment, list(environment.tasks()), host, client, serving.url,
            float(ttl) if ttl is not None else None, patience_s, float(serving.settings.get("results_kept_seconds", 0)), rng,
        )  # fmt: skip
        counted = await _cycle_all(ground, cycles, sessions, on_progress)
        packages = client.started.packages
    async with _stand(subject, CANARY) as (host, client, serving):
        secrecy = await _listen(subject, host, client, serving.url, on_progress)
    return Endurance(
        stack=subject.label,
        packages=packages,
        environment=f"{environment.name} {environment.version}",
        limits={
            "sessions": 0,
            "descriptors": SPARE_DESCRIPTORS,
            "threads": SPARE_THREADS,
            "bytes_per_cycle": BYTES_PER_CYCLE,
            "bytes": SPARE_BYTES,
        },
        session_ttl_s=ground.ttl_s,
        isolation=isolation,
        cycles=counted,
        secrecy=secrecy,
        seconds=round(time.monotonic() - started, 1),
    )


@asynccontextmanager
async def _stand(
    subject: Subject, source: str, *, session_ttl_s: float | None = None
) -> AsyncIterator[tuple[Worker, Worker, protocol.Serving]]:
    async with AsyncExitStack() as running:
        client = await running.enter_async_context(_client(subject))
        host = client
        if subject.kind == "server":
            host = await running.enter_async_context(
                start_worker(subject.python, subject.adapter, label=f"the {subject.label} server")
            )
        yield host, client, await serve(host, source, session_ttl_s=session_ttl_s)


def _client(subject: Subject) -> contextlib.AbstractAsyncContextManager[Worker]:
    return start_worker(subject.python, subject.adapter, label=f"the {subject.label} client")


# Isolation


async def _interleave(ground: _Ground, sessions: int, on_progress: OnProgress) -> Isolation:
    part = f"{ground.subject.label}: interleaving"
    on_progress(Progress(part, 0, sessions, "sessions"))
    scenario = interleaved(ground.environment, sessions, ground.rng)
    divergences, expected = await check_scenario(
        ground.client,
        scenario,
        source=ground.source,
        url=ground.url,
        absent=absent_features(ground.client),
    )
    on_progress(Progress(part, sessions, sessions, "sessions"))
    return Isolation(
        sessions=sessions,
        tasks=len({task for task, _ in scenario.sessions.values()}),
        steps=sum(len(transcript.steps) for transcript in expected.values()),
        findings=[divergence.render() for divergence in divergences],
    )


def interleaved(environment: Environment[Any], sessions: int, rng: random.Random) -> Scenario:
    """Return a scenario of many sessions, each with a task of its own as far as there are so many, in random order.

    Up to an eighth of the sessions act at the same time, which sessions and how many is left to chance, step by step.
    """
    tasks = list(environment.tasks())
    rng.shuffle(tasks)
    names = {f"s{number}": (tasks[number % len(tasks)].id, number) for number in range(sessions)}
    lines = [_line(environment, name, task, rng) for name, (task, _) in names.items()]
    rounds: list[list[Operation]] = []
    while lines:
        acting = rng.sample(lines, rng.randint(1, max(1, len(lines) // 8)))
        rounds.append([line.pop(0) for line in acting])
        lines = [line for line in lines if line]
    promise = "A session shows what it would show alone, whatever others do in between."
    return Scenario("interleaved", promise, names, rounds)


def _line(environment: Environment[Any], name: str, task_id: str, rng: random.Random) -> list[Operation]:
    task = environment.tasks().get(task_id)
    actions: list[Action] = []
    while len(actions) < environment.max_turns:
        symbol = rng.choices(("random", "unknown", "no-arguments", "as-text"), (80, 5, 5, 10))[0]
        actions += make_actions(symbol, environment, task, rng)
    return [
        Operation("open", name),
        *(Operation("step", name, action) for action in actions),
        Operation("close", name),
    ]


# Leaks


async def _cycle_all(ground: _Ground, cycles: int, sessions: int, on_progress: OnProgress) -> list[Cycles]:
    part = f"{ground.subject.label}: giving up"
    total, done = 2 * cycles, 0

    def show(now: int) -> None:
        on_progress(Progress(part, done + now, total, "sessions"))

    async def give_up(way: Way, leave: _Leave, number: int) -> list[Cycles]:
        nonlocal done
        # As many as are counted afterwards, and as much apart as the server keeps what it has told: an allocator keeps
        # the most that was ever in use at once.
        await leave(ground, max(number, WIDTH), show)
        done += number
        counted = await _settled(ground, {}, way, number)
        for _ in range(ROUNDS):
            await asyncio.sleep(ground.kept_s)
            before = {one.process: one.after for one in counted}
            await leave(ground, number, show)
            counted = await _settled(ground, before, way, number)
            left = [finding for one in counted for finding in one.findings]
            if not left or not all(_GREW in finding for finding in left):
                break
        return counted

    counted = await give_up("closed", _close_politely, cycles - cycles // 2)
    counted += await give_up("dropped", _drop, cycles // 2)
    if ground.url is not None:
        if ground.ttl_s is None or ground.ttl_s <= ground.patience_s:
            # So many sessions that begin at the same moment take memory that stays in the process, once.
            await _kill(ground, sessions)
            await _settled(ground, {}, "killed", sessions)
        server = {"server": (await _read(ground))["server"]}
        await _kill(ground, sessions)
        counted += await _settled(ground, server, "killed", sessions)
    return counted


async def _close_politely(ground: _Ground, cycles: int, on_done: Callable[[int], None]) -> None:
    gate, done = asyncio.Semaphore(WIDTH), 0

    async def one(number: int) -> None:
        nonlocal done
        async with gate, connect_session(ground.client, ground.source, url=ground.url) as session:
            await _play_a_little(ground, session, number)
        done += 1
        on_done(done)

    async with asyncio.TaskGroup() as group:
        for number in range(cycles):
            group.create_task(one(number))


async def _drop(ground: _Ground, cycles: int, on_done: Callable[[int], None]) -> None:
    async with AsyncExitStack() as running:
        relay: Relay | None = None
        if ground.url is not None:
            relay = await running.enter_async_context(start_relay(ground.url))
        url = relay.url if relay else None
        for first in range(0, cycles, WIDTH):
            numbers = range(first, min(cycles, first + WIDTH))
            dropped = await asyncio.gather(
                *(open_session(ground.client, ground.source, url=url) for _ in numbers)
            )
            await asyncio.gather(*map(_play_a_little, [ground] * len(dropped), dropped, numbers))
            if relay is not None:
                await relay.cut()
            await asyncio.gather(
                *(
                    session.abandon(_any_call(ground, number))
                    for session, number in zip(dropped, numbers, strict=True)
                )
            )
            if relay is not None:
                await relay.listen()
            on_done(numbers.stop)


async def _kill(ground: _Ground, sessions: int) -> None:
    async with _client(ground.subject) as doomed:
        held = await asyncio.gather(
            *(open_session(doomed, ground.source, url=ground.url) for _ in range(sessions))
        )
        await asyncio.gather(*map(_play_a_little, [ground] * sessions, held, range(sessions)))
        os.killpg(doomed.pid, signal.SIGKILL)


async def _play_a_little(ground: _Ground, session: WorkerSession, number: int) -> None:
    await session.open(_task(ground, number).id, number)
    if number % 4:
        await session.step(_any_call(ground, number))


def _task(ground: _Ground, number: int) -> Task:
    return ground.tasks[number % len(ground.tasks)]


def _any_call(ground: _Ground, number: int) -> ToolCall:
    return random_call(ground.environment, _task(ground, number), random.Random(number))  # noqa: S311 - as above


async def _read(ground: _Ground) -> dict[str, Reading]:
    processes = {"server": ground.host, "client": ground.client}
    if ground.url is None:
        # One process does both, and its sessions are the ones that count.
        del processes["server"]
    readings = {}
    for name, worker in processes.items():
        seen = await worker.observe(collect=True)
        readings[name] = Reading(seen.open_sessions, seen.fds, seen.threads, seen.uss_bytes or seen.rss_bytes)
    return readings


async def _settled(ground: _Ground, before: Mapping[str, Reading], way: Way, cycles: int) -> list[Cycles]:
    started = time.monotonic()
    while True:
        after = await _read(ground)
        counted = [
            Cycles(
                way, cycles, name, before.get(name, after[name]), after[name],
                settled_s=round(time.monotonic() - started, 1),
                findings=list(_left(way, cycles, name, before.get(name, after[name]), after[name])),
            )
            for name in after
            if not before or name in before
        ]  # fmt: skip
        if not any(one.findings for one in counted):
            return counted
        if time.monotonic() - started > ground.patience_s:
            break
        # What is freed at once is seen at once, and looking costs as much as a session does.
        await asyncio.sleep(min(_LONGEST_POLL_S, max(_POLL_S, (time.monotonic() - started) / 10)))
        if ground.ttl_s is not None and any(reading.sessions for reading in after.values()):
            # A server that hears nothing of a client that is gone may look around only when another one comes.
            async with connect_session(ground.client, ground.source, url=ground.url) as session:
                await _play_a_little(ground, session, cycles)
    for one in counted:
        if (
            way != "closed"
            and ground.ttl_s is not None
            and ground.ttl_s > ground.patience_s
            and one.after.sessions
        ):
            one.findings = []
            one.waiting = (
                f"{one.after.sessions:,} sessions wait: the server frees what nobody uses after {ground.ttl_s:g} s, "
                f"and after {ground.patience_s:g} s nobody waited any longer"
            )
    return counted


def _left(way: Way, cycles: int, process: str, before: Reading, after: Reading) -> Iterator[str]:
    what = f"{process}, {cycles:,} sessions {way}"
    if after.sessions:
        yield f"{what}: {after.sessions:,} sessions are still open"
    for name, allowed in (("descriptors", SPARE_DESCRIPTORS), ("threads", SPARE_THREADS)):
        more = getattr(after, name) - getattr(before, name)
        if more > allowed:
            yield f"{what}: {more:,} more {name} than before; {allowed} are allowed"
    grown, allowed = after.bytes - before.bytes, max(SPARE_BYTES, cycles * BYTES_PER_CYCLE)
    if grown > allowed:
        yield f"{what}: {_GREW} by {grown:,} bytes, {grown / cycles:,.0f} for each; {allowed:,} are allowed"


# Secrecy


async def _listen(
    subject: Subject, host: Worker, client: Worker, url: str | None, on_progress: OnProgress
) -> Secrecy:
    async with AsyncExitStack() as running:
        relay: Relay | None = None
        if url is not None:
            relay = await running.enter_async_context(start_relay(url, is_recording=True))
        return await _Listener(subject, host, client, relay).all(on_progress)


class _Listener:
    """Play every task of the canary, and search for the secrets of all episodes that have not told theirs."""

    def __init__(self, subject: Subject, host: Worker, client: Worker, relay: Relay | None) -> None:
        self._part = f"{subject.label}: listening"
        self._workers = {host.pid: host, client.pid: client}
        self._client = client
        self._relay = relay
        self._values: list[bytes] = []
        self._secrets = {task.id: str(task.secret["song"]) for task in Canary().tasks()}
        self._found: list[str] = []
        self._told = 0

    async def all(self, on_progress: OnProgress) -> Secrecy:
        tasks = [task for task in self._secrets if task != BROKEN]
        for number, task in enumerate(tasks):
            await self._one(number, task)
            on_progress(Progress(self._part, number + 1, len(tasks), "episodes"))
        size = self._relay.size if self._relay else sum(map(len, self._values))
        episodes_that_tell = len(range(0, len(tasks), _EVERY))
        if self._told < episodes_that_tell:
            self._found.append(
                f"only {self._told} of {episodes_that_tell} secrets were found after they had been told, "
                "so nothing can be said of the time before"
            )
        return Secrecy(
            episodes=len(tasks),
            searched="wire" if self._relay else "values",
            bytes=size + sum(len(worker.log) for worker in self._workers.values()),
            told=self._told,
            findings=self._found,
        )

    async def _one(self, number: int, task: str) -> None:
        url = self._relay.url if self._relay else None
        async with connect_session(self._client, CANARY, url=url) as session:
            try:
                await session.open(BROKEN, number)
            except SessionError as error:
                self._hear(str(error))
        async with connect_session(self._client, CANARY, url=url) as session:
            opened = await session.open(task, number)
            self._hear([message.to_json() for message in opened.prompt])
            self._hear([tool.to_json() for tool in opened.tools])
            for action in _DISTURBANCES[: _LENGTHS[number % _EVERY]]:
                self._hear((await session.step(action)).to_json())
                self._hear(await session.public_state())
            self._search(f"before the end of task {task}")
            if number % _EVERY == 0:
                secret = str(Canary().tasks().get(task).secret["song"])
                self._secrets.pop(task, None)
                self._hear((await session.step(ToolCall("listen", {}))).to_json())
                self._told += find_secret(secret, self._places()) is not None
        self._search(f"after task {task} was left")

    def _hear(self, value: JSON) -> None:
        self._values.append(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))

    def _places(self) -> list[bytes]:
        # What a client is handed has come over the wire where there is one, so the bytes there are the proof.
        return self._relay.said() if self._relay else self._values

    def _search(self, when: str) -> None:
        places = [*self._places(), *self._values, *(worker.log for worker in self._workers.values())]
        for task, secret in list(self._secrets.items()):
            found = find_secret(secret, places)
            if found is not None:
                self._found.append(f"{when}, the secret of task {task} is there, {found}")
                del self._secrets[task]


_EVERY = 3
"""Every third episode is played until it tells its secret; of the others, one half is left early, one half runs out."""

_LENGTHS = (3, 4, Canary.max_turns)

_DISTURBANCES: tuple[Action, ...] = (
    ToolCall("disturb", {"how": "gently"}),
    ToolCall("disturb", {"how": "loudly"}),
    ToolCall("disturb", {"how": "otherwise"}),
    "I only talk.",
    ToolCall("no_such_tool", {"closely": True}),
    ToolCall("look", {}),
)
