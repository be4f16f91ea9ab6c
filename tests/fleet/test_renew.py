"""Replicas that are started anew one after the other lose no session that ends in time, and no new one is refused."""

from __future__ import annotations

import asyncio
import random

import pytest

from bench.client import start_worker
from bench.serving.fleet import FleetRequest, serve_fleet
from bench.serving.proxies import load_proxy, proxy_names
from bench.session import open_session
from bench.stacks import adapter_names, build_stack, find_stack
from canonical.adapter import SessionError
from canonical.catalogue import load_environment
from canonical.sampling import random_call

WORDLE = load_environment("wordle")
TASK = next(iter(WORDLE.tasks()))
# Where a header binds sessions, nobody can keep new ones away from one replica.
MOVABLE = [name for name in adapter_names() if find_stack(name).facts.affinity in {"none", "cookie"}]


async def renew(request: FleetRequest) -> tuple[dict[str, int], int, list[str]]:
    """Return what a renewal lost, how many sessions were played meanwhile, and what those were told that failed."""
    played, failed = 0, []
    async with (
        start_worker(request.stack.python, request.stack.worker) as client,
        serve_fleet(request) as fleet,
    ):

        async def begin() -> object:
            session = await open_session(client, "wordle", url=fleet.url)
            await session.open(TASK.id, 0)
            return session

        old = [await begin() for _ in range(4)]
        renewing = asyncio.create_task(fleet.renew(60))
        await asyncio.sleep(1)
        for session in old:
            await session.step(random_call(WORDLE, TASK, random.Random(1)))
            await session.close()
        while not renewing.done():
            try:
                session = await begin()
                await session.step(random_call(WORDLE, TASK, random.Random(2)))
                await session.close()
                played += 1
            except SessionError as error:
                failed.append(str(error))
            await asyncio.sleep(0.1)
        return await renewing, played, failed


@pytest.mark.slow
@pytest.mark.parametrize("name", proxy_names())
@pytest.mark.parametrize("framework", MOVABLE)
def test_nobody_notices_that_replicas_are_renewed(framework: str, name: str) -> None:
    proxy = load_proxy(name)
    if proxy.find() is None:
        pytest.skip(f"{proxy.title} is not installed; get it with: {proxy.how_to_get}")
    stack = find_stack(framework)
    build_stack(stack)
    lost, played, failed = asyncio.run(renew(FleetRequest(stack, "wordle", 2, proxy, target_sessions=64)))
    assert failed == []
    assert lost == {}
    assert played > 0
