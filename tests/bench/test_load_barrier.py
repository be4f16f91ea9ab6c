"""The barrier and the command over several workers, driven in one event loop with workers of paper."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import gevent
import pytest

from bench.load import fleet as fleet_module
from bench.load.barrier import Barrier
from bench.load.fleet import Fleet
from bench.load.plan import LoadPlan
from bench.load.progress import read_progress
from bench.load.share import Place, ShareProgress
from bench.load.summary import SUMMARY_FILE, EndedBy, LoadSummary, ShareSummary

PATIENCE = 10.0


class Line:
    """One end of a socket pair, held at a barrier; it is lost when the peer hangs up."""

    def __init__(self) -> None:
        self.peer, self.mine = socket.socketpair()
        self.mine.setblocking(False)
        self.heard = b""
        self.lost = False

    def fileno(self) -> int:
        return self.mine.fileno()

    def attend(self) -> None:
        try:
            data = self.mine.recv(100)
        except BlockingIOError:
            return
        if not data:
            self.lost = True
            raise ConnectionError("gone")
        self.heard += data

    def close(self) -> None:
        self.peer.close()
        self.mine.close()


@contextmanager
def lines(count: int) -> Iterator[list[Line]]:
    made = [Line() for _ in range(count)]
    try:
        yield made
    finally:
        for line in made:
            line.close()


def until(condition: Callable[[], bool]) -> None:
    with gevent.Timeout(PATIENCE):
        while not condition():
            gevent.sleep(0.001)


def test_nobody_goes_before_the_barrier_opens_and_then_each_goes_in_its_turn() -> None:
    barrier, order = Barrier(), []

    def player(number: int, line: Line, start_s: float) -> None:
        barrier.hold(line, start_s)
        order.append(number)

    with lines(3) as held:
        players = [gevent.spawn(player, i, held[i], start) for i, start in enumerate((0.04, 0.0, 0.02))]
        gevent.sleep(0.02)
        assert order == []
        barrier.open()
        gevent.joinall(players, timeout=PATIENCE, raise_error=True)
    assert order == [1, 2, 0]


def test_whoever_comes_after_the_opening_is_not_held() -> None:
    barrier = Barrier()
    barrier.open()
    with lines(1) as (line,), gevent.Timeout(PATIENCE):
        barrier.hold(line, 0.0)


def test_sessions_without_a_connection_of_their_own_are_held_like_the_others() -> None:
    barrier, order = Barrier(), []

    def player(start_s: float) -> None:
        barrier.hold(None, start_s)
        order.append(start_s)

    players = [gevent.spawn(player, start_s) for start_s in (0.02, 0.0)]
    gevent.sleep(0.01)
    assert order == []
    barrier.open()
    gevent.joinall(players, timeout=PATIENCE, raise_error=True)
    assert order == [0.0, 0.02]


def test_a_held_connection_is_attended_to_and_still_held() -> None:
    barrier = Barrier()
    with lines(1) as (line,):
        player = gevent.spawn(barrier.hold, line, 0.0)
        line.peer.sendall(b"ping")
        until(lambda: line.heard == b"ping")
        line.peer.sendall(b"pong")
        until(lambda: line.heard == b"pingpong")
        assert not player.ready()
        barrier.open()
        player.get(timeout=PATIENCE)


def test_a_ping_between_the_opening_and_the_own_start_does_not_start_early() -> None:
    barrier = Barrier()
    with lines(1) as (line,):
        player = gevent.spawn(barrier.hold, line, 1000.0)
        gevent.sleep(0)
        barrier.open()
        line.peer.sendall(b"ping")
        until(lambda: line.heard == b"ping")
        assert not player.ready()
        player.kill()


def test_a_connection_lost_while_it_is_held_is_noticed_at_once() -> None:
    barrier = Barrier()
    with lines(1) as (line,):
        player = gevent.spawn(barrier.hold, line, 0.0)
        gevent.sleep(0)
        line.peer.close()
        until(player.ready)
        assert isinstance(player.exception, ConnectionError)


def test_what_came_before_the_hold_is_attended_to() -> None:
    barrier = Barrier()
    with lines(1) as (line,):
        line.peer.close()
        with pytest.raises(ConnectionError):
            barrier.hold(line, 0.0)


class Paper:
    """A fleet whose workers are on paper: what they are told is kept, what they tell is played."""

    def __init__(self, folder: Path, **changes: object) -> None:
        fields: dict[str, object] = {
            "adapter": "paper",
            "ports": [1],
            "sessions": 5,
            "turns": 1,
            "hold_s": 0,
            "scripts": [{"task": "a", "calls": [{"name": "x"}]}],
            "out": folder / "out",
        }
        self.places: dict[str, Place] = {}
        self.went = 0
        self.halted: list[EndedBy] = []
        self.heard = {"red": True, "blue": True}
        self.results: list[LoadSummary] = []
        self.fleet = Fleet(
            LoadPlan.model_validate(fields | changes),
            assign=self.places.__setitem__,
            go=self.go,
            halt=self.halted.append,
            heard=lambda: self.heard,
            ended=self.results.append,
        )
        self.fleet.begin(["red", "blue"], ["host", "host"])

    def go(self) -> None:
        self.went += 1

    def end(self) -> LoadSummary:
        until(lambda: bool(self.results))
        return self.results[0]


def done(rank: int, **fields: object) -> ShareSummary:
    usual = {
        "sessions": 3 - rank,
        "opened": 3 - rank,
        "succeeded": 3 - rank,
        "peak_open": 3 - rank,
        "reached": True,
    }
    return ShareSummary.model_validate(usual | {"rank": rank, "samples": 9} | fields)


def test_the_sessions_are_divided_and_the_barrier_opens_when_every_worker_holds_its_own(
    tmp_path: Path,
) -> None:
    paper = Paper(tmp_path)
    assert paper.places == {"red": Place(0, 2, 2), "blue": Place(1, 2, 2)}
    assert paper.fleet.users() == {"red": 3, "blue": 2}
    paper.fleet.held(0)
    gevent.sleep(0.05)
    assert paper.went == 0
    paper.fleet.held(1)
    until(lambda: paper.went == 1)
    paper.fleet.progressed(ShareProgress(0, opened=3, failed=0, steps=3, ended=3))
    paper.fleet.finished(done(0))
    paper.fleet.finished(done(1))
    summary = paper.end()
    assert (summary.sessions, summary.opened, summary.peak_open, summary.ended_by) == (5, 5, 5, "plan")
    assert summary.failure is None
    assert paper.went == 1
    assert LoadSummary.model_validate_json((tmp_path / "out" / SUMMARY_FILE).read_bytes()) == summary
    progress = read_progress(tmp_path / "out")
    assert progress is not None
    assert (progress.stage, progress.steps) == ("finished", 3)


def test_a_worker_that_quits_without_a_result_is_lost_and_the_others_are_halted(tmp_path: Path) -> None:
    paper = Paper(tmp_path)
    del paper.heard["blue"]
    until(lambda: paper.halted == ["interrupted"])
    paper.fleet.finished(done(0))
    summary = paper.end()
    assert summary.failure == "worker 2 of 2: the worker was lost, and with it its samples"
    assert summary.opened == 3


def test_a_worker_that_is_silent_for_a_while_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "LOST_AFTER_S", 0.4)
    paper = Paper(tmp_path)
    paper.heard["red"] = False
    gevent.sleep(0.05)
    paper.heard["red"] = True
    paper.fleet.finished(done(0))
    # Silent for good: given up.
    paper.heard["blue"] = False
    assert "worker 2 of 2" in (paper.end().failure or "")


def test_a_worker_that_cannot_play_its_share_halts_the_others(tmp_path: Path) -> None:
    paper = Paper(tmp_path)
    paper.fleet.finished(ShareSummary(rank=0, sessions=3, failure="no descriptors left"))
    until(lambda: paper.halted == ["interrupted"])
    paper.fleet.finished(done(1, ended_by="interrupted"))
    assert paper.end().failure == "worker 1 of 2: no descriptors left"


def test_the_time_limit_halts_every_worker_and_is_no_failure(tmp_path: Path) -> None:
    paper = Paper(tmp_path, time_limit_s=0.05)
    until(lambda: paper.halted == ["time_limit"])
    paper.fleet.finished(done(0, ended_by="time_limit"))
    paper.fleet.finished(done(1, ended_by="time_limit"))
    summary = paper.end()
    assert (summary.ended_by, summary.failure) == ("time_limit", None)


def test_workers_that_do_not_stop_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "WRITE_PATIENCE_S", 0.05)
    paper = Paper(tmp_path)
    paper.fleet.stop("interrupted")
    paper.fleet.join()
    assert paper.halted == ["interrupted"]
    assert (tmp_path / "out" / SUMMARY_FILE).exists()
    assert paper.end().ended_by == "interrupted"


def test_a_server_that_nobody_reached_is_a_failure_that_names_it(tmp_path: Path) -> None:
    paper = Paper(tmp_path)
    nothing = {
        "opened": 0,
        "succeeded": 0,
        "peak_open": 0,
        "reached": False,
        "errors": {"no TCP connection": 3},
    }
    paper.fleet.finished(done(0, **nothing))
    paper.fleet.finished(done(1, **nothing))
    assert paper.end().failure == "no session reached the server at 127.0.0.1:1: no TCP connection"


def test_results_of_an_earlier_run_are_gone_before_the_next_begins(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name in ("samples-7.rows", "samples.parquet", SUMMARY_FILE):
        (tmp_path / "out" / name).write_text("old")
    paper = Paper(tmp_path)
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["progress.json"]
    paper.fleet.finished(done(0))
    paper.fleet.finished(done(1))
    paper.end()
