"""Sources that are tried: what stands in the `sources.toml` of the folder of each adapter and library of tasks."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bench.porting.sources import SourceRequest, find_source
from bench.stacks import home_folder
from canonical.bridge.source import LiftOptions
from canonical.malformed import first_problem
from canonical.transcript import Action, action_from_json

SOURCES_FILE = "sources.toml"


class TriedSourcesError(ValueError):
    """Report a `sources.toml` that cannot be used: the file, the key, the reason."""


class TriedSource(BaseModel):
    """Name an environment of a framework that is lifted and ported to every other.

    Attributes:
        reference: What the framework's lifter is given.
        what: What it is, in a few words.
        baseline: Whether it is the Wordle that was written by hand for the framework.
        release: The release that it runs in; the framework's default when left out.
        tasks: How many seeds become tasks.
        max_turns: How many actions an episode may take, where the source does not say it.
        data: As `LiftOptions.data`.
        imports: As `LiftOptions.imports`.
        arguments: As `LiftOptions.arguments`.
        actions: Actions that make sense in it, of which random ones are mostly taken.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    reference: str
    what: str
    baseline: bool = False
    release: str | None = None
    tasks: int = LiftOptions().tasks
    max_turns: int = LiftOptions().max_turns
    data: str | None = None
    imports: tuple[str, ...] = ()
    arguments: dict[str, Any] = Field(default_factory=dict)
    actions: tuple[Any, ...] = ()

    def request(self, framework: str) -> SourceRequest:
        """Return the request to lift it.

        Raises:
            LiftError: Nothing of the framework can be lifted.
            UnknownStackError: The framework has no such release.
        """
        options = LiftOptions(
            tasks=self.tasks,
            max_turns=self.max_turns,
            data=self.data,
            imports=self.imports,
            arguments=self.arguments,
        )
        return find_source(f"{framework}:{self.reference}", release=self.release, options=options)

    def pool(self) -> list[Action]:
        """Return the actions.

        Raises:
            ValueError: One is none.
        """
        return [action_from_json(action) for action in self.actions]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    source: list[TriedSource] = Field(default_factory=list)


def tried_sources(framework: str) -> list[TriedSource]:
    """Return the sources that the folder of an adapter, or a library of tasks, names; none where it names none.

    Raises:
        TriedSourcesError: The file is malformed.
    """
    path: Path = home_folder(framework) / SOURCES_FILE
    if not path.is_file():
        return []
    try:
        found = _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).source
        for one in found:
            one.pool()
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise TriedSourcesError(f"{path}: {error}") from error
    except ValidationError as error:
        raise TriedSourcesError(f"{path}: {first_problem(error)}") from error
    except ValueError as error:
        raise TriedSourcesError(f"{path}: an action: {error}") from error
    return found
