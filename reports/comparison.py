"""The comparison report: compiled against hand-written as ratios with intervals, and costs that are no latencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.records import Cost, Ratio
from bench.stats import ratio_texts
from reports import charts, notation
from reports.document import Block, Column, Entry, Figure, Section, Strong, Table, paragraph
from reports.latency import paired_blocks

if TYPE_CHECKING:
    from reports.measurements import Measurements

COSTS = {
    "episode_step_overhead": "An episode's step, beyond the bare tool call",
    "episode_step": "An episode's step in all",
    "bare_tool_call": "The bare tool call",
    "live_episode_bytes": "Memory of a live episode",
}
"""Name of a cost to what it is; others are shown by their names."""
HEADLINE = ("episode_step_overhead", "live_episode_bytes")
"""The costs that the summary names."""


def difference_shown(ratio: Ratio) -> bool:
    """Whether the interval of a ratio leaves out 1."""
    return not ratio.low <= 1 <= ratio.high


def _display_name(ratio: Ratio) -> str:
    return ratio.name.replace("baseline", "hand-written")


def _outcome(ratio: Ratio) -> str:
    if not difference_shown(ratio):
        return "no difference shown"
    first, _, rest = _display_name(ratio).partition("/")
    second = rest.split(" ", maxsplit=1)[0]
    word = "faster" if ratio.ratio < 1 else "slower"
    return f"{first} is {word} than {second}" if second else f"a difference is shown: {word}"


def ratio_sentences(measurements: Measurements) -> tuple[str, ...]:
    """Say every ratio in a few words."""
    return tuple(
        "{} {} [{}, {}], {}".format(
            _display_name(ratio),
            *ratio_texts(ratio.ratio, ratio.low, ratio.high),
            notation.plural(ratio.pairs, "pair"),
        )
        + ("" if difference_shown(ratio) else ", no difference shown")
        for ratio in measurements.run.of(Ratio)
    )


def cost_sentences(measurements: Measurements) -> tuple[str, ...]:
    """Say the headline costs in a few words, or all of them when there are no others."""
    found = measurements.run.of(Cost)
    named = [cost for cost in found if cost.name in HEADLINE] or found
    return tuple(
        f"{cost.name.replace('_', ' ')} {notation.quantity(cost.value, cost.unit)} (n {cost.n:,})"
        for cost in named
    )


def comparison(measurements: Measurements) -> Section:
    """Report the ratios of interleaved pairs, and the latencies of both sides."""
    ratios = measurements.run.of(Ratio)
    anchor, title = "comparison", "Compiled against hand-written"
    sides = paired_blocks(measurements)
    if not ratios:
        text = "This run holds no ratio of interleaved pairs, so the two are not compared."
        return Section(anchor, title, (paragraph(Strong("Not compared. "), text), *sides))
    rows = [
        charts.Comparison(
            _display_name(ratio),
            f"{notation.plural(ratio.pairs, 'pair')}, n {ratio.n:,}",
            ratio.ratio,
            ratio.low,
            ratio.high,
        )
        for ratio in ratios
    ]
    words = "; ".join(
        "{}: {}, interval {} to {}, {}".format(
            _display_name(ratio), *ratio_texts(ratio.ratio, ratio.low, ratio.high), _outcome(ratio)
        )
        for ratio in ratios
    )
    blocks: list[Block] = [
        paragraph(
            "Both sides ran interleaved, in random order, in one run. Each pair gives the ratio of the two sides; shown is the geometric mean "
            "over the pairs, with an interval from resampling pairs. When the interval holds 1, no difference is shown."
        ),
        Figure(
            charts.draw_ratios("ratios", rows),
            caption="Ratio of latencies with its 95 % interval. Hollow and grey where the interval holds 1.",
            alternative=f"Ratios of latencies. {words}.",
        ),
        Table(
            caption="Ratios of interleaved pairs",
            about="geometric mean, 95 % interval",
            columns=(
                Column("Ratio"),
                Column("Phase"),
                Column("Value", numeric=True),
                Column("Outcome"),
                Column("Pairs", numeric=True),
                Column("n", "both sides", numeric=True),
            ),
            rows=tuple(
                (
                    Entry(_display_name(ratio)),
                    Entry(ratio.phase),
                    Entry(*notation.ratio_with_interval(ratio.ratio, ratio.low, ratio.high)),
                    Entry(_outcome(ratio), tone="plain" if difference_shown(ratio) else "muted"),
                    Entry(f"{ratio.pairs:,}"),
                    Entry(f"{ratio.n:,}"),
                )
                for ratio in ratios
            ),
        ),
    ]
    return Section(anchor, title, (*blocks, *sides))


def costs(measurements: Measurements) -> Section:
    """Report what the canonical core itself costs."""
    found = measurements.run.of(Cost)
    if not found:
        return Section(
            "costs",
            "Costs of the core",
            (paragraph(Strong("Not measured. "), "This run holds no costs of the core itself."),),
        )
    return Section(
        "costs",
        "Costs of the core",
        (
            Table(
                caption="What an episode costs",
                about="in process, without any framework",
                columns=(
                    Column("Cost"),
                    Column("Value", numeric=True),
                    Column("n", numeric=True),
                    Column("Record"),
                ),
                rows=tuple(
                    (
                        Entry(COSTS.get(cost.name, cost.name.replace("_", " "))),
                        _cost_entry(cost),
                        Entry(f"{cost.n:,}"),
                        Entry(cost.name, code=True),
                    )
                    for cost in found
                ),
            ),
        ),
    )


def _cost_entry(cost: Cost) -> Entry:
    if cost.low is None or cost.high is None:
        return Entry(notation.quantity(cost.value, cost.unit), detail="no interval recorded")
    value, interval = notation.quantity_with_interval(cost.value, cost.low, cost.high, cost.unit)
    return Entry(value, detail=interval)
