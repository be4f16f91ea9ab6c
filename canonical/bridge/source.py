"""What a source shows: the facts of an environment that another framework owns, and the sessions that play it."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from canonical.adapter import Loss, Session
from canonical.content import JSON
from canonical.reward import Aggregation
from canonical.stone import Concern, PieceName
from canonical.task import Task
from canonical.tool import ToolSpec

TEXT_TOOL = "respond"
"""The tool that assistant text stands for in environments whose actions are, or may be, text."""


TEXT_SPEC = ToolSpec(
    TEXT_TOOL,
    "Answer the environment with text, as an assistant's message would.",
    {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "The whole message."}},
        "required": ["text"],
        "additionalProperties": False,
    },
)
"""What an agent that must call tools is told of it."""


def text_spec_beside(tools: Iterable[ToolSpec]) -> ToolSpec:
    """Return what is told of the tool for text in a source that has tools of its own, one of which may have its name."""
    taken = {tool.name for tool in tools}
    names = itertools.chain([TEXT_TOOL], (f"{TEXT_TOOL}_{number}" for number in itertools.count(2)))
    return dataclasses.replace(TEXT_SPEC, name=next(name for name in names if name not in taken))


COMPILED = "compiled:"
"""What a reference begins with that names an environment of ours, lifted out of what it was compiled to; the name follows."""


class LiftError(RuntimeError):
    """Report a source that cannot be lifted: what it is, what is wrong with it, what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """Hold what is known of a source before an episode begins.

    Attributes:
        name: A lower-case identifier, the name of the environment that it becomes.
        version: The version of the source, or of the package that it comes from.
        source: The source as the user named it, such as `gem:game:Sudoku-v0-easy`.
        packages: The installed packages that run it, with exact versions.
        tasks: The tasks, in order. Their inputs are public; what is secret stays in the source.
        seeds_are_tasks: Whether the source has no tasks of its own, so that each task stands for one seed.
        tools: The tools that the source offers.
        text_tool: The tool that stands for assistant text, where the source takes text.
        aggregation: `sum` where the source pays by step, `terminal` where it scores once, at the end.
        max_turns: How many actions an episode may take here; the source may end it before.
        losses: What lifting changed, as far as the source alone decides it.
    """

    name: str
    version: str
    source: str
    packages: Mapping[str, str]
    tasks: tuple[Task, ...]
    seeds_are_tasks: bool = False
    tools: tuple[ToolSpec, ...]
    text_tool: str | None = None
    aggregation: Aggregation = Aggregation.SUM
    max_turns: int
    losses: tuple[Loss, ...] = ()

    def to_json(self) -> dict[str, JSON]:
        """Return the facts as JSON, without anything secret."""
        return {
            "name": self.name,
            "version": self.version,
            "source": self.source,
            "packages": dict(self.packages),
            "tasks": [{"id": task.id, "inputs": dict(task.inputs)} for task in self.tasks],
            "seeds_are_tasks": self.seeds_are_tasks,
            "tools": [tool.to_json() for tool in self.tools],
            "text_tool": self.text_tool,
            "aggregation": self.aggregation.value,
            "max_turns": self.max_turns,
            "losses": [loss.to_json() for loss in self.losses],
        }


def facts_from_json(value: Mapping[str, Any]) -> SourceFacts:
    """Read what `SourceFacts.to_json` wrote.

    Raises:
        ValueError, KeyError, TypeError: The value is no such facts.
    """
    return SourceFacts(
        name=value["name"],
        version=value["version"],
        source=value["source"],
        packages=value["packages"],
        tasks=tuple(Task(id=row["id"], inputs=row["inputs"]) for row in value["tasks"]),
        seeds_are_tasks=value["seeds_are_tasks"],
        tools=tuple(ToolSpec(**tool) for tool in value["tools"]),
        text_tool=value["text_tool"],
        aggregation=Aggregation(value["aggregation"]),
        max_turns=value["max_turns"],
        losses=tuple(Loss.from_json(loss) for loss in value["losses"]),
    )


@dataclass(frozen=True, slots=True)
class LiftOptions:
    """Hold what a user may say about a source.

    Attributes:
        tasks: How many seeds become tasks, where the source has no tasks of its own.
        max_turns: How many actions an episode may take, where the source does not say it.
        data: Where the rows are, for frameworks whose tasks are rows that the trainer owns: a JSON Lines file, or
            `module:name` of a list of rows or of a function that returns one, perhaps for the name of a split. None uses
            what comes with the source.
        imports: Modules, or paths of Python files, to import first, because they register the source.
        arguments: Keyword arguments for the source's own constructor or loader.
    """

    tasks: int = 256
    max_turns: int = 64
    data: str | None = None
    imports: tuple[str, ...] = ()
    arguments: Mapping[str, JSON] = field(default_factory=dict)


def no_limit(options: LiftOptions) -> Loss:
    """Return what is lost where a source says of no turn that it is the last, because an environment has to."""
    return Loss(
        PieceName.EPISODE_END,
        "approximated",
        f"the source states no limit of turns: a port cuts episodes off after {options.max_turns} actions (--max-turns)",
        Concern.TRUNCATION,
    )


def seed_tasks(count: int) -> tuple[Task, ...]:
    """Return tasks that stand for the seeds from 0, for sources without tasks of their own."""
    return tuple(Task(id=f"train/{seed}", inputs={"seed": seed}) for seed in range(count))


def seed_of(task: str) -> int:
    """Return the seed that a task of `seed_tasks` stands for."""
    return int(task.partition("/")[2])


def task_ids(split: str, rows: Sequence[Any]) -> list[str]:
    """Return ids for the tasks of a split: by the `id` of their rows where each has one of its own, else by their places."""
    split = split.replace("/", "_") or "train"
    named = [
        str(row["id"]) for row in rows if isinstance(row, Mapping) and isinstance(row.get("id"), str | int)
    ]
    if len(set(named)) != len(rows) or "" in named:
        named = [str(place) for place in range(len(rows))]
    return [name if name.startswith(f"{split}/") else f"{split}/{name}" for name in named]


def identifier(text: str) -> str:
    """Return a lower-case identifier that resembles a text."""
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return name if name[:1].isalpha() else f"source_{name}"


@runtime_checkable
class SuggestingSession(Session, Protocol):
    """Be a session of a source that knows random actions of its own, for proofs that need some."""

    async def suggest(self) -> str | None:
        """Return a random action as text, or None; asking for it does not change what happens next."""


class Source(Protocol):
    """Be an environment of a framework that is ready to be played."""

    @property
    def facts(self) -> SourceFacts:
        """What is known of it before an episode begins."""

    def connect(self) -> AbstractAsyncContextManager[Session]:
        """Open a session in the framework's own way; leaving the context frees it.

        The session's `open` takes the id of a task of the facts, and a seed, which sources without seeds of their own leave
        unused. Its results hold what the source showed and paid, and nothing that it did not.

        Raises:
            canonical.adapter.SessionError: The source refused or failed.
        """


class Lifter(Protocol):
    """Turn an environment of a framework into a source; each `adapters/<name>/lifter.py` holds one called `LIFTER`."""

    def lift(self, reference: str, options: LiftOptions, /) -> AbstractAsyncContextManager[Source]:
        """Make a source of what the user named; leaving the context frees it.

        Args:
            reference: What follows the framework's name in `framework:reference`: an id, a module, a folder, an address.
            options: What the user said about it.

        Raises:
            LiftError: There is no such environment, or it cannot be lifted; the text says what to do.
        """
