"""Known truths: servers of which it is known how they fail, and what the harness must say of each.

Everything runs on the real path: a worker serves a miniature of `tests/miniatures/faulty.py`, locust loads it, the
written criterion judges it. Beside it the published method of bursts is played against the same server.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from bench.arrival import CLOSED, Arrival
from bench.arrivals import play_arrivals
from bench.benchmark import make_header
from bench.burst import play_bursts
from bench.ceiling import Ask, Slo, Trial, cause, evaluate
from bench.client import start_worker
from bench.comparison import compare
from bench.held import hold, search_ceiling
from bench.plan import SMOKE, Plan
from bench.progress import ignore_progress
from bench.recording import Recording, Request, make_scripts
from bench.records import Burst, Ceiling, Cell, Ratio, Run, RunWriter, Verdict, read_run
from bench.samples import Phase
from bench.server import start_server
from bench.stacks import Stack
from bench.stats import population
from bench.workloads import Workload
from canonical.adapter import AdapterFacts, Release
from canonical.catalogue import load_environment

ENVIRONMENT = str(Path(__file__).resolve().parents[1] / "miniatures" / "counting.py")
MS = 1_000_000
TRIES = 3
"""How often something is tried when the machine is too busy for the load generator."""
HELD = Workload(turns=2, tool_ns=600 * MS, tool_kind="async", spread_ns=200 * MS)
PLAN = SMOKE.model_copy(
    update={
        "name": "truths",
        "held": HELD,
        "latency_turns": 1,
        "start": 16,
        "cap": 32,
        "scripts": 32,
        "patience_s": 3.0,
        "settle_s": 2.0,
        "cross_check": 0,
        "burst": (32,),
        "burst_trials": 1,
    }
)


class Miniature(Stack):
    """A framework release whose stack is this interpreter, and whose adapter is a miniature."""

    __slots__ = ("_wire",)

    def __init__(self, kind: str, wire: str = "tests.miniatures.openenv_wire") -> None:
        release = Release(package="faulty", version="1", extra="faulty", python="3.11", default=True)
        facts = AdapterFacts(
            title="A miniature",
            kind="server",
            concurrency="one WebSocket for each session",
            imports=(),
            extras={},
            releases=(release,),
            words={},
        )
        super().__init__("miniature", facts, release, kind)
        object.__setattr__(self, "_wire", wire)

    @property
    def python(self) -> Path:
        return Path(sys.executable)

    @property
    def worker(self) -> str:
        return f"tests.miniatures.faulty:{self.target}"

    @property
    def wire(self) -> str:
        return self._wire

    @property
    def constraints(self) -> Path:
        return Path(__file__)


@dataclass(frozen=True)
class Truth:
    """Say how a server fails, and what must be said of it.

    Attributes:
        kind: The server, a class of `tests/miniatures/faulty.py`.
        does: What it does, in words.
        stopped_by: What its ceiling must be stopped by; None where nothing may fail.
        fails: A criterion that must fail.
        error: The beginning of an error text that must be among the most frequent; empty when there must be none.
        plan: What differs from the usual plan.
        wire: The wire of the load generator.
        holds: The most sessions that may pass, when that is known.
        is_searched: Whether the ceiling is searched; a single trial at the cap says it all otherwise.
        burst_passes: Whether the published method is content.
    """

    kind: str
    does: str
    stopped_by: str | None
    fails: str | None
    error: str = ""
    plan: Mapping[str, Any] = field(default_factory=dict)
    wire: str = "tests.miniatures.openenv_wire"
    holds: int | None = None
    is_searched: bool = True
    burst_passes: bool = True


TRUTHS = (
    Truth("Honest", "does what is asked", "limit", None),
    Truth(
        "AcceptsAndIgnores",
        "accepts every connection, answers 20 sessions and leaves the others without a word",
        "success",
        "success_all",
        "no message within 3 s",
        is_searched=False,
        burst_passes=False,
    ),
    Truth(
        "ServesInTurn",
        "lets every session in, serves 20 at a time and the others when those have left",
        "held",
        "held",
        holds=20,
    ),
    Truth(
        "Capped",
        "admits 20 sessions, as its settings say",
        "limit",
        "limit",
        "CAPACITY_REACHED",
        holds=20,
        burst_passes=False,
    ),
    Truth(
        "AcceptsUnevenly",
        "is four workers that admit 16 sessions each (64 in all), of which one gets half of all connections",
        "success",
        "success_all",
        "CAPACITY_REACHED: worker 1 of 4",
        plan={"start": 24, "cap": 48, "burst": (48,)},
        holds=32,
        burst_passes=False,
    ),
    Truth(
        "DropsSome",
        "hangs up on 4 % of the sessions",
        "success",
        "success",
        "the server hung up",
        plan={"cap": 100, "burst": (100,)},
        is_searched=False,
    ),
    Truth(
        "SlowsDown",
        "takes a second longer for a step when there are more than 20 sessions",
        "step_p99",
        "step_max",
        holds=20,
    ),
    Truth("Leaks", "keeps every fourth session after it was closed", "leak", "freed", is_searched=False),
    Truth(
        "AnswersWrongly",
        "answers at once, and never does what was asked",
        "success",
        "success_all",
        "not what the reference says: text",
        is_searched=False,
    ),
    Truth(
        "MixesUp",
        "plays the steps of every eighth session in the episode of another one",
        "success",
        "success_all",
        "not what the reference says: text",
        is_searched=False,
    ),
    Truth(
        "Dies",
        "ends its process when there are more than 20 sessions",
        "server_died",
        "server_died",
        holds=20,
        burst_passes=False,
    ),
    Truth(
        "Honest",
        "does what is asked, but the load generator works 20 ms on every answer",
        "client",
        "client_loop_lag",
        wire="tests.miniatures.busy_wire",
        plan={"start": 4, "cap": 64},
    ),
)
"""What is searched with held sessions."""

STALL_PLAN = {
    "held": Workload(turns=250, tool_ns=15 * MS, tool_kind="async", think_ns=10 * MS),
    "scripts": 1,
    "arrival": Arrival(rate_per_s=4, spacing="constant"),
    "arrival_s": 2.0,
    "burst": (8,),
}
"""Eight sessions of 250 steps arrive within two seconds; the server stands still in the middle of them."""
STALL_SLO = Slo(step_budget_ns=500 * MS)
"""Far above what a busy machine does to a step of 15 ms, far below the two seconds of the stall."""


class Finding(BaseModel):
    """What the harness said of one server.

    Attributes:
        does: What the server does.
        said: The result of the search, in words.
        stopped_by: What it was stopped by.
        failed: The criteria that failed at the smallest number of sessions that did.
        errors: The most frequent error texts there, with counts.
        burst: What the published method says.
        as_expected: Whether it is what is known to be true.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str
    does: str
    said: str
    stopped_by: str
    failed: tuple[str, ...]
    errors: dict[str, int]
    burst: str
    as_expected: bool


async def _measure(
    stack: Stack, plan: Plan, folder: Path, work: Callable[[Recording], Any], kind: type[Recording]
) -> tuple[Run, Any]:
    environment = load_environment(ENVIRONMENT)
    async with AsyncExitStack() as running:
        driver = await running.enter_async_context(
            start_worker(stack.python, stack.worker, label="the client")
        )
        request = Request(stack, ENVIRONMENT, plan, folder, ())
        with RunWriter(folder, make_header(request, environment, driver.started)) as writer:
            recording = kind(request, writer, driver, await make_scripts(environment, plan), ignore_progress)
            result = await work(recording)
    return read_run(folder), result


def measure(
    kind: str,
    folder: Path,
    work: Callable[[Recording], Any],
    *,
    wire: str = "tests.miniatures.openenv_wire",
    recording: type[Recording] = Recording,
    **changes: Any,
) -> tuple[Run, Any]:
    """Let a miniature be measured by `work`; return the run that was written, and what `work` returned."""
    plan = PLAN.model_copy(update=changes)
    return asyncio.run(_measure(Miniature(kind, wire), plan, folder, work, recording))


def run_truth(truth: Truth, folder: Path) -> Run:
    """Measure a truth: bursts first, then the search, or one trial where that says it all."""
    work = _search if truth.is_searched else _one_trial
    run, _ = measure(truth.kind, folder, work, wire=truth.wire, **truth.plan)
    return run


async def _search(recording: Recording) -> None:
    await search_ceiling(recording, play_bursts)


async def _one_trial(recording: Recording) -> None:
    request, plan = recording.request, recording.plan
    async with start_server(
        request.stack, request.environment, client=recording.driver, workload=plan.held
    ) as server:
        await play_bursts(recording, server)
        for number in range(TRIES):
            trial, _ = await hold(recording, Ask(plan.cap, "double", fresh_server=False), server, number)
            verdict = evaluate(trial)
            recording.writer.write(verdict)
            if cause(verdict) != "client":
                break


def judge(truth: Truth, folder: Path) -> tuple[Run, Finding]:
    """Measure a truth and say what was found; again when the machine was too busy for the load generator."""
    for number in range(TRIES):
        run = run_truth(truth, folder / str(number))
        found = find(truth, run)
        if found.stopped_by != "client" or truth.stopped_by == "client":
            break
    return run, found


def find(truth: Truth, run: Run) -> Finding:
    """Say what a run of a truth found."""
    ceiling = next((one for one in run.of(Ceiling) if one.criterion == "slo"), None)
    bursts = run.of(Burst)
    held = {cell.id for cell in run.of(Cell) if cell.workload["arrival"] == CLOSED}
    # A generator that a busy machine held up says nothing about the server, and was given another chance.
    failing = [
        one
        for one in run.of(Verdict)
        if one.cell in held and not one.passed and (cause(one) != "client" or truth.stopped_by == "client")
    ]
    worst = min(reversed(failing), key=lambda one: one.sessions, default=None)
    failed = failed_by(worst) if worst else ()
    errors = dict(worst.first_errors) if worst else {}
    stopped = ceiling.stopped_by if ceiling else cause(worst) if worst else None
    as_expected = (
        stopped == truth.stopped_by
        and (truth.fails in failed if truth.fails else not failed)
        and (ceiling is None or truth.holds is None or ceiling.lower <= truth.holds)
        and (not truth.error or any(text.startswith(truth.error) for text in errors))
        and all(one.passed == truth.burst_passes for one in bursts)
    )
    return Finding(
        kind=truth.kind,
        does=truth.does,
        said=_said(ceiling) if ceiling else f"{worst.sessions} failed" if worst else f"{PLAN.cap} passed",
        stopped_by=stopped or "nothing",
        failed=failed,
        errors=errors,
        burst=say_bursts(bursts),
        as_expected=as_expected,
    )


def _said(ceiling: Ceiling) -> str:
    if ceiling.censored:
        return f"at least {ceiling.lower}"
    lower = str(ceiling.lower) if ceiling.lower else "none"
    return f"{lower} ({ceiling.upper} failed)"


def say_bursts(bursts: tuple[Burst, ...]) -> str:
    """Say what the published method found, in words."""
    return "; ".join(
        f"{one.mean_success:.1%} of {one.sessions}: {'passed' if one.passed else 'failed'}" for one in bursts
    )


@dataclass(frozen=True)
class Stall:
    """What was said of a server that stands still once, by both clocks."""

    run: Run
    by_response: Verdict
    by_service: Verdict


def stall(folder: Path, kind: str = "Stalls") -> Stall:
    """Let sessions arrive at a server that stands still once; judge it by response and by service time."""
    run, played = measure(kind, folder, _arrive, **STALL_PLAN)
    trial: Trial = played.trial
    table = played.outcome.table()
    service = replace(
        trial,
        **{str(phase): population(table, phase) for phase in (Phase.CONNECT, Phase.RESET, Phase.STEP)},
    )
    return Stall(run, evaluate(trial, STALL_SLO), evaluate(service, STALL_SLO))


async def _arrive(recording: Recording) -> Any:
    request, plan = recording.request, recording.plan
    async with start_server(
        request.stack, request.environment, client=recording.driver, workload=plan.held
    ) as server:
        await play_bursts(recording, server)
    return await play_arrivals(recording)


class SameTwice(Recording):
    """A recording whose hand-written environment is the compiled one."""

    __slots__ = ()

    @property
    def baseline_module(self) -> str:
        return self.request.stack.worker


def same_twice(folder: Path) -> tuple[Ratio, ...]:
    """Compare a server with itself, in interleaved pairs."""
    run, _ = measure(
        "Honest", folder, _compare, recording=SameTwice, pairs=30, pair_sessions=4, latency_turns=5
    )
    return run.of(Ratio)


async def _compare(recording: Recording) -> None:
    request = recording.request
    async with start_server(request.stack, request.environment, client=recording.driver) as server:
        await compare(recording, server)


def leaves_out_one(ratio: Ratio, times: float = 3.29 / 1.96) -> bool:
    """Whether even the interval of 99.9 % leaves out 1; chance alone does that once in a thousand ratios."""
    centre = math.log(ratio.ratio)
    low, high = (centre + times * (math.log(end) - centre) for end in (ratio.low, ratio.high))
    return not low <= 0.0 <= high


def failed_by(verdict: Verdict) -> tuple[str, ...]:
    """Name the criteria that failed."""
    return tuple(one.name for one in verdict.criteria if not one.passed)
