"""The capacity planner: what sessions cost, fitted from measured cells, and how many replicas and nodes many of them need.

Everything here is arithmetic on measured numbers. A server process is taken as one station that can use one core: what
it spends on a cell is a part per second, which passes anyway, a part per session, and a part per step. Memory, descriptors and
threads are a base and a part per session.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from scipy.optimize import nnls

from bench.ceiling import Slo
from bench.machine import RESERVED_DESCRIPTORS, Machine
from bench.records import Ceiling, Cell, Cost, End, Run
from bench.workloads import NANOSECONDS

HEADROOM = 1.25
"""What limits are raised by over the sessions that are planned for: replicas do not share them evenly."""

CHECK_TURNS = 4
"""Turns of the cells that a cost model is tried on, and not fitted to."""

IDLE = "server_cpu_per_second"
"""Name of the recorded cost of a server without sessions: CPU time, in ns, of each second."""

_NEEDED_OBSERVATIONS = 3
_ROUNDING = 1e-9


class NotEnough(Exception):  # noqa: N818 - what happened, read as a sentence
    """Say which measurements are missing for a cost model."""


class Impossible(Exception):  # noqa: N818 - what happened, read as a sentence
    """Say why a plan cannot be made, and what to change."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EpisodeModel(_Part):
    """Say what a session does.

    Attributes:
        turns: Tool calls of an episode.
        think_s: Seconds that the policy takes before each call.
        tool_s: Seconds that each tool works.
    """

    turns: int = Field(ge=1)
    think_s: float = Field(ge=0)
    tool_s: float = Field(ge=0)

    @property
    def cycle_s(self) -> float:
        """Seconds from one call to the next, while nothing waits for a processor."""
        return self.think_s + self.tool_s

    @property
    def episode_s(self) -> float:
        """Seconds of a whole episode, while nothing waits for a processor."""
        return self.turns * self.cycle_s


class Node(_Part):
    """Say what one machine of the fleet has for servers.

    Attributes:
        cores: Cores for replicas; a proxy beside them needs its own.
        memory_bytes: Memory.
        nofile: Descriptors that a process may have.
        pids: Processes and threads that the control group allows; None where there is no limit.
        ports: Ephemeral ports of one source address.
    """

    cores: int = Field(ge=1)
    memory_bytes: int = Field(ge=1)
    nofile: int = Field(ge=1)
    pids: int | None = Field(default=None, ge=1)
    ports: int = Field(default=28_232, ge=1)

    @classmethod
    def of(cls, machine: Machine) -> Node:
        """Return this much of a machine that was read; what it does not tell is taken to be small."""
        memory = [value for value in (machine.memory_bytes, machine.cgroup_memory_bytes) if value]
        low, high = machine.port_low, machine.port_high
        return cls(
            cores=max(
                1, math.floor(machine.cgroup_cpus or len(machine.affinity or ()) or machine.cores or 1)
            ),
            memory_bytes=min(memory, default=2**30),
            nofile=machine.nofile_hard or 1024,
            pids=machine.cgroup_pids,
            ports=28_232 if low is None or high is None else high - low + 1,
        )


class Observation(_Part):
    """What a server used in one cell of held sessions."""

    cell: str
    sessions: int = Field(ge=1)
    turns: int = Field(ge=1)
    wall_s: float = Field(gt=0)
    cpu_s: float = Field(ge=0)
    memory_before: int
    memory_peak: int
    fds_before: int
    fds_peak: int
    threads_before: int
    threads_peak: int

    @property
    def steps(self) -> int:
        """Steps of all sessions."""
        return self.sessions * self.turns


class CostModel(_Part):
    """Hold what a server process and its sessions cost.

    Attributes:
        source: Which framework and environment, and where it was measured, in words.
        second_s: CPU seconds that pass in every second, whatever happens.
        session_s: CPU seconds of connect, reset, score and close together.
        step_s: CPU seconds of a step.
        memory_base: Bytes of a server without sessions.
        memory_session: Bytes per open session.
        fds_base: Descriptors of a server without sessions.
        fds_session: Descriptors per open session.
        threads_base: Threads of a server without sessions.
        threads_session: Threads per open session.
        largest: Most sessions of a cell behind it; plans far beyond it extrapolate.
        cells: How many cells are behind it.
    """

    source: str
    second_s: float = Field(ge=0)
    session_s: float = Field(ge=0)
    step_s: float = Field(ge=0)
    memory_base: float = Field(ge=0)
    memory_session: float = Field(ge=0)
    fds_base: float = Field(ge=0)
    fds_session: float = Field(ge=0)
    threads_base: float = Field(ge=0)
    threads_session: float = Field(ge=0)
    largest: int = Field(ge=1)
    cells: int = Field(ge=1)

    def cpu_s(self, *, sessions: int, turns: int, wall_s: float) -> float:
        """Predict the CPU seconds of a server in which so many sessions play one episode each within `wall_s`."""
        return self.second_s * wall_s + sessions * (self.session_s + turns * self.step_s)

    def memory_bytes(self, sessions: int) -> float:
        """Predict the memory of a server that holds so many sessions."""
        return self.memory_base + sessions * self.memory_session

    def fds(self, sessions: int) -> float:
        """Predict the descriptors of a server that holds so many sessions."""
        return self.fds_base + sessions * self.fds_session

    def threads(self, sessions: int) -> float:
        """Predict the threads of a server that holds so many sessions."""
        return self.threads_base + sessions * self.threads_session

    def ceiling(self, episode: EpisodeModel, limit_s: float | None = None) -> int | None:
        """Predict how many sessions one server holds until a step takes longer than its limit.

        A closed system with one station: beyond its knee a step takes N x service - think, where the service has what an idle server leaves of the core (Denning and Buzen, "The
        Operational Analysis of Queueing Network Models", ACM Computing Surveys 10(3), 1978).

        Args:
            episode: What a session does.
            limit_s: Seconds that a step may take; by default what a ceiling search allows a tool of this length.

        Returns:
            The number; nothing when a step costs nothing, so that no number is too large.
        """
        allowed = Slo().step_limit_ns(round(episode.tool_s * NANOSECONDS)) / NANOSECONDS
        if self.step_s == 0:
            return None
        room = max(0.0, 1 - self.second_s) * ((allowed if limit_s is None else limit_s) + episode.think_s)
        # Rounded first, so that an exact quotient is not one less for a rounding error.
        return math.floor(round(room / self.step_s, 6))


class CeilingCheck(_Part):
    """Hold a ceiling that was predicted beside the bracket that a search has found."""

    predicted: int | None
    """Nothing when the model knows no limit."""
    lower: int
    upper: int | None
    tool_s: float
    think_s: float
    stopped_by: str

    @property
    def error(self) -> float | None:
        """How far the prediction lies outside the bracket, relative to its nearer end; 0 inside; nothing where one is open."""
        if self.predicted is None or self.lower == 0:
            return None
        if self.predicted < self.lower:
            return self.predicted / self.lower - 1
        if self.upper is None:
            return None
        return 0.0 if self.predicted <= self.upper else self.predicted / self.upper - 1


def check_ceilings(cost: CostModel, run: Run) -> list[CeilingCheck]:
    """Return what a cost model says of each ceiling that a run has searched by its written criterion."""
    found = []
    for ceiling in run.of(Ceiling):
        if ceiling.criterion == "slo" and ceiling.subject == "compiled":
            workload: dict[str, Any] = ceiling.workload
            episode = EpisodeModel(
                turns=workload["turns"],
                think_s=workload.get("think_ns", 0) / NANOSECONDS,
                tool_s=workload.get("tool_ns", 0) / NANOSECONDS,
            )
            found.append(
                CeilingCheck(
                    predicted=cost.ceiling(episode),
                    lower=ceiling.lower,
                    upper=ceiling.upper,
                    tool_s=episode.tool_s,
                    think_s=episode.think_s,
                    stopped_by=ceiling.stopped_by,
                )
            )
    return found


def observations(run: Run) -> list[Observation]:
    """Return what a run measured of its servers in cells of held sessions that came to their end."""
    found = []
    for cell in run.of(Cell):
        end = run.end(cell.id)
        if (
            cell.engine == "locust"
            and end is not None
            and end.status == "ok"
            and end.succeeded == cell.sessions
        ):
            observed = _observation(cell, end)
            found += [observed] if observed is not None else []
    return found


def _observation(cell: Cell, end: End) -> Observation | None:
    before, peak, after = end.server_before, end.server_peak, end.server_after
    clocks = (end.pressure_before, end.pressure_after)
    if before is None or peak is None or after is None or clocks[0] is None or clocks[1] is None:
        return None
    numbers: dict[str, Any] = {
        "memory_before": before.rss_bytes,
        "memory_peak": peak.rss_bytes,
        "fds_before": before.fds,
        "fds_peak": peak.fds,
        "threads_before": before.threads,
        "threads_peak": peak.threads,
    }
    if before.cpu_ns is None or after.cpu_ns is None or None in numbers.values():
        return None
    return Observation(
        cell=cell.id,
        sessions=cell.sessions,
        turns=cell.workload["turns"],
        wall_s=(clocks[1].at_ns - clocks[0].at_ns) / NANOSECONDS,
        cpu_s=(after.cpu_ns - before.cpu_ns) / NANOSECONDS,
        **numbers,
    )


def fit(seen: Sequence[Observation], *, source: str, second_s: float = 0.0) -> CostModel:
    """Fit a cost model: relative least squares with parts that are not negative.

    Args:
        seen: Cells of one framework and environment; they must differ in sessions and in turns.
        source: What they are of, in words.
        second_s: CPU seconds that pass in every second of a server without sessions, measured apart: all cells take
            about as long, so that they cannot tell it.

    Raises:
        NotEnough: The parts cannot be told apart with these cells.
    """
    if (
        len(seen) < _NEEDED_OBSERVATIONS
        or len({one.turns for one in seen}) < 2
        or len({one.sessions for one in seen}) < 2
    ):
        raise NotEnough(
            f"{len(seen)} cells with server CPU seconds are not enough for a cost model: it takes at least "
            f"{_NEEDED_OBSERVATIONS}, with two numbers of turns and two numbers of sessions "
            "(rosetta plan --check measures them)"
        )
    session, step = _solve(
        [(one.sessions, one.steps) for one in seen],
        [max(0.0, one.cpu_s - second_s * one.wall_s) for one in seen],
    )
    sessions = [one.sessions for one in seen]
    parts = {name: _growth(name, seen) for name in ("memory", "fds", "threads")}
    return CostModel(
        source=source,
        second_s=second_s,
        session_s=session,
        step_s=step,
        memory_base=parts["memory"][0],
        memory_session=parts["memory"][1],
        fds_base=parts["fds"][0],
        fds_session=parts["fds"][1],
        threads_base=parts["threads"][0],
        threads_session=parts["threads"][1],
        largest=max(sessions),
        cells=len(seen),
    )


def _growth(name: str, seen: Sequence[Observation]) -> tuple[float, float]:
    """Return the base and the part per session of something that is counted at its peak.

    The base is read before any session, so that only the growth is fitted: as so much per session, and as a pool that is as
    large for any number of them. What is loaded or reserved once belongs to the pool, and would make sessions look dearer the
    fewer of them there are.
    """
    base = sum(getattr(one, f"{name}_before") for one in seen) / len(seen)
    growth = [max(0, getattr(one, f"{name}_peak") - getattr(one, f"{name}_before")) for one in seen]
    each, pool = _solve([(one.sessions, 1) for one in seen], growth)
    return base + pool, each


def cost_of(run: Run) -> CostModel:
    """Return the cost model that the cells of a run give; cells that it is tried on only where there are no others.

    Raises:
        NotEnough: The run has not measured enough of its servers.
    """
    found = observations(run)
    chosen = middles([one for one in found if one.turns != CHECK_TURNS] or found)
    framework = ", ".join(f"{name} {version}" for name, version in sorted(run.header.framework.items()))
    started = f"{run.header.started:%Y-%m-%d %H:%M} UTC"
    idle = [one.value / NANOSECONDS for one in run.of(Cost) if one.name == IDLE]
    return fit(
        chosen,
        source=f"{run.header.environment.name} under {framework}, measured {started}",
        second_s=idle[0] if idle else 0.0,
    )


def middles(found: Sequence[Observation]) -> list[Observation]:
    """Return one cell of each shape: the one in the middle, by CPU, of all that were measured."""
    shapes: dict[tuple[int, int], list[Observation]] = {}
    for one in found:
        shapes.setdefault((one.sessions, one.turns), []).append(one)
    return [sorted(cells, key=lambda one: one.cpu_s)[(len(cells) - 1) // 2] for cells in shapes.values()]


def _solve(rows: Sequence[tuple[float, ...]], values: Sequence[float]) -> list[float]:
    """Solve rows x parts = values for parts that are not negative; each row counts by its relative error."""
    kept = [(row, value) for row, value in zip(rows, values, strict=True) if value > 0]
    if not kept:
        return [0.0] * len(rows[0])
    matrix = np.array([[entry / value for entry in row] for row, value in kept], dtype=np.float64)
    scale = matrix.max(axis=0)
    scale[scale == 0] = 1.0
    solution, _ = nnls(matrix / scale, np.ones(len(kept)))
    # What adds less than this to any row is a rounding error, and no part.
    solution[solution < _ROUNDING] = 0.0
    return [float(part) for part in solution / scale]


class Line(_Part):
    """One line of the arithmetic."""

    name: str
    formula: str
    """With the numbers in it."""
    value: float
    unit: str


class CapacityPlan(_Part):
    """Say what many sessions need, and how it was computed.

    Attributes:
        sessions: Sessions that are held at the same time.
        episode: What each of them does.
        cost: What they cost.
        node: What a machine has.
        utilisation: Share of its core that a replica is planned to use.
        memory_share: Share of a machine's memory that is planned with.
        per_replica: Sessions per replica.
        bound_by: What keeps that number from being larger.
        replicas: Server processes.
        replicas_per_node: Server processes per machine.
        nodes: Machines.
        settings: Settings of each server.
        proxy: Limits of the proxy before them.
        lines: The arithmetic, in order.
        warnings: What to know before believing it.
    """

    sessions: int
    episode: EpisodeModel
    cost: CostModel
    node: Node
    utilisation: float
    memory_share: float
    per_replica: int
    bound_by: str
    replicas: int
    replicas_per_node: int
    nodes: int
    settings: dict[str, int]
    proxy: dict[str, int]
    lines: tuple[Line, ...]
    warnings: tuple[str, ...]


@dataclass(slots=True)
class _Sheet:
    lines: list[Line]

    def add(self, name: str, formula: str, value: float, unit: str) -> float:
        self.lines.append(Line(name=name, formula=formula, value=value, unit=unit))
        return value


def plan_capacity(
    sessions: int,
    episode: EpisodeModel,
    cost: CostModel,
    node: Node,
    *,
    utilisation: float = 0.6,
    memory_share: float = 0.8,
) -> CapacityPlan:
    """Compute what it takes to hold so many sessions.

    Args:
        sessions: Sessions that are held at the same time; each plays episode after episode.
        episode: What each does.
        cost: What that costs.
        node: What a machine has.
        utilisation: Share of its core that a replica may use; queues grow without bound towards 1.
        memory_share: Share of a machine's memory that replicas may use.

    Raises:
        Impossible: Not even one session fits, or nothing ever waits, so that sessions have no rate.
        ValueError: A share is not between 0 and 1, or there are no sessions.
    """
    if sessions < 1 or not 0 < utilisation <= 1 or not 0 < memory_share <= 1:
        raise ValueError("sessions must be at least 1, and shares lie between 0 and 1")
    if episode.cycle_s == 0:
        raise Impossible(
            "neither the policy nor the tool takes time, so each session uses all the CPU that it gets and no number of "
            "sessions is too small; give --think or --tool"
        )
    sheet = _Sheet([])
    per_replica, bound_by = _per_replica(
        sheet, episode, cost, node, utilisation=utilisation, memory_share=memory_share
    )
    replicas = math.ceil(sessions / per_replica)
    sheet.add("replicas", f"ceil({sessions:,} / {per_replica:,})", replicas, "replicas")
    per_node = min(node.cores, replicas)
    nodes = math.ceil(replicas / node.cores)
    sheet.add("nodes", f"ceil({replicas:,} / {node.cores:,} cores)", nodes, "nodes")
    held = math.ceil(sessions / replicas)
    sheet.add("sessions on each replica", f"ceil({sessions:,} / {replicas:,})", held, "sessions")
    busy = _rates(sheet, episode, cost, sessions=sessions, held=held, replicas=replicas)
    # A replica may get more than its share, and the next one may have to take over for it.
    most = math.ceil(held * HEADROOM)
    settings = {
        "max_sessions": most,
        "nofile": math.ceil(cost.fds(most)) + RESERVED_DESCRIPTORS,
        "tools_in_flight": math.ceil(busy * HEADROOM),
        "idle_timeout_s": math.ceil(2 * episode.cycle_s + 60),
    }
    proxy = {
        "max_connections_per_replica": most,
        "max_pending_per_replica": most,
        "max_connections": sessions,
        "nofile": 2 * sessions + RESERVED_DESCRIPTORS,
        "processes": math.ceil((2 * sessions + RESERVED_DESCRIPTORS) / node.nofile),
        "idle_timeout_s": math.ceil(2 * episode.cycle_s + 60),
        "addresses_per_replica": math.ceil(most / node.ports),
    }
    return CapacityPlan(
        sessions=sessions,
        episode=episode,
        cost=cost,
        node=node,
        utilisation=utilisation,
        memory_share=memory_share,
        per_replica=per_replica,
        bound_by=bound_by,
        replicas=replicas,
        replicas_per_node=per_node,
        nodes=nodes,
        settings=settings,
        proxy=proxy,
        lines=tuple(sheet.lines),
        warnings=tuple(_warnings(cost, held, settings, node)),
    )


def _per_replica(
    sheet: _Sheet,
    episode: EpisodeModel,
    cost: CostModel,
    node: Node,
    *,
    utilisation: float,
    memory_share: float,
) -> tuple[int, str]:
    sheet.add(
        "length of an episode",
        f"{episode.turns} x ({episode.think_s:g} + {episode.tool_s:g}) s",
        episode.episode_s,
        "s",
    )
    each = sheet.add(
        "CPU of an episode",
        f"{_ms(cost.session_s)} + {episode.turns} x {_ms(cost.step_s)}",
        1e3 * (cost.session_s + episode.turns * cost.step_s),
        "ms",
    )
    rate = each / 1e3 / episode.episode_s
    sheet.add("cores per session", f"{each:.3f} ms / {episode.episode_s:g} s", rate, "cores")
    share = memory_share * node.memory_bytes / node.cores
    bounds = {
        "cpu": (utilisation - cost.second_s) / rate if rate else math.inf,
        "descriptors": (node.nofile - RESERVED_DESCRIPTORS - cost.fds_base) / cost.fds_session
        if cost.fds_session
        else math.inf,
        "memory": (share - cost.memory_base) / cost.memory_session if cost.memory_session else math.inf,
        "threads": (node.pids / node.cores - cost.threads_base) / cost.threads_session
        if node.pids and cost.threads_session
        else math.inf,
    }
    formulas = {
        "cpu": f"({utilisation:g} - {cost.second_s:.4f}) cores / {rate:.3g}",
        "descriptors": f"({node.nofile:,} - {RESERVED_DESCRIPTORS} - {cost.fds_base:.0f}) / {cost.fds_session:.2f}",
        "memory": f"({memory_share:g} x {_mib(node.memory_bytes)} / {node.cores} - {_mib(cost.memory_base)}) / {cost.memory_session / 1024:.1f} KiB",
        "threads": f"({node.pids} / {node.cores} - {cost.threads_base:.0f}) / {cost.threads_session:.2f}",
    }
    for name, bound in bounds.items():
        if math.isfinite(bound):
            sheet.add(
                f"sessions per replica by {name}", formulas[name], max(0, math.floor(bound)), "sessions"
            )
    bound_by = min(bounds, key=lambda name: bounds[name])
    if not math.isfinite(bounds[bound_by]):
        raise Impossible("the cost model says that sessions cost nothing; measure it (rosetta plan --check)")
    if bounds[bound_by] < 1:
        raise Impossible(
            f"not even one session fits into a replica by {bound_by} ({formulas[bound_by]}): give the nodes more of it"
        )
    return math.floor(bounds[bound_by]), bound_by


def _rates(
    sheet: _Sheet, episode: EpisodeModel, cost: CostModel, *, sessions: int, held: int, replicas: int
) -> float:
    """Add what happens at once and per second; return the tools that work at the same time on a replica."""
    sheet.add(
        "steps per second, all replicas",
        f"{sessions:,} / {episode.cycle_s:g} s",
        sessions / episode.cycle_s,
        "steps/s",
    )
    sheet.add(
        "episodes per second, all replicas",
        f"{sessions:,} / {episode.episode_s:g} s",
        sessions / episode.episode_s,
        "episodes/s",
    )
    used = cost.cpu_s(sessions=held, turns=episode.turns, wall_s=episode.episode_s) / episode.episode_s
    sheet.add(
        "CPU of a replica",
        f"{cost.second_s:.4f} + {held:,} x {_ms(cost.session_s + episode.turns * cost.step_s)} / {episode.episode_s:g} s",
        used,
        "cores",
    )
    sheet.add(
        "memory of a replica",
        f"{_mib(cost.memory_base)} + {held:,} x {cost.memory_session / 1024:.1f} KiB",
        cost.memory_bytes(held) / 2**20,
        "MiB",
    )
    sheet.add(
        "descriptors of a replica",
        f"{cost.fds_base:.0f} + {held:,} x {cost.fds_session:.2f}",
        math.ceil(cost.fds(held)),
        "descriptors",
    )
    sheet.add(
        "threads of a replica",
        f"{cost.threads_base:.0f} + {held:,} x {cost.threads_session:.2f}",
        math.ceil(cost.threads(held)),
        "threads",
    )
    busy = held * episode.tool_s / episode.cycle_s
    sheet.add(
        "tools that work at once on a replica",
        f"{held:,} x {episode.tool_s:g} / {episode.cycle_s:g} s (Little's law)",
        busy,
        "tools",
    )
    sheet.add(
        "opening all sessions takes at least",
        f"{sessions:,} x {_ms(cost.session_s)} / {replicas:,} replicas",
        sessions * cost.session_s / replicas,
        "s",
    )
    ceiling = cost.ceiling(episode)
    if ceiling is not None:
        allowed = Slo().step_limit_ns(round(episode.tool_s * NANOSECONDS)) / NANOSECONDS
        sheet.add(
            "sessions at which steps of a replica become too slow",
            f"(1 - {cost.second_s:.4f}) x ({allowed:g} s + {episode.think_s:g} s) / {_ms(cost.step_s)}",
            ceiling,
            "sessions",
        )
    return busy


def _warnings(cost: CostModel, held: int, settings: dict[str, int], node: Node) -> Iterable[str]:
    if held > 2 * cost.largest:
        yield (
            f"a replica is planned with {held:,} sessions, and the largest cell behind the cost model had {cost.largest:,}: "
            "the rest is extrapolated"
        )
    if settings["nofile"] > node.nofile:
        yield (
            f"a replica that gets {settings['max_sessions']:,} sessions needs {settings['nofile']:,} descriptors, and a "
            f"process may have {node.nofile:,}: raise the hard limit"
        )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"


def _mib(octets: float) -> str:
    return f"{octets / 2**20:,.0f} MiB"
