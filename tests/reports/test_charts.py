from __future__ import annotations

import io
import math
import re
from xml.etree import ElementTree as ET

import matplotlib.image
import numpy as np
import pytest

from reports import charts

SVG = "{http://www.w3.org/2000/svg}"


def rows(count: int = 3) -> list[charts.Row]:
    rng = np.random.default_rng(5)
    sizes = (5, 400, 20_000)
    found = []
    for index in range(count):
        values = np.sort(rng.lognormal(12 + index, 0.4, sizes[index % 3]))
        found.append(
            charts.Row(
                f"phase {index}",
                "compiled",
                "compiled" if index % 2 else "baseline",
                values,
                values.size + index,
                index,
                (
                    ("p50", float(np.median(values)), float(values[1]), float(values[-2])),
                    ("p99", math.inf, float(values[-1]), math.inf),
                ),
            )
        )
    return found


def steps(*, infinite: bool = False) -> list[charts.Step]:
    return [
        charts.Step(8, (1e9, 0.9e9, 1.1e9), None, 1.2e9, "pass"),
        charts.Step(16, (1e9, 0.9e9, 1.1e9), (1.3e9, 1.2e9, 1.5e9), 1.6e9, "mixed"),
        charts.Step(
            32, None, (math.inf, 2e9, math.inf) if infinite else (2e9, 1.9e9, math.inf), math.inf, "fail"
        ),
    ]


def parse(drawing: charts.Drawing, shape: charts.Shape) -> ET.Element:
    return ET.fromstring(drawing.wide if shape == "wide" else drawing.narrow)  # noqa: S314 - drawn here


DRAWINGS = {
    "distributions": lambda: charts.draw_distributions("distributions", rows()),
    "ladder": lambda: charts.draw_ladder(
        "ladder",
        steps(),
        subject="compiled",
        limit_ns=1.6e9,
        tool_ns=1e9,
        bracket=charts.Bracket(16, 32, "ceiling 16-32"),
    ),
    "failing": lambda: charts.draw_ladder("failing", steps(infinite=True), subject="baseline"),
    "panels": lambda: charts.draw_panels(
        "panels",
        [charts.Panel("connect", tuple(steps()), 2e9), charts.Panel("close", tuple(steps()), None)],
        subject="compiled",
    ),
    "server": lambda: charts.draw_server(
        "server", [charts.Reading(8, 2.0**27, 5, 22), charts.Reading(64, 2.0**28, 9, 78)]
    ),
    "unread": lambda: charts.draw_server(
        "unread", [charts.Reading(8, None, None, None), charts.Reading(64, None, None, None)]
    ),
    "ratios": lambda: charts.draw_ratios(
        "ratios",
        [
            charts.Comparison("a/b $step$", "30 pairs", 0.15, 0.14, 0.16),
            charts.Comparison("a/a", "9 pairs", 1.0, 0.9, 1.1),
        ],
    ),
}


@pytest.fixture(scope="module", params=DRAWINGS, ids=list(DRAWINGS))
def drawing(request: pytest.FixtureRequest) -> charts.Drawing:
    return DRAWINGS[request.param]()


def files(drawing: charts.Drawing) -> tuple[str, str, bytes]:
    return drawing.wide, drawing.narrow, drawing.png


def test_the_same_numbers_give_the_same_bytes(drawing: charts.Drawing) -> None:
    """A committed figure can be checked by drawing it again."""
    assert files(DRAWINGS[drawing.name]()) == files(drawing)


def test_nobodys_own_settings_show_in_a_figure(drawing: charts.Drawing) -> None:
    """A report looks alike wherever it is rendered."""
    import matplotlib as mpl

    usual = files(drawing)
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.fonttype": "path", "axes.grid": True}):
        assert files(DRAWINGS[drawing.name]()) == usual


@pytest.mark.parametrize("shape", ["wide", "narrow"])
def test_a_figure_is_well_formed_and_as_wide_as_its_page(
    drawing: charts.Drawing, shape: charts.Shape
) -> None:
    """Text keeps its size: the drawing is made for the width that it is shown at."""
    tree = parse(drawing, shape)
    box = tree.attrib["viewBox"].split()
    assert (box[0], box[1], float(box[2])) == ("0", "0", charts.WIDTHS[shape])


@pytest.mark.parametrize("shape", ["wide", "narrow"])
def test_no_text_leaves_the_drawing(drawing: charts.Drawing, shape: charts.Shape) -> None:
    """A label that is cut off cannot be read; widths are estimated for a common typeface."""
    tree = parse(drawing, shape)
    width = charts.WIDTHS[shape]
    for text in tree.iter(f"{SVG}text"):
        style = text.attrib.get("style", "")
        words = "".join(text.itertext())
        if "rotate(-90" in text.attrib.get("transform", ""):
            continue
        size = float(re.search(r"font-size: ([\d.]+)px|font: (?:\w+ )*([\d.]+)px", style).expand(r"\1\2"))  # type: ignore[union-attr]
        length = 0.5 * size * len(words)
        x = float(text.attrib.get("x", "nan"))
        if math.isnan(x):
            x = float(re.search(r"translate\(([-\d.]+)", text.attrib["transform"]).group(1))  # type: ignore[union-attr]
        anchor = re.search(r"text-anchor: (\w+)", style)
        start = x - {"middle": length / 2, "end": length}.get(anchor.group(1) if anchor else "start", 0.0)
        assert start >= -3, words
        assert start + length <= width + 3, words


def test_no_figure_says_nan_or_fetches_anything(drawing: charts.Drawing) -> None:
    """What cannot be drawn is drawn as such; an SVG is its own whole."""
    for svg in (drawing.wide, drawing.narrow):
        body = svg[svg.index("<svg") :]
        assert not re.search(
            r"\bnan\b|\binf\b|None", re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
        )
        assert not re.search(r'href="(?!#)', body)
        assert "url(http" not in body


def test_dollar_signs_of_a_name_are_drawn_as_they_are() -> None:
    """A name from the records is text, never mathematics."""
    assert "a/b $step$" in DRAWINGS["ratios"]().wide


@pytest.mark.parametrize("shape", ["wide", "narrow"])
def test_inside_a_page_every_colour_is_the_pages(drawing: charts.Drawing, shape: charts.Shape) -> None:
    """No colour of light paper stays behind on dark paper."""
    inline = drawing.inline(shape)
    bare = re.sub(r"var\(--fig-[a-z-]+, #[0-9a-f]{6}\)", "", inline)
    assert not re.search(r"#[0-9a-f]{6}\b(?![^<]*</text>)", re.sub(r'(href="|url\()#[^")]*', "", bare))
    assert "<metadata" not in inline


def test_ids_are_unique_across_both_shapes_and_every_reference_is_met(drawing: charts.Drawing) -> None:
    """Two figures on one page do not take each other's clips and markers."""
    inlines = [drawing.inline("wide"), drawing.inline("narrow")]
    ids = [name for inline in inlines for name in re.findall(r'\bid="([^"]*)"', inline)]
    assert len(ids) == len(set(ids))
    assert all(name.startswith(f"{drawing.name}-") for name in ids)
    for inline in inlines:
        assert set(re.findall(r'(?:href="|url\()#([^")]*)', inline)) <= set(ids)


def test_the_dark_figure_differs_in_its_colours_alone(drawing: charts.Drawing) -> None:
    """A dark page shows the same drawing."""
    colour = re.compile(r"#[0-9a-f]{6}")
    assert colour.sub("#", drawing.dark) == colour.sub("#", drawing.wide)
    assert charts.INKS["paper"].light not in drawing.dark


def test_the_bitmap_is_twice_as_wide_as_the_drawing(drawing: charts.Drawing) -> None:
    """A screen with small pixels shows it sharp."""
    assert matplotlib.image.imread(io.BytesIO(drawing.png)).shape[1] == 2 * charts.WIDTHS["wide"]


def test_every_ink_is_one_colour_on_each_paper() -> None:
    """Inks are told apart by their light colour when a figure is recoloured, so no two may share one."""
    lights = [ink.light for ink in charts.INKS.values()]
    assert len(set(lights)) == len(lights)
    assert all(re.fullmatch(r"#[0-9a-f]{6}", colour) for ink in charts.INKS.values() for colour in ink)


def luminance(colour: str) -> float:
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, two: str) -> float:
    """Contrast ratio of WCAG 2."""
    light, dark = sorted((luminance(one), luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("paper", ["light", "dark"])
@pytest.mark.parametrize("name", ["ink", "quiet", "compiled", "baseline", "limit", "fail"])
def test_text_and_lines_stand_out_from_both_papers(paper: str, name: str) -> None:
    """Text has a contrast of at least 4.5, as WCAG asks for; so have the lines that carry meaning."""
    assert contrast(getattr(charts.INKS[name], paper), getattr(charts.INKS["paper"], paper)) >= 4.5
