"""The site is whole in itself: links lead somewhere, nothing comes from elsewhere, and a strict policy lets all of it through."""

from __future__ import annotations

import html
import json
import posixpath
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.facts import FACTS_FILE, Source, read_facts
from bench.stacks import ROOT
from reports.stone.inputs import SourceFile, read_inputs
from reports.stone.measured import without_styles
from reports.stone.pages import MEASURED, PORTS, wrapped
from reports.stone.render import render_tables
from reports.stone.source import highlighted, panes

PUBLISHED = ROOT / "reports" / "published" / "rosetta"
PAGES = sorted(path.relative_to(PUBLISHED).as_posix() for path in PUBLISHED.rglob("*.html"))
FACTS = read_facts(PUBLISHED / FACTS_FILE)


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.forbidden: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        if tag == "a":
            self.links.append(found["href"])
        if tag in {"link", "script", "img", "iframe"}:
            self.fetched.append(found.get("href") or found.get("src") or "")
        self.forbidden += [f"{tag} {name}" for name in found if name == "style" or name.startswith("on")]
        if tag == "style" or (tag == "script" and "src" not in found):
            self.forbidden.append(tag)

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def pages() -> dict[str, _Page]:
    return {name: _Page((PUBLISHED / name).read_text(encoding="utf-8")) for name in PAGES}


def test_there_is_a_page_for_every_table_and_every_framework(pages):
    tables = {f"tables/{table.name}.html" for table in render_tables(FACTS)}
    frameworks = {f"frameworks/{subject.framework}.html" for subject in FACTS.subjects}
    assert set(pages) == {"index.html", "choose.html", "code.html", MEASURED, PORTS} | tables | frameworks


def test_every_link_leads_to_a_file_and_a_place_in_it(pages):
    lost = []
    for name, page in pages.items():
        for link in page.links:
            if link.startswith("https://"):
                continue
            path, _, anchor = link.partition("#")
            there = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            if not (PUBLISHED / there).exists() or (
                there in pages and anchor and anchor not in pages[there].ids
            ):
                lost.append(f"{name}: {link}")
    assert lost == []


def test_what_is_published_elsewhere_has_an_address_that_a_reader_can_follow(pages):
    """Sources are all addressed; a page leads to them and to the repositories of symbols, and to nothing else outside."""
    sources = [one for fact in FACTS.facts for one in fact.evidence if isinstance(one, Source)]
    assert [one.title for one in sources if one.url is None] == []
    outside = {link for page in pages.values() for link in page.links if not link.startswith((".", "#"))}
    addresses = {one.url for one in sources} | {subject.repository for subject in FACTS.subjects}
    assert {link for link in outside if ":" in link} == addresses - {None}
    assert {
        one.quoted
        for one in sources
        if one.quoted
        and one.quoted not in pages["tables/claims.html"].text
        and one.quoted not in pages["tables/ecosystem.html"].text
    } == set()


def test_ids_are_there_once(pages):
    assert [name for name, page in pages.items() if len(set(page.ids)) != len(page.ids)] == []


def test_pages_fetch_nothing_but_their_own_style_sheet_and_script(pages):
    for name, page in pages.items():
        up = "../" * name.count("/")
        own = {f"{up}site.css", f"{up}site.js", "data:,"} | ({"figures.css"} if name == MEASURED else set())
        assert set(page.fetched) == own
    for name in ("site.css", "site.js", "figures.css"):
        assert not re.search(r"https?:|url\(|@import", (PUBLISHED / name).read_text(encoding="utf-8"))


def test_no_page_holds_a_script_or_a_style_that_a_strict_policy_forbids(pages):
    assert {name: page.forbidden for name, page in pages.items() if page.forbidden} == {}


def test_everything_that_is_known_of_a_framework_stands_on_its_page(pages):
    for subject in FACTS.subjects:
        text = pages[f"frameworks/{subject.framework}.html"].text
        missing = [
            fact.cell
            for fact in FACTS.of_framework(subject.framework)
            if fact.value.replace("`", "") not in text and fact.value not in text
        ]
        assert missing == []


def test_every_row_can_be_searched_for_and_is_where_the_search_says(pages):
    script = (PUBLISHED / "search.js").read_text(encoding="utf-8")
    index = json.loads(script.removeprefix("window.searchIndex = ").removesuffix(";\n"))
    tables = {table.title: table for table in render_tables(FACTS)}
    assert [one["title"] for one in index["tables"]] == list(tables)
    for one in index["tables"]:
        assert [row[1] for row in one["rows"]] == [row.name for row in tables[one["title"]].rows]
        assert {row[0] for row in one["rows"]} <= set(pages[one["page"]].ids)
    assert {page for _, _, page in index["pages"]} <= set(pages)


def test_the_code_view_shows_the_files_as_they_stand(pages):
    shown = pages["code.html"].text
    for files in read_inputs(ROOT).handwritten.values():
        for file in files:
            assert file.path in shown
            assert "".join(file.text.split("\n")) in shown.replace("\n", "")


def test_a_place_that_has_moved_since_it_was_named_is_not_marked():
    (first, *_) = FACTS.subjects
    files = {name: files for name, files in read_inputs(ROOT).handwritten.items() if name == first.framework}
    pane = panes(FACTS, files)[0]
    assert {part for line in pane.lines for part in line.parts}
    moved = {name: [SourceFile(one.path, "\n" + one.text) for one in files[name]] for name in files}
    assert not {part for line in panes(FACTS, moved)[0].lines for part in line.parts}


@pytest.mark.parametrize("text", ["", "a\n", "a", '"""a\n<b>\n"""\n', "\n\nx = 1  # <i>\n\n", "a = '\x0c'\n"])
def test_highlighted_source_has_the_lines_of_the_source(text):
    lines = [re.sub(r"<[^>]+>", "", line) for line in highlighted(text)]
    unescaped = [
        line.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&#39;", "'")
        for line in lines
    ]
    assert unescaped == text.removesuffix("\n").split("\n")


@given(st.text(alphabet="aB1:./_-<", max_size=40))
def test_a_long_name_may_break_where_a_part_ends_and_keeps_its_text(name):
    parts = str(wrapped(name)).split("<wbr>")
    assert html.unescape("".join(parts)) == name
    assert all(part[-1] in ":./_-" for part in parts[:-1])


def test_a_drawing_keeps_what_its_styles_say_as_attributes():
    drawing = (
        '<svg viewBox="0 0 1 1">\n <defs>\n  <style type="text/css">*{stroke-linejoin: round; stroke-linecap: butt}</style>\n'
        ' </defs>\n <path style="fill: none; stroke: var(--fig-ink, #1c2127)"/></svg>'
    )
    assert without_styles(drawing) == (
        '<svg stroke-linejoin="round" stroke-linecap="butt" viewBox="0 0 1 1">\n '
        '<path fill="none" stroke="var(--fig-ink, #1c2127)"/></svg>'
    )
