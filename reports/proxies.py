"""The report of a measurement of proxies: what each let through, what it counted itself, and what faults cost. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.machine import Stretch, busy_before, disturbances
from bench.serving.records import Fault, ProxyRun, ProxyTrial
from bench.stats import Population, TooSmall, quantile, quantile_name
from reports import notation
from reports.document import (
    Banner,
    Block,
    Bullets,
    Code,
    Column,
    Entry,
    Facts,
    Report,
    Section,
    SummaryLine,
    Table,
    paragraph,
)
from reports.measurements import Estimate
from reports.page import markdown, page
from reports.render import MARKDOWN, PAGE, RenderedReport
from reports.wording import describe_commit, describe_machine, estimate_entry

_QUANTILES = (0.50, 0.99)
_VARIANTS = {"default": "its own defaults", "derived": "derived from the sessions"}


def render_proxy_run(run: ProxyRun) -> RenderedReport:
    """Render a run: the same records give the same bytes."""
    report = proxy_report(run)
    width = max(len(line.label) for line in report.summary)
    return RenderedReport(
        {PAGE: page(report).encode(), MARKDOWN: markdown(report).encode()},
        tuple(f"{line.label:<{width}}  {line.text}" for line in report.summary),
    )


def proxy_report(run: ProxyRun) -> Report:
    """Build the report of a run."""
    header = run.header
    return Report(
        title="Proxies before a fleet",
        subtitle=f"Run {header.run_id}, started {header.started:%Y-%m-%d %H:%M} UTC",
        banners=tuple(_banners(run)),
        summary=tuple(_summary(run)),
        sections=tuple(_sections(run)),
    )


def _banners(run: ProxyRun) -> Iterable[Banner]:
    if run.partial:
        text = "The run did not come to its end. What follows was measured until then; the rest is missing."
        yield Banner("warning", "Partial run", text)
    sentences = (
        *busy_before(run.header.pressure),
        *disturbances(map(_stretch, run.of(ProxyTrial)), "trials"),
        *disturbances(map(_stretch, run.of(Fault)), "faults"),
    )
    if sentences:
        text = "Counts of sessions hold all the same; read latencies as upper bounds."
        yield Banner("warning", "The machine was not quiet", text, sentences)
    if run.header.dirty:
        yield Banner("note", "Uncommitted changes", "The files differed from the commit that is named.")


def _stretch(record: ProxyTrial | Fault) -> Stretch:
    return Stretch(record.pressure_before, record.pressure_after, record.own_cpu_s)


def _summary(run: ProxyRun) -> Iterable[SummaryLine]:
    header = run.header
    yield SummaryLine(
        "Measured",
        f"{header.environment} under {header.stack}, {notation.plural(header.replicas, 'replica')} behind a proxy, "
        f"{notation.plural(header.turns, 'step')} of {header.tool_s:g} s",
    )
    yield SummaryLine(
        "Machine",
        f"{describe_machine(header.machine)}; commit {describe_commit(header.commit, header.dirty)}",
    )
    for trial in run.of(ProxyTrial):
        yield SummaryLine(
            f"{trial.title}, {trial.variant}",
            f"{trial.peak_open:,} of {trial.sessions:,} sessions held at the same time, {trial.succeeded:,} without a fault",
            "good" if trial.succeeded == trial.sessions else "bad",
        )
    for name, faults in _by_name(run.of(Fault)).items():
        sessions = sum(fault.sessions for fault in faults)
        lost = sum(sum(fault.lost.values()) for fault in faults)
        unaccounted = sum(fault.unaccounted for fault in faults)
        held = sum(sum(fault.held_after.values()) for fault in faults)
        fresh, asked = (
            sum(getattr(fault, one) for fault in faults) for one in ("fresh_succeeded", "fresh_sessions")
        )
        yield SummaryLine(
            f"{name[0].upper()}{name[1:]}",
            f"{notation.plural(len(faults), 'fleet')}: {lost:,} of {sessions:,} sessions lost and told why, {unaccounted:,} "
            f"without a word, {held:,} still held; after it {fresh:,} of {asked:,} new ones",
            "bad" if unaccounted or held or fresh < asked else "plain",
        )


def _by_name(faults: Sequence[Fault]) -> dict[str, list[Fault]]:
    found: dict[str, list[Fault]] = {}
    for fault in faults:
        found.setdefault(fault.name, []).append(fault)
    return found


def _sections(run: ProxyRun) -> Iterable[Section]:
    trials, faults = run.of(ProxyTrial), run.of(Fault)
    if trials:
        about = paragraph(
            "All sessions connect, wait for each other, and then play. Sessions held are those that were open at that "
            "moment. The clients, the proxy and the replicas share this machine."
        )
        yield Section("held", "Sessions held", (about, _held_table(trials), _cost_table(trials)))
        yield Section("counters", "What the proxies counted", (_counters(trials),))
        failed = [trial for trial in trials if trial.errors]
        if failed:
            yield Section("errors", "What the other sessions were told", (_errors(failed),))
    if faults:
        yield Section("faults", "Faults", (*_fault_tables(faults), _fault_details(faults)))
    yield Section("versions", "Versions", (_versions(run),))


def _held_table(trials: Sequence[ProxyTrial]) -> Table:
    return Table(
        caption="Sessions through each proxy",
        about="one trial each, in fresh processes",
        columns=(
            Column("Proxy"),
            Column("Limits"),
            Column("Sessions", numeric=True),
            Column("Connected", numeric=True),
            Column("Held", numeric=True),
            Column("Without a fault", numeric=True),
            *(Column(f"Step, {quantile_name(q)}", numeric=True) for q in _QUANTILES),
        ),
        rows=tuple(
            (
                Entry(trial.title),
                Entry(_VARIANTS[trial.variant]),
                Entry(f"{trial.sessions:,}"),
                Entry(f"{trial.opened:,}"),
                Entry(f"{trial.peak_open:,}", tone="bad" if trial.peak_open < trial.sessions else "good"),
                Entry(f"{trial.succeeded:,}", tone="bad" if trial.succeeded < trial.sessions else "good"),
                *_steps(trial),
            )
            for trial in trials
        ),
        remarks=("Steps: those that were tried; a session that was never let through has none.",),
    )


def _steps(trial: ProxyTrial) -> tuple[Entry, ...]:
    population = Population(trial.step_ns, trial.step_failures)
    return tuple(estimate_entry(_estimate(population, q)) for q in _QUANTILES)


def _estimate(population: Population, q: float) -> Estimate | TooSmall:
    found = quantile(population, q)
    return found if isinstance(found, TooSmall) else Estimate(found.value, found.low, found.high, found.n, 0)


def _cost_table(trials: Sequence[ProxyTrial]) -> Table:
    def memory(trial: ProxyTrial) -> str:
        if not trial.proxy_rss_idle_bytes or not trial.peak_open:
            return "not known"
        return notation.size((trial.proxy_rss_bytes - trial.proxy_rss_idle_bytes) / trial.peak_open)

    return Table(
        caption="What the proxies cost, and whether the generator kept up",
        about="",
        columns=(
            Column("Proxy"),
            Column("Limits"),
            Column("Processes", numeric=True),
            Column("CPU", "s", numeric=True),
            Column("Memory per session", numeric=True),
            Column("Most on one replica", numeric=True),
            Column("Generator's CPU", numeric=True),
        ),
        rows=tuple(
            (
                Entry(trial.title),
                Entry(_VARIANTS[trial.variant]),
                Entry(f"{trial.processes:,}"),
                Entry(f"{trial.proxy_cpu_s:.2f}"),
                Entry(memory(trial)),
                Entry(f"{max(trial.peak_on_replicas.values(), default=0):,}"),
                Entry(
                    "not known"
                    if trial.generator_utilisation is None
                    else notation.share(trial.generator_utilisation)
                ),
            )
            for trial in trials
        ),
        remarks=(
            "Memory: growth of the resident memory of all its processes, seen twice a second, over the sessions held.",
        ),
    )


def _counters(trials: Sequence[ProxyTrial]) -> Facts:
    return Facts(
        tuple(
            (
                f"{trial.title}, {trial.variant}",
                (
                    "; ".join(
                        f"{name.replace('_', ' ')} {value:,}"
                        for name, value in sorted(trial.most.items())
                        if value
                    )
                    or "nothing",
                ),
            )
            for trial in trials
        )
    )


def _errors(trials: Sequence[ProxyTrial]) -> Bullets:
    return Bullets(
        tuple(
            (f"{trial.title}, {trial.variant}: {count:,} times ", Code(text))
            for trial in trials
            for text, count in trial.errors.items()
        )
    )


def _fault_tables(faults: Sequence[Fault]) -> tuple[Block, ...]:
    by_stack: dict[str, list[Fault]] = {}
    for fault in faults:
        by_stack.setdefault(fault.stack, []).append(fault)
    return tuple(_fault_table(stack, mine) for stack, mine in by_stack.items())


def _fault_table(stack: str, faults: Sequence[Fault]) -> Table:
    limits = sorted({fault.idle_limit_s for fault in faults if fault.idle_limit_s is not None})
    idle = (
        f"The servers free a session that nobody asks anything of for {notation.listing([f'{one:g}' for one in limits])} s."
        if limits
        else "The servers free a session when its connection ends, or when nobody answers their pings."
    )
    return Table(
        caption=f"What was done while sessions were held, and what became of them: {stack}",
        about="",
        columns=(
            Column("Proxy"),
            Column("Fault"),
            Column("Sessions", numeric=True),
            Column("Without a fault", numeric=True),
            Column("Lost, told why", numeric=True),
            Column("Without a word", numeric=True),
            Column("Held after", numeric=True),
            Column("New after", numeric=True),
        ),
        rows=tuple(
            (
                Entry(fault.title),
                Entry(fault.name),
                Entry(f"{fault.sessions:,}"),
                Entry(f"{fault.succeeded:,}"),
                Entry(f"{sum(fault.lost.values()):,}"),
                Entry(f"{fault.unaccounted:,}", tone="bad" if fault.unaccounted else "plain"),
                Entry(
                    f"{sum(fault.held_after.values()):,}",
                    f"{fault.settled_s:.0f} s",
                    tone="bad" if any(fault.held_after.values()) else "plain",
                ),
                Entry(
                    f"{fault.fresh_succeeded:,} of {fault.fresh_sessions:,}",
                    tone="bad" if fault.fresh_succeeded < fault.fresh_sessions else "plain",
                ),
            )
            for fault in faults
        ),
        remarks=(idle,),
    )


def _fault_details(faults: Sequence[Fault]) -> Bullets:
    told = [
        (f"{_fleet(fault)}: {count:,} times ", Code(text))
        for fault in faults
        for text, count in fault.lost.items()
    ]
    said = [
        (f"{_fleet(fault)}, the fleet said: {event.splitlines()[0]}",)
        for fault in faults
        for event in fault.events
    ]
    ended = [(f"{_fleet(fault)}, the load run: {fault.ended_by}",) for fault in faults]
    return Bullets((*told, *said, *ended))


def _fleet(fault: Fault) -> str:
    return f"{fault.stack}, {fault.title}, {fault.name}"


def _versions(run: ProxyRun) -> Facts:
    found = dict.fromkeys((trial.title, trial.version) for trial in run.of(ProxyTrial))
    return Facts(
        (
            *((title, (Code(version),)) for title, version in found),
            ("Stack", (Code(run.header.stack),)),
            ("Command", (Code("rosetta " + " ".join(run.header.args_passed)),)),
        )
    )
