"""Wordle written by hand for SkyRL Gym, in the style of its environments: `BaseTextEnv` with a `ToolGroup`.

It plays by the rules, lists and rewards of `canonical.environments.wordle` and reads like what a user of SkyRL writes, so
it shares nothing with it but the word lists.
"""

from __future__ import annotations

import hashlib
import json
import re
import string
from importlib.resources import files
from typing import Any

import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput, ConversationType
from skyrl_gym.tools.core import ToolGroup, tool

ENV_CLASS = "handwritten_wordle"
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
SCHEMA = {
    "name": "guess",
    "description": "Guess the hidden word and read the marks of its letters.",
    "parameters": {
        "type": "object",
        "properties": {"word": {"type": "string", "description": "An English word of five letters."}},
        "required": ["word"],
        "additionalProperties": False,
    },
}
SYSTEM = (
    f"You may call this tool:\n<tools>\n{json.dumps(SCHEMA)}\n</tools>\nTo call it, write:\n"
    '<tool_call>{"name": "guess", "arguments": {"word": "..."}}</tool_call>'
)
CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


def rows(split: str) -> list[dict[str, Any]]:
    """Return the data set of a split in the columns that SkyRL's trainer reads."""
    return [
        {
            "data_source": "wordle",
            "prompt": [{"role": "user", "content": PROMPT}],
            "env_class": ENV_CLASS,
            "reward_spec": {"method": "rule", "ground_truth": word},
            "extra_info": {"split": split, "index": index},
        }
        for index, word in enumerate(SPLITS[split])
    ]


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


class WordleToolGroup(ToolGroup):
    """The tools of Wordle."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.guesses: list[tuple[str, str]] = []
        super().__init__(name="WordleToolGroup")

    @tool
    def guess(self, word: str) -> str:
        """Guess the hidden word and read the marks of its letters."""
        word = word.strip().lower()
        if len(word) != 5:
            raise ValueError(f"A guess has 5 letters, this one has {len(word)}; it costs no guess.")
        if word not in ALLOWED:
            raise ValueError("This word is not in the word list; it costs no guess.")
        marks = score(self.secret, word)
        self.guesses.append((word, marks))
        return f"{' '.join(word.upper())}\n{' '.join(marks)}\n{self.keyboard()}"

    def keyboard(self) -> str:
        """Return what is known of each letter, and the guesses left."""
        best: dict[str, str] = {}
        for word, marks in self.guesses:
            for letter, letter_mark in zip(word, marks, strict=True):
                best[letter] = max(best.get(letter, "-"), letter_mark, key="-YG".index)
        titles = {"In place": "G", "In the word": "Y", "Not in the word": "-", "Untried": None}
        lines = [
            f"{title}: {' '.join(x for x in string.ascii_lowercase if best.get(x) == letter_mark).upper() or 'none'}"
            for title, letter_mark in titles.items()
        ]
        return "\n".join([*lines, f"Guesses left: {MAX_GUESSES - len(self.guesses)}"])


class WordleEnv(BaseTextEnv):
    """Find a hidden five-letter word in six guesses."""

    def __init__(self, env_config: Any, extras: dict[str, Any]) -> None:  # noqa: ARG002 - SkyRL passes it
        super().__init__()
        assert "reward_spec" in extras, "reward_spec field is required"  # noqa: S101 - the style of SkyRL
        self.max_turns = min(MAX_TURNS, extras.get("max_turns", MAX_TURNS))
        self.tools = WordleToolGroup(extras["reward_spec"]["ground_truth"])
        self.init_tool_groups([self.tools])
        self.done = False

    def init(self, prompt: ConversationType) -> tuple[ConversationType, dict[str, Any]]:
        """Say which tool there is, before the rules."""
        return [{"role": "system", "content": SYSTEM}, *prompt], {}

    def _parse_action(self, action: str) -> tuple[str, str, list[Any]]:
        match = CALL.search(action)
        if match is None:
            raise ValueError("No <tool_call>...</tool_call> block found in action string.")
        call = json.loads(match[1])
        name, word = call["name"], call["arguments"]["word"]
        if name not in self.tool_to_toolgroup:
            raise ValueError(f"Tool '{name}' not found in any registered tool group.")
        return self.tool_to_toolgroup[name], name, [word]

    def _is_solved(self) -> bool:
        return bool(self.tools.guesses) and self.tools.guesses[-1][1] == "GGGGG"

    def _is_over(self) -> bool:
        return self._is_solved() or len(self.tools.guesses) >= MAX_GUESSES or self.turns >= self.max_turns

    def _get_reward(self) -> float:
        if self._is_solved():
            return 1.0
        best = max((2 * marks.count("G") + marks.count("Y") for _, marks in self.tools.guesses), default=0)
        return 0.5 * best / 10

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Read the call, run the tool, and pay at the end."""
        if self.done:
            return self._output("The episode is over.", 0.0)
        self.turns += 1
        try:
            group, name, arguments = self._parse_action(action)
            observation = self._execute_tool(group, name, arguments)
        except Exception as error:  # noqa: BLE001 - the model reads what was wrong
            observation = str(error)
        self.done = self._is_over()
        return self._output(observation, self._get_reward() if self.done else 0.0)

    def _output(self, observation: str, reward: float) -> BaseTextEnvStepOutput:
        return BaseTextEnvStepOutput(
            observations=[{"role": "user", "content": observation}],
            reward=reward,
            done=self.done,
            metadata={},
            postprocessed_action=None,
        )

    def get_metrics(self) -> dict[str, Any]:
        """Return numbers for the trainer's log."""
        return {"turns": self.turns, "solved": self._is_solved()}


if ENV_CLASS not in skyrl_gym.registry:
    skyrl_gym.register(id=ENV_CLASS, entry_point=WordleEnv)
