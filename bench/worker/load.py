"""Load: play scripts in many sessions with the framework's own client, timing every operation where it happens."""

from __future__ import annotations

import asyncio
import base64
import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from io import BytesIO
from typing import Any, TypeVar, cast

from bench import protocol
from bench.samples import Phase, SampleColumns, Status
from bench.worker.compiled import CompiledEnvironments
from bench.worker.host import raise_file_limit
from bench.workloads import NANOSECONDS
from canonical.adapter import Adapter, Endpoint, Session, SessionError
from canonical.step import StepResult
from canonical.transcript import Action, action_from_json

ResultT = TypeVar("ResultT")
_REPORT_EVERY_S = 0.5


class _Abandon(Exception):  # noqa: N818 - it is what happens
    """Leave a session after its first failure; the failure is already in the samples."""


class _Run:
    def __init__(self, adapter: Adapter[Any], compiled: CompiledEnvironments, plan: protocol.Load) -> None:
        self.plan = plan
        self.columns = SampleColumns()
        self.opened = self.succeeded = self.open_now = self.peak_open = 0
        self._adapter = adapter
        self._endpoint = Endpoint(plan.url, lambda: 0)
        self._compiled = None if plan.url else compiled.get(plan.environment, plan.workload)
        self._actions: list[list[Action]] = [
            [action_from_json(call) for call in script.calls] for script in plan.scripts
        ]

    async def operation(
        self,
        session: int,
        seq: int,
        phase: Phase,
        work: Awaitable[ResultT],
        fault_of: Callable[[ResultT], str | None] = lambda _result: None,
    ) -> ResultT:
        """Time one operation and record it; one that fails ends the session, one that is wrong does not."""
        start = time.perf_counter_ns()
        status, error, result = Status.OK, None, None
        try:
            async with asyncio.timeout(self.plan.timeout_s):
                result = await work
        except TimeoutError:
            status, error = Status.TIMEOUT, f"no answer within {self.plan.timeout_s:g} s"
        except (SessionError, OSError) as failure:
            status, error = Status.ERROR, str(failure)
        ns = time.perf_counter_ns() - start
        if status is Status.OK:
            error = fault_of(cast("ResultT", result))
            status = Status.OK if error is None else Status.WRONG
        self.columns.append(
            session, seq, phase, session - self.plan.first < self.plan.warmup, start, start, ns, status, error
        )
        if status in {Status.TIMEOUT, Status.ERROR}:
            raise _Abandon
        return cast("ResultT", result)

    async def play(self, session: int) -> None:
        """Play one session from connect to close."""
        index = session % len(self._actions)
        script, actions = self.plan.scripts[index], self._actions[index]
        stack = AsyncExitStack()
        try:
            connecting = stack.enter_async_context(self._adapter.connect(self._compiled, self._endpoint))
            live = await self.operation(session, 0, Phase.CONNECT, connecting)
            self.opened += 1
            self.open_now += 1
            self.peak_open = max(self.peak_open, self.open_now)
            try:
                await self.operation(session, 1, Phase.RESET, live.open(script.task, script.seed))
                expected: Sequence[protocol.Expected | None] = script.expected or [None] * len(actions)
                is_right = await self._steps(session, live, actions, expected)
                await self.operation(session, 2 + len(actions), Phase.CLOSE, live.close())
                self.succeeded += is_right
            finally:
                self.open_now -= 1
        except _Abandon:
            pass
        finally:
            await _leave(stack)

    async def _steps(
        self,
        session: int,
        live: Session,
        actions: Sequence[Action],
        expected: Sequence[protocol.Expected | None],
    ) -> bool:
        faults = 0
        for turn, (action, wanted) in enumerate(zip(actions, expected, strict=True)):
            if self.plan.workload.think_ns:
                await asyncio.sleep(self.plan.workload.think_ns / NANOSECONDS)

            def fault_of(result: StepResult, wanted: protocol.Expected | None = wanted) -> str | None:
                nonlocal faults
                if wanted is None:
                    return None
                # No step says what leaving the episode after it would be worth.
                seen = protocol.Expected(
                    text=result.observation.text,
                    reward=result.reward,
                    ended=result.cause is not None,
                    total=wanted.total,
                )
                if seen == wanted:
                    return None
                faults += 1
                return f"the answer differs from the reference: {seen} for {wanted}"

            await self.operation(session, 2 + turn, Phase.STEP, live.step(action), fault_of)
        return faults == 0


async def _leave(stack: AsyncExitStack) -> None:
    try:
        await stack.aclose()
    except (SessionError, OSError):
        # The session failed before; what it left behind is the server's to clean up, and is counted there.
        return


async def run_load(
    adapter: Adapter[Any],
    compiled: CompiledEnvironments,
    plan: protocol.Load,
    send: Callable[[protocol.Reply], None],
) -> protocol.Loaded:
    """Play a load plan; samples are sent twice a second, so that an interrupted run keeps what was measured."""
    raise_file_limit()
    run = _Run(adapter, compiled, plan)
    gc.collect()
    gc.freeze()
    queue = iter(range(plan.first, plan.first + plan.sessions))

    async def lane() -> None:
        for session in queue:
            await run.play(session)

    def report() -> None:
        if len(run.columns):
            dump = BytesIO()
            columns, run.columns = run.columns, SampleColumns()
            columns.dump(dump)
            send(protocol.Samples(seq=plan.seq, dump=base64.b64encode(dump.getvalue()).decode("ascii")))

    start = time.perf_counter_ns()
    lanes = [asyncio.create_task(lane()) for _ in range(min(plan.concurrency, plan.sessions))]
    try:
        while lanes:
            done, _ = await asyncio.wait(lanes, timeout=_REPORT_EVERY_S)
            for finished in done:
                finished.result()
                lanes.remove(finished)
            report()
    finally:
        for task in lanes:
            task.cancel()
        gc.unfreeze()
    return protocol.Loaded(
        seq=plan.seq,
        opened=run.opened,
        succeeded=run.succeeded,
        peak_open=run.peak_open,
        wall_ns=time.perf_counter_ns() - start,
    )
