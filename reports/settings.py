"""The report of server settings: what each alternative changes, as a ratio to the defaults. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from bench.records import Cell, Note, Run, SettingRatio
from reports import notation
from reports.document import Banner, Column, Entry, Facts, Report, Section, SummaryLine, Table, paragraph
from reports.page import markdown, page
from reports.quiet import disturbed
from reports.render import MARKDOWN, PAGE, RenderedReport
from reports.wording import describe_commit, describe_machine

QUANTITIES = {"server_cpu": "CPU of the server", "step_p99": "p99 of a step"}


def render_settings(run: Run) -> RenderedReport:
    """Render a run of server settings: the same records give the same bytes."""
    report = settings_report(run)
    width = max(len(line.label) for line in report.summary)
    return RenderedReport(
        {PAGE: page(report).encode(), MARKDOWN: markdown(report).encode()},
        tuple(f"{line.label:<{width}}  {line.text}" for line in report.summary),
    )


def settings_report(run: Run) -> Report:
    """Build the report of a run."""
    header = run.header
    return Report(
        title=f"Server settings: {header.environment.name} under {header.adapter}",
        subtitle=f"Run {header.run_id}, started {header.started:%Y-%m-%d %H:%M} UTC",
        banners=tuple(_banners(run)),
        summary=tuple(_summary(run)),
        sections=(_ratios(run), _defaults(run)),
    )


def ratio_text(found: SettingRatio) -> str:
    """Write a ratio with its interval, and whether a difference was shown."""
    value, interval = notation.ratio_with_interval(found.ratio, found.low, found.high)
    text = f"{value} [{interval}]"
    return text if not found.low <= 1 <= found.high else f"{text}, no difference shown"


def _banners(run: Run) -> Iterable[Banner]:
    notes = tuple(note.text for note in run.of(Note))
    if run.partial:
        text = "The run did not come to its end. What follows was measured until then; the rest is missing."
        yield Banner("warning", "Partial run", text)
    if sentences := disturbed(run):
        text = "All settings met the same disturbance, round by round; intervals are wider for it."
        yield Banner("warning", "The machine was not quiet", text, sentences)
    if notes:
        yield Banner("warning", "Notes", "What the run wrote down about itself:", notes)
    if run.header.dirty:
        yield Banner("note", "Uncommitted changes", "The files differed from the commit that is named.")


def _summary(run: Run) -> Iterable[SummaryLine]:
    header = run.header
    packages = ", ".join(f"{package} {version}" for package, version in sorted(header.framework.items()))
    yield SummaryLine("Measured", f"{header.environment.name} {header.environment.version} under {packages}")
    yield SummaryLine(
        "Machine",
        f"{describe_machine(header.machine)}; commit {describe_commit(header.commit, header.dirty)}",
    )
    for found in run.of(SettingRatio):
        if found.quantity == "server_cpu":
            yield SummaryLine(
                f"{found.setting}={found.value}",
                f"CPU of the server {ratio_text(found)}, {notation.plural(found.pairs, 'pair')} at "
                f"{notation.plural(found.sessions, 'session')}",
            )


def _ratios(run: Run) -> Section:
    by_setting: dict[str, dict[str, SettingRatio]] = {}
    for found in run.of(SettingRatio):
        by_setting.setdefault(f"{found.setting}={found.value}", {})[found.quantity] = found
    if not by_setting:
        return Section(
            "ratios",
            "Against the defaults",
            (paragraph("No setting was measured often enough for a ratio."),),
        )
    rows = []
    for name, ratios in by_setting.items():
        any_ratio = next(iter(ratios.values()))
        rows.append(
            (
                Entry(name, code=True),
                *(_entry(ratios.get(quantity)) for quantity in QUANTITIES),
                Entry(f"{any_ratio.sessions:,}"),
                Entry(f"{any_ratio.pairs:,}"),
            )
        )
    table = Table(
        caption="Each setting divided by the defaults",
        about="interleaved rounds in random order; below 1 is less",
        columns=(
            Column("Setting"),
            *(Column(title, numeric=True) for title in QUANTITIES.values()),
            Column("Sessions", numeric=True),
            Column("Pairs", numeric=True),
        ),
        rows=tuple(rows),
        remarks=(
            (
                "Geometric means with 95 % intervals by bootstrap over the pairs of a round. CPU seconds are those of the server's "
                "process from before the first connection to after the last close; other work on the machine changes them little, and the p99 much."
            ),
        ),
    )
    return Section("ratios", "Against the defaults", (table,))


def _entry(found: SettingRatio | None) -> Entry:
    if found is None:
        return Entry("not measured", tone="muted")
    shown = not found.low <= 1 <= found.high
    value, interval = notation.ratio_with_interval(found.ratio, found.low, found.high)
    return Entry(
        value,
        detail=interval + ("" if shown else ", no difference shown"),
        tone="plain" if not shown else "good" if found.ratio < 1 else "bad",
    )


def _defaults(run: Run) -> Section:
    cells = run.of(Cell)
    if not cells:
        return Section("settings", "The settings", (paragraph("No cell began."),))
    settings = {notation.settings(cell.server) for cell in cells}
    return Section(
        "settings",
        "The settings in force",
        (
            Facts(
                tuple((f"Server {number}", (text,)) for number, text in enumerate(sorted(settings), start=1))
            ),
        ),
    )
