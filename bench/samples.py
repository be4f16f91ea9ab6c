"""The raw samples of a cell while they are being taken: one row per operation, standard library only.

This module is imported inside framework stacks, where neither numpy nor pyarrow can be assumed.
`bench.records` turns the rows into Parquet.
"""

from __future__ import annotations

import json
import struct
import threading
from enum import StrEnum
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

ROW = struct.Struct("<iibbqqqbi")
"""One packed row: session, seq, phase code, warm-up, intended_ns, start_ns, ns, status code, error index or -1."""

ERROR_TEXT_LIMIT = 300
"""Characters of an error text that are kept; the rest is detail that would make every text distinct."""

_MAGIC = b"rosetta samples 1\n"
_LENGTH = struct.Struct("<Q")

_PHASE_AT, _WARMUP_AT, _STATUS_AT, _ERROR_AT = (
    struct.calcsize(head) for head in ("<ii", "<iib", "<iibbqqq", "<iibbqqqb")
)
_ERROR_ONLY = struct.Struct(f"<{_ERROR_AT}xi")


class Phase(StrEnum):
    """The five parts of a session's life, named alike for every framework."""

    CONNECT = "connect"
    """Until the session exists; in process: until the object is constructed."""
    RESET = "reset"
    """Opening an episode, until the prompt is there."""
    STEP = "step"
    """One tool call, until its observation is there."""
    SCORE = "score"
    """Verification or rubric, where a framework has one."""
    CLOSE = "close"


class Status(StrEnum):
    """How an operation ended. Everything but `ok` counts as infinite latency."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    WRONG = "wrong"
    """It was answered, but not with what the reference says."""


PHASES: tuple[Phase, ...] = tuple(Phase)
"""Phase code to phase: the position is the code in a packed row."""
STATUSES: tuple[Status, ...] = tuple(Status)
"""Status code to status."""

_PHASE_CODES: dict[str, int] = {phase: code for code, phase in enumerate(PHASES)}
_STATUS_CODES: dict[str, int] = {status: code for code, status in enumerate(STATUSES)}


class Sample(NamedTuple):
    """One operation of one session, as it reads back."""

    session: int
    seq: int
    phase: Phase
    warmup: bool
    intended_ns: int
    start_ns: int
    ns: int
    status: Status
    error: str | None


class SampleColumns:
    """Collect samples as packed rows of 39 bytes, cheaply enough for the inner loop of a load generator.

    Times are integer nanoseconds of one monotonic clock (`time.perf_counter_ns`). Appending is safe from
    several threads. Failures are appended like successes: they belong to the population.
    """

    __slots__ = ("_error_index", "_lock", "rows")

    def __init__(self) -> None:
        self.rows = bytearray()
        """The packed rows, one `ROW` each."""
        self._error_index: dict[str, int] = {}
        self._lock = threading.Lock()

    def append(  # noqa: PLR0917 - one argument per column, in the order of the columns
        self,
        session: int,
        seq: int,
        phase: str,
        warmup: bool,
        intended_ns: int,
        start_ns: int,
        ns: int,
        status: str = Status.OK,
        error: str | None = None,
    ) -> None:
        """Add one operation.

        Args:
            session: Number of the session within its cell.
            seq: Position of the operation within its session, from 0.
            phase: A `Phase`.
            warmup: True for an operation that is kept apart from the measured ones.
            intended_ns: When the schedule wanted the operation to start; equal to `start_ns` in a closed loop.
            start_ns: When it was sent.
            ns: Service time, from sent to done (for a failure: to giving up).
            status: A `Status`.
            error: What went wrong, in words; only the first 300 characters are kept.

        Raises:
            KeyError: The phase or the status is not one of the known words.
            struct.error: A number does not fit its column (32 bits for session and seq, 64 for times).
        """
        self.rows += ROW.pack(
            session,
            seq,
            _PHASE_CODES[phase],
            warmup,
            intended_ns,
            start_ns,
            ns,
            _STATUS_CODES[status],
            -1 if error is None else self._index_of(error),
        )

    def _index_of(self, error: str) -> int:
        # Lone surrogates occur in decoded garbage and cannot be stored as UTF-8.
        text = error[:ERROR_TEXT_LIMIT].encode("utf-8", "replace").decode("utf-8")
        with self._lock:
            return self._error_index.setdefault(text, len(self._error_index))

    @property
    def errors(self) -> tuple[str, ...]:
        """The distinct error texts, by the index that rows refer to."""
        return tuple(self._error_index)

    def __len__(self) -> int:
        return len(self.rows) // ROW.size

    def __iter__(self) -> Iterator[Sample]:
        errors = self.errors
        for session, seq, phase, warmup, intended_ns, start_ns, ns, status, error in ROW.iter_unpack(
            self.rows
        ):
            yield Sample(
                session,
                seq,
                PHASES[phase],
                bool(warmup),
                intended_ns,
                start_ns,
                ns,
                STATUSES[status],
                None if error < 0 else errors[error],
            )

    def dump(self, file: BinaryIO) -> None:
        """Write the samples to a binary file, for a process that has no pyarrow."""
        errors = json.dumps(self.errors).encode()
        file.write(_MAGIC + _LENGTH.pack(len(errors)) + errors + _LENGTH.pack(len(self.rows)))
        file.write(self.rows)

    def shift(self, ns: int) -> None:
        """Tell all times by another clock, which is so many nanoseconds ahead of theirs."""
        rows = bytearray()
        for session, seq, phase, warmup, intended, start, *rest in ROW.iter_unpack(bytes(self.rows)):
            rows += ROW.pack(session, seq, phase, warmup, intended + ns, start + ns, *rest)
        self.rows = rows

    @classmethod
    def load(cls, file: BinaryIO) -> Self:
        """Read what `dump` wrote.

        Raises:
            ValueError: The file is not such a dump, or it was cut off.
        """
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ValueError("not a dump of samples: the first line is missing or of another version")
        columns = cls()
        try:
            (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
            errors = json.loads(file.read(length))
            (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
        except (struct.error, ValueError) as damage:
            raise ValueError(f"the dump of samples is damaged: {damage}") from damage
        if not isinstance(errors, list) or not all(isinstance(text, str) for text in errors):
            raise ValueError("the dump of samples is damaged: the error texts are not a list of texts")
        columns._error_index = {text: index for index, text in enumerate(errors)}
        columns.rows += file.read(length)
        if len(columns.rows) != length or length % ROW.size or file.read(1):
            raise ValueError(
                f"the dump of samples is damaged: {length} bytes of rows were announced, {len(columns.rows)} are there"
            )
        columns._check_codes()
        return columns

    def _check_codes(self) -> None:
        # Slices of whole byte columns: a dump of a million rows is checked in well under a second.
        phases, warmups, statuses = (
            set(self.rows[at :: ROW.size]) for at in (_PHASE_AT, _WARMUP_AT, _STATUS_AT)
        )
        known = range(-1, len(self._error_index))
        if not (
            phases <= set(range(len(PHASES)))
            and warmups <= {0, 1}
            and statuses <= set(range(len(STATUSES)))
            and all(index in known for (index,) in _ERROR_ONLY.iter_unpack(self.rows))
        ):
            raise ValueError("the dump of samples is damaged: a row holds a code that stands for nothing")
