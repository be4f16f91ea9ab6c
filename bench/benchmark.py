"""The benchmark: proof first, then the cost of the episode, latencies at one session, the comparison, the ceiling."""

from __future__ import annotations

import hashlib
import statistics
from datetime import UTC, datetime
from typing import Any

from bench import protocol
from bench.arrivals import play_arrivals
from bench.burst import play_bursts
from bench.client import RequestFailed, WorkerError, start_worker
from bench.comparison import compare
from bench.conformance import ConformanceResult, run_conformance
from bench.crosscheck import cross_check
from bench.held import search_ceiling
from bench.latency import time_one_session
from bench.live import measure_live
from bench.machine import Machine, Pressure, read_revision
from bench.probe import probe_width
from bench.progress import OnProgress, Progress, ignore_progress
from bench.recording import Recording, Request, make_scripts
from bench.records import Conformance, Cost, Header, Note, RunWriter, Subjected, Support
from bench.server import Server, start_server
from bench.stacks import ROOT
from bench.stats import interval_ranks
from canonical.catalogue import definition_sha256, load_environment
from canonical.environment import Environment

_COST_TIMEOUT_S = 300.0


async def run_benchmark(request: Request, on_progress: OnProgress = ignore_progress) -> None:
    """Measure one framework release and write a run folder.

    Whatever stops it, what was measured until then stays in the folder, and the records say that the run is partial.

    Raises:
        WorkerError: A worker cannot be started, or broke down.
        bench.records.RunError: The folder cannot be written, or holds a run already.
    """
    environment = load_environment(request.environment)
    stack = request.stack
    async with start_worker(stack.python, stack.worker, label=f"the {stack.label} client") as driver:
        with RunWriter(request.folder, make_header(request, environment, driver.started)) as writer:
            scripts = await make_scripts(environment, request.plan)
            recording = Recording(request, writer, driver, scripts, on_progress)
            async with start_server(stack, request.environment, client=driver) as server:
                await _prove(recording, server)
                await _weigh(recording)
                await time_one_session(recording, server)
                await compare(recording, server)
            await measure_live(recording)
            if request.plan.arrival is not None:
                await play_arrivals(recording)
            else:
                await probe_width(recording)
                await search_ceiling(recording, cross_check, play_bursts)


def make_header(request: Request, environment: Environment[Any], started: protocol.Started) -> Header:
    """Return the header of a run that begins now: who measures what, where, and with which arguments."""
    revision = read_revision(ROOT)
    now = datetime.now(UTC)
    return Header(
        run_id=f"{request.stack.label}-{environment.name}-{now:%Y%m%dT%H%M%SZ}",
        started=now,
        adapter=request.stack.adapter,
        environment=Subjected(
            name=environment.name,
            version=environment.version,
            sha256=definition_sha256(environment),
            tasks_sha256=environment.tasks().sha256,
        ),
        framework=started.packages,
        python=started.python,
        constraints_sha256=hashlib.sha256(request.stack.constraints.read_bytes()).hexdigest(),
        machine=Machine.read(),
        pressure=Pressure.read(),
        commit=revision.commit if revision else None,
        dirty=revision.dirty if revision else None,
        args_passed=request.arguments,
        plan=request.plan.model_dump(),
        seeds={"fuzz": request.seed, "order": request.seed},
        features={
            name: Support(level=value["level"], note=value["note"])
            for name, value in started.features.items()
        },
    )


async def _prove(recording: Recording, server: Server) -> None:
    """Compare with the reference before anything is measured."""
    try:
        result = await run_conformance(
            server.worker,
            recording.driver,
            source=recording.request.environment,
            episodes=recording.plan.episodes,
            seed=recording.request.seed,
            on_progress=lambda done, of: recording.on_progress(Progress("conformance", done, of, "episodes")),
        )
    except WorkerError as error:
        recording.writer.write(_broken_conformance(str(error)))
        raise
    recording.writer.write(conformance_record(result))
    if not result.passed:
        recording.status = "unverified"


def conformance_record(result: ConformanceResult) -> Conformance:
    """Return the record of a conformance run."""
    return Conformance(
        status="passed" if result.passed else "failed",
        episodes=result.episodes,
        steps=result.steps,
        divergences=len(result.divergences),
        seconds=result.seconds,
        digest=result.digest,
        first_divergence=result.divergences[0].render() if result.divergences else None,
    )


def _broken_conformance(reason: str) -> Conformance:
    return Conformance(
        status="error", episodes=0, steps=0, divergences=0, seconds=0.0, digest="", first_divergence=reason
    )


async def _weigh(recording: Recording) -> None:
    """Measure what the episode itself costs, inside the stack but without the framework."""
    part = "cost of the episode"
    recording.on_progress(Progress(part, 0, 1))
    try:
        costed = await recording.driver.request(
            protocol.Costed,
            lambda seq: protocol.Cost(
                seq=seq, environment=recording.request.environment, episodes=recording.plan.cost_episodes
            ),
            timeout_s=_COST_TIMEOUT_S,
        )
    except RequestFailed as error:
        recording.writer.write(Note(text=f"The cost of the episode was not measured: {error.reason}"))
    else:
        added = [step - bare for step, bare in zip(costed.step_ns, costed.bare_ns, strict=True)]
        for name, values, unit in (
            ("episode_step_overhead", added, "ns"),
            ("episode_step", costed.step_ns, "ns"),
            ("bare_tool_call", costed.bare_ns, "ns"),
            ("live_episode_bytes", costed.live_bytes, "bytes"),
        ):
            recording.writer.write(_cost(name, sorted(values), unit))
    recording.on_progress(Progress(part, 1, 1))


def _cost(name: str, values: list[float], unit: str) -> Cost:
    ranks = interval_ranks(len(values), 0.5)
    low, high = (None, None) if ranks is None else (round(values[rank - 1], 1) for rank in ranks)
    median = round(statistics.median(values), 1)
    return Cost(name=name, value=median, unit=unit, n=len(values), low=low, high=high)
