"""Wordle written by hand for OpenEnv, in the style of its documentation: `MCPEnvironment` with a FastMCP tool.

It plays by the rules, lists and rewards of `canonical.environments.wordle` and reads like what a user of OpenEnv writes,
so it shares nothing with it but the word lists. `uvicorn bench.baselines.openenv.wordle:app` serves it.
"""

from __future__ import annotations

import hashlib
import string
from importlib.resources import files
from typing import Any, ClassVar
from uuid import uuid4

from fastmcp import FastMCP
from openenv.core.env_server import MCPEnvironment, create_app
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field

MAX_GUESSES = 6
MAX_TURNS = 12
MAX_CONCURRENT_ENVS = 65_536

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


class WordleReset(Observation):
    """The first observation of an episode."""

    prompt: str = Field(description="The rules of the game")


class WordleEnvironment(MCPEnvironment):
    """Find a hidden five-letter word in six guesses."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    playing: ClassVar[set[WordleEnvironment]] = set()

    def __init__(self) -> None:
        mcp = FastMCP("wordle")
        self._secret: str | None = None
        self._guesses: list[tuple[str, str]] = []
        self._turn = 0
        self._done = False
        self._state = State()

        @mcp.tool
        def guess(word: str) -> str:
            """Guess the hidden word and read the marks of its letters.

            Args:
                word: An English word of five letters.
            """
            return self._guess(word)

        super().__init__(mcp)

    def _guess(self, word: str) -> str:
        if self._secret is None:
            raise ValueError("call reset first")
        if self._is_over():
            raise ValueError("the episode is over")
        word = word.strip().lower()
        if len(word) != 5:
            raise ValueError(f"A guess has 5 letters, this one has {len(word)}; it costs no guess.")
        if word not in ALLOWED:
            raise ValueError("This word is not in the word list; it costs no guess.")
        marks = score(self._secret, word)
        self._guesses.append((word, marks))
        return f"{' '.join(word.upper())}\n{' '.join(marks)}\n{self._keyboard()}"

    def _keyboard(self) -> str:
        best: dict[str, str] = {}
        for word, marks in self._guesses:
            for letter, letter_mark in zip(word, marks, strict=True):
                best[letter] = max(best.get(letter, "-"), letter_mark, key="-YG".index)
        rows = {"In place": "G", "In the word": "Y", "Not in the word": "-", "Untried": None}
        lines = [
            f"{title}: {' '.join(x for x in string.ascii_lowercase if best.get(x) == letter_mark).upper() or 'none'}"
            for title, letter_mark in rows.items()
        ]
        return "\n".join([*lines, f"Guesses left: {MAX_GUESSES - len(self._guesses)}"])

    def _is_solved(self) -> bool:
        return bool(self._guesses) and self._guesses[-1][1] == "GGGGG"

    def _is_over(self) -> bool:
        return self._is_solved() or len(self._guesses) >= MAX_GUESSES or self._turn >= MAX_TURNS

    def _reward(self) -> float:
        if self._is_solved():
            return 1.0
        best = max((2 * marks.count("G") + marks.count("Y") for _, marks in self._guesses), default=0)
        return 0.5 * best / 10

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | None = None,
        split: str = "train",
        index: int | None = None,
        **_: Any,
    ) -> WordleReset:
        """Start a new game; `task` is a split and an index in one, such as train/0007."""
        if task is not None:
            split, _slash, number = task.partition("/")
            index = int(number)
        words = SPLITS[split]
        self._secret = words[(seed or 0) % len(words) if index is None else index]
        self._guesses = []
        self._turn = 0
        self._done = False
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        self.playing.add(self)
        return WordleReset(prompt=PROMPT)

    def _stamp(self, action: Action, observation: Observation) -> Observation:
        # MCPEnvironment runs tools but knows no rewards: they are written onto its observations here.
        if isinstance(action, CallToolAction) and self._secret is not None:
            self._state.step_count += 1
            was_done = self._done
            self._turn += 1
            self._done = was_done or self._is_over()
            observation.done = self._done
            observation.reward = self._reward() if self._done and not was_done else 0.0
        return observation

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        """Carry out an action; HTTP comes this way."""
        return self._stamp(action, super().step(action, timeout_s=timeout_s, **kwargs))

    async def step_async(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        """Carry out an action; WebSockets come this way."""
        return self._stamp(action, await super().step_async(action, timeout_s=timeout_s, **kwargs))

    def _step_impl(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:  # noqa: ARG002
        return Observation(metadata={"error": f"unknown action {type(action).__name__}"})

    @property
    def state(self) -> State:
        """Episode id and number of steps."""
        return self._state

    def close(self) -> None:
        """Forget the game."""
        self.playing.discard(self)
        super().close()


app = create_app(
    WordleEnvironment,
    CallToolAction,
    CallToolObservation,
    env_name="wordle",
    max_concurrent_envs=MAX_CONCURRENT_ENVS,
)
