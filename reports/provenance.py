"""Where the numbers come from: arguments, plan, seeds, versions, machine, every cell."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bench.machine import FOREIGN_CPU_LIMIT
from reports import notation
from reports.document import Block, Code, Column, Entry, Facts, Section, Table, Tone, Verbatim
from reports.quiet import foreign_share
from reports.wording import SUBJECTS, describe_commit, describe_workload

if TYPE_CHECKING:
    from bench.machine import Machine
    from bench.records import End, Run
    from reports.document import Span
    from reports.measurements import Measurements


def provenance(measurements: Measurements) -> Section:
    """Report everything that the run was made of."""
    run = measurements.run
    header = run.header
    items: list[tuple[str, tuple[Span, ...]]] = [
        ("Run", (header.run_id,)),
        ("Started", (f"{header.started:%Y-%m-%d %H:%M:%S} UTC",)),
        ("Finished", (_finished(run),)),
        ("Arguments", (Code(" ".join(header.args_passed)),) if header.args_passed else ("none",)),
        (
            "Commit",
            (Code(header.commit), " with uncommitted changes" if header.dirty else "")
            if header.commit
            else (describe_commit(None, dirty=None),),
        ),
        ("Environment definition", (Code(header.environment.sha256),)),
        ("Tasks", (Code(header.environment.tasks_sha256),)),
        (
            "Constraints",
            (Code(header.constraints_sha256),) if header.constraints_sha256 else ("not recorded",),
        ),
        (
            "Packages",
            (
                ", ".join(f"{package} {version}" for package, version in sorted(header.framework.items()))
                or "not recorded",
            ),
        ),
        ("Seeds", (notation.settings(header.seeds) or "none recorded",)),
    ]
    blocks: list[Block] = [
        Facts(tuple(items)),
        Facts(tuple((term, (text,)) for term, text in _machine(header.machine))),
        Verbatim("Plan, as resolved", json.dumps(header.plan, indent=2, sort_keys=True, ensure_ascii=False)),
    ]
    if measurements.cells:
        blocks.append(_cells(measurements))
    return Section("provenance", "Provenance", tuple(blocks))


def _finished(run: Run) -> str:
    if run.footer is None:
        return "not recorded: the run has no end"
    interrupted = ", interrupted" if run.footer.interrupted else ""
    return f"{run.footer.finished:%Y-%m-%d %H:%M:%S} UTC{interrupted}"


def _machine(machine: Machine) -> list[tuple[str, str]]:
    facts = (
        ("Processor", machine.cpu_model),
        ("Processors", f"{machine.cores:,}" if machine.cores else None),
        (
            "Usable by the run",
            notation.listing([str(core) for core in machine.affinity]) if machine.affinity else None,
        ),
        ("Governor", machine.governor),
        ("Memory", notation.size(machine.memory_bytes) if machine.memory_bytes else None),
        ("Kernel", f"{machine.system} {machine.kernel}, {machine.architecture}"),
        ("Virtualization", machine.virtualization),
        ("Container", machine.container),
        ("Control group", _cgroup(machine)),
        ("File descriptors", _limits(machine)),
        (
            "Ephemeral ports",
            f"{machine.port_low}{notation.RANGE}{machine.port_high}"
            if machine.port_low and machine.port_high
            else None,
        ),
        ("Accept queue", f"somaxconn {machine.somaxconn:,}" if machine.somaxconn else None),
        ("Clock source", machine.clock_source),
        ("Boot", machine.boot),
        ("Harness Python", f"{machine.python}, {machine.python_compiler}{_build(machine)}"),
    )
    return [(term, text or "not told by the system") for term, text in facts]


def _build(machine: Machine) -> str:
    parts = []
    if machine.python_optimized is not None:
        parts.append("profile-guided build" if machine.python_optimized else "no profile-guided build")
    if not machine.python_gil:
        parts.append("free-threaded")
    return "".join(f", {part}" for part in parts)


def _cgroup(machine: Machine) -> str | None:
    parts = [
        f"{machine.cgroup_cpus:g} processors" if machine.cgroup_cpus else "",
        notation.size(machine.cgroup_memory_bytes) if machine.cgroup_memory_bytes else "",
        f"{machine.cgroup_pids:,} processes" if machine.cgroup_pids else "",
    ]
    return ", ".join(part for part in parts if part) or "no limit told"


def _limits(machine: Machine) -> str:
    soft, hard = (
        f"{limit:,}" if limit is not None else "unlimited"
        for limit in (machine.nofile_soft, machine.nofile_hard)
    )
    return f"soft {soft}, hard {hard}"


def _cells(measurements: Measurements) -> Table:
    rows = []
    tells = any(end.own_cpu_s is not None for end in measurements.ends.values())
    for cell in sorted(measurements.cells, key=lambda cell: cell.order):
        end = measurements.ends.get(cell.id)
        table = measurements.samples(cell.id)
        before = end.pressure_before.cpu_some_avg10 if end and end.pressure_before else None
        rows.append(
            (
                Entry(f"{cell.order:,}"),
                Entry(cell.id, code=True),
                Entry(SUBJECTS[cell.subject]),
                Entry(f"{cell.sessions:,}"),
                Entry(f"{cell.repetition:,}"),
                Entry(cell.engine),
                Entry(
                    end.status if end else "unfinished", tone="plain" if end and end.status == "ok" else "bad"
                ),
                Entry(f"{table.num_rows:,}") if table is not None else Entry("none", tone="muted"),
                Entry(f"{before:.0f} %") if before is not None else Entry("not told", tone="muted"),
                *((_others(end),) if tells else ()),
                Entry(describe_workload(cell.workload)),
            )
        )
    return Table(
        caption="Every cell",
        about="in the order in which it ran",
        columns=(
            Column("Order", numeric=True),
            Column("Cell"),
            Column("Environment"),
            Column("Sessions", numeric=True),
            Column("Trial", numeric=True),
            Column("Engine"),
            Column("Ended"),
            Column("Samples used", numeric=True),
            Column("PSI before", numeric=True),
            *((Column("Others' CPU", "load average", numeric=True),) if tells else ()),
            Column("Workload"),
        ),
        rows=tuple(rows),
        remarks=(
            "PSI before: share of the 10 s before the cell in which some task waited for a processor; it may include the end of the cell before.",
            *(
                (
                    "Others' CPU: share of the machine's CPU time during the cell that no process of this run used, with the load average at its end, which counts this run too.",
                )
                if tells
                else ()
            ),
        ),
    )


def _others(end: End | None) -> Entry:
    share = foreign_share(end) if end else None
    if end is None or share is None:
        return Entry("not told", tone="muted")
    load = end.pressure_after.load_1m if end.pressure_after else None
    tone: Tone = "bad" if share > FOREIGN_CPU_LIMIT else "plain"
    return Entry(notation.share(share), "" if load is None else f"{load:.1f}", tone=tone)
