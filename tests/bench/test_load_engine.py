"""The load engine as a whole: real generator processes against a real server with faults by name."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from bench.load import engine
from bench.load.__main__ import main as show
from bench.load.engine import GeneratorDied, LoadFailed, LoadResult, read_load, run_load
from bench.load.plan import LoadPlan
from bench.load.progress import LoadProgress
from bench.load.summary import LoadSummary
from bench.records import SAMPLES_SCHEMA, read_samples

ROOT = Path(__file__).resolve().parents[2]
LOCUST = [sys.executable, "-P", "-m", "locust", "-f", "bench/load/locustfile.py"]
WORDS = ("crane", "slate", "adieu", "pious", "lymph")
TASKS = tuple(f"train/{number:04d}" for number in range(7))
PATIENCE = 60.0

pytestmark = pytest.mark.slow


class Server:
    """The miniature server of `tests/miniatures`, in a process of its own."""

    def __init__(self, *faults: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "tests/miniatures/openenv_server.py", *faults],
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
def miniature(*faults: str) -> Iterator[Server]:
    server = Server(*faults)
    try:
        yield server
    finally:
        server.kill()


def script(task: str, seed: int | None = None) -> dict[str, object]:
    calls = [
        {
            "name": "guess",
            "arguments": {"word": w},
            "text": f"{task} #{i} {w}",
            "reward": i / 8,
            "ended": False,
        }
        for i, w in enumerate(WORDS, start=1)
    ]
    return {"task": task, "prompt": f"play {task}", "calls": calls} | ({} if seed is None else {"seed": seed})


def plan(port: int, out: Path, **changes: object) -> LoadPlan:
    fields: dict[str, object] = {
        "adapter": "miniature",
        "wire_module": "tests.miniatures.openenv_wire",
        "addresses": ["127.0.0.1", "127.0.0.2", "127.0.0.3"],
        "ports": [port],
        "sessions": 50,
        "scripts": [script(task) for task in TASKS],
        "turns": len(WORDS),
        "time_limit_s": 60,
        "out": out,
    }
    return LoadPlan.model_validate(fields | changes)


def tally(result: LoadResult, column: str) -> Counter[str]:
    return Counter(result.table()[column].to_pylist())


def test_all_sessions_are_held_open_at_once_before_the_first_reset(tmp_path: Path) -> None:
    """The server's own count is the witness: 50 were open at once, and still when the first reset came.

    Its pings are answered while the sessions are held, and each session resets with its own number or its script's.
    """
    heard: list[LoadProgress] = []
    scripts = [script("train/0001"), script("train/0002", seed=77)]
    with miniature("--ping-on-open") as server:
        held = plan(server.port, tmp_path, scripts=scripts, spread_s=0.2, warmup_turns=2)
        result = run_load(held, on_progress=heard.append)
        counts = server.counts()
    assert counts["pongs"] == 50
    assert counts["seeds"] == sorted([*range(0, 50, 2), *[77] * 25])
    assert (counts["most"], counts["first_reset_open"], counts["open"]) == (50, 50, 0)
    assert result.peak_open == result.opened == result.succeeded == 50
    assert (result.ended_by, result.errors, result.wrong) == ("plan", {}, ())
    assert (counts["resets"], counts["steps"], counts["closes"]) == (50, 250, 50)
    table = result.table()
    assert table.schema.equals(SAMPLES_SCHEMA)
    assert tally(result, "phase") == {"connect": 50, "reset": 50, "step": 250, "close": 50}
    assert tally(result, "status") == {"ok": 400}
    assert tally(result, "warmup") == {True: 100, False: 300}
    rows = table.select(["session", "seq", "phase"]).to_pylist()
    assert [row["session"] for row in rows] == [i for i in range(50) for _ in range(8)]
    assert [row["seq"] for row in rows] == list(range(8)) * 50
    assert [row["phase"] for row in rows] == ["connect", "reset", *["step"] * 5, "close"] * 50
    assert table["intended_ns"].equals(table["start_ns"])
    assert min(table["ns"].to_pylist()) > 0
    assert (result.steps_per_s() or 0) > 0
    assert (result.summary.cpu_s, result.summary.wall_s, result.summary.cores) > (0, 0, 0)
    assert result.summary.loop_lag_p99_ns is not None
    assert heard[-1].stage == "finished"
    assert (heard[-1].opened, heard[-1].steps, heard[-1].ended) == (50, 250, 50)


@pytest.mark.parametrize("processes", [1, 2])
def test_sessions_of_an_open_loop_come_by_their_schedule_in_every_worker(
    processes: int, tmp_path: Path
) -> None:
    """Nobody waits at a barrier, intended times are exactly those of the schedule, and nothing is sent before its time."""
    arrival = {"rate_per_s": 40, "spacing": "constant"}
    with miniature("--wait", "0.02") as server:
        result = run_load(
            plan(
                server.port,
                tmp_path,
                sessions=20,
                arrival=arrival,
                think_s=0.03,
                tool_s=0.02,
                processes=processes,
            )
        )
        assert server.counts()["open"] == 0
    assert (result.opened, result.succeeded, result.errors) == (20, 20, {})
    assert 1 <= result.peak_open <= 20
    assert 0 < (result.summary.mean_open or 0) <= result.peak_open
    rows = result.table().to_pylist()
    assert all(row["intended_ns"] <= row["start_ns"] for row in rows)
    connects = [row["intended_ns"] for row in rows if row["phase"] == "connect"]
    # One worker has every second session; both count from the opening of their own barrier.
    gaps = {later - earlier for earlier, later in zip(connects, connects[processes:], strict=False)}
    assert gaps == {processes * 25_000_000}
    of_first = [row["intended_ns"] for row in rows if row["session"] == 0 and row["phase"] == "step"]
    assert [at - connects[0] for at in of_first] == [30_000_000 + turn * 50_000_000 for turn in range(5)]


def test_sessions_that_are_mixed_up_give_wrong_samples(tmp_path: Path) -> None:
    scripts = [script(f"train/{number:04d}") for number in range(20)]
    with miniature("--mix") as server:
        result = run_load(plan(server.port, tmp_path, sessions=20, scripts=scripts))
    assert tally(result, "status") == {"ok": 60, "wrong": 100}
    assert result.errors == {"not what the reference says: text": 100}
    assert (result.opened, result.succeeded) == (20, 0)
    example = result.wrong[0].differences[0]
    assert example.piece == "text"
    assert example.expected.split(" ")[0] != example.got.split(" ")[0]
    assert example.expected.split(" ")[1:] == example.got.split(" ")[1:]


DROPPED = ("--drop-every", "25")


@pytest.fixture(scope="module")
def dropped(tmp_path_factory: pytest.TempPathFactory) -> LoadResult:
    """A run of 75 sessions against a server that hangs up on 4 % of them."""
    with miniature(*DROPPED) as server:
        return run_load(plan(server.port, tmp_path_factory.mktemp("dropped"), sessions=75))


def test_dropped_sessions_stay_in_the_population(dropped: LoadResult) -> None:
    assert (dropped.opened, dropped.peak_open, dropped.succeeded) == (75, 75, 72)
    assert tally(dropped, "status") == {"ok": 72 * 8 + 3 * 3, "error": 3}
    assert sum(dropped.errors.values()) == 3
    failed = [row for row in dropped.table().to_pylist() if row["status"] == "error"]
    assert {(row["phase"], row["seq"]) for row in failed} == {("step", 3)}


@pytest.mark.parametrize(
    ("fault", "opened", "error"),
    [
        ("--cap", 50, "CAPACITY_REACHED: no room"),
        pytest.param(
            "--refuse-after",
            20,
            "handshake refused: HTTP/1.1 503 Service Unavailable",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_refused_sessions_are_counted_and_the_others_are_played(
    fault: str, opened: int, error: str, tmp_path: Path
) -> None:
    """A server may refuse the handshake, or accept and then say that it is full: neither counts as held."""
    with miniature(fault, "20") as server:
        result = run_load(plan(server.port, tmp_path))
    assert (result.opened, result.peak_open, result.succeeded) == (opened, 20, 20)
    assert result.errors == {error: 30}


def test_an_error_of_the_protocol_ends_its_session_and_the_session_is_closed(tmp_path: Path) -> None:
    with miniature("--crash-on-turn", "2") as server:
        result = run_load(plan(server.port, tmp_path, sessions=10))
        assert server.counts()["closes"] == 10
    assert result.errors == {"EXECUTION_ERROR: the tool crashed": 10}
    assert tally(result, "phase") == {"connect": 10, "reset": 10, "step": 30, "close": 10}


def test_a_server_killed_in_the_middle_gives_a_finished_result(tmp_path: Path) -> None:
    with miniature("--wait", "0.5") as server:

        def kill_when_stepping(progress: LoadProgress) -> None:
            if progress.steps:
                server.kill()

        result = run_load(plan(server.port, tmp_path), on_progress=kill_when_stepping)
    assert (result.ended_by, result.opened, result.succeeded) == ("plan", 50, 0)
    assert sum(result.errors.values()) == 50
    assert tally(result, "status")["error"] == 50


def test_the_time_limit_ends_a_run_and_what_was_under_way_is_a_timeout(tmp_path: Path) -> None:
    with miniature("--wait", "100") as server:
        result = run_load(plan(server.port, tmp_path, sessions=10, time_limit_s=1.5))
    assert result.ended_by == "time_limit"
    assert tally(result, "status") == {"ok": 20, "timeout": 10}


def test_a_server_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(LoadFailed, match=r"no session reached the server at 127\.0\.0\.1:") as failure:
        run_load(plan(port, tmp_path, sessions=5))
    assert "\n" not in str(failure.value)
    assert tally(read_load(tmp_path), "status") == {"error": 5}


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_interrupted_caller_leaves_no_generator_and_keeps_what_was_measured(
    processes: int, tmp_path: Path
) -> None:
    def interrupt(progress: LoadProgress) -> None:
        if progress.steps:
            raise KeyboardInterrupt

    with miniature("--wait", "1") as server:
        with pytest.raises(KeyboardInterrupt):
            run_load(plan(server.port, tmp_path, sessions=10, processes=processes), on_progress=interrupt)
        wait_until(lambda: server.counts()["open"] == 0)
    result = read_load(tmp_path)
    assert result.ended_by == "interrupted"
    assert len(result.samples) == processes
    assert result.peak_open == 10
    assert tally(result, "phase")["connect"] == 10
    assert result.errors["the run was interrupted"] >= 1


@pytest.mark.slow
def test_a_killed_caller_takes_the_generators_with_it(tmp_path: Path) -> None:
    with miniature("--wait", "1") as server:
        (tmp_path / "own.json").write_text(plan(server.port, tmp_path / "out", sessions=10).to_json())
        code = (
            "from pathlib import Path; from bench.load.engine import run_load; from bench.load.plan import LoadPlan; "
            f"run_load(LoadPlan.read(Path({str(tmp_path / 'own.json')!r})))"
        )
        with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, start_new_session=True) as caller:
            wait_until(lambda: server.counts()["steps"] >= 10)
            caller.kill()
        wait_until(lambda: server.counts()["open"] == 0)
        wait_until((tmp_path / "out" / "summary.json").exists)
    assert read_load(tmp_path / "out").ended_by == "interrupted"


def test_a_generator_that_dies_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    broken = executable(tmp_path / "python", "echo 'first'; echo 'no more memory' >&2; exit 3")
    with pytest.raises(GeneratorDied, match="ended with exit code 3 and no result") as death:
        run_load(plan(1, tmp_path / "out"), python=broken)
    assert death.value.returncode == 3
    assert death.value.tail == "first\nno more memory"


def test_a_generator_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "STOP_PATIENCE_S", 0.2)
    deaf = executable(tmp_path / "python", "trap '' TERM; while :; do sleep 0.05; done")
    with pytest.raises(GeneratorDied, match=r"did not finish within 0\.3 s and had to be stopped"):
        run_load(plan(1, tmp_path / "out"), python=deaf, timeout_s=0.3)


def test_a_folder_without_a_result_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LoadFailed, match=r"no result of a load run in .*: summary\.json is missing"):
        read_load(tmp_path)
    assert show([str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(LoadFailed, match="is damaged"):
        read_load(tmp_path)


def test_locust_says_in_one_line_why_a_plan_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    command = [*LOCUST, "--headless", "--rosetta-plan", str(tmp_path / "plan.json")]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "is not valid: adapter: Field required" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_master_and_two_workers_give_the_counts_of_one_process(
    dropped: LoadResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the README says: locust's own --master and --worker, each started by hand."""
    with miniature(*DROPPED) as server:
        (tmp_path / "plan.json").write_text(plan(server.port, tmp_path / "out", sessions=75).to_json())
        port = str(free_port())
        master = ["--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port]
        ends = together(
            [
                *LOCUST,
                *master,
                "--headless",
                "--expect-workers",
                "2",
                "--rosetta-plan",
                str(tmp_path / "plan.json"),
            ],
            *[[*LOCUST, "--worker", "--master-port", port]] * 2,
        )
        counts = server.counts()
    assert ends == [0, 0, 0]
    result = read_load(tmp_path / "out")
    assert counts["most"] == counts["first_reset_open"] == 75
    assert [share.sessions for share in result.summary.shares] == [38, 37]
    assert counted(result.summary) == counted(dropped.summary)
    assert tally(result, "status") == tally(dropped, "status")
    assert show([str(tmp_path / "out")]) == 0
    assert "75 open at the same time" in capsys.readouterr().out
    assert read_samples(tmp_path / "out" / "samples.parquet").num_rows == result.summary.samples


@pytest.mark.slow
def test_the_live_page_starts_a_run_and_shows_its_counts(tmp_path: Path) -> None:
    """The number of users on the page has no say, the page stays when the run is over, and Ctrl-C ends it in order."""
    with miniature() as server:
        (tmp_path / "plan.json").write_text(plan(server.port, tmp_path / "out").to_json())
        port = str(free_port())
        page = ["--web-host", "127.0.0.1", "--web-port", port]
        with generators([*LOCUST, *page, "--rosetta-plan", str(tmp_path / "plan.json")]) as (generator,):
            wait_until(lambda: '"num_users": 50' in browse(f"http://127.0.0.1:{port}/"))
            browse(f"http://127.0.0.1:{port}/swarm", b"user_count=3&spawn_rate=1")
            wait_until((tmp_path / "out" / "summary.json").exists)
            wait_until(
                lambda: json.loads(browse(f"http://127.0.0.1:{port}/stats/requests"))["state"] == "stopped"
            )
            shown = json.loads(browse(f"http://127.0.0.1:{port}/stats/requests"))["stats"]
            generator.send_signal(signal.SIGINT)
            assert generator.wait(PATIENCE) == 0
    requests = {row["name"]: row["num_requests"] for row in shown if row["name"] != "Aggregated"}
    assert requests == {"connect": 50, "reset": 50, "step": 250, "close": 50}
    assert read_load(tmp_path / "out").peak_open == 50


def counted(summary: LoadSummary) -> tuple[object, ...]:
    return (
        summary.opened,
        summary.succeeded,
        summary.peak_open,
        summary.samples,
        summary.errors,
        summary.ended_by,
    )


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


def browse(url: str, form: bytes | None = None) -> str:
    with suppress(OSError), urllib.request.urlopen(url, form, timeout=PATIENCE) as answer:  # noqa: S310
        page: str = answer.read().decode()
        return page
    return ""


@contextmanager
def generators(*commands: list[str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start locust processes, each in a group of its own, and leave none behind."""
    started = [
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        for command in commands
    ]
    try:
        yield started
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def together(*commands: list[str]) -> list[int]:
    with generators(*commands) as started:
        return [process.wait(PATIENCE) for process in started]


def executable(file: Path, body: str) -> str:
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o700)
    return str(file)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
