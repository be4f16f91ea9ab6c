"""Generated parts of documents: pure functions from facts to text, and the markers between which the text stands.

`python -m reports.generated` says which documents are stale; `--write` renews them.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from canonical.adapter import AdapterFacts

_WORDS = ("<!-- generated: words of adapter.toml -->", "<!-- end of generated -->")


class MissingMarkers(Exception):  # noqa: N818 - named for what it is
    """A document has no place for what is generated into it."""


def words_table(facts: AdapterFacts) -> str:
    """Return the table of canonical words and what a framework calls them."""
    rows = [f"| Here | {facts.title} |", "| --- | --- |"]
    return "\n".join([*rows, *(f"| {ours} | {theirs} |" for ours, theirs in facts.words.items())])


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


def generated_documents(root: Path) -> dict[Path, str]:
    """Return every document with generated parts, as it should be.

    Args:
        root: The checkout.
    """
    documents = {}
    for facts in sorted(root.glob("adapters/*/adapter.toml")):
        readme = facts.parent / "README.md"
        table = words_table(AdapterFacts.read(facts))
        documents[readme] = renew(readme.read_text(encoding="utf-8"), _WORDS, table)
    return documents


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
