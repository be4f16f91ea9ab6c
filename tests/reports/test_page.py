from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from bench.machine import Pressure
from bench.records import Run
from reports.render import MARKDOWN, PAGE, RenderedReport, render_run

ReadPage = Callable[[Run], Any]
MakeRun = Callable[..., Run]

BUSY = Pressure(at_ns=0, cpu_some_avg10=90.0, busy_s=0.0, steal_s=0.0, cpus=2, load_1m=8.0)
HOSTILE = "</style><script>alert(1)</script> | `tick` *star* <img src=http://example.org/x> & &amp; “quote”\n- not a list"


def test_nothing_is_fetched_from_anywhere(whole_page: Any, whole_report: RenderedReport) -> None:
    """The page is one file that can be mailed, archived and opened without a network."""
    assert all(target.startswith(("#", "data:")) for target in whole_page.targets), whole_page.targets
    style = re.search(r"<style>(.*?)</style>", whole_report.files[PAGE].decode(), re.DOTALL)
    assert style is not None
    assert "@import" not in style.group(1)
    assert "url(" not in style.group(1)
    assert "http" not in style.group(1)


def test_ids_are_unique_and_every_link_leads_somewhere(whole_page: Any) -> None:
    """A reader who follows the list of sections, or a label that names a table, arrives."""
    assert len(whole_page.ids) == len(set(whole_page.ids))
    assert {target[1:] for target in whole_page.targets if target.startswith("#")} <= set(whole_page.ids)
    labels = {
        attributes["aria-labelledby"]
        for _, attributes in whole_page.attributes
        if "aria-labelledby" in attributes
    }
    assert labels <= set(whole_page.ids)


def test_every_figure_says_in_words_what_it_shows(whole_page: Any) -> None:
    """Who cannot see a figure reads its numbers, in both shapes of it."""
    drawings = [
        attributes
        for tag, attributes in whole_page.attributes
        if tag == "div" and attributes.get("role") == "img"
    ]
    figures = sum(tag == "figure" for tag, _ in whole_page.attributes)
    assert len(drawings) == 2 * figures
    assert figures == 6
    assert all(re.search(r"\d", attributes["aria-label"]) for attributes in drawings)
    inner = [attributes for tag, attributes in whole_page.attributes if tag == "svg"]
    assert all(attributes.get("aria-hidden") == "true" for attributes in inner)


def test_headings_follow_each_other_without_gaps(whole_page: Any) -> None:
    """One title, then sections: what a screen reader lists is the outline of the report."""
    levels = [tag for tag, _ in whole_page.attributes if re.fullmatch(r"h\d", tag)]
    assert levels[0] == "h1"
    assert set(levels[1:]) == {"h2"}


def test_every_table_can_be_scrolled_by_keyboard_and_has_headed_columns(whole_page: Any) -> None:
    """A wide table stays inside its container, which takes the focus."""
    regions = [a for tag, a in whole_page.attributes if tag == "div" and a.get("role") == "region"]
    assert len(regions) == len(whole_page.tables) > 8
    assert all(region["tabindex"] == "0" for region in regions)
    assert all(table.columns and all(table.columns) for table in whole_page.tables)
    assert all(
        table.rows and all(len(row) == len(table.columns) for row in table.rows)
        for table in whole_page.tables
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "story",
    [
        {},
        {
            "failing_share": 0.03,
            "conformance": "failed",
            "status": "unverified",
            "ratio": None,
            "costs": False,
        },
        {
            "conformance": "error",
            "ladder": (),
            "pairs": False,
            "ratio": None,
            "server_side": False,
            "interrupt": True,
        },
        {
            "conformance": None,
            "single_sessions": 0,
            "ladder": (),
            "pairs": False,
            "ratio": None,
            "costs": False,
        },
        {"status": "failed", "single_sessions": 3, "ladder": (8, 16), "ceiling": False, "footer": False},
    ],
    ids=["whole", "failing", "partial", "empty", "tiny"],
)
def test_no_page_speaks_the_language_of_the_machine(
    make_run: MakeRun, read_page: ReadPage, story: dict[str, Any]
) -> None:
    """Absent is said in words; nan, inf and None are never shown, in whatever state a run is."""
    run = make_run(**story)
    page = read_page(run)
    markdown = render_run(run).files[MARKDOWN].decode()
    for text in (page.text, markdown, *(value or "" for _, a in page.attributes for value in a.values())):
        assert not re.search(r"\b(nan|inf|None|null|Traceback|undefined)\b|\{\{|\}\}|<Phase|<Status", text)


def test_what_was_not_measured_is_said_in_words(make_run: MakeRun, read_page: ReadPage) -> None:
    """An empty section does not vanish: its absence would read as if there were nothing to know."""
    run = make_run(conformance=None, single_sessions=0, ladder=(), pairs=False, ratio=None, costs=False)
    page = read_page(run)
    expected = {
        "conformance": "Not run.",
        "one-session": "Not measured.",
        "comparison": "Not compared.",
        "ceiling": "Not searched.",
        "sessions": "Not measured.",
        "load": "Not measured.",
        "server": "Not measured.",
        "costs": "Not measured.",
        "errors": "No operation failed",
    }
    for anchor, words in expected.items():
        assert words in page.section(anchor), anchor


def test_a_whole_and_quiet_run_carries_no_banner(whole_report: RenderedReport) -> None:
    """A warning that is always there is read by nobody."""
    assert 'class="banner' not in whole_report.files[PAGE].decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "title", "words"),
    [
        ({"conformance": "failed"}, "Unverified", "3 divergences"),
        ({"conformance": "error"}, "Unverified", "could not be carried out"),
        ({"conformance": None}, "Unverified", "No conformance run is recorded"),
        ({"status": "unverified"}, "Unverified", "marks cells as unverified"),
        ({"interrupt": True}, "Partial run", "was interrupted"),
        ({"footer": False}, "Partial run", "has no end"),
        ({"steal": True}, "The machine was not quiet", "upper bounds"),
        ({"header": {"dirty": True}}, "Uncommitted changes", "0123456789ab"),
        ({"header": {"commit": None, "dirty": None}}, "No commit", "cannot be looked up"),
        ({"notes": ("The ratio is missing.",)}, "Note", "The ratio is missing."),
        ({"notes": ("One.", "Two.")}, "Notes", "wrote down about itself"),
        (
            {"header": {"method": 1}, "ladder": (8,)},
            "Judged by fewer criteria",
            "sessions stayed on the server",
        ),
        ({"foreign": True}, "The machine was not quiet", "upper bounds"),
        ({"header": {"pressure": BUSY}}, "The machine was not quiet", "upper bounds"),
    ],
)
def test_what_changes_the_meaning_of_the_numbers_stands_above_them(
    make_run: MakeRun, story: dict[str, Any], title: str, words: str
) -> None:
    """Unverified, partial, disturbed and unrepeatable runs say so first, on the page and in Markdown."""
    report = render_run(make_run(**{"ladder": (), "pairs": False, "single_sessions": 12, **story}))
    page, markdown = report.files[PAGE].decode(), report.files[MARKDOWN].decode()
    banner = re.search(rf'<div class="banner \w+"[^>]*><strong>{title}\.</strong> ([^<]*)', page)
    assert banner is not None
    assert words in banner.group(1)
    assert page.index(banner.group()) < page.index('<dl class="summary">')
    quoted = next(line for line in markdown.splitlines() if line.startswith(f"> **{title}.**"))
    assert words in quoted


@pytest.mark.parametrize("ending", [{}, {"interrupt": True}, {"footer": False}])
def test_a_run_says_that_the_machine_was_not_quiet_however_it_ended(
    make_run: MakeRun, read_page: ReadPage, ending: dict[str, Any]
) -> None:
    """A run that was killed can write no last word, so each cell carries what others did beside it."""
    story = {
        "ladder": (),
        "pairs": False,
        "single_sessions": 5,
        "foreign": True,
        "header": {"pressure": BUSY},
    }
    page = read_page(make_run(**story, **ending))
    head = page.text[: page.text.index("Measured")]
    assert head.count("The machine was not quiet.") == 1
    assert "Other processes used 60% of the machine's CPU time" in head
    assert "Tasks already waited for a CPU in 90 % of the 10 s before the start" in head
    assert "The load average was 8.0 before the start" in head
    assert "not quiet" in page.text[page.text.index("Measured") :]
    assert "Others' CPU" in page.section("provenance")


def test_text_from_a_run_is_shown_and_never_obeyed(make_run: MakeRun, read_page: ReadPage) -> None:
    """Error texts, notes and names come from servers and people; they cannot change the page."""
    run = make_run(
        ladder=(8,),
        pairs=False,
        notes=(HOSTILE,),
        header={"plan": {"name": HOSTILE}, "args_passed": (HOSTILE,), "framework": {HOSTILE: "1"}},
    )
    page = read_page(run)
    assert " ".join(HOSTILE.split()) in page.text
    assert sum(tag == "script" for tag, _ in page.attributes) == 1
    assert not any(tag == "img" for tag, _ in page.attributes)


@pytest.mark.slow
def test_hostile_text_cannot_break_a_markdown_table(make_run: MakeRun) -> None:
    """Every row of every table has as many fields as its head, whatever a server answered."""
    report = render_run(
        make_run(ladder=(8,), notes=(HOSTILE,), header={"args_passed": (HOSTILE,), "python": HOSTILE})
    )
    markdown = report.files[MARKDOWN].decode()
    lines = markdown.splitlines()
    unescaped = re.compile(r"(?<!\\)\|")
    rules = [
        number
        for number, line in enumerate(lines)
        if re.fullmatch(r"\|(?::--|--:)(?:\|(?::--|--:))*\|", line)
    ]
    assert len(rules) > 8
    for number in rules:
        width = len(unescaped.findall(lines[number]))
        assert len(unescaped.findall(lines[number - 1])) == width
        for row in lines[number + 1 :]:
            if not row.startswith("|"):
                break
            assert len(unescaped.findall(row)) == width, row
    outside_code = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", markdown)
    assert "<script" not in re.sub(r"\\<", "", outside_code)


def test_page_and_markdown_show_the_same_tables(whole_page: Any, whole_report: RenderedReport) -> None:
    """Both are rendered from the same blocks; a number cannot be on one and not on the other."""
    markdown = whole_report.files[MARKDOWN].decode().replace("\\", "").replace("*", "").replace("`", "")
    for table in whole_page.tables:
        assert table.caption in markdown
        for row in table.rows:
            fields = (f"{text} ({detail})" if detail else text for text, detail in row)
            assert f"| {' | '.join(fields)} |" in markdown


def test_both_papers_define_every_colour_that_the_figures_use(whole_report: RenderedReport) -> None:
    """Figures read well on light and on dark, chosen by the system or by hand."""
    page = whole_report.files[PAGE].decode()
    used = set(re.findall(r"var\((--fig-[a-z-]+)", page))
    light = re.search(r"\n:root \{ (--fig[^}]*)\}", page)
    dark = re.findall(r"color-scheme: dark;([^}]*)\}", page)
    assert light is not None
    assert len(dark) == 2
    for block in (light.group(1), *dark):
        assert used <= set(re.findall(r"(--fig-[a-z-]+):", block))


def test_the_style_defines_every_property_that_it_uses(whole_report: RenderedReport) -> None:
    """A misspelt property would silently fall back."""
    style = re.search(r"<style>(.*?)</style>", whole_report.files[PAGE].decode(), re.DOTALL)
    assert style is not None
    text = style.group(1)
    assert set(re.findall(r"var\((--[a-z-]+)", text)) <= set(re.findall(r"(--[a-z-]+)\s*:", text))
