"""Conformance passes what is honest, and catches every kind of lie, saying where and what."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from bench.client import start_worker
from bench.conformance import RETURN, ConformanceResult, run_conformance
from tests.miniatures import liars

PYTHON = Path(sys.executable)
PIECES = {
    "RewardDoubledAfterTheEnd": "reward",
    "SeedDropped": "prompt",
    "AnswerInState": "secret",
    "OffByOneTurnBudget": "ending",
    "ErrorTextSwallowed": "observation",
    "SharedGenerator": "observation",
    "TruncatedReportedAsTerminated": "ending",
    "DefaultArgumentLost": "error",
    "CloseLeaksASession": "open sessions on the server",
    "UnicodeDamaged": "observation",
    "EnumLostFromSchema": "tools",
    "PromptRetyped": "prompt",
    "TaskIgnored": "observation",
    "ImagesDropped": "observation",
    "WhiteSpaceStripped": "observation",
    "StepsAfterTheEndPlayOn": "error",
    "SessionsMixedUp": "observation",
    "StatusRaisedAsCrash": "session",
    "ReturnMisread": RETURN,
}


def conform(module: str, *, episodes: int = 60, seed: int = 0, stop_after: int = 20) -> ConformanceResult:
    async def run() -> ConformanceResult:
        # One worker both hosts and drives, as for every framework that runs in process.
        async with start_worker(PYTHON, module) as worker:
            return await run_conformance(
                worker,
                worker,
                source="wordle",
                episodes=episodes,
                seed=seed,
                stop_after=stop_after,
                leak_patience_s=1.0,
            )

    return asyncio.run(run())


def test_the_reference_conforms_to_itself() -> None:
    result = conform("canonical.reference", episodes=200)
    assert result.divergences == []
    assert result.passed
    assert result.episodes >= 200
    assert result.steps > result.episodes


@pytest.mark.slow
def test_the_same_seed_gives_the_same_digest_and_another_seed_another() -> None:
    first, again, other = (conform("canonical.reference", seed=seed).digest for seed in (0, 0, 1))
    assert first == again != other


def test_every_liar_has_an_expectation() -> None:
    assert set(PIECES) == set(liars.KINDS)


QUICK = {"Honest", "RewardDoubledAfterTheEnd", "StatusRaisedAsCrash", "ReturnMisread"}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow)
        for kind in ("Honest", *sorted(liars.KINDS))
    ],
)
def test_each_kind_of_lie_is_caught_for_what_it_is(kind: str) -> None:
    result = conform(f"tests.miniatures.liars:{kind}", episodes=1)
    if kind == "Honest":
        assert result.divergences == []
        return
    found = {divergence.piece for divergence in result.divergences}
    assert PIECES[kind] in found, [divergence.render() for divergence in result.divergences]
    told = result.divergences[0].render()
    assert "reference:" in told
    assert "framework:" in told
    assert "session" in told
