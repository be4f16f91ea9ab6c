"""Live episodes: every answer is held against its own session, in every way to step them, and what is too much is left out."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bench import protocol
from bench.client import RequestFailed, Worker, start_worker
from bench.live import _obstacle
from bench.recording import expect
from bench.workloads import play_unfinished
from canonical.catalogue import load_environment

CROWDS = "tests.miniatures.crowds"
HONEST = ("plain loop", "pool", "coroutines")


def ask(work: Callable[[Worker], Awaitable[object]], adapter: str = CROWDS) -> object:
    async def run() -> object:
        async with start_worker(Path(sys.executable), adapter) as worker:
            return await work(worker)

    return asyncio.run(run())


async def scripts(turns: int, *, whole: bool = False) -> list[protocol.Script]:
    environment = load_environment("wordle")
    found = []
    for seed, task in enumerate(environment.tasks().split("train")[:4]):
        played = (await play_unfinished(environment, task, seed=seed, turns=turns + 1))[:turns]
        found.append(
            protocol.Script(
                task=task.id,
                seed=seed,
                calls=[call.to_json() for call, _ in played],
                expected=[expect(result, result.total if whole else None) for _, result in played],
            )
        )
    return found


async def step(worker: Worker, executor: str, sessions: int) -> protocol.SteppedTogether:
    held = await scripts(3)
    return await worker.request(
        protocol.SteppedTogether,
        lambda seq: protocol.StepTogether(
            seq=seq, environment="wordle", executor=executor, sessions=sessions, batches=2, scripts=held
        ),
        timeout_s=60,
    )


@pytest.mark.slow
def test_each_way_is_listed_with_its_note_and_what_it_is_meant_for() -> None:
    async def work(worker: Worker) -> protocol.Ways:
        return await worker.request(protocol.Ways, lambda seq: protocol.ListWays(seq=seq), timeout_s=60)

    ways = ask(work)
    assert isinstance(ways, protocol.Ways)
    assert tuple(ways.executors) == (*HONEST, "swapping")
    assert ways.executors["coroutines"] == protocol.Way(note="side by side", most=50)
    assert tuple(ways.rollouts) == ("honest", "lying")
    nothing = ask(work, "canonical.reference")
    assert isinstance(nothing, protocol.Ways)
    assert (nothing.executors, nothing.rollouts, nothing.settings) == ({}, {}, {})


@pytest.mark.slow
def test_honest_executors_show_every_session_its_own_answers_and_a_mixed_up_one_is_found() -> None:
    async def work(worker: Worker) -> dict[str, protocol.SteppedTogether]:
        return {name: await step(worker, name, 9) for name in (*HONEST, "swapping")}

    found = ask(work)
    assert isinstance(found, dict)
    for name in HONEST:
        assert (found[name].wrong, found[name].first_wrong) == (0, None)
        assert len(found[name].step_ns) == 2 * 3
    assert found["swapping"].wrong == 2 * 2 * 3
    assert "session 0, turn 0" in found["swapping"].first_wrong


@pytest.mark.slow
def test_an_executor_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(RequestFailed, match="has no executor 'x'; there are plain loop, pool") as caught:
        ask(lambda worker: step(worker, "x", 1))
    assert caught.value.kind == "request"


@pytest.mark.slow
def test_rollouts_that_show_what_others_played_do_not_succeed() -> None:
    async def roll(worker: Worker, path: str) -> protocol.RolledOut:
        held = await scripts(3, whole=True)
        return await worker.request(
            protocol.RolledOut,
            lambda seq: protocol.RollOut(seq=seq, environment="wordle", path=path, rollouts=4, scripts=held),
            timeout_s=60,
        )

    async def work(worker: Worker) -> tuple[protocol.RolledOut, protocol.RolledOut]:
        return await roll(worker, "honest"), await roll(worker, "lying")

    found = ask(work)
    assert isinstance(found, tuple)
    honest, lying = found
    assert (honest.succeeded, honest.first_wrong) == (4, None)
    assert lying.succeeded == 0
    assert "rollout 0 showed" in (lying.first_wrong or "")


def test_what_takes_too_long_or_too_much_memory_is_left_out_with_a_reason() -> None:
    assert _obstacle(1.0, 2.0, 0) is None
    assert "would take 3 s, and the plan allows 2 s" in (_obstacle(3.0, 2.0, 0) or "")
    assert "more than 25%" in (_obstacle(1.0, 2.0, 2.0**60) or "")
