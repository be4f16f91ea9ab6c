"""What only Wordle has: repeated letters, partial credit, free wrong words, and words that are none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from canonical.dialect import write_calls
from canonical.environment import Environment
from canonical.golden import Case
from canonical.tool import ToolCall

_REPEATED = {
    "pesky": ("eases", "geese", "keeps", "pesky"),
    "essay": ("sease", "asses", "essay"),
    "adore": ("award", "added", "dread", "adore"),
    "sassy": ("asses", "essay", "sassy"),
    "eerie": ("geese", "melee", "eerie"),
    "mummy": ("femme", "mommy", "mummy"),
    "llama": ("allay", "label", "molal", "llama"),
    "array": ("rarer", "error", "array"),
}
_CREDIT = {
    "nothing": ["fuzzy"] * 6,
    "greens": ["fuzzy", "crate", "fuzzy", "fuzzy", "fuzzy", "fuzzy"],
    "yellows": ["fuzzy"] * 5 + ["nears"],
    "sixth": ["slate", "fuzzy", "nears", "crate", "craze", "crane"],
    "best": ["crate", "fuzzy", "fuzzy", "fuzzy", "fuzzy", "nears"],
}
_WRONG = {
    "length": ("", " ", "a", "four", "longer", "crane!"),
    "list": ("zzzzz", "abcde", "12345", "cr ne", "crane!"[1:]),
    "case": ("SLATE", " Slate ", "\tsLaTe\n", "slate", "SLATE."),
    "width": ("\uff53late", "\u017flate", "sl\u00e2te", "slate\u200b", "\u0455late"),
}


def guess(word: str) -> ToolCall:
    """Return the call that guesses a word."""
    return ToolCall("guess", {"word": word})


def cases(environment: Environment[Any]) -> Iterator[Case]:
    """Yield Wordle's own cases."""
    tasks = {str(task.secret["answer"]): task.id for task in environment.tasks()}
    for answer, words in _REPEATED.items():
        yield Case(f"repeated-{answer}", tasks[answer], 0, [guess(word) for word in words])
    crane = tasks["crane"]
    for name, guesses in _CREDIT.items():
        yield Case(f"credit-{name}", crane, 3, [guess(word) for word in guesses])
    for name, wrong in _WRONG.items():
        yield Case(f"word-{name}", crane, 5, [guess(word) for word in wrong])
    wasted = [guess(word) for word in ("zzzzz", "cran", "")] * 2
    yield Case("word-free", crane, 4, [*wasted, *[guess("slate")] * 6])
    yield Case("word-last", crane, 4, [*(wasted * 2)[:11], guess("crane")])
    solved = write_calls([guess("slate"), guess("crane"), guess("crate")])
    yield Case("together-solved", crane, 8, [solved, solved])
    yield Case("together-failed", crane, 8, [write_calls([guess("slate")] * 8), guess("crane")])
    yield Case("together-budget", crane, 8, [write_calls([guess("zzzzz")] * 15), guess("crane")])
