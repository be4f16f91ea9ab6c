"""The load engine over HTTP: real generator processes against a server with sessions in headers or cookies."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.load.__main__ import main as show
from bench.load.engine import LoadResult, run_load
from bench.load.plan import Call, LoadPlan, Script
from bench.load.progress import LoadProgress

ROOT = Path(__file__).resolve().parents[2]
WORDS = ("crane", "slate", "adieu", "pious", "lymph")
PATIENCE = 60.0


class Server:
    """The miniature server of `tests/miniatures`, in a process of its own."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "tests/miniatures/http_server.py", *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.port: int = json.loads(self.process.stdout.readline())["port"]

    def counts(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/counts", timeout=PATIENCE) as answer:
            counted: dict[str, Any] = json.loads(answer.read())
        return counted

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def miniature(*options: str) -> Iterator[Server]:
    server = Server(*options)
    try:
        yield server
    finally:
        server.kill()


def plan(wire: str, port: int, out: Path, **changes: object) -> LoadPlan:
    tasks = [f"train/{number:04d}" for number in range(20)]
    fields: dict[str, object] = {
        "adapter": "miniature",
        "wire_module": f"tests.miniatures.{wire}",
        "addresses": ["127.0.0.1", "127.0.0.2"],
        "ports": [port],
        "sessions": 50,
        "scripts": [
            {
                "task": task,
                "prompt": f"play {task}",
                "calls": [
                    {
                        "name": "guess",
                        "arguments": {"word": word},
                        "text": f"{task} #{number} {word}",
                        "reward": number / 8,
                        "ended": False,
                    }
                    for number, word in enumerate(WORDS, start=1)
                ],
            }
            for task in tasks
        ],
        "turns": len(WORDS),
        "time_limit_s": 60,
        "out": out,
    }
    return LoadPlan.model_validate(fields | changes)


def tally(result: LoadResult) -> Counter[tuple[str, str]]:
    table = result.table()
    return Counter(zip(table["phase"].to_pylist(), table["status"].to_pylist(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["stream_wire", "cookie_wire"])
def test_sessions_of_an_open_loop_come_by_themselves(wire: str, tmp_path: Path) -> None:
    arrival = {"rate_per_s": 40, "spacing": "poisson", "seed": 3}
    with miniature("--wait", "0.02") as server:
        result = run_load(
            plan(wire, server.port, tmp_path, sessions=20, arrival=arrival, think_s=0.03, tool_s=0.02)
        )
        assert server.counts()["open"] == 0
    assert (result.opened, result.succeeded, result.errors) == (20, 20, {})
    assert 0 < (result.summary.mean_open or 0) <= result.peak_open <= 20
    rows = result.table().to_pylist()
    assert all(row["intended_ns"] <= row["start_ns"] for row in rows)
    connects = [row["intended_ns"] for row in rows if row["phase"] == "connect"]
    assert connects == sorted(connects)


def test_sessions_with_a_header_and_event_streams_are_held_open_at_once(tmp_path: Path) -> None:
    """The server's own count is the witness. Every session has a connection, made before the first reset."""
    with miniature("--wait", "0.2") as server:
        result = run_load(plan("stream_wire", server.port, tmp_path, warmup_turns=1))
        counts = server.counts()
    assert (result.errors, result.wrong, result.ended_by) == ({}, (), "plan")
    assert tally(result) == {
        ("connect", "ok"): 50,
        ("reset", "ok"): 50,
        ("step", "ok"): 250,
        ("close", "ok"): 50,
    }
    assert result.opened == result.peak_open == result.succeeded == 50
    assert (counts["most"], counts["first_reset_connected"], counts["open"]) == (50, 50, 0)
    assert counts["seeds"] == list(range(50))
    summary = result.summary
    assert (summary.transport, summary.connection, summary.connections) == ("http", "session", 50)
    rows = result.table().select(["session", "seq", "phase", "warmup"]).to_pylist()
    assert [row["phase"] for row in rows] == ["connect", "reset", *["step"] * 5, "close"] * 50
    assert sum(row["warmup"] for row in rows) == 50
    assert min(result.table()["ns"].to_pylist()) > 0


def test_sessions_with_a_cookie_are_scored_and_share_connections(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A phase that the framework does not have is not recorded: these sessions end by being scored."""
    with miniature("--wait", "0.2") as server:
        result = run_load(plan("cookie_wire", server.port, tmp_path))
        counts = server.counts()
    assert result.errors == {}
    assert tally(result) == {
        ("connect", "ok"): 50,
        ("reset", "ok"): 50,
        ("step", "ok"): 250,
        ("score", "ok"): 50,
    }
    assert result.peak_open == result.succeeded == counts["most"] == counts["closes"] == 50
    assert (result.summary.transport, result.summary.connection) == ("http", "pool")
    # All of them wait for their steps together, so sharing leaves at most one connection for each.
    assert result.summary.connections is not None
    assert 10 <= result.summary.connections <= 50
    # One more is that of whoever asked for the counts.
    assert counts["connections"] == result.summary.connections + 1
    assert show([str(tmp_path)]) == 0
    assert f"{result.summary.connections} TCP connections, a pool" in capsys.readouterr().out


def test_faults_stay_in_the_population_and_are_named(tmp_path: Path) -> None:
    """Each fault befalls 3 of 75 sessions. Whoever was answered ends its session, whoever was not is gone."""
    with miniature("--faults", "drop,hang,crash,redirect", "--linger", "0.02") as server:
        result = run_load(plan("stream_wire", server.port, tmp_path, sessions=75, reply_timeout_s=3))
        counts = server.counts()
    assert result.errors == {
        "the server hung up before it answered": 3,
        "no answer within 3 s": 3,
        """POST /stream/call: 500 Internal Server Error: "RuntimeError('boom')\"""": 3,
        "POST /stream/create: 308 Permanent Redirect to nowhere, and redirects are not followed": 3,
    }
    assert tally(result) == {
        ("connect", "ok"): 75,
        ("reset", "ok"): 72,
        ("reset", "error"): 3,
        ("step", "ok"): 63 * 5 + 9,
        ("step", "error"): 6,
        ("step", "timeout"): 3,
        ("close", "ok"): 63 + 6,
    }
    assert (result.opened, result.succeeded, counts["open"]) == (75, 63, 6)


def test_mixed_up_sessions_and_wrong_totals_give_wrong_samples(tmp_path: Path) -> None:
    with miniature("--mix", "--double") as server:
        result = run_load(plan("cookie_wire", server.port, tmp_path, sessions=20))
    assert tally(result) == {
        ("connect", "ok"): 20,
        ("reset", "ok"): 20,
        # Only the first has nobody before it to be mixed up with.
        ("step", "ok"): 5,
        ("step", "wrong"): 95,
        ("score", "wrong"): 20,
    }
    assert result.errors == {
        "not what the reference says: text": 95,
        "not what the reference says: total": 20,
    }
    assert result.succeeded == 0
    # Which session ends first, and with which of both faults, is not promised.
    mixed_up = [one for wrong in result.wrong for one in wrong.differences if one.piece == "text"]
    assert mixed_up
    assert all(one.expected.split(" ")[0] != one.got.split(" ")[0] for one in mixed_up)


def test_only_sessions_that_the_server_let_in_count_as_held(tmp_path: Path) -> None:
    """Over HTTP a connection is no session: all 50 connect, and 20 are open at the same time."""
    with miniature("--cap", "20", "--wait", "0.3") as server:
        result = run_load(plan("cookie_wire", server.port, tmp_path))
    assert (result.opened, result.peak_open, result.succeeded) == (50, 20, 20)
    assert result.errors == {"""POST /cookie/seed: 503 Service Unavailable: {"detail": "no room"}""": 30}


def test_connections_that_were_closed_while_idle_are_replaced_and_no_session_is_lost(tmp_path: Path) -> None:
    with miniature("--keep-alive", "0.4") as server:
        result = run_load(plan("stream_wire", server.port, tmp_path, sessions=5, hold_s=1.5))
    assert (result.succeeded, result.errors) == (5, {})
    assert result.summary.connections == 10


def test_a_server_killed_in_the_middle_gives_a_finished_result(tmp_path: Path) -> None:
    with miniature("--wait", "0.5") as server:

        def kill_when_stepping(progress: LoadProgress) -> None:
            if progress.steps:
                server.kill()

        result = run_load(plan("stream_wire", server.port, tmp_path), on_progress=kill_when_stepping)
    assert (result.ended_by, result.opened, result.succeeded) == ("plan", 50, 0)
    assert sum(result.errors.values()) == 50
    assert tally(result)["step", "error"] == 50


@pytest.mark.parametrize(
    ("rewards", "ended", "said", "total"),
    [
        ((0.25, 0.5), None, None, 0.75),
        ((0.25, 0.5), None, 0.9, 0.9),
        ((0.0, 0.0), False, None, None),
        ((0.0, 0.0), True, None, 0.0),
        ((0.0, 0.0), False, 0.0, 0.0),
        ((0.25, None), True, None, None),
    ],
)
def test_the_total_of_a_score_is_expected_where_it_is_known(
    rewards: tuple[float | None, ...], ended: bool | None, said: float | None, total: float | None
) -> None:
    """What was paid stays paid. An episode left before it paid may pay for its state when it is scored, or not."""
    calls = [Call(name="guess", reward=reward) for reward in rewards]
    calls[-1] = calls[-1].model_copy(update={"ended": ended})
    script = Script(task="t", total=said, calls=(*calls, Call(name="guess", reward=100.0)))
    assert script.expected_total(len(rewards)) == total
