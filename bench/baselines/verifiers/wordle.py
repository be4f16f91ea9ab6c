"""Wordle written by hand for Verifiers, in the style of its documentation: a task set whose tools run in a tool server.

It plays by the rules, lists and rewards of `canonical.environments.wordle` and reads like what a user of Verifiers writes,
so it shares nothing with it but the word lists. The id of the task set is `bench.baselines.verifiers.wordle`.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Iterator
from importlib.resources import files

import verifiers.v1 as vf
from pydantic import Field

__all__ = ["WordleTaskset"]

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


def check(word: str) -> str:
    """Return a guess as it is played; raise if it cannot be."""
    word = word.strip().lower()
    if len(word) != 5:
        raise ValueError(f"A guess has 5 letters, this one has {len(word)}; it costs no guess.")
    if word not in ALLOWED:
        raise ValueError("This word is not in the word list; it costs no guess.")
    return word


def show(guesses: list[tuple[str, str]]) -> str:
    """Return the last guess, its marks, and the keyboard."""
    word, marks = guesses[-1]
    best: dict[str, str] = {}
    for guess, row in guesses:
        for letter, letter_mark in zip(guess, row, strict=True):
            best[letter] = max(best.get(letter, "-"), letter_mark, key="-YG".index)
    rows = {"In place": "G", "In the word": "Y", "Not in the word": "-", "Untried": None}
    keyboard = [
        f"{title}: {' '.join(x for x in string.ascii_lowercase if best.get(x) == wanted).upper() or 'none'}"
        for title, wanted in rows.items()
    ]
    left = f"Guesses left: {MAX_GUESSES - len(guesses)}"
    return "\n".join([" ".join(word.upper()), " ".join(marks), *keyboard, left])


def is_solved(guesses: list[tuple[str, str]]) -> bool:
    """Say whether the last guess was the word."""
    return bool(guesses) and guesses[-1][1] == "GGGGG"


def reward(guesses: list[tuple[str, str]]) -> float:
    """Return 1 for the word, and less for letters."""
    if is_solved(guesses):
        return 1.0
    best = max((2 * marks.count("G") + marks.count("Y") for _, marks in guesses), default=0)
    return 0.5 * best / 10


class WordleData(vf.TaskData):
    """One word to find."""

    secret: str


class WordleState(vf.State):
    """What has happened in one game."""

    guesses: list[tuple[str, str]] = Field(default_factory=list)
    turn: int = 0

    @property
    def is_over(self) -> bool:
        """Whether the game is over."""
        return is_solved(self.guesses) or len(self.guesses) >= MAX_GUESSES or self.turn >= MAX_TURNS


class WordleToolset(vf.Toolset[vf.ToolsetConfig, WordleState]):
    """The tools of one game."""

    TOOL_PREFIX = None
    secret = ""

    async def setup_task(self, task: WordleData) -> None:
        """Remember the word of the task."""
        self.secret = task.secret

    @vf.tool
    async def guess(self, word: str) -> str:
        """Guess the hidden word and read the marks of its letters.

        Args:
            word: An English word of five letters.
        """
        if self.state.is_over:
            raise ValueError("the episode is over")
        self.state.turn += 1
        word = check(word)
        self.state.guesses = [*self.state.guesses, (word, score(self.secret, word))]
        return show(self.state.guesses)


class WordleTaskConfig(vf.TaskConfig):
    """Settings of a game."""

    tools: vf.ToolsetConfig = vf.ToolsetConfig()


class WordleTask(vf.Task[WordleData, WordleState, WordleTaskConfig]):
    """Find a hidden five-letter word in six guesses."""

    @classmethod
    def toolsets(cls, config: WordleTaskConfig) -> list[vf.Toolset]:
        """Return the tools, which run in a process of their own for each game."""
        return [WordleToolset(config.tools)]

    @vf.stop
    async def game_over(self, trace: vf.Trace) -> bool:
        """End the rollout with the game."""
        return bool(trace.state.is_over)

    @vf.reward(weight=1.0)
    async def solved(self, trace: vf.Trace) -> float:
        """Pay 1 for the word, and less for letters."""
        return reward(trace.state.guesses)


class WordleConfig(vf.TasksetConfig):
    """Which words to play."""

    split: str = "train"
    task: WordleTaskConfig = WordleTaskConfig()


class WordleTaskset(vf.Taskset[WordleTask, WordleConfig]):
    """All words of a split."""

    def load(self) -> Iterator[WordleTask]:
        """Yield one task per word."""
        for index, word in enumerate(SPLITS[self.config.split]):
            name = f"{self.config.split}/{index:04d}"
            yield WordleTask(WordleData(name=name, prompt=PROMPT, secret=word), self.config.task)


if __name__ == "__main__":
    WordleToolset.run()
