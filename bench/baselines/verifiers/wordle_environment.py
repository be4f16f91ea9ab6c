"""Wordle written by hand for the earlier API of Verifiers, in the style of its documentation: `StatefulToolEnv` and `Rubric`.

It plays by the rules, lists and rewards of `canonical.environments.wordle` and reads like what a user of Verifiers writes,
so it shares nothing with it but the word lists. The id of the environment is `bench.baselines.verifiers.wordle_environment`.
"""

from __future__ import annotations

import hashlib
import string
from importlib import import_module
from importlib.resources import files
from typing import Any

# The API of releases before 0.4, which the type checker of a newer one does not know.
vf: Any = import_module("verifiers")

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


def is_over(game: dict[str, Any]) -> bool:
    """Say whether the game is over."""
    return is_solved(game["guesses"]) or len(game["guesses"]) >= MAX_GUESSES or game["turn"] >= MAX_TURNS


class WordleEnv(vf.StatefulToolEnv):  # type: ignore[misc]
    """Find a hidden five-letter word in six guesses."""

    def __init__(self, **options: Any) -> None:
        super().__init__(tools=[], max_turns=-1, **options)
        self.add_tool(self.guess, args_to_skip=["game"])

    async def guess(self, word: str, game: dict[str, Any]) -> str:  # noqa: D417 - the model never sees the game
        """Guess the hidden word and read the marks of its letters.

        Args:
            word: An English word of five letters.
        """
        if is_over(game):
            raise ValueError("the episode is over")
        game["turn"] += 1
        word = check(word)
        game["guesses"].append((word, score(game["secret"], word)))
        return show(game["guesses"])

    async def setup_state(self, state: Any) -> Any:
        """Begin a game."""
        state["game"] = {"secret": state["answer"], "guesses": [], "turn": 0}
        return state

    def update_tool_args(
        self,
        tool_name: str,
        tool_args: dict[str, Any],
        messages: Any,  # noqa: ARG002
        state: Any,
        **_: Any,
    ) -> dict[str, Any]:
        """Give the tool its game."""
        return {**tool_args, "game": state["game"]} if tool_name == "guess" else tool_args

    async def env_response(self, messages: Any, state: Any, **options: Any) -> Any:
        """Answer the calls; at the end of the game, without asking the model again."""
        answers = await super().env_response(messages, state, **options)
        if is_over(state["game"]):
            state["final_env_response"] = answers
        return answers

    @vf.stop  # type: ignore[misc, unused-ignore]
    async def game_over(self, state: Any) -> bool:
        """End the rollout with the game."""
        return is_over(state["game"])


def solved(state: Any) -> float:
    """Pay 1 for the word, and less for letters."""
    return reward(state["game"]["guesses"])


def load_environment(split: str = "train", eval_split: str = "test", **options: Any) -> WordleEnv:
    """Return the environment."""
    # Named by a text, because a type checker of the newer API has no `datasets` to look at.
    dataset: Any = import_module("datasets").Dataset

    def rows(name: str) -> list[dict[str, Any]]:
        return [
            {"question": PROMPT, "answer": word, "info": f'{{"task_id": "{name}/{index:04d}"}}'}
            for index, word in enumerate(SPLITS[name])
        ]

    return WordleEnv(
        dataset=lambda: dataset.from_list(rows(split)),
        eval_dataset=lambda: dataset.from_list(rows(eval_split)),
        rubric=vf.Rubric(funcs=[solved]),
        **options,
    )
