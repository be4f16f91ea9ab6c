"""What others have published about a framework, each statement with its source and with what would show that it holds.

The statements stand in `claims.toml` beside the `adapter.toml`. Nothing in that file says whether they hold: that is found
out, from the installed releases, from published measurements, or from other figures of the same source.
"""

from __future__ import annotations

import tomllib
from datetime import date
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from canonical.malformed import first_problem
from canonical.urls import Urls, require_used

CLAIMS_FILE = "claims.toml"


class ClaimsError(ValueError):
    """Report a `claims.toml` that is malformed: the file, the key, the reason."""


class _Said(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Package(_Said):
    """The framework is installed by the distribution of a name."""

    kind: Literal["package"]
    name: str


class Python(_Said):
    """The metadata asks for these Pythons, or lets all of the named versions have it."""

    kind: Literal["python"]
    specifier: str = ""
    runs_on: tuple[str, ...] = ()


class Metadata(_Said):
    """A field of the metadata has a value, such as `license_expression`."""

    kind: Literal["metadata"]
    field: str
    value: str


class Requires(_Said):
    """The release asks for a distribution with a specifier; with `there = false`, it does not ask for it at all."""

    kind: Literal["requires"]
    distribution: str
    specifier: str = ""
    there: bool = True


class Symbols(_Said):
    """All of the names are there; with `there = false`, none of them is."""

    kind: Literal["symbols"]
    symbols: tuple[str, ...] = Field(min_length=1)
    there: bool = True


class Expression(_Said):
    """Statements, the last of them an expression, give a value in the stack of a release.

    Attributes:
        run: The statements.
        asks: What the value is, in a few words.
        gives: What it must be; left out, anything but an exception. `{"raises": "ValueError"}` stands for an exception.
        at_least: The smallest number that it may be, instead.
    """

    kind: Literal["expression"]
    run: str
    asks: str
    gives: JsonValue = None
    at_least: float | None = None


class Cell(_Said):
    """A cell of the tables reads as a regular expression says."""

    kind: Literal["cell"]
    table: str
    row: str
    reads: str


class Figure(_Said):
    """A figure that was measured here lies between two bounds, in a published run under the conditions of the source.

    Attributes:
        figure: Name of the figure.
        conditions: Name of a condition -> what it was there, as in `landscape.toml`; a condition that does not stand here
            was not said. A run under other conditions shows nothing, neither for the statement nor against it.
        at_least: The smallest number that it may be.
        at_most: The largest.
    """

    kind: Literal["record"]
    figure: str
    conditions: dict[str, str]
    at_least: float | None = None
    at_most: float | None = None


class Arithmetic(_Said):
    """What is stated follows from other figures of the same source.

    Attributes:
        rule: `largest`: the stated figure is the largest of them. `product`: it is their product, within a tenth.
            `increasing`: they increase in the order in which they stand, and nothing is stated.
        figures: Their names and values.
        stated: What is stated.
    """

    kind: Literal["arithmetic"]
    rule: Literal["largest", "product", "increasing"]
    figures: dict[str, float] = Field(min_length=2)
    stated: float | None = None


Check: TypeAlias = Annotated[
    Package | Python | Metadata | Requires | Symbols | Expression | Cell | Figure | Arithmetic,
    Field(discriminator="kind"),
]


class Claim(_Said):
    """A published statement.

    Attributes:
        says: The statement, in one sentence.
        source: Where it was published.
        dated: When, or as of when.
        url: The address of the source, from `[urls]` of the file; empty where none is known.
        quoted: Words of the source that must stand in the metadata or read-me of an installed release, where that is the
            source.
        of: Label of that release; the default one when left out.
        check: What shows that it holds.
    """

    says: str
    source: str
    dated: date
    url: str = ""
    quoted: str = ""
    of: str = ""
    check: Check


class _File(_Said):
    urls: Urls = {}
    claims: tuple[Claim, ...]

    @model_validator(mode="after")
    def _addresses_are_used(self) -> Self:
        require_used(self.urls, (claim.source for claim in self.claims))
        return self


def read_claims(folder: Path) -> tuple[Claim, ...]:
    """Return the published statements beside an `adapter.toml`, or none where there is no such file.

    Raises:
        ClaimsError: The file is malformed, or says the same twice.
    """
    path = folder / CLAIMS_FILE
    if not path.is_file():
        return ()
    try:
        file = _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise ClaimsError(f"{path}: {error}") from error
    except ValidationError as error:
        raise ClaimsError(f"{path}: {first_problem(error)}") from error
    claims = tuple(
        claim.model_copy(update={"url": claim.url or file.urls.get(claim.source, "")})
        for claim in file.claims
    )
    said = [claim.says for claim in claims]
    if twice := sorted({one for one in said if said.count(one) > 1}):
        raise ClaimsError(f"{path}: stands there twice: {twice[0]}")
    return claims
