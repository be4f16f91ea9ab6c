"""What all parts of a benchmark share: the request, the scripts, and the run that is being written."""

from __future__ import annotations

import contextlib
import random
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

from bench import protocol
from bench.arrival import CLOSED, Arrival
from bench.client import Worker, WorkerDied, WorkerError
from bench.plan import Plan
from bench.progress import OnProgress
from bench.records import Cell, CellStatus, RunWriter, Subject
from bench.samples import SampleColumns
from bench.server import Server
from bench.stacks import ROOT, Stack
from bench.workloads import NANOSECONDS, Workload, play_unfinished, return_when_left
from canonical.environment import Environment
from canonical.step import StepResult

_ANSWER_TIMEOUT_S = 60.0
_LOAD_TIMEOUT_S = 3600.0


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


@dataclass(slots=True)
class Recording:
    """Hold a benchmark that is going on.

    Attributes:
        request: What was asked for.
        writer: The run being written.
        driver: The worker with the framework's own client.
        scripts: What load sessions play.
        on_progress: Hears how far each part has come.
        status: What cells end with when nothing goes wrong: `ok`, or `unverified` after a failed conformance run.
        rng: Decides the order of the pairs.
    """

    request: Request
    writer: RunWriter
    driver: Worker
    scripts: list[protocol.Script]
    on_progress: OnProgress
    status: CellStatus = "ok"
    rng: random.Random = field(init=False)
    _orders: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.request.seed)  # noqa: S311 - the order must be reproducible

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self.request.plan

    @property
    def reason(self) -> str | None:
        """Why cells do not end with `ok`, or None when they do."""
        return "the conformance run before it did not pass" if self.status == "unverified" else None

    @property
    def baseline_module(self) -> str | None:
        """The module of the hand-written environment of this framework, or None when there is none."""
        adapter = self.request.stack.adapter
        folder = ROOT / "bench" / "baselines" / adapter
        is_there = (folder / "baseline.py").is_file() and (
            folder / f"{self.request.environment}.py"
        ).is_file()
        return f"bench.baselines.{adapter}.baseline" if is_there else None

    def begin(
        self,
        cell: str,
        *,
        server: Server,
        workload: Workload,
        engine: Literal["client", "locust"],
        subject: Subject = "compiled",
        sessions: int = 1,
        repetition: int = 0,
        arrival: Arrival | str | None = None,
    ) -> None:
        """Record that a cell begins; without an arrival its loop is closed."""
        self.writer.write(
            Cell(
                id=cell,
                adapter=self.request.stack.adapter,
                subject=subject,
                workload=workload_record(workload, arrival),
                sessions=sessions,
                repetition=repetition,
                engine=engine,
                server=server.settings,
                order=next(self._orders),
            )
        )

    async def own_cpu_s(self, *others: Server | Worker) -> float:
        """Return the CPU seconds that this process, the driver, the others, and all that has ended have used until now.

        Args:
            others: Servers and workers beside the driver. One that has died counts among what has ended.
        """
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = time.process_time() + ended.ru_utime + ended.ru_stime
        counted = set()
        # A server first: its reading also counts for its peak, and in process it is the driver itself.
        for other in (*others, self.driver):
            worker = other.worker if isinstance(other, Server) else other
            if worker.pid not in counted:
                counted.add(worker.pid)
                with contextlib.suppress(WorkerDied):
                    seen = await (other.read() if isinstance(other, Server) else worker.observe())
                    seconds += seen.cpu_ns / NANOSECONDS
        return seconds

    async def load(
        self,
        server: Server,
        workload: Workload,
        on_samples: Callable[[SampleColumns], None],
        *,
        client: Worker | None = None,
        sessions: int,
        first: int = 0,
        warmup: int = 0,
        is_checked: bool = True,
        concurrency: int = 1,
        timeout_s: float = _ANSWER_TIMEOUT_S,
    ) -> protocol.Loaded:
        """Play scripts with the framework's own client.

        Args:
            server: The server to play against.
            workload: Shape of the episodes.
            on_samples: Hears every batch of samples.
            client: The worker to play with; the driver when left out.
            sessions: How many sessions to play.
            first: Number of the first session.
            warmup: How many sessions at the beginning are kept apart.
            is_checked: Whether each answer must equal the reference's.
            concurrency: How many sessions play at the same time; one after the other by default.
            timeout_s: How long an operation may take, in seconds.

        Raises:
            WorkerError: The client broke down.
        """
        scripts = shorten(self.scripts, workload.turns)
        if not is_checked:
            scripts = [script.model_copy(update={"expected": None}) for script in scripts]
        return await (client or self.driver).request(
            protocol.Loaded,
            lambda seq: protocol.Load(
                seq=seq,
                environment=self.request.environment,
                url=server.url,
                workload=workload,
                sessions=sessions,
                first=first,
                concurrency=concurrency,
                warmup=warmup,
                scripts=scripts,
                timeout_s=timeout_s,
            ),
            timeout_s=_LOAD_TIMEOUT_S,
            on_samples=on_samples,
        )


def workload_record(workload: Workload, arrival: Arrival | str | None = None) -> dict[str, Any]:
    """Return a workload as it goes into a record; without an arrival its loop is closed."""
    return {**workload.model_dump(), "arrival": str(arrival or CLOSED)}


async def make_scripts(environment: Environment[Any], plan: Plan) -> list[protocol.Script]:
    """Return the scripts of a plan: calls on tasks from the whole task set, with the reference's answers.

    Raises:
        WorkerError: The environment has no episodes as long as the plan needs them.
    """
    tasks = list(environment.tasks())
    turns = max(plan.latency_turns, plan.held.turns)
    number = min(plan.scripts, len(tasks))
    scripts = []
    for index in range(number):
        task = tasks[index * len(tasks) // number]
        played = await play_unfinished(environment, task, seed=index, turns=turns)
        if len(played) < turns:
            raise WorkerError(
                f"{environment.name} offers no {turns} calls on task {task.id} that leave the episode going, "
                "as this plan needs them"
            )
        expected = [
            protocol.Expected(
                text=result.observation.text,
                reward=result.reward,
                ended=result.cause is not None,
                total=await return_when_left(
                    environment, task, seed=index, calls=[call for call, _ in played[: turn + 1]]
                ),
            )
            for turn, (_, result) in enumerate(played)
        ]
        calls = [call.to_json() for call, _ in played]
        scripts.append(protocol.Script(task=task.id, seed=index, calls=calls, expected=expected))
    return scripts


def expect(result: StepResult, total: float | None = None) -> protocol.Expected:
    """Return what the reference showed, as a script holds it.

    Args:
        result: The reference's answer to one action.
        total: The return of an episode that is left after it; by default, of one that it ends.
    """
    is_over = result.cause is not None
    return protocol.Expected(
        text=result.observation.text,
        reward=result.reward,
        ended=is_over,
        total=result.total if total is None and is_over else total,
    )


def shorten(scripts: Sequence[protocol.Script], turns: int) -> list[protocol.Script]:
    """Return the scripts with their first `turns` calls only."""
    return [
        script.model_copy(update={"calls": script.calls[:turns], "expected": (script.expected or [])[:turns]})
        for script in scripts
    ]
