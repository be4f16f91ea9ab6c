"""Server processes behind a real proxy, played by the framework's own client: what sessions, faults and a stop show."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest

from bench.client import Worker, start_worker
from bench.conformance import absent_features, check_scenario
from bench.endurance import interleaved
from bench.serving.fleet import Fleet, FleetRequest, serve_fleet
from bench.serving.proxies import load_proxy, proxy_names
from bench.session import WorkerSession, open_session
from bench.stacks import adapter_names, build_stack, find_stack
from canonical.adapter import SessionError
from canonical.catalogue import load_environment
from canonical.sampling import random_call

REPLICAS = 3
INTERLEAVED = 64
HELD = 9
SERVERS = [name for name in adapter_names() if find_stack(name).facts.kind == "server"]
WORDLE = load_environment("wordle")
TASK = next(iter(WORDLE.tasks()))


@dataclass
class Story:
    """What happened to one fleet, in order."""

    divergences: list[str] = field(default_factory=list)
    most: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    on_victim: int = 0
    lost: list[str] = field(default_factory=list)
    kept: int = 0
    patience_s: float = 0.0
    fresh: list[str] = field(default_factory=list)
    deaths: int = 0
    refused: str | None = None
    old_goes_on: bool = False
    drained: dict[str, int] = field(default_factory=dict)


@pytest.fixture(scope="module", params=[f"{name}-{proxy}" for name in SERVERS for proxy in proxy_names()])
def story(request: pytest.FixtureRequest) -> Story:
    name, _, proxy_name = request.param.rpartition("-")
    proxy = load_proxy(proxy_name)
    if proxy.find() is None:
        pytest.skip(f"{proxy.title} is not installed; get it with: {proxy.how_to_get}")
    stack = find_stack(name)
    build_stack(stack)
    return asyncio.run(tell(FleetRequest(stack, "wordle", REPLICAS, proxy, target_sessions=256)))


async def tell(request: FleetRequest) -> Story:
    story = Story()
    async with AsyncExitStack() as running:
        client = await running.enter_async_context(start_worker(request.stack.python, request.stack.worker))
        fleet = await running.enter_async_context(serve_fleet(request))
        await play_crowd(fleet, client, story)
        await lose_replica(fleet, client, story)
        await drain(fleet, client, story)
    return story


async def play_crowd(fleet: Fleet, client: Worker, story: Story) -> None:
    async def count() -> None:
        while True:
            for name, held in (await fleet.replicas.open_sessions()).items():
                story.most[name] = max(story.most.get(name, 0), held)
            await asyncio.sleep(0.05)

    counting = asyncio.create_task(count())
    scenario = interleaved(WORDLE, INTERLEAVED, random.Random(1))
    found, _ = await check_scenario(
        client, scenario, source="wordle", url=fleet.url, absent=absent_features(client)
    )
    counting.cancel()
    story.divergences = [one.render() for one in found]
    story.left = await until_empty(fleet)


async def lose_replica(fleet: Fleet, client: Worker, story: Story) -> None:
    sessions = [await begin(fleet, client) for _ in range(HELD)]
    held = await fleet.replicas.open_sessions()
    victim = max(fleet.replicas.states, key=lambda state: held[state.name])
    story.on_victim = held[victim.name]
    os.kill(victim.worker.pid, signal.SIGKILL)
    started = time.monotonic()
    for session in sessions:
        try:
            await session.step(random_call(WORDLE, TASK, random.Random(2)))
            story.kept += 1
        except SessionError as error:
            story.lost.append(str(error))
    story.patience_s = time.monotonic() - started
    for session in sessions:
        await leave(session)
    # As long as it takes to start anew and to be seen: the clients below wait for it no longer than users would.
    for _ in range(600):
        if victim.worker is not None and victim.deaths:
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(3)
    for _ in range(HELD):
        try:
            session = await begin(fleet, client)
            await session.step(random_call(WORDLE, TASK, random.Random(3)))
            await session.close()
        except SessionError as error:
            story.fresh.append(str(error))
    story.deaths = victim.deaths
    await until_empty(fleet)


async def drain(fleet: Fleet, client: Worker, story: Story) -> None:
    old = await begin(fleet, client)
    draining = asyncio.create_task(fleet.drain(30))
    await asyncio.sleep(1)
    try:
        await leave(await begin(fleet, client))
    except SessionError as error:
        story.refused = str(error)
    await old.step(random_call(WORDLE, TASK, random.Random(4)))
    story.old_goes_on = not draining.done()
    await old.close()
    story.drained = await draining


async def begin(fleet: Fleet, client: Worker) -> WorkerSession:
    session = await open_session(client, "wordle", url=fleet.url)
    await session.open(TASK.id, 0)
    return session


async def leave(session: WorkerSession) -> None:
    try:
        await session.close()
    except SessionError:
        return


async def until_empty(fleet: Fleet) -> dict[str, int]:
    for _ in range(100):
        left = {name: held for name, held in (await fleet.replicas.open_sessions()).items() if held}
        if not left:
            break
        await asyncio.sleep(0.1)
    return left


def test_sessions_show_what_they_would_show_alone(story: Story) -> None:
    """A session whose requests went to two replicas would differ: the second has never heard of it."""
    assert story.divergences == []


def test_every_replica_holds_sessions_and_frees_them(story: Story) -> None:
    assert len(story.most) == REPLICAS
    assert min(story.most.values()) > 0
    assert story.left == {}


def test_the_sessions_of_a_replica_that_dies_are_told_so_and_no_other_is_touched(story: Story) -> None:
    assert story.on_victim > 0
    assert len(story.lost) == story.on_victim
    assert story.kept == HELD - story.on_victim
    assert all(story.lost)


def test_a_replica_that_died_serves_again(story: Story) -> None:
    assert story.deaths == 1
    assert story.fresh == []


def test_a_fleet_that_is_stopped_takes_no_new_sessions_and_lets_the_old_ones_end(story: Story) -> None:
    assert story.refused is not None
    assert story.old_goes_on
    assert story.drained == {}
