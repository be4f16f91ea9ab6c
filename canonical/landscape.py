"""What is said of a framework beside the others, of stages, first steps, published figures and its makers: `landscape.toml`.

It stands beside the `adapter.toml`, and each part names what shows it: symbols of the installed release, expressions for names
that the release must not define, commands that are run, and dated sources for what cannot be found out here.
"""

from __future__ import annotations

import tomllib
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from canonical.malformed import first_problem
from canonical.urls import Url, Urls, require_used

LANDSCAPE_FILE = "landscape.toml"


class LandscapeError(ValueError):
    """Report a `landscape.toml` that is malformed: the file, the key, the reason."""


class StageName(StrEnum):
    """Name the five stages of training a language model by reinforcement."""

    TASKS = "tasks"
    HARNESS = "harness"
    REWARD = "reward"
    COLLECTION = "collection"
    TRAINER = "trainer"


class _Said(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Stage(_Said):
    """Say what the package has for a stage.

    Attributes:
        how: What it has, or where it is left to others, in one sentence.
        symbols: What the package has for it; none where it has nothing.
        lacks: What of the stage it does not have, in a few words; nothing where it has all.
        without: A regular expression for names of classes and functions that would be it, none of which the package defines.
    """

    how: str
    symbols: tuple[str, ...] = ()
    lacks: str = ""
    without: str = ""

    @model_validator(mode="after")
    def _shown(self) -> Self:
        if bool(self.lacks) != bool(self.without):
            raise ValueError(
                "what a stage lacks needs an expression that finds it nowhere, and the other way round"
            )
        if not self.symbols and not self.without:
            raise ValueError("a stage needs symbols, or an expression for what is not there")
        return self

    @property
    def level(self) -> str:
        """Whether the stage is covered, in part, or left to others."""
        if not self.symbols:
            return "left to others"
        return "in part" if self.without else "covered"


class Edit(_Said):
    """Say what an author writes in the place of what a scaffold leaves open.

    Attributes:
        file: The file, relative to the folder where the scaffold was made.
        old: What stands there, once.
        new: What is written instead.
    """

    file: str
    old: str
    new: str


class Beginning(_Said):
    """Say how one begins an environment of one's own.

    Attributes:
        scaffold: The command that makes one, its first word a program that the release installs; none where there is no such
            command, so that the hand-written environment of this project is copied.
        scaffolder: The symbol behind the command.
        edits: What has to be written before the first test can pass.
        path: What is put on the path for the test, relative to the folder.
        first_test: The test: statements that end without an exception.
        tests: What it tests, in a few words.
    """

    scaffold: tuple[str, ...] = ()
    scaffolder: str = ""
    edits: tuple[Edit, ...] = ()
    path: str = "."
    first_test: str
    tests: str

    @model_validator(mode="after")
    def _named(self) -> Self:
        if bool(self.scaffold) != bool(self.scaffolder):
            raise ValueError("a scaffold is a command and the symbol behind it")
        return self


class Published(_Said):
    """A figure about many sessions that others have published, with the conditions that it holds under.

    Attributes:
        says: The figure, in a few words.
        source: Where.
        dated: When.
        conditions: Name of a condition -> what it was: `cores`, `machines`, `sessions`, `step`, `steps`, `passes when`.
    """

    says: str
    source: str
    dated: date
    conditions: dict[str, str]


class Sourced(_Said):
    """Something that cannot be found out here.

    Attributes:
        says: What is said.
        source: Where.
        dated: When, or as of when.
        quoted: Words of the metadata of the default release that say so, where that is the source; several where they stand
            apart.
    """

    says: str
    source: str
    dated: date
    quoted: str | tuple[str, ...] = ""

    @property
    def quotations(self) -> tuple[str, ...]:
        """The quoted words, each by itself."""
        quoted = (self.quoted,) if isinstance(self.quoted, str) else self.quoted
        return tuple(filter(None, quoted))


class Elsewhere(Sourced):
    """Environments that the makers offer outside of the package.

    Attributes:
        count: How many, where the source says it.
    """

    count: int | None = None


class Catalogue(_Said):
    """How many environments come with the package.

    Attributes:
        run: Statements, the last of them an expression whose value is the number.
        of: What is counted.
        one: The same of a single one.
    """

    run: str
    of: str
    one: str = ""


class Ecosystem(_Said):
    """Say who stands behind a framework, and who uses it.

    Attributes:
        repository: Where its source is public; empty where that is not known.
        maker: Who makes it.
        users: Who says that they use it.
        catalogue: What comes with the package.
        elsewhere: What is offered outside of the package.
    """

    repository: Url | Literal[""] = ""
    maker: Sourced
    users: Sourced
    catalogue: Catalogue
    elsewhere: Elsewhere | None = None


class Landscape(_Said):
    """Hold what a `landscape.toml` says; each part may be left out.

    Attributes:
        urls: Title of a source -> where it can be read.
        stages: What the package has for each stage.
        beginning: How one begins an environment of one's own.
        published: Figures of others about many sessions.
        ecosystem: Who stands behind it.
    """

    urls: Urls = {}
    stages: dict[StageName, Stage] = {}
    beginning: Beginning | None = None
    published: tuple[Published, ...] = ()
    ecosystem: Ecosystem | None = None

    @model_validator(mode="after")
    def _addresses_are_used(self) -> Self:
        require_used(self.urls, (one.source for one in self.sources))
        return self

    @property
    def sources(self) -> tuple[Published | Sourced, ...]:
        """Everything that names a source."""
        if self.ecosystem is None:
            return self.published
        elsewhere = (self.ecosystem.elsewhere,) if self.ecosystem.elsewhere else ()
        return (*self.published, self.ecosystem.maker, self.ecosystem.users, *elsewhere)

    def url_of(self, said: Published | Sourced) -> str | None:
        """Return where a source can be read, or None where no address is known."""
        return self.urls.get(said.source)


def read_landscape(folder: Path) -> Landscape:
    """Return what stands beside an `adapter.toml`, or nothing where there is no such file.

    Raises:
        LandscapeError: The file is malformed.
    """
    path = folder / LANDSCAPE_FILE
    if not path.is_file():
        return Landscape()
    try:
        return Landscape.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise LandscapeError(f"{path}: {error}") from error
    except ValidationError as error:
        raise LandscapeError(f"{path}: {first_problem(error)}") from error
