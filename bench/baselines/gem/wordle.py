r"""Wordle written by hand for GEM, in the style of its own games: an `Env` that reads `\boxed{word}` out of the action.

It plays by the rules, lists and rewards of `canonical.environments.wordle` and reads like what a user of GEM writes, so
it shares nothing with it but the word lists. `gem.make("hand:Wordle-v0")` makes one after this module is imported.
"""

from __future__ import annotations

import hashlib
import random
import string
from importlib.resources import files
from typing import Any, ClassVar

import gem
from gem.utils.parsing import extract_last_boxed_answer

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
    "Find the hidden five-letter English word. You have six guesses; write each as \\boxed{word}.\n"
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


class WordleEnv(gem.Env):
    """Find a hidden five-letter word in six guesses."""

    playing: ClassVar[set[int]] = set()

    def __init__(
        self, max_guesses: int = 6, max_turns: int = 12, split: str = "train", seed: int = 0, **_: Any
    ) -> None:
        super().__init__()
        self.max_guesses = max_guesses
        self.max_turns = max_turns
        self.split = split
        self.seed = seed
        self.rng = random.Random(seed)  # noqa: S311 - a game
        self.secret: str | None = None
        self.guesses: list[tuple[str, str]] = []
        self.turn = 0
        self.is_done = False

    # GEM annotates with free type variables, which nothing but a type variable overrides.
    def reset(  # type: ignore[override]
        self, seed: int | None = None, split: str | None = None, idx: int | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start a new game; `idx` chooses the word of the split, otherwise the generator does."""
        if seed is not None:
            self.rng = random.Random(seed)  # noqa: S311 - a game
        words = SPLITS[split or self.split]
        self.secret = self.rng.choice(words) if idx is None else words[idx]
        self.guesses = []
        self.turn = 0
        self.is_done = False
        self.playing.add(id(self))
        return PROMPT, {"suffix": ""}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:  # type: ignore[override]
        """Play the last boxed word."""
        if self.secret is None:
            raise ValueError("call reset first")
        if self.is_done:
            return "The episode is over.", 0.0, True, False, {}
        self.turn += 1
        observation, info = self._guess(extract_last_boxed_answer(action))
        is_solved = bool(self.guesses) and self.guesses[-1][1] == "GGGGG"
        terminated = is_solved or len(self.guesses) >= self.max_guesses
        truncated = not terminated and self.turn >= self.max_turns
        self.is_done = terminated or truncated
        reward = 0.0
        if is_solved:
            reward = 1.0
        elif self.is_done:
            best = max((2 * marks.count("G") + marks.count("Y") for _, marks in self.guesses), default=0)
            reward = 0.5 * best / 10
        return observation, reward, terminated, truncated, info

    def _guess(self, boxed: str | None) -> tuple[str, dict[str, Any]]:
        if self.secret is None or boxed is None:
            return f"Write your guess as \\boxed{{word}}.\n{self._keyboard()}", {"error": "format"}
        word = boxed.strip().lower()
        if len(word) != 5:
            message = f"A guess has 5 letters, this one has {len(word)}; it costs no guess."
            return f"{message}\n{self._keyboard()}", {"error": "length"}
        if word not in ALLOWED:
            message = "This word is not in the word list; it costs no guess."
            return f"{message}\n{self._keyboard()}", {"error": "word"}
        marks = score(self.secret, word)
        self.guesses.append((word, marks))
        return f"{' '.join(word.upper())}\n{' '.join(marks)}\n{self._keyboard()}", {}

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
        return "\n".join([*lines, f"Guesses left: {self.max_guesses - len(self.guesses)}"])

    def close(self) -> None:
        """Forget the game."""
        self.secret = None
        self.playing.discard(id(self))

    def get_state(self) -> dict[str, Any]:
        """Return the game as plain data."""
        return {
            "secret": self.secret,
            "guesses": list(self.guesses),
            "turn": self.turn,
            "is_done": self.is_done,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on with a game."""
        self.secret, self.turn, self.is_done = state["secret"], state["turn"], state["is_done"]
        self.guesses = list(state["guesses"])
        self.playing.add(id(self))

    def spawn(self, same_state: bool = False, **kwargs: Any) -> WordleEnv:
        """Return another game like this one."""
        mine = {
            "max_guesses": self.max_guesses,
            "max_turns": self.max_turns,
            "split": self.split,
            "seed": self.seed,
        }
        child = WordleEnv(**{**mine, **kwargs})
        if same_state:
            child.set_state(self.get_state())
        return child


gem.register("hand:Wordle-v0", "bench.baselines.gem.wordle:WordleEnv")
