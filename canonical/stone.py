"""What an `adapter.toml` says of a framework beside the others, each with a place where it can be checked.

Symbols are written `module:name`, as they stand in the installed default release. Places are written `module:name:text`:
a module of the adapter's folder, a definition in it, and perhaps a text in that definition, whose line is meant.
"""

from __future__ import annotations

import re
from datetime import date
from enum import StrEnum
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class PieceName(StrEnum):
    """Name the eleven pieces that every environment has, in whatever framework."""

    TASKS = "tasks"
    INITIAL_STATE = "initial state"
    PROMPT_TEMPLATE = "prompt template"
    TOOLS = "tools"
    OBSERVATION_FORMAT = "observation format"
    WHERE_ACTIONS_EXECUTE = "where actions execute"
    STATE_BETWEEN_TURNS = "state between turns"
    REWARD = "reward"
    EPISODE_END = "episode end"
    EPISODE_CONTROL = "episode control"
    TRANSPORT = "transport"


class Concern(StrEnum):
    """Name what trainers notice first when an environment is ported; each belongs to one of the pieces."""

    REWARD_AGGREGATION = "reward aggregation"
    END_AND_CAUSE = "end signal and cause"
    INITIAL_OBSERVATION = "initial observation"
    TOOL_SCHEMA = "tool schema"
    TRUNCATION = "truncation"
    SEED = "seed"
    CONCURRENCY = "concurrency"
    METADATA = "metadata"
    IMAGES = "images"
    ERRORS = "errors"
    SECRETS = "secrets in public data"


class _Said(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Word(_Said):
    """Say where the framework has a canonical word, and where the adapter maps it.

    Attributes:
        symbols: What it is in the framework; none where the framework has no such word.
        at: The place in the adapter.
    """

    symbols: tuple[str, ...] = ()
    at: str


class Piece(_Said):
    """Say how an author gets one of the eleven pieces.

    Attributes:
        level: `native` where the framework has an interface for it, `convention` where it is agreed and not enforced, `own`
            where an author brings everything.
        how: What it is, in one sentence.
        symbols: What the framework has for it.
        shown_by: What shows it: `feature:<name>`, a probe of conformance; `scenario:<name>`, one of its scenarios; or
            `test:<file>::<function>`, with the file relative to the checkout.
    """

    level: Literal["native", "convention", "own"]
    how: str
    symbols: tuple[str, ...] = ()
    shown_by: str = Field(pattern=r"^(feature|scenario|test):.+$")

    @model_validator(mode="after")
    def _native_has_symbols(self) -> Self:
        if (self.level == "native") != bool(self.symbols) and self.level != "convention":
            raise ValueError(
                "a native piece names the symbols of its interface, and one that authors bring has none"
            )
        return self


class Handwritten(_Said):
    """Say what is what in the Wordle that is written by hand for the framework, in its documented style.

    Attributes:
        environment: The class that an author writes.
        tool: The definition that makes a tool, or reads actions where there are none.
        reward: The function that gives the reward.
        entry: How the statement begins that makes the environment known to the framework, or serves it.
    """

    environment: str
    tool: str
    reward: str
    entry: str


class LoopOwner(StrEnum):
    """Name who may own the loop that asks the model, carries out what it wrote, and stops."""

    TRAINER = "trainer"
    ENVIRONMENT = "environment"
    HARNESS = "harness"


class Loop(_Said):
    """Say how somebody owns the loop.

    Attributes:
        how: What it is, in one sentence; of an owner that the framework has no place for, who owns the loop instead.
        symbols: What the framework has for it; none where it has no place for it.
        shown_by: What shows it, where it is not the trainer's: `rollout:<path>`, whole rollouts that the framework takes
            itself, or `test:<file>::<function>`, with the file relative to the checkout.
    """

    how: str
    symbols: tuple[str, ...] = ()
    shown_by: str = Field(default="", pattern=r"^((rollout|test):.+)?$")


class Trouble(_Said):
    """Say what costs people time in the framework, and what the adapter does about it.

    Attributes:
        what: What happens, in one sentence.
        answer: What the adapter does about it, in one sentence.
        at: The place in the adapter that does it.
        upstream: The public thread about it, as `owner/repository#number: what it is called`; empty where none is known.
        dated: The day of the thread.
        situation: What of bad input it shows the framework itself to do, where no hand-written environment can be brought
            to it.
    """

    what: str
    answer: str
    at: str
    upstream: str = Field(default="", pattern=r"^([\w.-]+/[\w.-]+#\d+: .+)?$")
    dated: date | None = None
    situation: Literal["exception in a tool", "idle session"] | None = None

    @model_validator(mode="after")
    def _a_thread_has_a_day(self) -> Self:
        if bool(self.upstream) != (self.dated is not None):
            raise ValueError("a thread needs its day, and a day its thread")
        return self

    @property
    def url(self) -> str | None:
        """Where the thread can be read; the host leads from issues to pull requests by itself."""
        found = re.match(r"([^#]+)#(\d+):", self.upstream)
        return f"https://github.com/{found[1]}/issues/{found[2]}" if found else None


class Stone(_Said):
    """Hold what an `adapter.toml` says under `[stone]`; all of it may be left out.

    Attributes:
        words: Canonical word -> where it is.
        pieces: Piece -> how an author gets it.
        handwritten: What is what in the hand-written environment.
        loops: Who may own the loop, and how.
        troubles: What costs people time; the names are those of the probes in `troubles.py` of the adapter's folder.
    """

    words: dict[str, Word] = {}
    pieces: dict[PieceName, Piece] = {}
    handwritten: Handwritten | None = None
    loops: dict[LoopOwner, Loop] = {}
    troubles: dict[str, Trouble] = {}

    @property
    def symbols(self) -> tuple[str, ...]:
        """Every symbol that is named, each once."""
        said = (self.words, self.pieces, self.loops)
        named = [one.symbols for group in said for one in group.values()]
        return tuple(dict.fromkeys(symbol for symbols in named for symbol in symbols))
