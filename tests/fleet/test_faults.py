"""Faults under load, with few sessions: nobody hangs, no slot stays taken, every lost session is told why."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench.serving.caps import CapsRequest, load_scripts
from bench.serving.faults import play_fault
from bench.serving.proxies import load_proxy
from bench.serving.records import Fault
from bench.stacks import build_stack, find_stack

SESSIONS = 24
# Sessions that nobody ends live in ORS for 15 minutes; the faults that leave some are played by the published run.
PLAYED = (
    *(("openenv", "envoy", fault) for fault in ("replica", "proxy", "generator", "restart", "slow")),
    *(("nemo_gym", "haproxy", fault) for fault in ("replica", "proxy", "restart")),
    *(("ors", "nginx", fault) for fault in ("replica", "restart", "slow")),
)


@pytest.fixture(scope="module", params=PLAYED, ids="-".join)
def fault(request: pytest.FixtureRequest) -> Fault:
    framework, name, played = request.param
    proxy = load_proxy(name)
    if proxy.find() is None:
        pytest.skip(f"{proxy.title} is not installed; get it with: {proxy.how_to_get}")
    stack = find_stack(framework)
    build_stack(stack)
    asked = CapsRequest(
        stack=stack, environment="wordle", proxies=[proxy], variants=["derived"], sessions=SESSIONS, replicas=2,
        turns=5, tool_s=1.0, folder=Path("unused"),
    )  # fmt: skip

    async def play() -> Fault:
        scripts = await load_scripts("wordle", asked.workload)
        return await play_fault(asked, proxy, played, scripts, on_event=lambda _: None)

    return asyncio.run(play())


@pytest.mark.slow
def test_every_session_succeeds_or_is_told_why_not(fault: Fault) -> None:
    assert fault.unaccounted == 0
    assert fault.succeeded + sum(fault.lost.values()) == SESSIONS


@pytest.mark.slow
def test_no_slot_stays_taken(fault: Fault) -> None:
    assert fault.held_after == {}


@pytest.mark.slow
def test_the_service_is_whole_again(fault: Fault) -> None:
    assert fault.fresh_succeeded == fault.fresh_sessions


@pytest.mark.slow
def test_slow_readers_cost_nobody_else_anything(fault: Fault) -> None:
    if fault.name.endswith("do not read"):
        assert fault.succeeded == SESSIONS
