"""How things of a run are named in sentences: workloads, conditions, intervals, reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

from bench.records import StoppedBy
from bench.stats import TooSmall
from reports import notation
from reports.document import Entry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.ceiling import Confirmation
    from bench.machine import Machine
    from bench.records import Ceiling
    from reports.measurements import Condition, Estimate

SUBJECTS: Final[Mapping[str, str]] = {"compiled": "compiled", "baseline": "hand-written"}
"""Subject of a cell to the word for it."""

STOPPED_BY: Final[Mapping[StoppedBy, str]] = {
    "success": "too many sessions failed",
    "step_p99": "p99 of step above its limit",
    "connect": "p99 of connect above its budget",
    "reset": "p99 of reset above its budget",
    "held": "fewer open at the same time than asked for",
    "leak": "sessions stayed on the server after they were closed",
    "client": "the load generator was saturated, the system may hold more",
    "limit": "a configured cap, or the most that the plan tries",
    "memory": "memory ran out",
    "fds": "file descriptors ran out",
    "server_died": "the server died",
    "interrupted": "the search was interrupted",
}
"""What a ceiling was stopped by, in words."""

if set(STOPPED_BY) != set(get_args(StoppedBy)):
    raise AssertionError("a reason to stop has no words")

OWN_WAY: Final = "through its own server and client, or in one process where the framework has no server"
"""Through what a release is played."""

_WORKLOAD_WORDS: Final = ("turns", "tool_ns", "tool_kind", "think_ns", "spread_ns", "arrival")


def describe_workload(workload: Mapping[str, Any]) -> str:
    """Say a workload in words; fields that are not known here are named as they are."""
    words = []
    if "turns" in workload:
        words.append(f"{notation.plural(workload['turns'], 'step')} per session")
    if "tool_ns" in workload:
        kind = f" ({workload['tool_kind']})" if workload["tool_ns"] and "tool_kind" in workload else ""
        words.append(
            f"a tool that waits {notation.duration(workload['tool_ns'])}{kind}"
            if workload["tool_ns"]
            else "a tool that does not wait"
        )
    if workload.get("think_ns"):
        words.append(f"{notation.duration(workload['think_ns'])} of thinking before each step")
    if workload.get("spread_ns"):
        words.append(f"first steps spread over {notation.duration(workload['spread_ns'])}")
    if "arrival" in workload:
        words.append(_arrival(str(workload["arrival"])))
    rest = {key: value for key, value in workload.items() if key not in _WORKLOAD_WORDS}
    if rest:
        words.append(notation.settings(rest))
    return ", ".join(words) or "no workload recorded"


def _arrival(arrival: str) -> str:
    kind, _, rest = arrival.partition(":")
    rate, _, spacing = rest.partition(":")
    if kind == "closed":
        return "closed loop"
    if kind == "burst":
        return "all sessions at once"
    if kind == "open":
        return f"open loop at {rate or 'a fixed rate of'} arrivals/s{', equally spaced' if spacing == 'constant' else ''}"
    return f"arrival {arrival}"


def describe_condition(condition: Condition) -> str:
    """Say in words what cells of a condition have in common."""
    driver = "the framework's own client" if condition.engine == "client" else condition.engine
    workload = describe_workload(condition.workload_fields)
    return f"{SUBJECTS[condition.subject]} environment; {workload}; driven by {driver}"


def describe_server(condition: Condition) -> str:
    """Say the settings of a condition's server."""
    return notation.settings(condition.server_fields) or "no settings recorded"


def describe_result(ceiling: Ceiling, unit: str = "sessions") -> str:
    """Say a bracket and what ended the search, without the criterion."""
    why = STOPPED_BY[ceiling.stopped_by]
    if ceiling.lower == 0:
        if ceiling.upper is None:
            return f"unknown, nothing passed before the search ended ({why})"
        return f"none, already {ceiling.upper:,} failed ({why})"
    most = "at least " if ceiling.censored else ""
    above = f"{ceiling.upper:,} failed: " if ceiling.upper else ""
    return f"{most}{ceiling.lower:,} {unit} ({above}{why})"


def describe_confirmation(ceiling: Ceiling, confirmation: Confirmation | None) -> str:
    """Say how often the result of a search passed again, each time in a fresh server."""
    if not ceiling.confirmed:
        return "not confirmed"
    if confirmation is None:
        return "confirmed in fresh servers, the verdicts do not tell in how many"
    return (
        f"passed again in {confirmation.passed:,} of {notation.plural(confirmation.trials, 'fresh server')}"
    )


def estimate_entry(estimate: Estimate | TooSmall) -> Entry:
    """Write a quantile with its interval, or how many operations it would take."""
    if isinstance(estimate, TooSmall):
        return Entry("n too small", detail=f"{estimate.needed:,} needed", tone="muted")
    value, interval = notation.duration_with_interval(estimate.value, estimate.low, estimate.high)
    return Entry(value, detail=interval)


def estimate_sentence(name: str, estimate: Estimate | TooSmall) -> str:
    """Write a quantile as part of a sentence."""
    if isinstance(estimate, TooSmall):
        return f"{name}: n too small ({estimate.needed:,} needed)"
    value, interval = notation.duration_with_interval(estimate.value, estimate.low, estimate.high)
    return f"{name} {value} [{interval}]"


def usable_cores(machine: Machine) -> float | None:
    """Return how many processors the run could use: the least of what the system has, allows and grants."""
    known = [
        float(cores)
        for cores in (machine.cores, len(machine.affinity) if machine.affinity else None, machine.cgroup_cpus)
        if cores
    ]
    return min(known, default=None)


def describe_machine(machine: Machine) -> str:
    """Say the machine in one line."""
    cores = usable_cores(machine)
    parts = [
        machine.cpu_model or "processor not told",
        f"{cores:g} {'core' if cores == 1 else 'cores'}" if cores else "cores not told",
        notation.size(machine.memory_bytes) if machine.memory_bytes else "memory not told",
        f"{machine.system} {machine.kernel}",
        machine.architecture,
    ]
    return ", ".join(parts)


def describe_commit(commit: str | None, dirty: bool | None) -> str:
    """Say the commit, and whether the files differed from it."""
    if commit is None:
        return "not recorded (no git working tree)"
    return f"{commit[:12]}{' with uncommitted changes' if dirty else ''}"
