"""The benchmark: conformance first, then latencies at one session, the comparison, the costs, and the ceiling."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import shutil
import statistics
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from bench import protocol
from bench.ceiling import Ask, Search, Trial, evaluate, evaluate_success_only, judge_generator
from bench.client import RequestFailed, Worker, WorkerDied, WorkerError, start_worker
from bench.conformance import ConformanceResult, run_conformance
from bench.load.engine import LoadFailed, LoadResult, run_load
from bench.load.plan import Call, LoadPlan, Script
from bench.load.progress import LoadProgress
from bench.machine import Machine, Pressure, disturbances, read_revision
from bench.plan import Plan
from bench.records import (
    SAMPLES_SCHEMA,
    Ceiling,
    Cell,
    CellStatus,
    Conformance,
    Cost,
    End,
    Generator,
    Header,
    Note,
    Ratio,
    RunWriter,
    ServerReading,
    Subject,
    Subjected,
    Support,
    Verdict,
)
from bench.samples import Phase, SampleColumns, Status
from bench.session import serve
from bench.stacks import ROOT, Stack
from bench.stats import Population, TooSmall, population, quantile, ratio
from bench.workloads import NANOSECONDS, Workload, play_unfinished
from canonical.catalogue import definition_sha256, load_environment
from canonical.environment import Environment

_OBSERVE_EVERY_S = 0.5
_ANSWER_TIMEOUT_S = 60.0
_LOAD_TIMEOUT_S = 3600.0
_SETTLE_S = 15.0
Engine = Literal["client", "locust"]


class Progress(NamedTuple):
    """Say how far one part of a benchmark has come.

    Attributes:
        part: The part, in words.
        done: How much of it is done.
        total: How much it has in all; it may grow while a search goes on.
        detail: What is going on right now.
    """

    part: str
    done: float
    total: float
    detail: str = ""


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Request:
    """Say what to measure and where to keep it.

    Attributes:
        stack: The framework release.
        environment: Name or path of the environment.
        plan: How much to measure.
        folder: Where records and samples go; it must not hold a run yet.
        arguments: The command as it was given, for the record.
        seed: Seed of the fuzzer and of the order of the pairs.
    """

    stack: Stack
    environment: str
    plan: Plan
    folder: Path
    arguments: tuple[str, ...]
    seed: int = 0


async def run_benchmark(request: Request, on_progress: OnProgress = lambda _: None) -> None:
    """Measure one framework release and write a run folder.

    Whatever stops it, what was measured until then stays in the folder, and the records say that the run is partial.

    Raises:
        WorkerError: A worker cannot be started, or broke down outside a measurement.
        bench.records.WriteFailed: The folder cannot be written.
    """
    environment = load_environment(request.environment)
    adapter = request.stack.adapter
    async with start_worker(request.stack.python, adapter, label=f"the {request.stack.label} client") as driver:
        header = _header(request, environment, driver.started)
        with RunWriter(request.folder, header) as writer:
            run = _Run(request, environment, writer, driver, on_progress)
            run.scripts = await make_scripts(environment, request.plan)
            await run.prove()
            await run.weigh()
            await run.time_one_session()
            if request.plan.pairs:
                await run.compare()
            if request.stack.facts.kind == "server":
                await run.search_ceiling()
            run.conclude()


def _header(request: Request, environment: Environment[Any], started: protocol.Started) -> Header:
    revision = read_revision(ROOT)
    constraints = request.stack.constraints
    return Header(
        run_id=f"{request.stack.label}-{environment.name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}",
        started=datetime.now(UTC),
        adapter=request.stack.adapter,
        environment=Subjected(
            name=environment.name,
            version=environment.version,
            sha256=definition_sha256(environment),
            tasks_sha256=environment.tasks().sha256,
        ),
        framework=started.packages,
        python=started.python,
        constraints_sha256=hashlib.sha256(constraints.read_bytes()).hexdigest(),
        machine=Machine.read(),
        commit=revision.commit if revision else None,
        dirty=revision.dirty if revision else None,
        args_passed=request.arguments,
        plan=request.plan.model_dump(),
        seeds={"fuzz": request.seed, "order": request.seed},
        features={
            name: Support(level=value["level"], note=value["note"])  # type: ignore[arg-type] # checked by pydantic
            for name, value in started.features.items()
        },
    )


async def make_scripts(environment: Environment[Any], plan: Plan) -> list[protocol.Script]:
    """Return the scripts of a plan: calls on tasks from the whole task set, with the reference's answers."""
    tasks = list(environment.tasks())
    turns = max(plan.latency_turns, plan.held.turns)
    scripts = []
    for index in range(min(plan.scripts, len(tasks))):
        task = tasks[index * len(tasks) // min(plan.scripts, len(tasks))]
        played = await play_unfinished(environment, task, seed=index, turns=turns)
        if len(played) < turns:
            raise WorkerError(
                f"{environment.name} offers no {turns} calls on task {task.id} that leave the episode going; "
                f"the plan needs them"
            )
        scripts.append(
            protocol.Script(
                task=task.id,
                seed=index,
                calls=[call.to_json() for call, _ in played],
                expected=[
                    protocol.Expected(text=r.observation.text, reward=r.reward, ended=r.cause is not None)
                    for _, r in played
                ],
            )
        )
    return scripts


def shorten(scripts: Sequence[protocol.Script], turns: int) -> list[protocol.Script]:
    """Return the scripts with their first `turns` calls only."""
    return [
        script.model_copy(update={"calls": script.calls[:turns], "expected": script.expected[:turns]})
        for script in scripts
    ]


@dataclass(slots=True)
class _Server:
    """A served environment, and the readings taken from the process that serves it."""

    worker: Worker
    url: str | None
    settings: dict[str, Any]
    first: protocol.Observed
    peak: ServerReading = field(default_factory=ServerReading)

    async def read(self) -> protocol.Observed:
        seen = await self.worker.observe()
        self.peak = ServerReading(
            **{
                name: max(getattr(self.peak, name) or 0, getattr(seen, name) or 0)
                for name in ("rss_bytes", "fds", "threads", "open_sessions", "loop_lag_p99_ns")
            }
        )
        return seen


def _reading(seen: protocol.Observed) -> ServerReading:
    return ServerReading(
        rss_bytes=seen.rss_bytes,
        fds=seen.fds,
        threads=seen.threads,
        open_sessions=seen.open_sessions,
        loop_lag_p99_ns=seen.loop_lag_p99_ns,
    )


@dataclass(slots=True)
class _Side:
    """One side of the comparison: what is played where, and the median of each pair by phase."""

    subject: Subject
    cell: str
    server: _Server
    client: Worker
    workload: Workload
    before: Pressure
    server_before: protocol.Observed
    batches: list[SampleColumns] = field(default_factory=list)
    medians: dict[Phase, dict[int, float]] = field(default_factory=dict)
    counted: Counter[Phase] = field(default_factory=Counter)


class _Run:
    def __init__(
        self,
        request: Request,
        environment: Environment[Any],
        writer: RunWriter,
        driver: Worker,
        on_progress: OnProgress,
    ) -> None:
        self.request = request
        self.plan = request.plan
        self.environment = environment
        self.writer = writer
        self.driver = driver
        self.on_progress = on_progress
        self.scripts: list[protocol.Script] = []
        self.status: CellStatus = "ok"
        self._orders = count()
        self._rng = random.Random(request.seed)  # noqa: S311 - the order must be reproducible
        self._disturbances: Counter[str] = Counter()

    @property
    def baseline_module(self) -> str | None:
        folder = ROOT / "bench" / "baselines" / self.request.stack.adapter
        is_there = (folder / "baseline.py").is_file() and (folder / f"{self.environment.name}.py").is_file()
        return f"bench.baselines.{self.request.stack.adapter}.baseline" if is_there else None

    @asynccontextmanager
    async def server(self, *, workload: Workload | None = None, module: str | None = None) -> AsyncIterator[_Server]:
        """Start a fresh server process."""
        name = module or self.request.stack.adapter
        async with start_worker(
            self.request.stack.python, name, label=f"the {self.request.stack.label} server"
        ) as worker:
            serving = await serve(worker, self.request.environment, workload=workload)
            yield _Server(worker, serving.url, serving.settings, await worker.observe())

    # --- the parts, in order ---------------------------------------------------------------------------------------

    async def prove(self) -> None:
        """Compare with the reference before anything is measured."""
        part = "conformance"
        async with self.server() as server:
            try:
                result = await run_conformance(
                    server.worker,
                    self.driver,
                    source=self.request.environment,
                    episodes=self.plan.episodes,
                    seed=self.request.seed,
                    on_progress=lambda done, of: self.on_progress(Progress(part, done, of, "episodes")),
                )
            except WorkerError as error:
                self.writer.write(_failed_conformance(str(error)))
                raise
        self.writer.write(conformance_record(result))
        if not result.passed:
            self.status = "unverified"

    async def weigh(self) -> None:
        """Measure what the episode itself costs."""
        part = "cost of the episode"
        self.on_progress(Progress(part, 0, 1))
        try:
            costed = await self.driver.request(
                protocol.Costed,
                lambda seq: protocol.Cost(
                    seq=seq, environment=self.request.environment, episodes=self.plan.cost_episodes
                ),
                timeout_s=300,
            )
        except RequestFailed as error:
            self.writer.write(Note(text=f"The cost of the episode was not measured: {error.reason}"))
        else:
            for record in _cost_records(costed):
                self.writer.write(record)
        self.on_progress(Progress(part, 1, 1))

    async def time_one_session(self) -> None:
        """Measure connect, reset, step and close with one session at a time."""
        total = self.plan.latency_sessions + self.plan.warmup_sessions
        async with self.server() as server:
            await self._latency_cell("latency-1", server, sessions=total, warmup=self.plan.warmup_sessions)

    async def compare(self) -> None:
        """Measure the compiled and the hand-written environment in turns, in random order within each pair."""
        module = self.baseline_module
        if module is None:
            return
        async with AsyncExitStack() as stack:
            label = "the hand-written environment's client"
            other = await stack.enter_async_context(start_worker(self.request.stack.python, module, label=label))
            mine = await stack.enter_async_context(self.server())
            theirs = await stack.enter_async_context(self.server(module=module))
            sides = [
                await self._begin_side("compiled", mine, self.driver),
                await self._begin_side("baseline", theirs, other),
            ]
            for pair in range(self.plan.pairs + 1):
                self._rng.shuffle(sides)
                for side in sides:
                    await self._play_side(side, pair)
                self.on_progress(Progress("compiled against hand-written", pair, self.plan.pairs, "pairs"))
            for side in sides:
                await self._end_side(side)
        by_subject = {side.subject: side for side in sides}
        for phase in (Phase.RESET, Phase.STEP):
            self._write_ratio(phase, by_subject["compiled"], by_subject["baseline"])

    async def _begin_side(self, subject: Subject, server: _Server, client: Worker) -> _Side:
        workload = Workload(turns=self.plan.latency_turns)
        cell = f"pairs-{subject}"
        self._begin(cell, subject, workload, 1, "client", server.settings)
        return _Side(subject, cell, server, client, workload, Pressure.read(), await server.read())

    async def _play_side(self, side: _Side, pair: int) -> None:
        sessions = self.plan.pair_sessions
        scripts = shorten(self.scripts, side.workload.turns)
        if side.subject == "baseline":
            # It is written by hand, so its words are its own; only its speed is compared.
            scripts = [script.model_copy(update={"expected": None}) for script in scripts]
        batch: list[SampleColumns] = []
        await self._load(
            side.client, side.server, side.workload, batch.append, sessions=sessions, first=pair * sessions,
            warmup=sessions if pair == 0 else 0, scripts=scripts,
        )  # fmt: skip
        side.batches.extend(batch)
        rows = [row for columns in batch for row in columns]
        for phase in (Phase.RESET, Phase.STEP):
            taken = [row for row in rows if row.phase is phase]
            if pair and taken and all(row.status is Status.OK for row in taken):
                side.medians.setdefault(phase, {})[pair] = statistics.median(row.ns for row in taken)
                side.counted[phase] += len(taken)

    async def _end_side(self, side: _Side) -> None:
        self.writer.write_samples(side.cell, *side.batches)
        after = await side.server.read()
        self.writer.write(
            End(
                cell=side.cell, status=self.status, reason=self._reason(), pressure_before=side.before,
                pressure_after=Pressure.read(), server_before=_reading(side.server_before),
                server_peak=side.server.peak, server_after=_reading(after),
            )
        )  # fmt: skip

    def _write_ratio(self, phase: Phase, mine: _Side, theirs: _Side) -> None:
        name = f"compiled/baseline {phase}"
        pairs = sorted(set(mine.medians.get(phase, {})) & set(theirs.medians.get(phase, {})))
        above, below = ([side.medians[phase][pair] for pair in pairs] for side in (mine, theirs) if pairs)
        result = ratio(above, below, seed=self.request.seed) if pairs else None
        if result is None or isinstance(result, TooSmall):
            self.writer.write(Note(text=f"The ratio {name} is missing: only {len(pairs)} pairs came through whole."))
            return
        self.writer.write(
            Ratio(
                name=name, phase=phase, pairs=len(pairs), ratio=result.value, low=result.low, high=result.high,
                n=mine.counted[phase] + theirs.counted[phase],
            )
        )  # fmt: skip

    async def search_ceiling(self) -> None:
        """Hold more and more sessions open at once until a criterion fails, then close in on the ceiling."""
        plan, workload = self.plan, self.plan.held
        search = Search(
            start=min(plan.start, plan.cap), cap=plan.cap, tolerance=plan.tolerance, trials=plan.trials,
            confirmations=plan.confirmations,
        )  # fmt: skip
        trials: list[Trial] = []
        settings: dict[str, Any] = {}
        try:
            async with AsyncExitStack() as stack:
                server: _Server | None = None
                while (ask := search.ask) is not None:
                    if server is None or ask.fresh_server:
                        await stack.aclose()
                        server = await stack.enter_async_context(self.server(workload=workload))
                        settings = server.settings
                    trial, verdict = await self._held_cell(ask, server, len(trials))
                    trials.append(trial)
                    search.tell(verdict)
                    if trial.aborted == "server_died" or not verdict.passed:
                        # A server that has failed once may be damaged, and the next point must not pay for it.
                        server = None
        finally:
            if trials:
                self._write_ceilings(search, trials, settings)

    def _write_ceilings(self, search: Search, trials: list[Trial], settings: dict[str, Any]) -> None:
        bracket = search.bracket()
        caps = {key: value for key, value in settings.items() if key.startswith("max_") or key == "backlog"}
        common: dict[str, Any] = {
            "adapter": self.request.stack.adapter,
            "subject": "compiled",
            "workload": _workload_record(self.plan.held),
            "configured_caps": caps,
        }
        self.writer.write(
            Ceiling(
                criterion="slo", lower=bracket.lower, upper=bracket.upper, stopped_by=bracket.stopped_by,
                censored=bracket.censored, confirmed=bracket.confirmed, trials=bracket.trials, **common,
            )
        )  # fmt: skip
        passed: dict[int, bool] = {}
        for sessions in sorted({trial.sessions for trial in trials}):
            group = [trial for trial in trials if trial.sessions == sessions]
            passed[sessions] = evaluate_success_only(group).passed
        failing = min((sessions for sessions, is_passed in passed.items() if not is_passed), default=None)
        lower = max((s for s, is_passed in passed.items() if is_passed and (failing is None or s < failing)), default=0)
        self.writer.write(
            Ceiling(
                criterion="success_only", lower=lower, upper=failing, trials=len(trials), censored=failing is None,
                stopped_by="success" if failing is not None else ("limit" if search.ask is None else "interrupted"),
                **common,
            )
        )  # fmt: skip

    def conclude(self) -> None:
        """Write down what a reader of the report must know about the circumstances."""
        for sentence, cells in self._disturbances.items():
            self.writer.write(Note(text=f"{sentence} This concerns {cells} cells."))

    # --- cells -----------------------------------------------------------------------------------------------------

    def _begin(  # noqa: PLR0917 - the columns of a record
        self, cell: str, subject: Subject, workload: Workload, sessions: int, engine: Engine, settings: dict[str, Any],
        repetition: int = 0,
    ) -> None:  # fmt: skip
        self.writer.write(
            Cell(
                id=cell, adapter=self.request.stack.adapter, subject=subject, workload=_workload_record(workload),
                sessions=sessions, repetition=repetition, engine=engine, server=settings, order=next(self._orders),
            )
        )  # fmt: skip

    def _reason(self) -> str | None:
        return "the conformance run before it did not pass" if self.status == "unverified" else None

    async def _load(
        self,
        client: Worker,
        server: _Server,
        workload: Workload,
        on_samples: Callable[[SampleColumns], None],
        *,
        sessions: int,
        first: int,
        warmup: int,
        scripts: list[protocol.Script],
    ) -> protocol.Loaded:
        return await client.request(
            protocol.Loaded,
            lambda seq: protocol.Load(
                seq=seq, environment=self.request.environment, url=server.url, workload=workload, sessions=sessions,
                first=first, concurrency=1, warmup=warmup, scripts=scripts, timeout_s=_ANSWER_TIMEOUT_S,
            ),
            timeout_s=_LOAD_TIMEOUT_S,
            on_samples=on_samples,
        )  # fmt: skip

    async def _latency_cell(self, cell: str, server: _Server, *, sessions: int, warmup: int) -> None:
        part = "latencies at one session"
        workload = Workload(turns=self.plan.latency_turns)
        self._begin(cell, "compiled", workload, 1, "client", server.settings)
        batches: list[SampleColumns] = []
        operations = sessions * (workload.turns + 3)

        def on_samples(batch: SampleColumns) -> None:
            batches.append(batch)
            self.on_progress(Progress(part, sum(map(len, batches)), operations, "operations"))

        before, server_before, own = Pressure.read(), await server.read(), await self._own_cpu_s(server)
        status, reason = self.status, self._reason()
        loaded, server_after = None, None
        try:
            loaded = await self._load(
                self.driver, server, workload, on_samples, sessions=sessions, first=0, warmup=warmup,
                scripts=shorten(self.scripts, workload.turns),
            )  # fmt: skip
            server_after = await server.read()
        except WorkerError as error:
            status, reason = "failed", str(error)
        finally:
            self.writer.write_samples(cell, *batches)
        after = Pressure.read()
        if server_after is not None:
            self._note(disturbances(before, after, await self._own_cpu_s(server) - own))
        self.writer.write(
            End(
                cell=cell, status=status, reason=reason, pressure_before=before, pressure_after=after,
                server_before=_reading(server_before), server_peak=server.peak,
                server_after=_reading(server_after) if server_after else None,
                peak_open=loaded.peak_open if loaded else None, opened=loaded.opened if loaded else None,
                succeeded=loaded.succeeded if loaded else None,
            )
        )  # fmt: skip
        if self.driver.has_died:
            raise WorkerDied(reason or "the client worker died")

    async def _own_cpu_s(self, server: _Server) -> float:
        seen = [await server.worker.observe(), await self.driver.observe()]
        return time.process_time() + sum(one.cpu_ns for one in seen) / NANOSECONDS

    def _note(self, sentences: Sequence[str]) -> None:
        self._disturbances.update(sentences)

    async def _held_cell(self, ask: Ask, server: _Server, number: int) -> tuple[Trial, Verdict]:
        workload = self.plan.held
        cell = f"held-{ask.sessions}-{number:02d}"
        self._begin(cell, "compiled", workload, ask.sessions, "locust", server.settings, number)
        server.peak = ServerReading()
        before, server_before = Pressure.read(), await server.read()
        own = time.process_time() + server_before.cpu_ns / NANOSECONDS
        watching = asyncio.create_task(self._watch(server))
        outcome: LoadResult | None = None
        reason, aborted, server_after = self._reason(), None, None
        try:
            outcome = await self._hold(ask, server)
        except LoadFailed as error:
            reason, aborted = str(error), "server_died"
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        after = Pressure.read()
        try:
            server_after = await self._settled(server, server_before.open_sessions)
        except WorkerError as error:
            reason, aborted = str(error), "server_died"
        generator = self._generator(outcome, workload)
        trial = self._trial(cell, ask, outcome, generator, aborted, reason or "")
        verdict = evaluate(trial)
        if outcome is not None:
            self.writer.write_samples(cell, *outcome.samples)
        if outcome is not None and server_after is not None:
            used = time.process_time() + server_after.cpu_ns / NANOSECONDS - own + outcome.summary.cpu_s
            self._note([s for s in disturbances(before, after, used) if "Other processes" in s])
        self.writer.write(
            End(
                cell=cell, status="failed" if aborted else self.status, reason=reason, pressure_before=before,
                pressure_after=after, server_before=_reading(server_before), server_peak=server.peak,
                server_after=_reading(server_after) if server_after else None, generator=generator,
                peak_open=outcome.peak_open if outcome else None, opened=outcome.opened if outcome else None,
                succeeded=outcome.succeeded if outcome else None,
                throughput_steps_per_s=outcome.steps_per_s() if outcome else None,
            )
        )  # fmt: skip
        self.writer.write(verdict)
        return trial, verdict

    async def _hold(self, ask: Ask, server: _Server) -> LoadResult:
        part = f"ceiling: {ask.stage}"
        workload = self.plan.held
        address = urlsplit(server.url or "")
        folder = self.writer.folder / "load"
        plan = LoadPlan(
            adapter=self.request.stack.adapter,
            addresses=(address.hostname or "127.0.0.1",),
            ports=(address.port or 0,),
            sessions=ask.sessions,
            scripts=tuple(_load_script(script) for script in shorten(self.scripts, workload.turns)),
            turns=workload.turns,
            spread_s=workload.spread_ns / NANOSECONDS,
            think_s=workload.think_ns / NANOSECONDS,
            time_limit_s=60 + 3 * workload.turns * (workload.tool_ns + workload.think_ns) / NANOSECONDS
            + ask.sessions / 50,
            out=folder,
        )
        stop = threading.Event()

        def on_progress(progress: LoadProgress) -> None:
            if stop.is_set():
                raise LoadFailed("the benchmark was interrupted")
            operations = 2 * progress.sessions + progress.steps_planned
            done = progress.opened + progress.failed + progress.steps + progress.ended
            loop.call_soon_threadsafe(
                self.on_progress,
                Progress(part, done, operations, f"{ask.sessions:,} sessions, {progress.stage}"),
            )

        loop = asyncio.get_running_loop()
        try:
            return await asyncio.to_thread(run_load, plan, on_progress=on_progress)
        finally:
            stop.set()
            shutil.rmtree(folder, ignore_errors=True)

    async def _watch(self, server: _Server) -> None:
        with contextlib.suppress(WorkerError):
            while True:
                await server.read()
                await asyncio.sleep(_OBSERVE_EVERY_S)

    async def _settled(self, server: _Server, before: int) -> protocol.Observed:
        """Wait until the server has freed what the trial held, and return the reading after that."""
        patience = time.monotonic() + _SETTLE_S
        while True:
            seen = await server.read()
            if seen.open_sessions <= before or time.monotonic() > patience:
                return seen
            await asyncio.sleep(_OBSERVE_EVERY_S / 2)

    def _generator(self, outcome: LoadResult | None, workload: Workload) -> Generator | None:
        if outcome is None or outcome.summary.wall_s <= 0:
            return None
        summary = outcome.summary
        return judge_generator(
            cpu_s=summary.cpu_s, wall_s=summary.wall_s, cores=max(1, summary.cores),
            loop_lag_p99_ns=summary.loop_lag_p99_ns, wait_ns=workload.tool_ns,
        )  # fmt: skip

    def _trial(  # noqa: PLR0917 - the columns of a trial
        self,
        cell: str,
        ask: Ask,
        outcome: LoadResult | None,
        generator: Generator | None,
        aborted: Literal["server_died"] | None,
        reason: str,
    ) -> Trial:
        table = outcome.table() if outcome else SAMPLES_SCHEMA.empty_table()
        connect, reset, step = (population(table, phase) for phase in (Phase.CONNECT, Phase.RESET, Phase.STEP))
        return Trial(
            cell=cell, sessions=ask.sessions, succeeded=outcome.succeeded if outcome else 0,
            peak_open=outcome.peak_open if outcome else None, wait_ns=self.plan.held.tool_ns, connect=connect,
            reset=reset, step=step, generator=generator, aborted=aborted, abort_reason=reason,
            errors=outcome.errors if outcome else {},
        )  # fmt: skip


def _load_script(script: protocol.Script) -> Script:
    expected = script.expected or []
    return Script(
        task=script.task,
        seed=script.seed,
        calls=tuple(
            Call(name=call["name"], arguments=call["arguments"], text=seen.text, reward=seen.reward, ended=seen.ended)
            for call, seen in zip(script.calls, expected, strict=True)
        ),
    )


def _workload_record(workload: Workload) -> dict[str, Any]:
    return {**workload.model_dump(), "arrival": "closed"}


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


def _failed_conformance(reason: str) -> Conformance:
    return Conformance(
        status="error", episodes=0, steps=0, divergences=0, seconds=0.0, digest="", first_divergence=reason
    )


def _cost_records(costed: protocol.Costed) -> list[Cost]:
    added = [step - bare for step, bare in zip(costed.step_ns, costed.bare_ns, strict=True)]
    rows = (
        ("episode_step_overhead", added, "ns", 1),
        ("episode_step", costed.step_ns, "ns", 1),
        ("bare_tool_call", costed.bare_ns, "ns", 1),
        ("live_episode_bytes", costed.live_bytes, "bytes", 1),
    )
    records = []
    for name, values, unit, _ in rows:
        spread = quantile(Population(values), 0.5)
        is_wide_enough = not isinstance(spread, TooSmall)
        records.append(
            Cost(
                name=name, value=round(statistics.median(values), 1), unit=unit, n=len(values),
                low=round(spread.low, 1) if is_wide_enough else None,
                high=round(spread.high, 1) if is_wide_enough else None,
            )
        )  # fmt: skip
    return records
