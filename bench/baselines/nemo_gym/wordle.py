"""Wordle written by hand for NeMo Gym, in the style of its documentation: typed routes, and state by session id.

It plays by the rules, lists and rewards of `canonical.environments.wordle` and reads like what a user of NeMo Gym writes,
so it shares nothing with it but the word lists. As the `app.py` of a server's folder it is started by `gym env start`.
"""

from __future__ import annotations

import hashlib
import string
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY
from pydantic import BaseModel, Field

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
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "name": "guess",
        "description": "Guess the hidden word and read the marks of its letters.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "description": "An English word of five letters."}},
            "required": ["word"],
            "additionalProperties": False,
        },
        "strict": True,
    }
]
"""What the rows of the data set say: prompt and tools stand there and not in the server."""


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


class WordleConfig(BaseResourcesServerConfig):
    """Configure the server."""

    max_guesses: int = MAX_GUESSES


class WordleSeedRequest(BaseSeedSessionRequest):
    """Take the row; `task` is a split and an index in one, such as train/0007."""

    task: str


class GuessRequest(BaseModel):
    """Take the arguments of the tool."""

    word: str


class GuessResponse(BaseModel):
    """Say what the guess led to."""

    observation: str
    done: bool


class WordleVerifyResponse(BaseVerifyResponse):
    """Say what the game was worth."""

    num_guesses: int


class Game(BaseModel):
    """Hold one game."""

    secret: str
    guesses: list[tuple[str, str]] = Field(default_factory=list)
    turn: int = 0

    @property
    def is_solved(self) -> bool:
        """Whether the last guess was the word."""
        return bool(self.guesses) and self.guesses[-1][1] == "GGGGG"

    @property
    def is_over(self) -> bool:
        """Whether no guess is left."""
        return self.is_solved or len(self.guesses) >= MAX_GUESSES or self.turn >= MAX_TURNS

    @property
    def reward(self) -> float:
        """What the game is worth."""
        if self.is_solved:
            return 1.0
        best = max((2 * marks.count("G") + marks.count("Y") for _, marks in self.guesses), default=0)
        return 0.5 * best / 10

    @property
    def keyboard(self) -> str:
        """What is known of the letters."""
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


class WordleServer(SimpleResourcesServer):
    """Find a hidden five-letter word in six guesses."""

    config: WordleConfig
    games: dict[str, Game] = Field(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        """Add the tool to NeMo Gym's routes."""
        app = super().setup_webserver()
        app.post("/guess")(self.guess)
        return app

    async def seed_session(  # type: ignore[override]
        self, request: Request, body: WordleSeedRequest
    ) -> BaseSeedSessionResponse:
        """Start a new game."""
        split, _slash, number = body.task.partition("/")
        self.games[request.session[SESSION_ID_KEY]] = Game(secret=SPLITS[split][int(number)])
        return BaseSeedSessionResponse()

    async def guess(self, request: Request, body: GuessRequest) -> GuessResponse:
        """Guess the hidden word and read the marks of its letters."""
        game = self.games.get(request.session[SESSION_ID_KEY])
        if game is None:
            raise HTTPException(409, "no game: post a row to /seed_session first, and keep the cookie")
        if game.is_over:
            return GuessResponse(observation=f"The episode is over.\n{game.keyboard}", done=True)
        game.turn += 1
        word = body.word.strip().lower()
        if len(word) != 5:
            wrong = f"A guess has 5 letters, this one has {len(word)}; it costs no guess."
            return GuessResponse(observation=f"{wrong}\n{game.keyboard}", done=game.is_over)
        if word not in ALLOWED:
            wrong = "This word is not in the word list; it costs no guess."
            return GuessResponse(observation=f"{wrong}\n{game.keyboard}", done=game.is_over)
        marks = score(game.secret, word)
        game.guesses.append((word, marks))
        text = f"{' '.join(word.upper())}\n{' '.join(marks)}\n{game.keyboard}"
        return GuessResponse(observation=text, done=game.is_over)

    async def verify(self, request: Request, body: BaseVerifyRequest) -> WordleVerifyResponse:  # type: ignore[override]
        """Return the reward of the game and forget it."""
        game = self.games.pop(request.session[SESSION_ID_KEY], None)
        if game is None:
            raise HTTPException(409, "no game to verify")
        return WordleVerifyResponse(**body.model_dump(), reward=game.reward, num_guesses=len(game.guesses))


if __name__ == "__main__":
    WordleServer.run_webserver()
