"""Latency across releases as a section of the report of versions: a figure, and every number as a table."""

from __future__ import annotations

from collections.abc import Sequence

from bench.machine import busy_before, disturbances
from bench.samples import Phase
from bench.stats import ratio_texts
from bench.versions.latencies import Latencies, PhaseLatency, ReleaseLatency
from reports import notation
from reports.charts import FrameworkPanel, Measured, ReleaseColumn, draw_releases
from reports.document import (
    Banner,
    Block,
    Bullets,
    Code,
    Column,
    Entry,
    Figure,
    Section,
    SummaryLine,
    Table,
    Tone,
)
from reports.wording import OWN_WAY, describe_commit, describe_machine

FIGURE = "latency-releases"
_PHASES = (Phase.STEP, Phase.CONNECT)
_LONGEST = 160


def latency_section(latencies: Latencies) -> Section:
    """Build the section."""
    blocks: list[Block] = [_how(latencies), _figure(latencies)]
    blocks += [_table(title, releases) for title, releases in latencies.by_framework()]
    return Section("latency", "Latency across releases", tuple(blocks))


def latency_banners(latencies: Latencies) -> tuple[Banner, ...]:
    """Say what kept the machine busy while latencies were measured; nothing when it was quiet."""
    found = (*busy_before(latencies.before), *disturbances([latencies.stretch], "measurements of latency"))
    if not found:
        return ()
    text = "Read medians as upper bounds; ratios compare what had its turn at the same time."
    return (Banner("warning", "The machine was not quiet while latencies were measured", text, found),)


def latency_summary(latencies: Latencies) -> SummaryLine:
    """Say how many changes were shown, and the largest."""
    compared = [
        (one.ratio, release.stack, one.phase)
        for release in latencies.releases
        for one in release.phases
        if one.ratio is not None
    ]
    changed = [one for one in compared if one[0].is_change]
    text = f"{len(changed)} of {notation.plural(len(compared), 'ratio')} to the default release leave out 1"
    if changed:
        ratio, stack, phase = max(changed, key=lambda one: max(one[0].value, 1 / one[0].value))
        text += f"; the largest: {phase} in {stack}, {_ratio(ratio.value, ratio.low, ratio.high)}"
    return SummaryLine("Latency", text)


def latency_text(latencies: Latencies) -> str:
    """Return the latencies as plain text for a terminal."""
    rows = []
    for release in latencies.releases:
        told = [f"{phase} {_told(release.of(phase))}" for phase in _PHASES]
        name = f"{release.stack}{' (default)' if release.is_default else ''}"
        rows.append((name, "; ".join(told) if release.phases else _short(release.reason)))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def _told(one: PhaseLatency | None) -> str:
    if one is None:
        return "not measured"
    ratio = "" if one.ratio is None else f", ratio {_ratio(one.ratio.value, one.ratio.low, one.ratio.high)}"
    return f"{notation.duration(one.median_ns)}{ratio}{f', {_verdict(one)}' if one.ratio else ''}"


def _how(latencies: Latencies) -> Bullets:
    compared = sum(one.ratio is not None for release in latencies.releases for one in release.phases)
    return Bullets((
        (
            "All releases of a framework ran at the same time. In each of ",
            f"{latencies.rounds} rounds every one of them had its turn, in random order, and played ",
            f"{notation.plural(latencies.sessions, 'session')} of ", Code(latencies.environment),
            f" with {notation.plural(latencies.turns, 'step')} each, one after the other, {OWN_WAY}.",
        ),
        (
            "A ratio is the geometric mean over the rounds of the median of the release by the median of the default release, ",
            "with its interval at 95 %. A change counts only where the interval leaves out 1; ",
            f"of {notation.plural(compared, 'interval')}, about one in twenty does so by chance.",
        ),
        (
            f"{describe_machine(latencies.machine)}; commit {describe_commit(latencies.commit, latencies.dirty)}; ",
            f"{latencies.started:%Y-%m-%d %H:%M} UTC, {latencies.seconds:.0f} s.",
        ),
    ))  # fmt: skip


def _figure(latencies: Latencies) -> Figure:
    panels = tuple(
        FrameworkPanel(title, tuple(_column(one, releases) for one in releases))
        for title, releases in latencies.by_framework()
    )
    n = [one.n for release in latencies.releases for one in release.phases]
    counts = f"n from {min(n):,} to {max(n):,} operations" if n else "nothing was measured"
    caption = (
        "Median service time of connect and of step in each release, on logarithmic axes in µs or ms, with the interval at 95 % "
        f"as a bar; {counts}. {describe_machine(latencies.machine)}; commit {describe_commit(latencies.commit, latencies.dirty)}. "
        "Axes differ from framework to framework."
    )
    return Figure(draw_releases(FIGURE, panels), caption, _alternative(latencies))


def _alternative(latencies: Latencies) -> str:
    told = []
    for title, releases in latencies.by_framework():
        steps = [one for release in releases if (one := release.of(Phase.STEP)) is not None]
        if not steps:
            told.append(f"{title}: not measured")
            continue
        low, high = min(one.median_ns for one in steps), max(one.median_ns for one in steps)
        changed = sum(one.ratio is not None and one.ratio.is_change for one in steps)
        told.append(
            f"{title}: step from {notation.duration(low)} to {notation.duration(high)} over "
            f"{notation.plural(len(steps), 'release')}, {changed} shown to differ from the default"
        )
    return f"Latency over releases, one picture per framework. {'; '.join(told)}."


def _column(release: ReleaseLatency, beside: Sequence[ReleaseLatency]) -> ReleaseColumn:
    usual = next((one.package for one in beside if one.is_default), release.package)
    label = release.stack.removeprefix(f"{release.package}-")
    return ReleaseColumn(
        release.package,
        label if release.package == usual else f"{release.package} {label}",
        release.is_default,
        tuple(
            Measured(
                str(one.phase),
                one.median_ns,
                one.low_ns,
                one.high_ns,
                one.ratio is not None and one.ratio.is_change,
            )
            for one in release.phases
        ),
    )


def _table(title: str, releases: Sequence[ReleaseLatency]) -> Table:
    return Table(
        f"Latency of the releases of {title}",
        "Service time, from sent to done.",
        (
            Column("Release"),
            Column("Phase"),
            Column("Median", numeric=True),
            Column("n", numeric=True),
            Column("Ratio to the default", numeric=True),
            Column("Pairs", numeric=True),
            Column("Change"),
        ),
        tuple(row for release in releases for row in _rows(release)),
    )


def _rows(release: ReleaseLatency) -> list[tuple[Entry, ...]]:
    if not release.phases:
        return [
            (
                Entry(release.stack, code=True),
                *[Entry("")] * 5,
                Entry(f"not measured: {_short(release.reason)}", tone="muted"),
            )
        ]
    rows: list[tuple[Entry, ...]] = []
    for phase in _PHASES:
        one = release.of(phase)
        if one is None:
            continue
        value, interval = notation.duration_with_interval(one.median_ns, one.low_ns, one.high_ns)
        ratio = one.ratio
        told, lower, upper = (
            ("", "", "") if ratio is None else ratio_texts(ratio.value, ratio.low, ratio.high)
        )
        rows.append((
            Entry(release.stack, code=True),
            Entry(str(phase)),
            Entry(value, detail=interval),
            Entry(notation.count(one.n)),
            Entry(told, detail=f"{lower} to {upper}" if lower else ""),
            Entry("" if ratio is None else str(ratio.pairs)),
            Entry(_change(release, one), tone=_tone(one)),
        ))  # fmt: skip
    return rows


def _change(release: ReleaseLatency, one: PhaseLatency) -> str:
    text = "default" if release.is_default else _verdict(one)
    return f"{text} (partial: {_short(release.reason)})" if release.reason else text


def _verdict(one: PhaseLatency) -> str:
    if one.ratio is None:
        return "not compared: too few pairs"
    if not one.ratio.is_change:
        return "no change shown"
    return "slower" if one.ratio.value > 1 else "faster"


def _tone(one: PhaseLatency) -> Tone:
    if one.ratio is None or not one.ratio.is_change:
        return "muted"
    return "bad" if one.ratio.value > 1 else "good"


def _ratio(value: float, low: float, high: float) -> str:
    return "{} [{}, {}]".format(*ratio_texts(value, low, high))


def _short(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ..."
