"""The published site in a real browser, served under a policy that allows only what comes with it."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from bench.facts import FACTS_FILE, read_facts
from bench.stacks import ROOT
from reports.stone.render import render_tables
from reports.stone.table import Cell
from reports.stone.tree import QUESTIONS, grow

SITE = "reports/published/rosetta"
PAGES = sorted(path.relative_to(ROOT / SITE).as_posix() for path in (ROOT / SITE).rglob("*.html"))
FACTS = read_facts(ROOT / SITE / FACTS_FILE)
TABLES = {table.name: table for table in render_tables(FACTS)}
POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:"
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


class _Handler(SimpleHTTPRequestHandler):
    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(ROOT))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/{SITE}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip("Chromium is not installed; install it, or name it in the variable CHROMIUM")
    with sync_playwright() as playwright:
        # Chromium refuses to run as root inside its own sandbox; it only opens pages of this repository.
        flags = [
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
        ]
        chromium = playwright.chromium.launch(executable_path=program, args=flags)
        yield chromium
        chromium.close()


@contextmanager
def opened(browser: Browser, base: str, **options) -> Iterator[Page]:
    """Open a page that may complain of nothing and fetch nothing from elsewhere."""
    with browser.new_context(viewport=options.pop("viewport", DESK), **options) as context:
        page = context.new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text) if message.type != "log" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: (
                complaints.append(request.url)
                if not request.url.startswith((base, "data:", "file:"))
                else None
            ),
        )
        page.set_default_timeout(60_000)
        yield page
        assert complaints == []


def kinds_of(cell: Cell) -> list[str]:
    return [kind for kind in cell.kind.split(", ") if kind]


def violations(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['html'][:200]}" for one in found for node in one["nodes"]]


def shown(page: Page, selector: str) -> list[str]:
    return page.eval_on_selector_all(
        selector, "found => found.filter(one => one.checkVisibility()).map(one => one.textContent.trim())"
    )


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("viewport", "scheme"), [(DESK, "light"), (PHONE, "dark")], ids=["desk", "phone"])
def test_a_page_is_accessible_fits_its_window_and_complains_of_nothing(browser, base, name, viewport, scheme):
    with opened(browser, base, viewport=viewport, color_scheme=scheme) as page:
        page.goto(base + name)
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        assert violations(page) == []


@pytest.mark.parametrize(("viewport", "scheme"), [(DESK, "dark"), (PHONE, "light")], ids=["desk", "phone"])
def test_what_opens_on_a_page_is_accessible_and_fits_too(browser, base, viewport, scheme):
    with opened(browser, base, viewport=viewport, color_scheme=scheme) as page:
        page.goto(base + "tables/pieces.html")
        page.locator("details.evidence summary").last.click()
        assert violations(page) == []
        page.locator(".menu summary").first.click()
        assert violations(page) == []
        page.keyboard.press("Escape")
        page.fill("#search", "reward")
        page.wait_for_selector("#found a")
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        page.goto(base + "choose.html")
        for question in QUESTIONS:
            page.check(f"input[name={question.key}][value={question.choices[0].key}]")
        page.locator(".paths summary").click()
        assert violations(page) == []


def test_pages_work_when_they_are_opened_as_files(browser, base):
    with opened(browser, base) as page:
        page.goto((ROOT / SITE / "tables" / "words.html").as_uri())
        page.fill("#search", "environment")
        page.wait_for_selector("#found a")
        page.locator("#found a").first.click()
        assert page.url.startswith("file:")
        assert page.locator("h1").count() == 1


@pytest.mark.parametrize("name", TABLES)
def test_filters_leave_what_is_asked_for(browser, base, name):
    table = TABLES[name]
    if not table.rows:
        pytest.skip("the table has no rows")
    with opened(browser, base) as page:
        page.goto(f"{base}tables/{name}.html")
        rows = "table.stone tbody th"
        assert len(shown(page, rows)) == len(table.rows)

        wanted = table.rows[-1].name
        page.fill("#only", wanted)
        found = shown(page, rows)
        assert wanted.replace("`", "") in found
        assert len(found) <= len(table.rows)
        assert page.locator(".shown").text_content() == f"{len(found)} of {len(table.rows)} shown"
        page.fill("#only", "xyzzy")
        assert shown(page, rows) == []
        page.fill("#only", "")

        kinds = {kind for row in table.rows for cell in row.cells for kind in kinds_of(cell)}
        for kind in kinds:
            page.select_option("#kind", kind)
            having = [row for row in table.rows if any(kind in kinds_of(cell) for cell in row.cells)]
            assert len(shown(page, rows)) == len(having)
        page.select_option("#kind", "")

        for subject in FACTS.subjects:
            about = [row for row in table.rows if row.name.startswith(f"{subject.title}: ")]
            if about:
                page.select_option("#about", subject.title)
                assert len(shown(page, rows)) == len(about)
                page.select_option("#about", "")

        if table.columns == tuple(subject.title for subject in FACTS.subjects):
            page.check("#differ")
            differing = [row for row in table.rows if len({cell.value for cell in row.cells}) > 1]
            assert len(shown(page, rows)) == len(differing)
            page.uncheck("#differ")

        if len(table.columns) > 2:
            page.uncheck("input[name=column][value='0']")
            assert len(shown(page, "table.stone thead th")) == len(table.columns) - 1
            assert len(shown(page, "table.stone td[data-kind]")) == len(table.rows) * (len(table.columns) - 1)


def test_filters_of_a_framework_hide_tables_of_which_nothing_is_left(browser, base):
    subject = FACTS.subjects[0]
    with opened(browser, base) as page:
        page.goto(f"{base}frameworks/{subject.framework}.html")
        before = len(shown(page, "section.part h2"))
        page.select_option("#kind", "measured")
        left = shown(page, "section.part h2")
        measured = {fact.table for fact in FACTS.of_framework(subject.framework) if fact.kind == "measured"}
        # A cell of the overview is made of several facts, and is of all their kinds.
        overview = TABLES["overview"]
        column = overview.releases.index(subject.release)
        if any("measured" in row.cells[column].kind.split(", ") for row in overview.rows):
            measured.add("overview")
        assert left == [table.title for name, table in TABLES.items() if name in measured]
        assert len(left) < before


def test_every_path_of_the_tree_reaches_its_answer(browser, base):
    with opened(browser, base) as page:
        page.goto(base + "choose.html")
        for leaf in grow(FACTS).leaves:
            page.click(".again")
            for question, choice in zip(QUESTIONS, leaf.path, strict=True):
                assert page.locator("#answer-text .answer").count() == 0
                page.check(f"input[name={question.key}][value={choice.key}]")
            said = page.locator("#answer-text .fits").text_content()
            expected = ", ".join(one.subject.title for one in leaf.fits)
            assert said.strip() == (f"Fits: {expected}." if leaf.fits else said.strip())
            assert leaf.fits or "None is known to fit" in said
            links = page.eval_on_selector_all(
                "#answer-text li a", "found => found.map(one => one.textContent)"
            )
            assert links == [one.subject.title for one in (*leaf.open, *leaf.ruled_out)]


def test_the_tree_is_answered_by_keyboard_alone(browser, base):
    with opened(browser, base) as page:
        page.goto(base + "choose.html")
        page.focus("input[name=place]")
        for _ in QUESTIONS:
            page.keyboard.press("Space")
            page.keyboard.press("ArrowDown")
            page.keyboard.press("Tab")
        assert page.locator("#answer-text .answer").count() == 1
        page.keyboard.press("Enter")
        assert page.locator("#answer-text .answer").count() == 0


def test_without_a_script_everything_can_be_read(browser, base):
    with opened(browser, base, java_script_enabled=False) as page:
        page.goto(base + "choose.html")
        assert page.locator(".leaf .answer").last.is_visible()
        assert not page.locator("#tree").is_visible()
        page.goto(base + "tables/pieces.html")
        assert not page.locator(".filters").is_visible()
        page.locator("details.evidence summary").first.click()
        assert page.locator("details.evidence li").first.is_visible()


def test_search_is_led_by_keyboard_to_the_row_that_was_sought(browser, base):
    with opened(browser, base) as page:
        page.goto(base + "frameworks/" + FACTS.subjects[0].framework + ".html")
        page.keyboard.press("/")
        page.keyboard.type("prompt template")
        page.wait_for_selector("#found a")
        assert "found" in page.locator("#found-count").text_content()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Enter")
        page.wait_for_url("**/tables/*.html#row-*")
        row = page.evaluate("document.querySelector(':target').dataset.row")
        assert row == "prompt template"
        page.fill("#search", "xyzzy")
        assert page.locator("#found").is_hidden()
        page.fill("#search", "reward")
        page.wait_for_selector("#found a")
        page.keyboard.press("Escape")
        assert page.locator("#found").is_hidden()


def test_a_theme_that_was_chosen_is_kept_on_the_next_page(browser, base):
    with opened(browser, base, color_scheme="light") as page:
        page.goto(base + "index.html")
        paper = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(paper)
        page.click(".theme")
        assert page.evaluate(paper) == light
        page.click(".theme")
        dark = page.evaluate(paper)
        assert dark != light
        page.goto(base + "tables/words.html")
        assert page.evaluate(paper) == dark
        assert page.locator(".theme").text_content() == "Theme: dark"


def test_evidence_opens_and_closes_by_keyboard_and_keeps_the_place(browser, base):
    with opened(browser, base) as page:
        page.goto(base + "tables/pieces.html")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        summary = page.locator("details.evidence summary").nth(5)
        summary.focus()
        page.keyboard.press("Enter")
        assert page.locator("details.evidence[open] li").first.is_visible()
        page.keyboard.press("Escape")
        assert page.locator("details.evidence[open]").count() == 0
        assert summary.evaluate("one => one === document.activeElement")


def test_a_table_that_is_wider_than_its_window_scrolls_under_the_names_of_its_rows(browser, base):
    with opened(browser, base, viewport={"width": 900, "height": 900}) as page:
        page.goto(base + "tables/pieces.html")
        name = page.locator("table.stone tbody th").first
        before = name.bounding_box()["x"]
        page.locator(".scroll").evaluate("one => { one.scrollLeft = 10000 }")
        assert page.locator(".scroll").evaluate("one => one.scrollLeft") > 0
        assert abs(name.bounding_box()["x"] - before) < 2
        last = page.locator("table.stone thead th").last.bounding_box()
        assert last["x"] + last["width"] <= 900


def test_on_a_telephone_every_cell_of_a_table_is_inside_the_window_and_names_its_column(browser, base):
    with opened(browser, base, viewport=PHONE) as page:
        page.goto(base + "tables/pieces.html")
        edges = page.eval_on_selector_all(
            "table.stone td[data-kind]", "found => found.map(one => one.getBoundingClientRect().right)"
        )
        assert max(edges) <= PHONE["width"]
        assert shown(page, "table.stone tr:nth-child(1) .of") == [subject.title for subject in FACTS.subjects]


def test_the_code_view_goes_to_the_same_part_in_every_pane_and_hides_panes(browser, base):
    with opened(browser, base) as page:
        page.goto(base + "code.html")
        page.click("button[data-part='tool declaration']")
        seen = page.evaluate(
            """() => [...document.querySelectorAll(".pane")].map(pane => {
                const box = pane.querySelector(".listing").getBoundingClientRect();
                const row = [...pane.querySelectorAll("[data-begins]")].find(
                    one => one.dataset.begins.split("|").includes("tool declaration")).getBoundingClientRect();
                return row.top >= box.top && row.bottom <= box.bottom; })"""
        )
        assert seen == [True] * len(FACTS.subjects)
        page.uncheck(f"input[name=pane][value={FACTS.subjects[0].framework}]")
        assert len(shown(page, ".pane h2")) == len(FACTS.subjects) - 1


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_figures_have_a_text_that_stands_in_for_them_and_are_drawn_for_the_window(browser, base, viewport):
    with opened(browser, base, viewport=viewport) as page:
        page.goto(base + "measured.html")
        for figure in page.locator("figure").all():
            drawings = [one for one in figure.locator("[role=img]").all() if one.is_visible()]
            assert len(drawings) == 1
            assert len(drawings[0].get_attribute("aria-label")) > 80
            box = drawings[0].bounding_box()
            assert box["x"] > 0
            assert box["x"] + box["width"] <= viewport["width"]
