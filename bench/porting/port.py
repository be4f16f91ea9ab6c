"""Port: lift a source, find out what is lost on the way to a framework, and prove the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bench.client import start_worker
from bench.conformance import absent_features
from bench.porting.episodes import PortEpisode, record_episodes
from bench.porting.ledger import BRIDGE, compose_ledger, target_losses, text_losses
from bench.porting.probes import probe_source
from bench.porting.records import LossEntry, PortRecord, SourceRecord, TargetRecord
from bench.porting.sources import RunningSource, SourceRequest, run_source
from bench.porting.verify import SESSION, Side, verify
from bench.session import serve
from bench.stacks import Stack
from canonical.adapter import Feature, Level, Loss, Support
from canonical.bridge.environment import BridgedEnvironment
from canonical.bridge.source import LiftOptions
from canonical.catalogue import load_environment
from canonical.stone import Concern
from canonical.transcript import Action

EPISODES = 24
"""How many episodes with random actions a proof plays; half as many have adversarial ones."""


@dataclass(frozen=True, slots=True)
class PortRequest:
    """Hold what is ported where.

    Attributes:
        source: The source.
        target: The stack of the framework that it is ported to.
        episodes: How many episodes with random actions are recorded.
        seed: Decides them.
        scripted: Actions that the user wrote, an episode each.
        pool: Actions that make sense in the source.
    """

    source: SourceRequest
    target: Stack
    episodes: int = EPISODES
    seed: int = 0
    scripted: Sequence[Sequence[Action]] = ()
    pool: Sequence[Action] = field(default=())


@dataclass(frozen=True, slots=True)
class Surveyed:
    """Hold a source that runs, and what playing it has shown.

    Attributes:
        running: The source.
        environment: The source as an environment.
        findings: What it does that a port must not hide.
        episodes: The episodes of the proof.
    """

    running: RunningSource
    environment: BridgedEnvironment
    findings: list[Loss]
    episodes: list[PortEpisode]


@asynccontextmanager
async def survey(
    request: SourceRequest,
    *,
    episodes: int = EPISODES,
    seed: int = 0,
    scripted: Sequence[Sequence[Action]] = (),
    pool: Sequence[Action] = (),
    on_step: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[Surveyed]:
    """Run a source, play it to find out what it does, and record the episodes of a proof.

    Raises:
        LiftError: It cannot be lifted.
        SessionError: It refused, failed or is gone.
    """
    on_step(f"starting {request.name} in {request.stack.label}")
    async with run_source(request) as running:
        environment = bridged(running)
        on_step(f"playing {request.name} to see what it does")
        findings = await probe_source(environment, seed=seed, pool=pool)
        recorded = await record_episodes(environment, episodes, seed=seed, scripted=scripted, pool=pool)
        yield Surveyed(running, environment, findings, recorded)


def bridged(running: RunningSource) -> BridgedEnvironment:
    """Return a running source as an environment."""
    environment = load_environment(running.environment)
    assert isinstance(environment, BridgedEnvironment)  # noqa: S101 - its name says so
    return environment


def describe_port(
    request: SourceRequest, surveyed: Surveyed, target: Stack, declared: Side, accepted: Sequence[str] = ()
) -> PortRecord:
    """Return the record of a port that is not proven yet."""
    facts = surveyed.running.facts
    features = read_features(declared.worker.started.features)
    losses = [
        *facts.losses,
        *surveyed.findings,
        *BRIDGE,
        *text_losses(facts, features),
        *target_losses(features, facts=facts),
    ]
    return PortRecord(
        source=SourceRecord(
            name=request.name,
            framework=request.framework,
            stack=request.stack.release.label,
            packages=dict(facts.packages),
            tasks=len(facts.tasks),
            tools=[tool.name for tool in facts.tools],
            options=_given(request.options),
        ),
        target=TargetRecord(
            framework=target.adapter, stack=target.release.label, packages=declared.worker.started.packages
        ),
        ledger=[LossEntry.of(loss) for loss in compose_ledger(losses)],
        accepted=list(accepted),
    )


def read_features(declared: dict[str, dict[str, str]]) -> dict[Feature, Support]:
    """Return what a worker declares of its framework."""
    return {
        Feature(name): Support(Level(said["level"]), said.get("note", "")) for name, said in declared.items()
    }


def _given(options: LiftOptions) -> dict[str, object]:
    usual = LiftOptions()
    given = dataclasses.asdict(options)
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if value != getattr(usual, name)
    }


@asynccontextmanager
async def open_side(target: Stack, environment: str) -> AsyncIterator[Side]:
    """Bring a source into the stack of a framework, served by its own server where it has one.

    Raises:
        WorkerError: The worker does not start, or the framework does not take the source.
    """
    async with start_worker(target.python, target.worker, label=f"the {target.label} worker") as worker:
        url = None
        if target.facts.kind == "server":
            url = (await serve(worker, environment)).url
        yield Side(worker, environment, url, absent_features(worker))


async def prove(
    record: PortRecord, surveyed: Surveyed, side: Side, *, on_episode: Callable[[int], None] = lambda _: None
) -> PortRecord:
    """Play the recorded episodes on the source and through the target, compare, and return the record with the proof.

    Where the ledger says that the source does not repeat its episodes, nothing but their being played is compared.

    Raises:
        SessionError: The source refused, failed or is gone.
        WorkerError: The worker of the target broke down.
    """
    proof = await verify(surveyed.environment, side, surveyed.episodes, on_episode=on_episode)
    if _is_unrepeatable(record):
        failed = [one for one in proof.mismatches if one.piece == SESSION]
        proof = proof.model_copy(update={"unrepeatable": True, "mismatches": failed})
    return record.model_copy(update={"proof": proof})


def _is_unrepeatable(record: PortRecord) -> bool:
    return any(entry.concern is Concern.SEED and entry.status == "lost" for entry in record.ledger)
