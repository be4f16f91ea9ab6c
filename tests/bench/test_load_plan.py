"""Plans, the division of sessions, the loading of a wire protocol, and the adding up of summaries."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.arrival import Arrival
from bench.load.plan import BadPlan, LoadPlan
from bench.load.progress import PROGRESS_FILE, LoadProgress, read_progress, write_whole
from bench.load.share import OtherClock
from bench.load.summary import ERRORS_KEPT, ShareSummary, merge, shift_ns
from bench.load.wire import WireNotFound, load_wire
from bench.samples import Phase, SampleColumns, Status

MINIMAL = {
    "adapter": "miniature",
    "ports": [8000],
    "sessions": 5,
    "scripts": [{"task": "train/0001", "calls": [{"name": "guess", "arguments": {"word": "crane"}}]}],
    "turns": 1,
    "out": "runs/load",
}


def plan(**changes: object) -> LoadPlan:
    return LoadPlan.model_validate(MINIMAL | changes)


def test_a_plan_reads_back_as_it_was_written() -> None:
    whole = plan(
        spread_s=2.5,
        addresses=["127.0.0.1", "::1"],
        scripts=[
            {
                "task": "a",
                "seed": 3,
                "prompt": "☕",
                "calls": [{"name": "x", "text": "", "reward": 0.1, "ended": True}],
            }
        ],
    )
    assert LoadPlan.parse(whole.to_json()) == whole


@given(st.integers(1, 500), st.integers(1, 20))
def test_the_shares_of_all_workers_are_every_session_once_and_differ_by_at_most_one(
    sessions: int, of: int
) -> None:
    whole = plan(sessions=sessions)
    shares = [whole.share(rank, of) for rank in range(of)]
    assert sorted(itertools.chain(*shares)) == list(range(sessions))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(st.integers(1, 500), st.just(0.0) | st.floats(1e-3, 1e6))
def test_sessions_start_in_order_within_the_spread(sessions: int, spread_s: float) -> None:
    whole = plan(sessions=sessions, spread_s=spread_s)
    starts = list(whole.starts_s())
    assert starts == sorted(starts)
    assert starts[0] == 0
    assert starts[-1] < spread_s or spread_s == starts[-1] == 0


def test_endpoints_are_every_address_with_every_port_and_change_with_each_session() -> None:
    endpoints = plan(addresses=["127.0.0.1", "127.0.0.2"], ports=[8000, 8001]).endpoints
    assert len(set(endpoints)) == len(endpoints) == 4
    assert [endpoint.address for endpoint in endpoints[:2]] == ["127.0.0.1", "127.0.0.2"]


def test_the_wire_is_that_of_the_adapter_unless_the_plan_names_another_module() -> None:
    assert plan().wire == "adapters.miniature.wire"
    assert plan(wire_module="tests.miniatures.openenv_wire").wire == "tests.miniatures.openenv_wire"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sessions": 0}, "sessions: Input should be greater than or equal to 1"),
        ({"sesions": 5}, "sesions: Extra inputs are not permitted"),
        ({"turns": 2}, "task 'train/0001' has 1 calls, but every session plays 2 turns"),
        ({"warmup_turns": 1}, "1 of 1 turns would leave nothing measured"),
        ({"addresses": ["localhost"]}, "'localhost' is not numeric"),
        ({"scripts": []}, "scripts: "),
        ({"ports": [70000]}, "ports.0: "),
        ({"adapter": "../etc"}, "adapter: "),
        ({"wire_module": "a;b"}, "wire_module: "),
        ({"think_s": -1}, "think_s: "),
        ({"time_limit_s": 0}, "time_limit_s: "),
        ({"sessions": 0, "turns": 0}, "(and 1 more)"),
    ],
)
def test_a_bad_plan_is_refused_in_one_line_that_names_the_field(
    changes: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    import json

    file = tmp_path / "plan.json"
    file.write_text(json.dumps(MINIMAL | changes))
    with pytest.raises(BadPlan) as refusal:
        LoadPlan.read(file)
    assert sentence in str(refusal.value)
    assert str(file) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_missing_plan_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadPlan, match=r"none\.json cannot be read: No such file"):
        LoadPlan.read(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (None, "does not load: ModuleNotFoundError"),
        ("import nothing_like_this", "does not load: ModuleNotFoundError"),
        ("1 / 0", "does not load: ZeroDivisionError"),
        ("", "does not define WIRE"),
        ("WIRE = type('W', (), {'path': '/ws'})()", r"does not define WIRE\.transport"),
        ("WIRE = type('W', (), {'transport': 'websocket', 'path': '/ws'})()", r"WIRE\.reset, WIRE\.step"),
        (
            "WIRE = type('W', (), {'transport': 'http', 'connection': 'pool'})()",
            r"WIRE\.last_events, WIRE\.con",
        ),
        (
            "WIRE = type('W', (), {'transport': 'pigeon'})()",
            "the transport 'pigeon' of some_wire is not known",
        ),
    ],
)
def test_a_wire_that_cannot_be_loaded_is_explained(
    source: str | None, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "some_wire", raising=False)
    if source is not None:
        (tmp_path / "some_wire.py").write_text(source)
    with pytest.raises(WireNotFound, match=sentence):
        load_wire("some_wire")


shares = st.builds(
    ShareSummary,
    rank=st.integers(0, 99),
    sessions=st.integers(0, 1000),
    opened=st.integers(0, 1000),
    succeeded=st.integers(0, 1000),
    peak_open=st.integers(0, 1000),
    samples=st.integers(0, 10**6),
    errors=st.dictionaries(st.text(max_size=3), st.integers(1, 100), max_size=8),
    cpu_s=st.floats(0, 100),
    wall_s=st.floats(0, 100),
    held_cpu_s=st.none() | st.floats(0.01, 10),
    held_wall_s=st.none() | st.floats(0.01, 10),
    loop_lag_p99_ns=st.none() | st.integers(0, 10**10),
)


@given(st.lists(shares, max_size=6))
def test_counts_are_added_and_lags_are_never_averaged(parts: list[ShareSummary]) -> None:
    whole = merge(7, parts, ended_by="plan", failure=None)
    for count in ("opened", "succeeded", "peak_open", "samples"):
        assert getattr(whole, count) == sum(getattr(part, count) for part in parts)
    lags = [part.loop_lag_p99_ns for part in parts if part.loop_lag_p99_ns is not None]
    assert whole.loop_lag_p99_ns == (max(lags) if lags else None)
    assert whole.cores == len(parts)
    assert [share.rank for share in whole.shares] == sorted(part.rank for part in parts)
    texts = {text for part in parts for text in part.errors}
    assert len(whole.errors) == min(len(texts), ERRORS_KEPT)
    for text, times in whole.errors.items():
        assert times == sum(part.errors.get(text, 0) for part in parts)


def test_progress_reads_back_and_is_absent_before_it_is_written(tmp_path: Path) -> None:
    assert read_progress(tmp_path) is None
    progress = LoadProgress(stage="playing", sessions=5, opened=4, failed=1, steps=3, steps_planned=25)
    write_whole(tmp_path / PROGRESS_FILE, progress.model_dump_json())
    assert read_progress(tmp_path) == progress
    assert [file.name for file in tmp_path.iterdir()] == [PROGRESS_FILE]


@settings(deadline=None)
@given(st.integers(1, 300), st.floats(0.1, 1e3), st.sampled_from(["poisson", "constant"]), st.integers(0, 9))
def test_sessions_of_an_open_loop_arrive_in_order_and_the_same_seed_gives_the_same_times(
    sessions: int, rate: float, spacing: str, seed: int
) -> None:
    arrival = {"rate_per_s": rate, "spacing": spacing, "seed": seed}
    first, second = (plan(sessions=sessions, arrival=arrival).starts_s() for _ in range(2))
    assert first == second == tuple(sorted(first))
    assert len(first) == sessions
    assert (
        plan(sessions=sessions, arrival=arrival).to_json()
        == LoadPlan.parse(plan(sessions=sessions, arrival=arrival).to_json()).to_json()
    )


def test_random_arrivals_come_at_their_rate() -> None:
    """2,000 gaps of a seeded Poisson process: their mean is within four standard errors of 1 / rate."""
    times = Arrival(rate_per_s=50, seed=3).times_s(2_000)
    assert abs(times[-1] / 2_000 * 50 - 1) < 4 / 2_000**0.5
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert abs(sum(gap > 1 / 50 for gap in gaps) / len(gaps) - 0.368) < 0.05


def test_steps_of_an_open_loop_are_meant_at_one_pace_where_the_policy_thinks_and_else_when_it_is_answered() -> (
    None
):
    arrival = {"rate_per_s": 1}
    paced = plan(arrival=arrival, think_s=2, tool_s=0.5)
    assert [paced.step_s(turn) for turn in range(3)] == [2, 4.5, 7]
    assert plan(arrival=arrival, tool_s=0.5).step_s(1) is None
    assert plan(think_s=2, tool_s=0.5).step_s(1) is None


@pytest.mark.parametrize("text", ["open", "open:", "open:0", "open:-1", "open:x", "open:1:often", "burst:3"])
def test_an_arrival_that_is_none_says_how_one_is_written(text: str) -> None:
    with pytest.raises(ValueError, match="write 'closed', 'open:RATE' or 'open:RATE:constant'"):
        Arrival.parse(text)


@pytest.mark.parametrize("text", ["open:2", "open:0.5:constant"])
def test_an_arrival_is_written_as_it_is_read(text: str) -> None:
    assert str(Arrival.parse(text, seed=4)) == text
    assert Arrival.parse(text, seed=4).seed == 4


def test_an_open_loop_has_no_spread() -> None:
    with pytest.raises(BadPlan, match="the arrivals say when a session starts"):
        LoadPlan.parse(plan(spread_s=1).model_copy(update={"arrival": Arrival(rate_per_s=1)}).to_json())


@settings(deadline=None)
@given(
    st.integers(-(10**15), 10**15),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1),
)
def test_the_offset_of_a_clock_is_known_to_within_its_error_however_long_answers_take(
    ahead_ns: int, ways: list[tuple[int, int]]
) -> None:
    """The way there and back take different times; the true offset lies within half of both together."""
    clock = OtherClock()
    for at, (there, back) in enumerate(ways):
        asked = at * 10**9
        clock.hear(asked, asked + there + ahead_ns, asked + there + back)
    assert clock.offset_ns is not None
    assert clock.error_ns is not None
    assert abs(clock.offset_ns - ahead_ns) <= clock.error_ns + 1
    assert clock.error_ns == min((there + back + 1) // 2 for there, back in ways)


def test_times_of_a_worker_elsewhere_are_told_by_the_masters_clock_and_those_of_one_machine_are_left_alone() -> (
    None
):
    elsewhere = ShareSummary(rank=0, sessions=1, clock_offset_ns=-5_000_000, clock_error_ns=90_000)
    here = ShareSummary(rank=0, sessions=1, clock_offset_ns=40_000, clock_error_ns=90_000)
    assert (shift_ns(elsewhere), shift_ns(here), shift_ns(ShareSummary(rank=0, sessions=1))) == (
        -5_000_000,
        0,
        0,
    )
    samples = SampleColumns()
    samples.append(3, 1, Phase.STEP, False, 100, 120, 7, Status.ERROR, "lost")
    samples.shift(1_000)
    assert list(samples) == [(3, 1, Phase.STEP, False, 1_100, 1_120, 7, Status.ERROR, "lost")]
