"""Generated parts of documents: pure functions from facts to text, and the markers between which the text stands.

`python -m reports.generated` says which documents are stale; `--write` renews them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.porting.records import MATRIX_FILE, MATRIX_PAGE, PortMatrix, read_matrix
from bench.records import read_run
from canonical.adapter import AdapterFacts, Feature
from canonical.transcript import Transcript, step_text
from reports.ports import groups_of, summary_of
from reports.render import summarise

README_RUN = "openenv-0.10.0-wordle"
"""The published run that the README shows."""

PORTS_FOLDER = "ports"
"""The published matrix of ports, which the README shows in part."""

EXAMPLE = "docs/examples/median.jsonl"
"""The episode that the page on the coding agent shows, as `rosetta rollout --out` has written it."""

_RESULT = ("<!-- generated: a published run -->", "<!-- end of generated -->")
_WORDS = ("<!-- generated: words of adapter.toml -->", "<!-- end of generated -->")
_EPISODE = ("<!-- generated: an episode -->", "<!-- end of generated -->")
_PORTS = ("<!-- generated: the published ports -->", "<!-- end of generated -->")
_FEATURES = ("<!-- generated: features proven by conformance -->", "<!-- end of generated -->")


class MissingMarkers(Exception):  # noqa: N818 - named for what it is
    """A document has no place for what is generated into it."""


def words_table(facts: AdapterFacts) -> str:
    """Return the table of canonical words and what a framework calls them."""
    rows = [f"| Here | {facts.title} |", "| --- | --- |"]
    return "\n".join([*rows, *(f"| {ours} | {theirs} |" for ours, theirs in facts.words.items())])


def features_table(facts: AdapterFacts, kept: Mapping[str, Mapping[str, Mapping[str, str]]]) -> str:
    """Return the table of features of the default release, with a row below for each release where one differs.

    Args:
        facts: What `adapter.toml` says.
        kept: Release -> feature -> level and note, as conformance has proven and kept them.
    """
    default = facts.default_release.label
    others = sorted(kept.keys() - {default})
    rows = [f"| Feature | {default} | |", "| --- | --- | --- |"]
    for feature in Feature:
        mine = kept[default][feature]
        rows.append(f"| `{feature}` | {mine['level']} | {_cell(mine['note'])} |")
        rows += [
            f"| | {kept[label][feature]['level']} in {label} | {_cell(kept[label][feature]['note'])} |"
            for label in others
            if any(kept[label][feature][said] != mine[said] for said in ("level", "note"))
        ]
    return "\n".join(rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def renew(document: str, markers: tuple[str, str], text: str) -> str:
    """Return a document with the text between its markers.

    Raises:
        MissingMarkers: The document does not have each marker once.
    """
    start, end = markers
    pattern = re.compile(f"{re.escape(start)}\n.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(document)) != 1:
        raise MissingMarkers(f"the document needs the line {start!r} and after it {end!r}, once")
    return pattern.sub(lambda _: f"{start}\n{text}\n{end}", document)


def result_block(folder: Path, figure: str) -> str:
    """Return a published run as a figure with its summary below, for a document beside the folder `reports`.

    Args:
        folder: The published run.
        figure: Which of its figures to show.
    """
    place = f"reports/published/{folder.name}"
    rows = [re.split(r" {2,}", line, maxsplit=1) for line in summarise(read_run(folder))]
    table = ["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows)]
    picture = [
        "<picture>",
        f'  <source media="(prefers-color-scheme: dark)" srcset="{place}/figures/{figure}-dark.svg">',
        f'  <img src="{place}/figures/{figure}.svg" alt="Step latency against the sessions held at the same time, with the limit and the ceiling">',
        "</picture>",
    ]
    more = f"The whole report: [Markdown]({place}/report.md), [page]({place}/index.html), [records]({place}/records.jsonl)."
    return "\n".join([*picture, "", *table, "", more])


def ports_block(matrix: PortMatrix, titles: Mapping[str, str]) -> str:
    """Return the ports of the hand-written environments as a table, and what all ports show.

    Args:
        matrix: The published matrix.
        titles: Framework -> its name.
    """
    wordle = next(group for group in groups_of(matrix) if group.anchor == "wordle")
    columns = " | ".join(f"to {titles[target]}" for target in matrix.targets)
    rows = [f"| Wordle of | {columns} |", f"| --- |{' --- |' * len(matrix.targets)}"]
    rows += [
        f"| {titles[row.source.framework]} | {' | '.join(cell.brief for cell in row.cells)} |"
        for row in wordle.rows
    ]
    page = f"reports/published/{PORTS_FOLDER}/{MATRIX_PAGE}"
    legend = (
        "A cell holds the episodes in which source and target differ, of how many that were played on both; then of how many of "
        "the eleven pieces all is kept, something is approximated, something is lost."
    )
    whole = f"All that was ported: {summary_of(matrix)} [Each with its ledger]({page})."
    return "\n".join([*rows, "", f"{legend} {whole}"])


def episode_block(transcript: Transcript) -> str:
    """Return an episode as `rosetta rollout` shows it, below what the agent is told."""
    prompt = "\n\n".join(message.text for message in transcript.prompt)
    quoted = "\n".join(f"> {line}".rstrip() for line in prompt.splitlines())
    return "\n".join([quoted, "", "```text", *map(step_text, transcript.steps), "```"])


def generated_documents(root: Path) -> dict[Path, str]:
    """Return every document with generated parts, as it should be.

    Args:
        root: The checkout.
    """
    documents = {}
    for facts in sorted(root.glob("adapters/*/adapter.toml")):
        readme = facts.parent / "README.md"
        table = words_table(AdapterFacts.read(facts))
        text = renew(readme.read_text(encoding="utf-8"), _WORDS, table)
        proven = facts.parent / "features.json"
        if proven.is_file():
            kept = json.loads(proven.read_text(encoding="utf-8"))
            text = renew(text, _FEATURES, features_table(AdapterFacts.read(facts), kept))
        documents[readme] = text
    published = root / "reports" / "published" / README_RUN
    readme = root / "README.md"
    block = result_block(published, "ceiling")
    text = renew(readme.read_text(encoding="utf-8"), _RESULT, block)
    matrix = read_matrix(published.parent / PORTS_FOLDER / MATRIX_FILE)
    documents[readme] = renew(text, _PORTS, ports_block(matrix, _titles(root)))
    page = root / "docs" / "coding-agent.md"
    shown = Transcript.from_line((root / EXAMPLE).read_text(encoding="ascii"))
    documents[page] = renew(page.read_text(encoding="utf-8"), _EPISODE, episode_block(shown))
    return documents


def _titles(root: Path) -> dict[str, str]:
    facts = {path.parent.name: AdapterFacts.read(path) for path in root.glob("adapters/*/adapter.toml")}
    return {name: one.title for name, one in facts.items()}


def main() -> int:
    """Renew the documents, or say which are stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="renew them")
    options = parser.parse_args()
    root = Path(__file__).resolve().parents[1]
    stale = [
        (path, text)
        for path, text in generated_documents(root).items()
        if path.read_text(encoding="utf-8") != text
    ]
    for path, text in stale:
        if options.write:
            path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(root)} {'renewed' if options.write else 'is stale'}\n")
    return 0 if options.write or not stale else 1


if __name__ == "__main__":
    sys.exit(main())
