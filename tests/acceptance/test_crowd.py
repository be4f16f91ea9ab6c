"""Hundreds of agents at work in sandboxes at the same time show what each would show alone, and leave nothing behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.client import Worker, start_worker
from bench.conformance import absent_features, check_scenario
from bench.scenarios import Operation, Scenario
from bench.session import serve
from bench.stacks import Stack, build_stack, find_python, find_stack
from canonical.environments.coding_agent.environment import CodingAgent
from canonical.task import Task
from canonical.tool import ToolCall
from canonical.transcript import Action

SESSIONS = 256
TASKS = ("validation/photo-names", "train/error-digest", "test/join-tables", "validation/token-bucket")
CODING = CodingAgent()


def agent(number: int, task: Task) -> list[Action]:
    """Return what one agent does, unlike all others: three in four solve the task, the fourth submits what was there."""
    *solution, _ = CODING.oracle(task)
    return [
        ToolCall("bash", {"command": f"mkdir -p of/{number} && cd of/{number} && echo {number} > number"}),
        ToolCall("ls", {}),
        ToolCall(
            "bash", {"command": "pwd; cat number; for ((i = 0; i < 200; i++)); do echo $i; done | wc -l"}
        ),
        *(solution if number % 4 else []),
        ToolCall("grep", {"pattern": str(number), "path": "of"}),
        ToolCall("bash", {"command": "exit $(($(cat number) % 251))"}),
        ToolCall("submit_solution", {}),
    ]


def crowd() -> Scenario:
    """Return a scenario in which all agents do their next thing at the same moment."""
    sessions = {f"s{number}": (TASKS[number // 4 % len(TASKS)], number) for number in range(SESSIONS)}
    lines = [
        [
            Operation("open", name),
            *(Operation("step", name, action) for action in agent(number, CODING.tasks().get(task))),
            Operation("close", name),
        ]
        for number, (name, (task, _)) in enumerate(sessions.items())
    ]
    longest = max(map(len, lines))
    rounds = [[line[turn] for line in lines if turn < len(line)] for turn in range(longest)]
    return Scenario("crowd", "An agent shows what it would show alone.", sessions, rounds)


@dataclass(frozen=True)
class Descendant:
    """Hold one process that descends from a worker, and its share of the memory in bytes."""

    pid: int
    bytes: int


def descendants(pid: int) -> Iterator[Descendant]:
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        # It has ended in between.
        return
    for child in map(int, " ".join(lists).split()):
        yield Descendant(child, proportional(child))
        yield from descendants(child)


def proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def mounts(worker: Worker) -> int:
    return len(Path(f"/proc/{worker.pid}/mounts").read_text().splitlines())


def control_groups(worker: Worker) -> list[Path]:
    return [path for path in Path("/sys/fs/cgroup").rglob(f"rosetta-{worker.pid}-*") if path.is_dir()]


@pytest.fixture
def stack() -> Stack:
    stack = find_stack("openenv")
    if find_python(stack.release.python) is None:
        pytest.skip(f"{stack.label} needs Python {stack.release.python}, which is not installed here")
    build_stack(stack)
    return stack


@pytest.mark.slow
def test_256_agents_at_once_show_what_each_shows_alone(stack: Stack) -> None:
    async def play() -> dict[str, object]:
        async with (
            start_worker(stack.python, stack.worker, label="the server") as host,
            start_worker(stack.python, stack.worker, label="the client") as client,
        ):
            url = (await serve(host, "coding_agent")).url
            warm = Scenario(
                "one", "", {"s0": (TASKS[0], 0)}, [[Operation("open", "s0")], [Operation("close", "s0")]]
            )
            await check_scenario(client, warm, source="coding_agent", url=url, absent=absent_features(client))
            before, processes, mounted = (
                await host.observe(collect=True),
                len([*descendants(host.pid)]),
                mounts(host),
            )
            peak = {"sessions": 0, "processes": 0, "sandbox_bytes": 0, "fds": 0, "threads": 0, "rss_bytes": 0}

            busy = time.monotonic()

            async def watch() -> None:
                nonlocal busy
                while True:
                    seen, found = await host.observe(), [*descendants(host.pid)]
                    now = {
                        "sessions": seen.open_sessions,
                        "processes": len(found),
                        "sandbox_bytes": sum(one.bytes for one in found),
                        "fds": seen.fds,
                        "threads": seen.threads,
                        "rss_bytes": seen.rss_bytes,
                    }
                    busy = time.monotonic() if seen.open_sessions else busy
                    peak.update({name: max(peak[name], value) for name, value in now.items()})
                    await asyncio.sleep(2)

            watching = asyncio.create_task(watch())
            began = time.monotonic()
            divergences, expected = await check_scenario(
                client, crowd(), source="coding_agent", url=url, absent=absent_features(client)
            )
            ended = time.monotonic()
            if watching.done():
                watching.result()
            watching.cancel()
            for _ in range(100):
                after = await host.observe(collect=True)
                if not after.open_sessions and len([*descendants(host.pid)]) <= processes:
                    break
                await asyncio.sleep(0.1)
            assert [divergence.render() for divergence in divergences] == []
            assert len(expected) == SESSIONS == peak["sessions"]
            assert max(transcript.total for transcript in expected.values()) == 1.0
            assert after.open_sessions == 0
            assert len([*descendants(host.pid)]) <= processes
            assert mounts(host) == mounted
            assert control_groups(host) == []
            assert after.fds <= before.fds + 8
            return {
                "sessions": SESSIONS,
                "steps": sum(len(transcript.steps) for transcript in expected.values()),
                "solved": sum(transcript.total == 1.0 for transcript in expected.values()),
                "seconds_together": round(busy - began, 1),
                "seconds_one_by_one": round(ended - busy, 1),
                "peak": peak,
                "before": before.model_dump(),
                "after": after.model_dump(),
            }

    print(asyncio.run(play()))
