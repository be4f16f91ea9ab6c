"""Server settings: each alternative against the defaults, in interleaved rounds, as ratios of CPU seconds and of p99."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from bench import protocol
from bench.benchmark import make_header
from bench.ceiling import Ask, Trial
from bench.client import start_worker
from bench.held import hold
from bench.progress import OnProgress, Progress, ignore_progress
from bench.recording import Recording, Request, make_scripts
from bench.records import Note, RunWriter, SettingRatio, read_run
from bench.server import Server, start_server
from bench.stats import Population, TooSmall, quantile, ratio
from bench.workloads import NANOSECONDS, Workload
from canonical.catalogue import load_environment
from canonical.server_settings import ServerSettings

DEFAULT = "default"
"""What the settings in force are called."""
COLLECTORS = {
    "gc=python": ServerSettings(gc_freeze=False, gc_thresholds=(700, 10, 10)),
    "gc=frozen": ServerSettings(gc_freeze=True, gc_thresholds=(700, 10, 10)),
    "gc=frozen,rare": ServerSettings(gc_freeze=True, gc_thresholds=(50_000, 50, 100)),
}
"""Ways to run the garbage collector of a server, which all frameworks have: as Python has it, without what was alive at
the start, and rarely too."""

_FIRST_USES = 4
_TIMEOUT_S = 120.0


class UnknownSetting(LookupError):  # noqa: N818 - what happened, read as a sentence
    """Report a setting that cannot be compared, with those that can."""


@dataclass(slots=True)
class _Side:
    """One setting: its server, and what each round of it gave."""

    name: str
    server: Server
    cpu_s: dict[int, float] = field(default_factory=dict)
    p99_ns: dict[int, float] = field(default_factory=dict)


async def compare_settings(
    request: Request,
    *,
    sessions: int,
    rounds: int,
    budget_s: float,
    tool_kind: str = "async",
    only: Sequence[str] = (),
    on_progress: OnProgress = ignore_progress,
) -> None:
    """Hold sessions under every alternative setting of a server, in rounds of random order, and write a run folder.

    The servers of all settings stand side by side; only one of them is loaded at a time. A round holds the sessions once in
    each, so that what else goes on in the machine meets all of them alike, and ratios are taken within rounds.

    Args:
        request: What to measure; the workload of its plan is replaced.
        sessions: How many are held.
        rounds: How often each setting is measured; a ratio with an interval takes 6.
        budget_s: Seconds after which no further round begins.
        tool_kind: Whether the tool waits on the event loop (`async`) or blocks its thread (`sync`).
        only: Names of the settings to compare; all when there are none.
        on_progress: Hears how far it has come.

    Raises:
        WorkerError: A worker broke down.
        UnknownSetting: There is no such setting to compare.
        ValueError: The framework runs in process.
    """
    stack = request.stack
    if stack.facts.kind != "server":
        raise ValueError(f"{stack.facts.title} runs environments in process, so it has no server settings")
    environment = load_environment(request.environment)
    workload = Workload.model_validate(
        {"turns": 4, "tool_ns": NANOSECONDS // 4, "tool_kind": tool_kind, "spread_ns": NANOSECONDS // 4}
    )
    plan = request.plan.model_copy(update={"held": workload, "latency_turns": workload.turns})
    request = replace(request, plan=plan)
    ends = time.monotonic() + budget_s
    async with AsyncExitStack() as running:
        driver = await running.enter_async_context(
            start_worker(stack.python, stack.worker, label=f"the {stack.label} client")
        )
        ways = await driver.request(
            protocol.Ways, lambda seq: protocol.ListWays(seq=seq), timeout_s=_TIMEOUT_S
        )
        alternatives = _chosen({**COLLECTORS, **ways.settings}, only)
        writer = running.enter_context(
            RunWriter(request.folder, make_header(request, environment, driver.started))
        )
        recording = Recording(request, writer, driver, await make_scripts(environment, plan), on_progress)
        sides = []
        for name, settings in {DEFAULT: None, **alternatives}.items():
            server = await running.enter_async_context(
                start_server(stack, request.environment, client=driver, workload=workload, settings=settings)
            )
            # What is loaded or built at the first use is no cost of a session.
            await recording.load(server, Workload(turns=1), lambda _: None, sessions=_FIRST_USES)
            sides.append(_Side(name, server))
        for number in range(rounds):
            if time.monotonic() > ends:
                writer.write(Note(text=f"Time was up after {number} of {rounds} rounds."))
                break
            await _round(recording, sides, sessions, number)
            on_progress(Progress("rounds", number + 1, rounds))
        for side in sides:
            _write(recording, side, next(one for one in sides if one.name == DEFAULT), sessions)


def _chosen(known: Mapping[str, ServerSettings], only: Sequence[str]) -> dict[str, ServerSettings]:
    if missing := [name for name in only if name not in known]:
        raise UnknownSetting(f"there is no setting {missing[0]!r} to compare; there are {', '.join(known)}")
    return {name: known[name] for name in (only or known)}


async def _round(recording: Recording, sides: list[_Side], sessions: int, number: int) -> None:
    order = list(sides)
    recording.rng.shuffle(order)
    for side in order:
        place = number * len(sides) + sides.index(side)
        trial, _ = await hold(recording, Ask(sessions, "confirm", fresh_server=False), side.server, place)
        end = read_run(recording.request.folder).end(trial.cell)
        if end is None or trial.succeeded < sessions or end.server_before is None or end.server_after is None:
            continue
        before, after = end.server_before.cpu_ns, end.server_after.cpu_ns
        if before is not None and after is not None and after > before:
            side.cpu_s[number] = (after - before) / NANOSECONDS
        p99 = _p99(trial)
        if p99 is not None:
            side.p99_ns[number] = p99


def _p99(trial: Trial) -> float | None:
    population: Population = trial.step
    found = quantile(population, 0.99)
    return None if isinstance(found, TooSmall) or not math.isfinite(found.value) else found.value


def _write(recording: Recording, side: _Side, default: _Side, sessions: int) -> None:
    if side is default:
        return
    setting, _, value = side.name.partition("=")
    for quantity, above, below in (
        ("server_cpu", side.cpu_s, default.cpu_s),
        ("step_p99", side.p99_ns, default.p99_ns),
    ):
        rounds = sorted(above.keys() & below.keys())
        found = ratio(
            [above[number] for number in rounds],
            [below[number] for number in rounds],
            seed=recording.request.seed,
        )
        if isinstance(found, TooSmall):
            recording.writer.write(
                Note(
                    text=f"The ratio of {quantity} for {side.name} is missing: {len(rounds)} rounds came through whole, {found}."
                )
            )
            continue
        recording.writer.write(
            SettingRatio.model_validate(
                {
                    "setting": setting,
                    "value": value,
                    "against": DEFAULT,
                    "quantity": quantity,
                    "sessions": sessions,
                    "pairs": len(rounds),
                    "ratio": found.value,
                    "low": found.low,
                    "high": found.high,
                }
            )
        )
