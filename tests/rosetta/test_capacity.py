"""`rosetta plan` and `rosetta bench-settings` as a person meets them: sizes in words, arithmetic, and readable refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bench.records import RunWriter
from rosetta.__main__ import cli
from rosetta.capacity import Duration, Loads, Size
from tests.reports.conftest import header
from tests.reports.test_capacity_and_settings import held


def rosetta(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.fixture
def costs(tmp_path: Path) -> Path:
    """A run in which a session costs 2 ms and a step 0.5 ms, as the records of a real one would say it."""
    with RunWriter(tmp_path / "costs", header()) as writer:
        for number, shape in enumerate([(50, 2), (200, 2), (50, 5), (200, 5)]):
            for record in held(*shape, number):
                writer.write(record)
    return tmp_path / "costs"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Duration(), "20s", 20.0),
        (Duration(), "250ms", 0.25),
        (Duration(), "2m", 120.0),
        (Duration(), "1.5", 1.5),
        (Size(), "16G", 16 * 2**30),
        (Size(), "512MiB", 512 * 2**20),
        (Size(), "1000", 1000),
        (Loads(), "50,100", (50, 100)),
    ],
)
def test_sizes_are_written_as_people_write_them(kind: Any, text: str, value: object) -> None:
    assert kind.convert(text, None, None) == value


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--think", "soon", "is no time"),
        ("--tool", "3 days", "is no time"),
        ("--memory", "much", "is no amount of memory"),
        ("--loads", "100,50", "ascending"),
        ("--loads", "50", "ascending"),
        ("--utilisation", "1.5", "1.5"),
    ],
)
def test_what_cannot_be_read_is_said(option: str, text: str, said: str) -> None:
    done = rosetta("plan", "--as", "openenv", "--sessions", "5", option, text)
    assert done.exit_code == 2
    assert said in done.output


def test_a_plan_prints_its_arithmetic_and_the_same_as_json(costs: Path) -> None:
    asked = (
        "plan",
        "--as",
        "openenv",
        "--sessions",
        "20000",
        "--costs",
        str(costs),
        "--cores",
        "4",
        "--memory",
        "8G",
    )
    done = rosetta(*asked, "--nofile", "5010")
    assert done.exit_code == 0, done.output
    # An episode costs 2 + 8 x 0.5 = 6 ms in 168 s; 5,010 descriptors hold 4,800 sessions beside 10 and a reserve of 200.
    for shown in (
        "20,000 sessions of 8 turns, 20 s of thinking and a tool of 1 s: 5 replicas on 2 nodes",
        "a replica holds 4,800 sessions, bound by descriptors",
        "CPU of an episode = 2.000 ms + 8 x 0.500 ms = 6 ms",
        "max_connections_per_replica = 5,000",
        "on each node: rosetta serve wordle --as openenv --replicas 4 --proxy envoy --target-sessions 10000",
    ):
        assert shown in done.output
    value = json.loads(rosetta(*asked, "--nofile", "5010", "--json").output)
    assert (value["replicas"], value["nodes"], value["bound_by"]) == (5, 2, "descriptors")
    assert value["lines"][1]["value"] == pytest.approx(6)


def test_a_plan_without_measured_costs_says_how_to_measure_them(tmp_path: Path) -> None:
    with RunWriter(tmp_path / "empty", header()):
        pass
    done = rosetta("plan", "--as", "openenv", "--sessions", "5", "--costs", str(tmp_path / "empty"))
    assert done.exit_code != 0
    assert "0 cells" in done.output
    assert "rosetta plan --check" in done.output


@pytest.mark.parametrize("arguments", [("plan", "--as", "gem", "--sessions", "5"), ("bench-settings", "gem")])
def test_a_framework_without_a_server_is_refused(arguments: tuple[str, ...]) -> None:
    done = rosetta(*arguments)
    assert done.exit_code == 2
    assert "in process" in done.output


def test_a_plan_needs_sessions_or_the_check() -> None:
    done = rosetta("plan", "--as", "openenv")
    assert done.exit_code == 2
    assert "--sessions" in done.output
