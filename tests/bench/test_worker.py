"""Workers answer what is asked, keep the wire clean, and leave nothing behind; failures are readable."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bench import protocol
from bench.client import RequestFailed, Worker, WorkerDied, WorkerError, merge_samples, start_worker
from bench.samples import Phase, Status
from bench.session import connect_session, serve
from bench.workloads import Workload
from canonical.adapter import Session, SessionError
from canonical.catalogue import load_environment
from canonical.episode import Episode
from canonical.tool import ToolCall

PYTHON = Path(sys.executable)
REFERENCE = "canonical.reference"


def with_worker(work: Callable[[Worker], Awaitable[object]], adapter: str = REFERENCE) -> object:
    async def run() -> object:
        async with start_worker(PYTHON, adapter) as worker:
            return await work(worker)

    return asyncio.run(run())


def test_a_session_behind_a_worker_is_a_session_and_shows_what_the_episode_shows() -> None:
    wordle = load_environment("wordle")

    async def play(worker: Worker) -> None:
        async with connect_session(worker, "wordle", url=None) as session:
            assert isinstance(session, Session)
            opened = await session.open("train/0003", 7)
            episode = Episode.open(wordle, "train/0003", seed=7)
            assert opened.prompt == episode.prompt
            assert opened.tools == tuple(tool.spec for tool in wordle.tools)
            for action in (
                ToolCall("guess", {"word": "crane"}),
                "no call",
                ToolCall("x", {"\ud800": "\ud800"}),
            ):
                assert await session.step(action) == episode.step(action)

    with_worker(play)


def test_what_a_framework_prints_never_reaches_the_wire() -> None:
    async def start(worker: Worker) -> None:
        assert worker.started.adapter == "chatty"

    with_worker(start, "tests.miniatures.chatty")


def test_an_unknown_adapter_is_reported_as_absent() -> None:
    with pytest.raises(RequestFailed, match="no_such_module") as caught:
        with_worker(lambda _: asyncio.sleep(0), "tests.no_such_module")
    assert caught.value.kind == "absent"


def test_a_missing_interpreter_is_one_clear_line(tmp_path: Path) -> None:
    async def run() -> None:
        async with start_worker(tmp_path / "python", REFERENCE):
            raise AssertionError

    with pytest.raises(WorkerError, match="cannot be started"):
        asyncio.run(run())


def test_a_worker_that_dies_says_how_and_shows_its_last_words() -> None:
    async def kill(worker: Worker) -> None:
        os.kill(worker.pid, signal.SIGKILL)
        await worker.observe()

    with pytest.raises(WorkerDied, match=r"killed by signal 9, .*out of memory .*somebody killed it"):
        with_worker(kill)
    with pytest.raises(WorkerDied, match=r"exit code 3[\s\S]*broken on purpose"):
        with_worker(lambda _: asyncio.sleep(0), "tests.miniatures.crashing")


def test_what_a_killed_worker_printed_outlives_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def kill(worker: Worker) -> None:
        os.kill(worker.pid, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(WorkerDied):
                await worker.observe()
        await worker.observe()

    with pytest.raises(WorkerDied) as died:
        with_worker(kill, "tests.miniatures.chatty")
    (kept,) = tmp_path.iterdir()
    assert f"all that it printed is kept in {kept}" in str(died.value)
    assert "loading the framework ..." in kept.read_text(encoding="utf-8")


def test_requests_that_make_no_sense_are_refused_and_the_worker_goes_on() -> None:
    async def ask(worker: Worker) -> None:
        async with connect_session(worker, "wordle", url=None) as session:
            with pytest.raises(SessionError, match="train/9999"):
                await session.open("train/9999", 0)
        with pytest.raises(RequestFailed, match="there is no environment 'chess'"):
            await serve(worker, "chess")
        async with connect_session(worker, "wordle", url=None) as session:
            await session.close()
            with pytest.raises(SessionError, match="no session"):
                await session.step("x")
        assert (await worker.observe()).open_sessions == 0

    with_worker(ask)


def test_another_protocol_is_refused() -> None:
    async def ask(worker: Worker) -> None:
        with pytest.raises(RequestFailed, match="protocol 99"):
            await worker.request(
                protocol.Started, lambda seq: protocol.Start(seq=seq, protocol=99), timeout_s=10
            )

    with_worker(ask)


def test_a_line_that_is_no_request_is_answered_on_the_wire() -> None:
    lines = [
        b"not json",
        b"[]",
        b'{"type":"start","seq":1,"protocol":1,"surplus":true}',
        b'{"type":"observe","seq":2}',
    ]
    done = subprocess.run(
        [str(PYTHON), "-P", "-m", "bench.worker", "--adapter", REFERENCE],
        input=b"\n".join(lines) + b"\n", capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    replies = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda reply: reply["seq"])
    assert [reply["type"] for reply in replies] == ["failed"] * 4
    assert [reply["seq"] for reply in replies] == [-1, -1, 1, 2]
    assert "surplus" in replies[2]["reason"]
    assert "'start'" in replies[3]["reason"]


def test_nothing_is_left_when_the_harness_is_killed() -> None:
    """A worker ends when its stdin does, whatever happened to the other side."""
    script = (
        "import asyncio, os, sys\nfrom pathlib import Path\nfrom bench.client import start_worker\n"
        "async def main():\n"
        "    async with start_worker(Path(sys.executable), 'canonical.reference') as worker:\n"
        "        print(worker.pid, flush=True)\n        os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    pid = int(done.stdout)
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split()[2] == "Z":
            return
        asyncio.run(asyncio.sleep(0.1))
    raise AssertionError(f"worker {pid} still runs")


def script_of(turns: int) -> protocol.Script:
    episode = Episode.open(load_environment("wordle"), "train/0001", seed=5)
    calls = [ToolCall("guess", {"word": word}) for word in ("crane", "slate", "pious")][:turns]
    results = [episode.step(call) for call in calls]
    return protocol.Script(
        task="train/0001",
        seed=5,
        calls=[call.to_json() for call in calls],
        expected=[
            protocol.Expected(text=r.observation.text, reward=r.reward, ended=r.cause is not None)
            for r in results
        ],
    )


def run_load(
    script: protocol.Script, adapter: str = REFERENCE, *, sessions: int = 20
) -> tuple[list[tuple[str, str]], int]:
    batches = []

    async def load(worker: Worker) -> int:
        loaded = await worker.request(
            protocol.Loaded,
            lambda seq: protocol.Load(
                seq=seq, environment="wordle", workload=Workload(turns=3), sessions=sessions, concurrency=4, warmup=2,
                scripts=[script], timeout_s=20,
            ),
            timeout_s=60,
            on_samples=batches.append,
        )  # fmt: skip
        assert loaded.opened == sessions
        assert 1 <= loaded.peak_open <= 4
        return loaded.succeeded

    succeeded = with_worker(load, adapter)
    assert isinstance(succeeded, int)
    rows = list(merge_samples(batches))
    assert {row.session for row in rows} == set(range(sessions))
    assert {row.session for row in rows if row.warmup} == {0, 1}
    assert all(row.ns >= 0 and row.intended_ns == row.start_ns for row in rows)
    return [(row.phase, row.status) for row in rows], succeeded


def test_a_load_records_every_operation_of_every_session() -> None:
    rows, succeeded = run_load(script_of(3))
    assert succeeded == 20
    assert sorted(rows) == sorted(
        [
            (phase, Status.OK)
            for phase in (Phase.CONNECT, Phase.RESET, Phase.STEP, Phase.STEP, Phase.STEP, Phase.CLOSE)
        ]
        * 20
    )


def test_a_fast_but_wrong_answer_is_wrong_not_ok() -> None:
    changed = script_of(3)
    wrong = [changed.expected[0].model_copy(update={"reward": 0.5}), *changed.expected[1:]]  # type: ignore[index]
    rows, succeeded = run_load(changed.model_copy(update={"expected": wrong}))
    assert succeeded == 0
    assert rows.count((Phase.STEP, Status.WRONG)) == 20
    assert rows.count((Phase.STEP, Status.OK)) == 40


def test_costs_are_raw_measurements() -> None:
    async def weigh(worker: Worker) -> protocol.Costed:
        return await worker.request(
            protocol.Costed,
            lambda seq: protocol.Cost(seq=seq, environment="wordle", episodes=1000),
            timeout_s=60,
        )

    costed = with_worker(weigh)
    assert isinstance(costed, protocol.Costed)
    assert len(costed.step_ns) == len(costed.bare_ns) == 5
    assert all(value > 0 for value in (*costed.step_ns, *costed.bare_ns, *costed.live_bytes))
