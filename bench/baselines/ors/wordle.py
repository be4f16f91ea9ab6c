"""Wordle written by hand for ORS, in the style of its documentation: an `Environment` with one coroutine tool.

It plays by the rules, lists and rewards of `canonical.environments.wordle` and reads like what a user of ORS writes, so it
shares nothing with it but the word lists. `python -P -m bench.baselines.ors.wordle` serves it on port 8080.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, ClassVar

from pydantic import BaseModel, Field

try:
    from openreward.environments import Environment, Server, Split, TextBlock, ToolOutput, tool
except ModuleNotFoundError:
    from ors import Environment, Server, Split, TextBlock, ToolOutput, tool  # type: ignore[import-not-found, no-redef]

MAX_GUESSES = 6
MAX_TURNS = 12

WORDS = files("canonical.environments.wordle") / "words"
ALLOWED = frozenset((WORDS / "allowed.txt").read_text(encoding="ascii").split())
ANSWERS = sorted(
    (WORDS / "answers.txt").read_text(encoding="ascii").split(),
    key=lambda w: hashlib.sha256(w.encode()).digest(),
)
TRAIN, VALIDATION = round(0.8 * len(ANSWERS)), round(0.1 * len(ANSWERS))
SPLITS = {
    "train": ANSWERS[:TRAIN],
    "validation": ANSWERS[TRAIN : TRAIN + VALIDATION],
    "test": ANSWERS[TRAIN + VALIDATION :],
}

PROMPT = (
    "Find the hidden five-letter English word. You have six guesses; call the tool guess for each.\n"
    "Each guess is answered by five marks: G means the letter is in the right place, Y that it is elsewhere in "
    "the word, and - that it is not in the word (or no more often than already marked).\n"
    "Only words of the word list count as guesses. You have twelve turns in all, wrong words included."
)


def score(secret: str, word: str) -> str:
    """Return G, Y and - for the letters of a guess."""
    marks = ["-"] * 5
    left = list(secret)
    for i in range(5):
        if word[i] == secret[i]:
            marks[i] = "G"
            left.remove(word[i])
    for i in range(5):
        if marks[i] == "-" and word[i] in left:
            marks[i] = "Y"
            left.remove(word[i])
    return "".join(marks)


class GuessInput(BaseModel, extra="forbid"):
    """The arguments of a guess."""

    word: str = Field(description="An English word of five letters.")


class Wordle(Environment):
    """Find a hidden five-letter word in six guesses."""

    playing: ClassVar[set[Wordle]] = set()

    def __init__(self, task_spec: Mapping[str, Any] = {}, secrets: dict[str, str] = {}) -> None:  # noqa: B006
        super().__init__(task_spec, secrets)
        split, _slash, number = task_spec["id"].partition("/")
        # Tasks are listed by their ids; the word itself never leaves the server.
        self.secret = SPLITS[split][int(number)]
        self.guesses: list[tuple[str, str]] = []
        self.turn = 0
        self.done = False

    @classmethod
    def list_splits(cls) -> list[Split | str]:
        """Name the splits."""
        return [Split(name=name, type=name) for name in SPLITS]  # type: ignore[arg-type]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        """List the tasks of a split."""
        return [{"id": f"{split}/{index:04d}"} for index in range(len(SPLITS[split]))]

    def setup(self) -> None:
        """Begin."""
        self.playing.add(self)

    def teardown(self) -> None:
        """Forget the game."""
        self.playing.discard(self)

    def get_prompt(self) -> list[TextBlock]:
        """Explain the rules."""
        return [TextBlock(text=PROMPT)]

    @tool
    async def guess(self, params: GuessInput) -> ToolOutput:
        """Guess the hidden word and read the marks of its letters."""
        if self.done:
            return ToolOutput(blocks=[TextBlock(text="The episode is over.")], finished=True)
        self.turn += 1
        text = self._guess(params.word.strip().lower())
        self.done = self._is_solved() or len(self.guesses) >= MAX_GUESSES or self.turn >= MAX_TURNS
        return ToolOutput(
            blocks=[TextBlock(text=text)],
            metadata={"turn": self.turn},
            reward=self._reward() if self.done else 0.0,
            finished=self.done,
        )

    def _guess(self, word: str) -> str:
        if len(word) != 5:
            return f"A guess has 5 letters, this one has {len(word)}; it costs no guess.\n{self._keyboard()}"
        if word not in ALLOWED:
            return f"This word is not in the word list; it costs no guess.\n{self._keyboard()}"
        marks = score(self.secret, word)
        self.guesses.append((word, marks))
        return f"{' '.join(word.upper())}\n{' '.join(marks)}\n{self._keyboard()}"

    def _keyboard(self) -> str:
        best: dict[str, str] = {}
        for word, marks in self.guesses:
            for letter, letter_mark in zip(word, marks, strict=True):
                best[letter] = max(best.get(letter, "-"), letter_mark, key="-YG".index)
        rows = {"In place": "G", "In the word": "Y", "Not in the word": "-", "Untried": None}
        lines = [
            f"{title}: {' '.join(x for x in string.ascii_lowercase if best.get(x) == letter_mark).upper() or 'none'}"
            for title, letter_mark in rows.items()
        ]
        return "\n".join([*lines, f"Guesses left: {MAX_GUESSES - len(self.guesses)}"])

    def _is_solved(self) -> bool:
        return bool(self.guesses) and self.guesses[-1][1] == "GGGGG"

    def _reward(self) -> float:
        if self._is_solved():
            return 1.0
        best = max((2 * marks.count("G") + marks.count("Y") for _, marks in self.guesses), default=0)
        return 0.5 * best / 10


if __name__ == "__main__":
    Server([Wordle]).run(host="127.0.0.1", port=8080)
