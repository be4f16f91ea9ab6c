"""A single server that is told to stop takes no new sessions, lets the open ones end in their time, and then ends itself."""

from __future__ import annotations

import asyncio
import random
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from bench.client import Worker, start_worker
from bench.session import WorkerSession, open_session
from bench.stacks import Stack, adapter_names, build_stack, find_stack
from canonical.adapter import SessionError
from canonical.catalogue import load_environment
from canonical.listening import DRAINING
from canonical.sampling import random_call

SERVERS = [name for name in adapter_names() if find_stack(name).facts.kind == "server"]
WORDLE = load_environment("wordle")
TASK = next(iter(WORDLE.tasks()))
PATIENCE_S = 60


@dataclass
class Told:
    """What a stopped server and its clients said."""

    refused: str
    was_alive: bool
    code: int
    words: str


@pytest.fixture(scope="module", params=SERVERS)
def stack(request: pytest.FixtureRequest) -> Stack:
    stack = find_stack(request.param)
    build_stack(stack)
    return stack


@asynccontextmanager
async def served(stack: Stack, drain_s: float) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Run the command; yield its process and the address that it names."""
    command = [sys.executable, "-P", "-m", "rosetta", "serve", "wordle", "--as", stack.adapter]
    process = await asyncio.create_subprocess_exec(
        *command, "--release", stack.release.version, "--port", "0", "--drain", str(drain_s),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            line = (await process.stdout.readline()).decode()
            url = re.search(r"http://127\.0\.0\.1:\d+", line)
            while url is None:
                more = (await process.stdout.readline()).decode()
                assert more, f"it named no address: {line}"
                line += more.strip()
                url = re.search(r"http://127\.0\.0\.1:\d+", line)
        yield process, url[0]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def begin(client: Worker, url: str) -> WorkerSession:
    session = await open_session(client, "wordle", url=url)
    await session.open(TASK.id, 0)
    return session


async def stop_with_a_session_open(stack: Stack, drain_s: float, *, ends: bool) -> Told:
    async with (
        start_worker(stack.python, stack.worker) as client,
        served(stack, drain_s) as (process, url),
    ):
        old = await begin(client, url)
        await old.step(random_call(WORDLE, TASK, random.Random(1)))
        process.send_signal(signal.SIGTERM)
        refused = ""
        # The signal takes its time through two processes; a session that slips in before is closed again.
        for _ in range(50):
            try:
                await (await begin(client, url)).close()
            except SessionError as error:
                refused = str(error)
                break
            await asyncio.sleep(0.1)
        was_alive = process.returncode is None
        if ends:
            await old.step(random_call(WORDLE, TASK, random.Random(2)))
            await old.close()
        async with asyncio.timeout(PATIENCE_S):
            _, said = await process.communicate()
        if not ends:
            with pytest.raises(SessionError):
                await old.step(random_call(WORDLE, TASK, random.Random(2)))
        assert process.returncode is not None
        return Told(refused, was_alive, process.returncode, " ".join(said.decode().split()))


@pytest.mark.slow
def test_the_open_session_goes_on_and_a_new_one_is_refused(stack: Stack) -> None:
    told = asyncio.run(stop_with_a_session_open(stack, 50, ends=True))
    assert "503" in told.refused or DRAINING in told.refused
    assert told.was_alive
    assert told.code == 0
    assert "cut off" not in told.words


@pytest.mark.slow
def test_a_session_that_does_not_end_in_time_is_cut_off_and_counted(stack: Stack) -> None:
    told = asyncio.run(stop_with_a_session_open(stack, 6, ends=False))
    assert told.refused
    assert told.code == 0
    assert "1 session was cut off" in told.words
