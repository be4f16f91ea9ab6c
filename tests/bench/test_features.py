"""What adapters declare of features is proven in both directions, and a wrong declaration is told in words."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from bench.client import start_worker
from bench.conformance import TOUCHSTONE, ConformanceResult, Misdeclaration, run_conformance
from bench.features import FeatureProof, prove_features
from canonical.adapter import Feature, Level, Support

PYTHON = Path(sys.executable)


def conform(kind: str) -> ConformanceResult:
    async def run() -> ConformanceResult:
        async with start_worker(PYTHON, f"tests.miniatures.liars:{kind}") as worker:
            return await run_conformance(worker, worker, source="wordle", episodes=1)

    return asyncio.run(run())


def prove(module: str) -> tuple[FeatureProof, ...]:
    async def run() -> tuple[FeatureProof, ...]:
        async with start_worker(PYTHON, module) as worker:
            return await prove_features(worker, TOUCHSTONE, None)

    return asyncio.run(run())


@pytest.fixture(scope="module")
def proofs() -> dict[Feature, FeatureProof]:
    return {proof.feature: proof for proof in prove("canonical.reference")}


def test_the_reference_is_what_it_declares(proofs: dict[Feature, FeatureProof]) -> None:
    assert set(proofs) == set(Feature)
    assert {feature: proof.problem for feature, proof in proofs.items() if proof.problem} == {}
    assert all(proof.evidence for proof in proofs.values())


@pytest.mark.parametrize("feature", Feature)
def test_the_opposite_of_what_is_true_is_a_problem(
    proofs: dict[Feature, FeatureProof], feature: Feature
) -> None:
    proof = proofs[feature]
    if proof.works:
        lie = FeatureProof(feature, Support(Level.ABSENT, "a reason"), proof.works, proof.evidence)
        assert lie.problem == "is declared absent, but works"
    else:
        lie = FeatureProof(feature, Support(Level.NATIVE), proof.works, proof.evidence)
        assert lie.problem == "is declared native, but does not work"


@pytest.mark.parametrize(("level", "works"), [(Level.EMULATED, True), (Level.ABSENT, False)])
def test_what_is_not_native_needs_a_note(level: Level, *, works: bool) -> None:
    without = FeatureProof(Feature.IMAGES, Support(level, " "), works, "seen")
    assert without.problem is not None
    assert "without a note" in without.problem
    assert FeatureProof(Feature.IMAGES, Support(level, "how"), works, "seen").problem is None


def test_a_feature_that_nobody_speaks_of_is_a_problem() -> None:
    assert FeatureProof(Feature.IMAGES, None, works=True, evidence="seen").problem == "is not declared at all"


def test_an_adapter_that_declares_too_much_is_caught_in_words() -> None:
    (proof,) = (proof for proof in prove("tests.miniatures.liars:OverDeclares") if proof.problem)
    told = Misdeclaration.of(proof).render()
    assert "feature remote: is declared emulated, but does not work" in told
    assert "by carrier pigeon" in told
    assert "serving gives no address" in told


def test_an_adapter_that_declares_too_little_is_caught_in_words() -> None:
    result = conform("UnderDeclares")
    assert not result.passed
    cause, snapshot = (divergence.render() for divergence in result.divergences)
    assert "feature cause: is declared absent, but works" in cause
    assert "who knows why" in cause
    assert "equal the reference's" in cause
    assert "feature snapshot: is declared absent, but works" in snapshot
    assert "forked" in snapshot


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "features"),
    [
        ("SeedDropped", {Feature.SEEDED_RESET}),
        ("ErrorTextSwallowed", {Feature.TEXT_ACTIONS}),
        ("EnumLostFromSchema", {Feature.TOOL_SCHEMAS}),
        ("TruncatedReportedAsTerminated", {Feature.TRUNCATION, Feature.CAUSE}),
        ("ImagesDropped", {Feature.IMAGES}),
        ("SessionsMixedUp", {Feature.CONCURRENT_SESSIONS}),
        ("UnicodeDamaged", {Feature.TOOL_CALLS}),
        ("RewardDoubledAfterTheEnd", {Feature.STEP_REWARD}),
        (
            "Forgetful",
            {Feature.TASK_SELECTION, Feature.SPLITS, Feature.REWARD_COMPONENTS, Feature.SNAPSHOT},
        ),
    ],
)
def test_what_is_broken_does_not_count_as_working(kind: str, features: set[Feature]) -> None:
    broken = {proof.feature for proof in prove(f"tests.miniatures.liars:{kind}") if proof.problem}
    assert features <= broken
