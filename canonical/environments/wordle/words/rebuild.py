"""Rebuild the word lists of Wordle from the files of the Debian package scowl."""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

HERE = Path(__file__).resolve().parent
SCOWL = Path("/usr/share/dict/scowl")
BUILT_FROM = "2020.12.07-2"
"""Version of the Debian package scowl that the committed lists come from."""

# SCOWL names a file <spelling category>-<sub-category>.<size>. Sub-category `words` holds the ordinary lower-case
# words; `abbreviations`, `contractions`, `proper-names` and `upper` hold what Wordle does not play with.
SIZES = (10, 20, 35, 40, 50, 55, 60, 70, 80, 95)
LARGEST_ANSWER_SIZE = 35
# Australian words of size 35 are mostly colloquialisms that were never graded by frequency (arvos, chook, yakka),
# and variants are spellings that each of these categories lists as the less usual one: both are guesses only.
ANSWER_CATEGORIES = ("english", "american", "british", "british_z", "canadian")
GUESS_CATEGORIES = (
    *ANSWER_CATEGORIES,
    "australian",
    *("variant_1", "variant_2", "variant_3"),
    *("british_variant_1", "british_variant_2"),
    *("canadian_variant_1", "canadian_variant_2"),
    *("australian_variant_1", "australian_variant_2"),
)
FIVE_LETTERS = re.compile(r"[a-z]{5}")
TABLE = re.compile(r"(?<=<!-- table: begin -->\n).*(?=<!-- table: end -->)", re.DOTALL)


class SourceError(Exception):
    """Report that the word lists of SCOWL cannot be read, in a sentence for the person at the terminal."""


def playable(text: str) -> set[str]:
    """Return the five-letter lower-case words of a SCOWL file's text, accents taken off (melee, saute)."""
    bare = "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))
    return {word for word in bare.splitlines() if FIVE_LETTERS.fullmatch(word)}


def read_source(path: Path) -> str:
    """Return the text of one SCOWL file.

    Raises:
        SourceError: The file is absent or unreadable.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SourceError(
            f"{path}: cannot be read ({error.strerror}). The lists are made from the Debian package scowl "
            f"{BUILT_FROM}: install it with `apt-get install scowl`, or name the folder of its files with --scowl DIR."
        ) from None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        # Debian converts to UTF-8 since its 2019.10.06-1; upstream and older packages are ISO 8859-1.
        return content.decode("iso8859-1")


def read_words(scowl: Path, categories: Iterable[str], sizes: Iterable[int]) -> set[str]:
    """Return the playable words of the given spelling categories and sizes.

    Raises:
        SourceError: One of the files is absent or unreadable.
    """
    sizes = tuple(sizes)
    return {
        word
        for category in categories
        for size in sizes
        for word in playable(read_source(scowl / f"{category}-words.{size}"))
    }


def read_entries(path: Path) -> list[str]:
    """Return the entries of a list with one entry a line; blank lines and lines that start with # do not count."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def table(lists: Mapping[str, str]) -> str:
    """Return the Markdown table of the README: words and SHA-256 of each list."""
    rows = [
        f"| `{name}` | {text.count(chr(10)):,} | `{hashlib.sha256(text.encode('ascii')).hexdigest()}` |"
        for name, text in sorted(lists.items())
    ]
    return "\n".join(["| File | Words | SHA-256 |", "|---|---:|---|", *rows, ""])


def build(scowl: Path) -> dict[str, str]:
    """Return the content of every generated file by its name: both lists, and the README with its table.

    Raises:
        SourceError: A file of SCOWL is absent or unreadable.
    """
    allowed = read_words(scowl, GUESS_CATEGORIES, SIZES)
    answers = read_words(scowl, ANSWER_CATEGORIES, [size for size in SIZES if size <= LARGEST_ANSWER_SIZE])
    answers -= set(read_entries(HERE / "blocklist.txt"))
    lists = {
        name: "".join(f"{word}\n" for word in sorted(words))
        for name, words in {"allowed.txt": allowed, "answers.txt": answers}.items()
    }
    readme = TABLE.sub(table(lists), (HERE / "README.md").read_text(encoding="utf-8"))
    return {**lists, "README.md": readme}


def some(words: Sequence[str]) -> str:
    """Return how many words there are and the first five of them."""
    return f"{len(words)} ({', '.join(words[:5])}{', ...' if len(words) > 5 else ''})"


def difference(name: str, built: str) -> str | None:
    """Return one line on how the file of that name differs from what was built, or None when it does not."""
    path = HERE / name
    # Bytes, not text: a checkout that turned the line ends into CRLF is a difference as well.
    found = path.read_bytes() if path.exists() else b""
    if found == built.encode("utf-8"):
        return None
    if not name.endswith(".txt"):
        return f"{name}: its table of words and checksums is out of date"
    present = set(found.decode("utf-8", errors="replace").splitlines())
    expected = set(built.splitlines())
    parts = [
        f"{verb} {some(sorted(words))}"
        for verb, words in (("lacks", expected - present), ("should not hold", present - expected))
        if words
    ]
    return f"{name}: {'; '.join(parts) or 'same words, but other order, repeats or line ends'}"


def check(built: Mapping[str, str]) -> int:
    """Print how the files here differ from what was built; return 1 when they do, else 0."""
    differences = [line for name, text in built.items() if (line := difference(name, text))]
    if not differences:
        print(f"{', '.join(built)}: as scowl yields them")
        return 0
    print(*differences, sep="\n", file=sys.stderr)
    print(f"The lists are those of scowl {BUILT_FROM}; other versions hold other words.", file=sys.stderr)
    return 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Rebuild or check the lists.

    Returns:
        0 when the lists are written or agree, 1 when --check finds a difference, 2 when a file cannot be read or
        written.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--scowl",
        type=Path,
        default=SCOWL,
        metavar="DIR",
        help="folder of SCOWL's files (default: %(default)s)",
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file differs")
    options = parser.parse_args(arguments)
    try:
        built = build(options.scowl)
        if options.check:
            return check(built)
        for name, text in built.items():
            (HERE / name).write_bytes(text.encode("utf-8"))
    except SourceError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    print(f"wrote {', '.join(built)} in {HERE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
