"""Facts about frameworks, as one file of JSON lines: a header, one fact a line, a footer that counts them.

A fact is one cell of a table: what holds for a release of a framework in a row, and what shows it. There is no fact
without evidence; a cell of which nothing is known has no line. `read_facts` is strict: what it returns is complete and
consistent, or it says where the file is not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from canonical.urls import Url

SCHEMA = 1
"""Shape of the lines. A reader refuses every other."""

FACTS_FILE = "facts.jsonl"

Kind = Literal["declared", "introspected", "probed", "measured", "sourced"]
"""How a fact came about: read from what an adapter says and checked, read from installed code or from a hand-written
environment, seen by a probe, measured, or taken from a dated source."""


class FactsError(ValueError):
    """Report a file of facts that cannot be used: the file, the line, the reason."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Symbol(_Part):
    """A name that resolves in the installed release."""

    type: Literal["symbol"] = "symbol"
    name: str
    """Module and qualified name, with a colon between them."""
    distribution: str
    """What has installed it, with its exact version."""
    what: str
    """Class, function, method, property, field, module or value."""
    signature: str = ""
    file: str = ""
    """Relative to where the distribution is installed; empty for what has no source."""
    line: int | None = None


class Probe(_Part):
    """Something that was tried."""

    type: Literal["probe"] = "probe"
    name: str
    sent: str
    seen: str
    file: str
    """Where the probe stands in this repository."""
    line: int
    function: str | None = None
    """The function or method that ran, which survives when lines move."""


class Record(_Part):
    """A record of a published run."""

    type: Literal["record"] = "record"
    run: str
    """Folder of the run under `reports/published`."""
    record: str
    """What it is a record of."""
    line: int | None = Field(default=None, ge=1)
    """Its line in the records of the run, which are never written again."""


class Code(_Part):
    """A place in this repository, at the commit of the header."""

    type: Literal["code"] = "code"
    file: str
    first: int = Field(ge=1)
    last: int = Field(ge=1)
    name: str = ""
    """The definition that stands there, which survives when lines move."""
    text: str = ""
    """The line that counts."""


class Source(_Part):
    """Something published elsewhere, for what cannot be measured."""

    type: Literal["source"] = "source"
    title: str
    date: date
    url: Url | None = None
    """Where it can be read; None where no public address is known."""
    quoted: str | None = None
    """Words of it that stand in the metadata of a release, where they were looked up."""


Evidence = Annotated[Symbol | Probe | Record | Code | Source, Field(discriminator="type")]


class Fact(_Part):
    """One cell of a table.

    Attributes:
        framework: Folder name of the adapter.
        release: Label of the release.
        table: Name of the table.
        row: Name of the row.
        value: What holds, as a person reads it.
        kind: How it came about.
        evidence: What shows it.
        data: The same for a program, where `value` is a sentence made of it.
    """

    line: Literal["fact"] = "fact"
    framework: str
    release: str
    table: str
    row: str
    value: str = Field(min_length=1)
    kind: Kind
    evidence: tuple[Evidence, ...] = Field(min_length=1)
    data: JsonValue = None

    @property
    def cell(self) -> tuple[str, str, str]:
        """Table, row and framework, which no two facts of a file share."""
        return self.table, self.row, self.framework


class Subject(_Part):
    """A framework that facts are about."""

    framework: str
    title: str
    release: str
    python: str
    """Python of its stack."""
    repository: Url | None = None
    """Where its source is public, which is where its symbols can be read; None where that is not known."""


class Header(_Part):
    """The first line: of what, when and by which commit the facts are."""

    line: Literal["header"] = "header"
    schema_version: int = Field(default=SCHEMA, alias="schema")
    gathered: AwareDatetime
    commit: str | None = None
    dirty: bool | None = None
    machine: str
    """Processor, cores and system, in one line."""
    subjects: tuple[Subject, ...] = Field(min_length=1)


class Footer(_Part):
    """The last line, without which a file is not whole."""

    line: Literal["footer"] = "footer"
    facts: int = Field(ge=0)


_LINES: TypeAdapter[Header | Fact | Footer] = TypeAdapter(
    Annotated[Header | Fact | Footer, Field(discriminator="line")]
)


@dataclass(frozen=True, slots=True)
class Facts:
    """Hold everything that one gathering found."""

    header: Header
    facts: tuple[Fact, ...]

    def of(self, table: str) -> list[Fact]:
        """Return the facts of a table, in the order of the file."""
        return [fact for fact in self.facts if fact.table == table]

    def of_framework(self, framework: str) -> list[Fact]:
        """Return the facts about a framework, in the order of the file."""
        return [fact for fact in self.facts if fact.framework == framework]

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """The frameworks, in the order of the columns."""
        return self.header.subjects

    def to_text(self) -> str:
        """Return the file."""
        lines = [self.header, *self.facts, Footer(facts=len(self.facts))]
        return "".join(
            json.dumps(_without_nothing(line), ensure_ascii=True, separators=(", ", ": ")) + "\n"
            for line in lines
        )


def _without_nothing(line: BaseModel) -> JsonValue:
    value: JsonValue = line.model_dump(mode="json", by_alias=True, exclude_none=True)
    return value


def write_facts(path: Path, facts: Facts) -> None:
    """Write a file of facts, over one that is there.

    Raises:
        FactsError: The facts contradict each other.
        OSError: The file cannot be written.
    """
    _check(facts, "the facts")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(facts.to_text(), encoding="ascii", newline="\n")


def read_facts(path: Path) -> Facts:
    """Read a file of facts.

    Raises:
        FactsError: It is missing, of another schema, not whole, or contradicts itself; the text names the line.
    """
    try:
        rows = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FactsError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    lines = list(_parsed(path, rows))
    if not lines or not isinstance(lines[0], Header):
        raise FactsError(f"{path}, line 1: the file does not begin with a header")
    if not isinstance(lines[-1], Footer):
        raise FactsError(f"{path}, line {len(lines)}: the footer is missing, so the gathering did not end")
    facts = []
    for number, line in enumerate(lines[1:-1], start=2):
        if not isinstance(line, Fact):
            raise FactsError(f"{path}, line {number}: a second {line.line}")
        facts.append(line)
    if lines[-1].facts != len(facts):
        raise FactsError(f"{path}: the footer counts {lines[-1].facts} facts, and there are {len(facts)}")
    found = Facts(lines[0], tuple(facts))
    _check(found, str(path))
    return found


def _parsed(path: Path, rows: Sequence[str]) -> Iterator[Header | Fact | Footer]:
    for number, row in enumerate(rows, start=1):
        try:
            value = json.loads(row)
            if isinstance(value, dict) and value.get("line") == "header" and value.get("schema") != SCHEMA:
                raise FactsError(
                    f"{path}, line {number}: schema {value.get('schema')}, and this program reads {SCHEMA}"
                )
            yield _LINES.validate_python(value, strict=False)
        except json.JSONDecodeError as error:
            raise FactsError(f"{path}, line {number}: no JSON: {error}") from error
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            place = ".".join(map(str, detail["loc"][1:]))
            raise FactsError(f"{path}, line {number}: {place}: {detail['msg']}") from error


def _check(facts: Facts, where: str) -> None:
    known = {subject.framework: subject.release for subject in facts.subjects}
    if len(known) != len(facts.subjects):
        raise FactsError(f"{where}: a framework stands twice in the header")
    seen: set[tuple[str, str, str]] = set()
    for fact in facts.facts:
        cell = " / ".join(fact.cell)
        if known.get(fact.framework) != fact.release:
            raise FactsError(f"{where}: {cell} is of {fact.release}, which the header does not name")
        if fact.cell in seen:
            raise FactsError(f"{where}: {cell} stands there twice")
        seen.add(fact.cell)


@dataclass(frozen=True, slots=True)
class Change:
    """Hold a cell that differs between two files; what a file does not have is None.

    Attributes:
        table: Name of the table.
        row: Name of the row.
        framework: Folder name of the adapter.
        before: What the first file says.
        after: What the second file says.
    """

    table: str
    row: str
    framework: str
    before: Fact | None
    after: Fact | None

    @property
    def where(self) -> Literal["value", "evidence"]:
        """Whether the value differs, or only what shows it."""
        same = self.before is not None and self.after is not None and self.before.value == self.after.value
        return "evidence" if same else "value"


def compare(before: Facts, after: Facts) -> list[Change]:
    """Return the cells that differ, in the order of the second file, and then those that only the first one has.

    Lines and columns of source are no difference: what moved is still there. Kinds and measured values are.
    """
    first = {fact.cell: fact for fact in before.facts}
    second = {fact.cell: fact for fact in after.facts}
    return [
        Change(*cell, first.get(cell), second.get(cell))
        for cell in [*second, *(cell for cell in first if cell not in second)]
        if _essence(first.get(cell)) != _essence(second.get(cell))
    ]


def _essence(fact: Fact | None) -> object:
    return None if fact is None else (fact.value, fact.kind, sorted(map(_name, fact.evidence)))


def _name(evidence: Evidence) -> str:
    match evidence:
        case Symbol():
            return f"symbol {evidence.name} {evidence.what} {evidence.signature}"
        case Probe():
            return f"probe {evidence.name} {evidence.sent} {evidence.seen}"
        case Record():
            return f"record {evidence.run} {evidence.record}"
        case Code():
            return f"code {evidence.file} {evidence.name} {evidence.text}"
        case Source():
            return f"source {evidence.title} {evidence.date} {evidence.url} {evidence.quoted}"


def merge(header: Header, parts: Iterable[Iterable[Fact]]) -> Facts:
    """Return the facts of several gatherers as one.

    Raises:
        FactsError: Two of them fill the same cell.
    """
    facts = Facts(header, tuple(fact for part in parts for fact in part))
    _check(facts, "what was gathered")
    return facts
