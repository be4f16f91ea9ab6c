"""Wordle by its official rules: six guesses, a word list, and two-pass marks for repeated letters."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from string import ascii_lowercase

from canonical.environment import Environment
from canonical.reward import Criterion, RewardSpec, WeightedSum
from canonical.step import Cause
from canonical.task import Task, TaskSet
from canonical.tool import ToolCall, ToolError, tool

GUESSES = 6
LENGTH = 5
_WORDS = Path(__file__).parent / "words"
_ROWS = (("G", "In place"), ("Y", "In the word"), ("-", "Not in the word"), ("?", "Untried"))
_RANK = {"?": 0, "-": 1, "Y": 2, "G": 3}
_SHARES = (("train", 0.8), ("validation", 0.1), ("test", 0.1))


@cache
def read_words(name: str) -> tuple[str, ...]:
    """Return a word list of this environment, `answers` or `allowed`, in its order."""
    return tuple((_WORDS / f"{name}.txt").read_text(encoding="ascii").split())


@cache
def _allowed() -> frozenset[str]:
    return frozenset(read_words("allowed"))


@cache
def _tasks() -> TaskSet:
    # Ordered by hash, so that neither the id of a task nor its place in the list says where its word stands.
    words = sorted(read_words("answers"), key=lambda word: hashlib.sha256(word.encode()).digest())
    tasks: list[Task] = []
    start = 0
    for split, share in _SHARES:
        count = round(share * len(words)) if split != _SHARES[-1][0] else len(words) - start
        tasks.extend(
            Task(id=f"{split}/{index:04d}", secret={"answer": word})
            for index, word in enumerate(words[start : start + count])
        )
        start += count
    return TaskSet(tasks)


def mark(guess: str, answer: str) -> str:
    """Return the marks of a guess: `G` right place, `Y` elsewhere in the word, `-` not (or no longer) in it.

    Exact places are marked first; then each remaining letter of the answer serves at most one `Y`, from the left.
    """
    marks = ["-"] * LENGTH
    unmatched: list[str] = []
    for place, (mine, theirs) in enumerate(zip(guess, answer, strict=True)):
        if mine == theirs:
            marks[place] = "G"
        else:
            unmatched.append(theirs)
    for place, letter in enumerate(guess):
        if marks[place] == "-" and letter in unmatched:
            marks[place] = "Y"
            unmatched.remove(letter)
    return "".join(marks)


@dataclass(slots=True)
class Board:
    """Hold the answer, and the guesses with their marks."""

    answer: str = field(repr=False)
    guesses: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)

    @property
    def is_solved(self) -> bool:
        """Whether the last guess was the answer."""
        return bool(self.guesses) and self.guesses[-1] == self.answer


def _solved(board: Board) -> float:
    return float(board.is_solved)


def _partial(board: Board) -> float:
    if board.is_solved:
        return 0.0
    return max((2 * marks.count("G") + marks.count("Y") for marks in board.marks), default=0) / (2 * LENGTH)


class Wordle(Environment[Board]):
    """Play Wordle: six guesses, and twelve turns so that wrong words cannot go on for ever.

    The return lies in [0, 1]: 1.0 when the word is found, otherwise half of the best guess's share of greens (2 points
    each) and yellows (1 point each) in 10 points. The best unsolved guess has 8 points, so partial credit is at most 0.4.
    """

    name = "wordle"
    version = "1"
    max_turns = 12
    quick = True
    reward = RewardSpec(low=0.0, high=1.0)
    rubric = WeightedSum((1.0, Criterion("solved", _solved)), (0.5, Criterion("partial", _partial)))

    def tasks(self) -> TaskSet:
        """Return one task per answer, in the splits train, validation and test."""
        return _tasks()

    def start(self, task: Task, rng: random.Random) -> Board:  # noqa: ARG002 - nothing is random in Wordle
        """Return an empty board."""
        return Board(str(task.secret["answer"]))

    def prompt(self, task: Task, state: Board) -> str:  # noqa: ARG002 - every task reads the same
        """Return the rules."""
        return (
            "Find the hidden five-letter English word. You have six guesses; call the tool guess for each.\n"
            "Each guess is answered by five marks: G means the letter is in the right place, Y that it is elsewhere in "
            "the word, and - that it is not in the word (or no more often than already marked).\n"
            "Only words of the word list count as guesses. You have twelve turns in all, wrong words included."
        )

    @tool
    def guess(self, state: Board, word: str) -> str:
        """Guess the hidden word and read the marks of its letters.

        Args:
            word: An English word of five letters.
        """
        guess = word.strip().lower()
        if len(guess) != LENGTH:
            raise ToolError(f"A guess has {LENGTH} letters, this one has {len(guess)}; it costs no guess.")
        if guess not in _allowed():
            raise ToolError("This word is not in the word list; it costs no guess.")
        marks = mark(guess, state.answer)
        state.guesses.append(guess)
        state.marks.append(marks)
        return f"{' '.join(guess.upper())}\n{' '.join(marks)}\n{self.status(state)}"

    def outcome(self, state: Board) -> Cause | None:
        """Return solved, failed after six guesses, or None."""
        if state.is_solved:
            return Cause.SOLVED
        return Cause.FAILED if len(state.guesses) >= GUESSES else None

    def status(self, state: Board) -> str:
        """Return the keyboard so far and the guesses left."""
        best = dict.fromkeys(ascii_lowercase, "?")
        for guess, marks in zip(state.guesses, state.marks, strict=True):
            for letter, letter_mark in zip(guess, marks, strict=True):
                if _RANK[letter_mark] > _RANK[best[letter]]:
                    best[letter] = letter_mark
        letters: dict[str, list[str]] = {"G": [], "Y": [], "-": [], "?": []}
        for letter, letter_mark in best.items():
            letters[letter_mark].append(letter)
        rows = [f"{title}: {' '.join(letters[key]).upper() or 'none'}" for key, title in _ROWS]
        return "\n".join([*rows, f"Guesses left: {GUESSES - len(state.guesses)}"])

    def oracle(self, task: Task) -> Iterable[ToolCall]:
        """Return the one guess that solves the task."""
        return (ToolCall("guess", {"word": task.secret["answer"]}),)

    def random_call(self, task: Task, rng: random.Random) -> ToolCall:  # noqa: ARG002 - any word will do
        """Return a guess of a random allowed word."""
        return ToolCall("guess", {"word": rng.choice(read_words("allowed"))})
