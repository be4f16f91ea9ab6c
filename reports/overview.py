"""The head of a report: what must be known before any number, the summary, what was measured, conformance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.ceiling import CAUSES
from bench.machine import FOREIGN_CPU_LIMIT
from bench.records import METHOD, RECORDS_FILE, Burst, Note
from bench.samples import Phase
from bench.stats import TooSmall, quantile_name
from reports import notation
from reports.arrivals import arrival_sentence
from reports.bursts import burst_sentence
from reports.comparison import cost_sentences, ratio_sentences
from reports.document import (
    Banner,
    Block,
    Code,
    Column,
    Entry,
    Facts,
    Section,
    Strong,
    SummaryLine,
    Table,
    Verbatim,
    paragraph,
)
from reports.live import live_line
from reports.measurements import QUANTILES
from reports.quiet import disturbed
from reports.server import memory_per_session
from reports.wording import (
    STOPPED_BY,
    SUBJECTS,
    describe_commit,
    describe_confirmation,
    describe_machine,
    describe_result,
    describe_server,
    describe_workload,
    estimate_sentence,
    usable_cores,
)

if TYPE_CHECKING:
    from bench.records import Ceiling, CriterionKind, End
    from reports.document import Tone
    from reports.measurements import Measurements, Point


def title(measurements: Measurements) -> str:
    """Name the report by what it is about."""
    header = measurements.run.header
    return f"{header.environment.name} under {header.adapter}"


def subtitle(measurements: Measurements) -> str:
    """Say when the run was made and which one it is."""
    header = measurements.run.header
    return f"Benchmark run {header.run_id}, started {header.started:%Y-%m-%d %H:%M} UTC"


def banners(measurements: Measurements) -> tuple[Banner, ...]:
    """Say what changes the meaning of every number of the report."""
    found = [
        _unverified(measurements),
        _partial(measurements),
        _foreign_load(measurements),
        _notes(measurements),
        _fewer_criteria(measurements),
        _dirty(measurements),
    ]
    return tuple(banner for banner in found if banner is not None)


def _unverified(measurements: Measurements) -> Banner | None:
    if measurements.verified:
        return None
    records = measurements.conformance
    marked = sum(end.status == "unverified" for end in measurements.ends.values())
    if not records:
        why = "No conformance run is recorded, so it is not known that what was measured behaves like the reference."
    elif any(record.status == "error" for record in records):
        why = "Conformance could not be carried out, so it is not known that what was measured behaves like the reference."
    elif any(record.status == "failed" for record in records):
        divergences = sum(record.divergences for record in records)
        why = f"Conformance failed with {notation.plural(divergences, 'divergence')} from the reference: what was measured is not the environment as defined."
    else:
        why = "Conformance passed, but the run marks cells as unverified."
    cells = f" {notation.plural(marked, 'cell is', 'cells are')} recorded as unverified." if marked else ""
    return Banner("alarm", "Unverified", f"{why}{cells} Do not quote these numbers.")


def _partial(measurements: Measurements) -> Banner | None:
    run = measurements.run
    if not run.partial:
        return None
    how = (
        "was interrupted"
        if run.footer is not None
        else "has no end: the process that measured was killed, or is still running"
    )
    unfinished = sum(
        1 for cell in measurements.cells if measurements.status(cell.id) in {None, "interrupted"}
    )
    kept = len(measurements.cells) - unfinished
    begun = notation.plural(len(measurements.cells), "cell")
    if unfinished:
        cells = f"{kept:,} of {begun} that began came to an end"
    else:
        cells = f"Everything that began ({begun}) came to an end"
    cut = f" Line {run.torn_line} of {RECORDS_FILE} was cut off and is left out." if run.torn_line else ""
    return Banner(
        "warning",
        "Partial run",
        f"The run {how}. {cells}; what follows is of those, and of what single sessions did until then. What was planned beyond is missing.{cut}",
    )


def _foreign_load(measurements: Measurements) -> Banner | None:
    shares = [share for end in measurements.ends.values() if (share := _stolen_share(end)) is not None]
    stolen = [share for share in shares if share > FOREIGN_CPU_LIMIT]
    sentences = [*disturbed(measurements.run)]
    if stolen:
        sentences.append(
            f"The hypervisor gave up to {notation.share(max(stolen))} of the processor time to somebody else "
            f"(in {notation.plural(len(stolen), 'cell')})."
        )
    if not sentences:
        return None
    text = "Read latencies as upper bounds, and compare them with no quiet run."
    return Banner("warning", "The machine was not quiet", text, tuple(sentences))


def _stolen_share(end: End) -> float | None:
    before, after = end.pressure_before, end.pressure_after
    if before is None or after is None or before.steal_s is None or after.steal_s is None or not after.cpus:
        return None
    capacity_s = (after.at_ns - before.at_ns) / 1e9 * after.cpus
    return (after.steal_s - before.steal_s) / capacity_s if capacity_s > 0 else None


def _notes(measurements: Measurements) -> Banner | None:
    notes = tuple(note.text for note in measurements.run.of(Note))
    if len(notes) <= 1:
        return Banner("warning", "Note", notes[0]) if notes else None
    return Banner("warning", "Notes", "What the run wrote down about itself:", notes)


def _fewer_criteria(measurements: Measurements) -> Banner | None:
    if not measurements.not_asked:
        return None
    reasons = notation.listing([STOPPED_BY[CAUSES[name]] for name in measurements.not_asked], "or")
    return Banner(
        "note",
        "Judged by fewer criteria",
        f"The run has method {measurements.run.header.method}. By method {METHOD} a trial fails also where {reasons}; no trial of "
        "this run was judged by that. Compare its ceiling with none that was.",
    )


def _dirty(measurements: Measurements) -> Banner | None:
    header = measurements.run.header
    if header.commit is None:
        return Banner(
            "note",
            "No commit",
            "The run was made outside a git working tree: what was measured cannot be looked up.",
        )
    if header.dirty:
        return Banner(
            "note",
            "Uncommitted changes",
            f"The files differed from commit {header.commit[:12]}: what was measured cannot be checked out again.",
        )
    return None


def summary(measurements: Measurements) -> tuple[SummaryLine, ...]:
    """Say the run in ten lines."""
    header = measurements.run.header
    packages = ", ".join(f"{package} {version}" for package, version in sorted(header.framework.items()))
    partial = " (partial run)" if measurements.run.partial else ""
    environment = f"{header.environment.name} {header.environment.version}"
    notes = measurements.run.of(Note)
    remarks = "" if _foreign_load(measurements) is None else "; not quiet"
    remarks += f"; {notation.plural(len(notes), 'note')} in the report" if notes else ""
    return (
        SummaryLine(
            "Measured",
            f"{environment} under {header.adapter} ({packages or 'versions not recorded'}; Python {header.python}){partial}",
        ),
        _conformance_line(measurements),
        SummaryLine(
            "Machine",
            f"{describe_machine(header.machine)}; commit {describe_commit(header.commit, header.dirty)}{remarks}",
        ),
        _step_line(measurements),
        _other_phases_line(measurements),
        _load_line(measurements),
        _size_line(measurements),
        _throughput_line(measurements),
        _server_line(measurements),
        _cost_line(measurements),
    )


def _conformance_line(measurements: Measurements) -> SummaryLine:
    if not measurements.conformance:
        return SummaryLine("Conformance", "not run: every number below is unverified", "bad")
    episodes = sum(record.episodes for record in measurements.conformance)
    steps = sum(record.steps for record in measurements.conformance)
    divergences = sum(record.divergences for record in measurements.conformance)
    counts = f"{notation.plural(episodes, 'episode')}, {notation.plural(steps, 'step')}, {notation.plural(divergences, 'divergence')}"
    if measurements.verified:
        return SummaryLine("Conformance", f"passed: {counts}", "good")
    status = "error" if any(record.status == "error" for record in measurements.conformance) else "failed"
    if all(record.status == "passed" for record in measurements.conformance):
        status = "passed, but cells are marked unverified"
    return SummaryLine("Conformance", f"{status}: {counts}; every number below is unverified", "bad")


def leading_point(measurements: Measurements) -> Point | None:
    """Choose the point that the summary speaks of: compiled, one session, the tool that waits least, most steps."""
    points = [
        point for point in measurements.single or measurements.paired if point.condition.subject == "compiled"
    ]
    points = [point for point in points if point.population(Phase.STEP).n]
    return min(
        points,
        key=lambda point: (
            point.condition.workload_fields.get("tool_ns", 0),
            -point.population(Phase.STEP).n,
            point.condition,
        ),
        default=None,
    )


def _step_line(measurements: Measurements) -> SummaryLine:
    point = leading_point(measurements)
    if point is None:
        return SummaryLine("Step, 1 session", "not measured")
    population = point.population(Phase.STEP)
    quantiles = "; ".join(
        estimate_sentence(quantile_name(q), point.estimate(Phase.STEP, q))
        for q in (QUANTILES[0], QUANTILES[-1])
    )
    failed = f", {population.failures:,} failed" if population.failures else ""
    return SummaryLine("Step, 1 session", f"{quantiles}; n {population.n:,}{failed}")


def _other_phases_line(measurements: Measurements) -> SummaryLine:
    point = leading_point(measurements)
    if point is None:
        return SummaryLine("Other phases", "not measured")
    parts = []
    for phase in point.phases:
        if phase is not Phase.STEP:
            median = point.estimate(phase, 0.50)
            value = "n too small" if isinstance(median, TooSmall) else notation.duration(median.value)
            parts.append(f"{phase} {value} (n {point.population(phase).n:,})")
    return SummaryLine("Other phases", f"p50: {'; '.join(parts)}" if parts else "not measured")


def leading_ceiling(measurements: Measurements, criterion: CriterionKind) -> Ceiling | None:
    """Choose the ceiling that the summary speaks of: the compiled environment's, the last one that was searched."""
    found = [ceiling for ceiling in measurements.ceilings if ceiling.criterion == criterion]
    return next(
        (ceiling for subject in SUBJECTS for ceiling in reversed(found) if ceiling.subject == subject), None
    )


def _ceiling_line(measurements: Measurements, criterion: CriterionKind, label: str, unit: str) -> SummaryLine:
    ceiling = leading_ceiling(measurements, criterion)
    if ceiling is None:
        return SummaryLine(label, "no server to search" if measurements.in_process else "not searched")
    cores = usable_cores(measurements.run.header.machine)
    per_core = f"; {notation.count(ceiling.lower / cores)} per core" if cores and ceiling.lower else ""
    confirmed = (
        f", {describe_confirmation(ceiling, measurements.confirmation(ceiling))}" if ceiling.confirmed else ""
    )
    others = "" if ceiling.subject == "compiled" else f"{SUBJECTS[ceiling.subject]}: "
    trials = notation.plural(ceiling.trials, "trial")
    asks = criterion == "slo" and measurements.not_asked
    fewer = f"; judged by fewer criteria than those of method {METHOD}" if asks else ""
    return SummaryLine(
        label, f"{others}{describe_result(ceiling, unit)}{per_core}; {trials}{confirmed}{fewer}"
    )


def _load_line(measurements: Measurements) -> SummaryLine:
    if measurements.arriving and not measurements.ceilings:
        return SummaryLine("Open arrivals", "; ".join(map(arrival_sentence, measurements.arriving)))
    return _ceiling_line(measurements, "slo", "Ceiling (SLO)", "sessions held")


def _size_line(measurements: Measurements) -> SummaryLine:
    if measurements.run.of(Burst):
        return SummaryLine("Burst method", burst_sentence(measurements))
    found = live_line(measurements)
    return found or _ceiling_line(measurements, "success_only", "Size (success only)", "sessions")


def _throughput_line(measurements: Measurements) -> SummaryLine:
    played = [
        (end.throughput_steps_per_s, cell.sessions, end.generator is not None and end.generator.saturated)
        for cell in measurements.cells
        if cell.subject == "compiled"
        and cell.workload.get("arrival", "closed") == "closed"
        and (end := measurements.ends.get(cell.id))
        and end.throughput_steps_per_s
        and measurements.samples(cell.id) is not None
    ]
    # A saturated generator makes the rate its own, and not the system's.
    told = [(rate, sessions) for rate, sessions, is_saturated in played if not is_saturated]
    left_out = notation.plural(len(played) - len(told), "trial")
    if not played:
        return SummaryLine("Throughput", "not measured")
    if not told:
        return SummaryLine("Throughput", f"not told: the load generator was saturated in all of {left_out}")
    rate, sessions = max(told)
    saturated = "" if len(told) == len(played) else f"; {left_out} with a saturated load generator left out"
    return SummaryLine(
        "Throughput",
        f"highest seen {notation.count(round(rate, 1))} steps/s, in one trial at {notation.plural(sessions, 'session')}{saturated}",
    )


def _server_line(measurements: Measurements) -> SummaryLine:
    ladder = next((ladder for ladder in measurements.ladders if ladder.condition.subject == "compiled"), None)
    # Without a ladder, as in process, what stands in the server's table is what was measured of one session.
    alone = [point for point in measurements.points if point.condition.subject == "compiled"]
    points = [
        point for point in (ladder.points if ladder else alone) if memory_per_session(point) is not None
    ]
    if not points:
        return SummaryLine("Server", "memory per session not measured")
    point = points[-1]
    per_session = memory_per_session(point) or 0.0
    peaks = [end.server_peak for end in point.ends.values() if end.server_peak]
    threads = max((peak.threads for peak in peaks if peak.threads is not None), default=None)
    lag = max((peak.loop_lag_p99_ns for peak in peaks if peak.loop_lag_p99_ns is not None), default=None)
    parts = [f"{notation.size(per_session)} per session"]
    if threads is not None:
        parts.append(notation.plural(threads, "thread"))
    if lag is not None:
        parts.append(f"event-loop lag p99 {notation.duration(lag)}")
    open_together = max((end.peak_open or 0 for end in point.ends.values()), default=0)
    there = open_together if point.condition.open_loop else point.sessions
    return SummaryLine(
        "Server",
        f"{', '.join(parts)}, at {notation.plural(there, 'session')} (largest of {notation.plural(len(point.cells), 'trial')})",
    )


def _cost_line(measurements: Measurements) -> SummaryLine:
    parts = (*ratio_sentences(measurements), *cost_sentences(measurements))
    return SummaryLine("Ratio and costs", "; ".join(parts) or "not measured")


def measured(measurements: Measurements) -> Section:
    """Describe what was measured, on what, and by which plan."""
    header = measurements.run.header
    workloads: dict[str, set[str]] = {}
    for cell in measurements.cells:
        workloads.setdefault(describe_workload(cell.workload), set()).add(SUBJECTS[cell.subject])
    servers: dict[str, set[str]] = {}
    for point in measurements.points:
        servers.setdefault(describe_server(point.condition), set()).add(SUBJECTS[point.condition.subject])
    facts: list[tuple[str, tuple[str | Code | Strong, ...]]] = [
        (
            "Environment",
            (
                f"{header.environment.name}, version {header.environment.version}, definition ",
                Code(header.environment.sha256[:12]),
                ", tasks ",
                Code(header.environment.tasks_sha256[:12]),
            ),
        ),
        (
            "Framework",
            (
                ", ".join(f"{package} {version}" for package, version in sorted(header.framework.items()))
                or "not recorded",
                f"; adapter {header.adapter}",
            ),
        ),
        ("Python", (f"{header.python} in the framework's stack; {header.machine.python} in the harness",)),
        ("Machine", (describe_machine(header.machine),)),
        ("Commit", (describe_commit(header.commit, header.dirty),)),
        (
            "Plan",
            (
                notation.settings(
                    {key: value for key, value in header.plan.items() if not isinstance(value, dict | list)}
                )
                or "see Provenance",
            ),
        ),
        *(
            ("Workload", (f"{words} ({notation.listing(sorted(subjects))})",))
            for words, subjects in workloads.items()
        ),
        *(
            ("Server", (f"{words} ({notation.listing(sorted(subjects))})",))
            for words, subjects in servers.items()
        ),
        ("Cells", (_cells_sentence(measurements),)),
    ]
    blocks: list[Block] = [Facts(tuple(facts))]
    if header.features:
        blocks.append(_features(measurements))
    return Section("measured", "What was measured", tuple(blocks))


def _cells_sentence(measurements: Measurements) -> str:
    statuses: dict[str, int] = {}
    for cell in measurements.cells:
        status = measurements.status(cell.id) or "unfinished"
        statuses[status] = statuses.get(status, 0) + 1
    counts = ", ".join(f"{number:,} {status}" for status, number in sorted(statuses.items()))
    return f"{notation.plural(len(measurements.cells), 'cell')}{f': {counts}' if counts else ''}"


def _features(measurements: Measurements) -> Table:
    tones: dict[str, Tone] = {"native": "plain", "emulated": "muted", "absent": "muted"}
    features = measurements.run.header.features
    return Table(
        caption="What the framework carries",
        about="as the adapter declares it",
        columns=(Column("Feature"), Column("Support"), Column("Note")),
        rows=tuple(
            (
                Entry(name.replace("_", " ")),
                Entry(support.level, tone=tones[support.level]),
                Entry(support.note),
            )
            for name, support in sorted(features.items())
        ),
        remarks=(
            "Native: by the framework itself. Emulated: works through a rewrite that the note names. Absent: not at all.",
        ),
    )


def conformance(measurements: Measurements) -> Section:
    """Say whether what was measured behaves like the reference."""
    if not measurements.conformance:
        text = "No conformance run is recorded. Nothing below is known to be a measurement of the environment as defined."
        return Section("conformance", "Conformance", (paragraph(Strong("Not run. "), text),))
    tones: dict[str, Tone] = {"passed": "good", "failed": "bad", "error": "bad"}
    blocks: list[Block] = [
        paragraph(
            "Scenarios and seeded random episodes are replayed through the framework's real interface and compared with "
            "the reference: observations byte for byte, rewards exactly, ending and cause, tool schemas."
        ),
        Table(
            caption="Replays against the reference",
            about="",
            columns=(
                Column("Result"),
                Column("Episodes", numeric=True),
                Column("Steps", numeric=True),
                Column("Divergences", numeric=True),
                Column("Time", numeric=True),
                Column("Digest of the transcripts"),
            ),
            rows=tuple(
                (
                    Entry(record.status, tone=tones[record.status]),
                    Entry(f"{record.episodes:,}"),
                    Entry(f"{record.steps:,}"),
                    Entry(f"{record.divergences:,}", tone="bad" if record.divergences else "plain"),
                    Entry(notation.duration(record.seconds * 1e9)),
                    Entry(record.digest[:16], code=True),
                )
                for record in measurements.conformance
            ),
        ),
    ]
    blocks += [
        Verbatim("First divergence", record.first_divergence)
        for record in measurements.conformance
        if record.first_divergence
    ]
    return Section("conformance", "Conformance", tuple(blocks))
