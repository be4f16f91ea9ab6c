"""A run as a file of tagged lines: a header first, a footer last; each is written at once, and all are read strictly."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from bench.records import BadRecord, EmptyRun, MissingHeader, RunExists, WriteFailed


class _Footer(Protocol):
    @property
    def interrupted(self) -> bool: ...


HeaderT = TypeVar("HeaderT", bound=BaseModel)


class LineWriter:
    """Write a run record by record; use it as a context manager, which writes the footer.

    Args:
        file: Made with its folder; it must not be there yet.
        header: Written at once.
        footer: Makes the last record from `finished`, a time, and `interrupted`.

    Raises:
        RunExists: The folder already holds a run.
        WriteFailed: The file system refuses.
    """

    def __init__(self, file: Path, header: BaseModel, footer: Callable[..., BaseModel]) -> None:
        self.folder = file.parent
        self._footer = footer
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Unbuffered: a line reaches the system as soon as it is written, and a crash cannot hold one back.
            self._file: FileIO = file.open("xb", buffering=0)
        except FileExistsError as taken:
            raise RunExists(f"{self.folder} already holds a run; choose another folder with --out") from taken
        except OSError as refusal:
            raise WriteFailed(self.folder, refusal) from refusal
        self.write(header)

    def write(self, record: BaseModel) -> None:
        """Append one record.

        Raises:
            WriteFailed: The file system refuses; the file ends with the record before.
        """
        line = record.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n"
        at = self._file.tell()
        try:
            written = 0
            while written < len(line):
                written += self._file.write(line[written:])
        except OSError as refusal:
            self._file.truncate(at)
            raise WriteFailed(self.folder, refusal) from refusal

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.write(self._footer(finished=datetime.now(UTC), interrupted=kind is not None))
        except WriteFailed:
            # The exception under way says more.
            if kind is None:
                raise
        finally:
            self._file.close()


def read_lines(
    file: Path, known: TypeAdapter[Any], header: type[HeaderT], footer: type[BaseModel], *, schema: int
) -> tuple[HeaderT, tuple[Any, ...], bool]:
    """Read a run strictly. A missing footer or an unfinished last line is no error.

    Args:
        file: Where it is.
        known: Every record that there may be.
        header: The type of the first.
        footer: The type of the last, which has `interrupted`.
        schema: The shape of records that is read.

    Returns:
        The header, every record between it and the footer, and whether the run is partial.

    Raises:
        EmptyRun: There is no run.
        MissingHeader: It does not begin with a header.
        BadRecord: A line is no valid record of this schema.
    """
    try:
        *lines, _ = file.read_bytes().split(b"\n")
    except FileNotFoundError as missing:
        raise EmptyRun(f"there is no run in {file.parent}: {file.name} is missing") from missing
    if not lines:
        raise EmptyRun(f"{file} holds no complete record")
    records = [_parse(file, number, line, known, schema) for number, line in enumerate(lines, start=1)]
    first, *rest = records
    if not isinstance(first, header):
        raise MissingHeader(f"{file} begins with a {first.kind}, not with a header")
    for number, record in enumerate(rest, start=2):
        if isinstance(record, header):
            raise BadRecord(file, number, "a second header")
        if isinstance(record, footer) and number < len(records):
            raise BadRecord(file, number + 1, "something stands after the footer")
    last: _Footer | None = rest.pop() if rest and isinstance(rest[-1], footer) else None
    return first, tuple(rest), last is None or last.interrupted


def _parse(file: Path, number: int, line: bytes, known: TypeAdapter[Any], schema: int) -> Any:
    try:
        raw = json.loads(line)
        if isinstance(raw, dict) and raw.get("schema", schema) != schema:
            raise BadRecord(file, number, f"written with schema {raw['schema']}; this version reads {schema}")
        return known.validate_json(line, strict=True)
    except (ValidationError, ValueError) as damage:
        raise BadRecord(file, number, str(damage).splitlines()[0]) from damage
