"""Run a load plan in generator processes of its own, and read what they measured."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from bench.load.progress import PROGRESS_FILE, LoadProgress, read_progress
from bench.load.summary import SUMMARY_FILE, EndedBy, LoadSummary, WrongReply, shift_ns
from bench.records import SAMPLES_SCHEMA, samples_table
from bench.samples import Phase, SampleColumns, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.load.plan import LoadPlan

PLAN_FILE = "plan.json"
LOG_FILE = "generator.log"
ROOT = Path(__file__).resolve().parents[2]
"""The folder from which `bench`, `adapters` and `canonical` are imported."""

POLL_S = 0.05
START_UP_S = 60.0
"""Patience for starting, dividing the sessions and writing, beyond the plan's own time limit."""
STOP_PATIENCE_S = 60.0
"""How long a generator that was told to stop may take to write what it has."""
TAIL_LINES = 12


class LoadFailed(Exception):  # noqa: N818 - what happened, read as a sentence
    """Say in one line why a plan could not be carried out; failed sessions alone are no reason."""


class GeneratorDied(LoadFailed):
    """Say that the load generator ended without a result; carries its exit code and the end of its log."""

    def __init__(self, why: str, returncode: int | None, tail: str) -> None:
        super().__init__(f"{why}; the end of its log:\n{tail}" if tail else why)
        self.returncode = returncode
        self.tail = tail


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a load run measured."""

    folder: Path
    summary: LoadSummary
    """Counts, errors, and the generator's own cost, also by process."""
    samples: tuple[SampleColumns, ...]
    """Raw samples, one part per generator process, as `bench.records.RunWriter.write_samples` takes them.

    All times are of the master's clock: those of workers on other machines are shifted by the offset in the summary."""

    @property
    def sessions(self) -> int:
        """Return the number of sessions that were planned."""
        return self.summary.sessions

    @property
    def opened(self) -> int:
        """Return the number of sessions whose connection came about."""
        return self.summary.opened

    @property
    def succeeded(self) -> int:
        """Return the number of sessions whose every operation was answered rightly."""
        return self.summary.succeeded

    @property
    def peak_open(self) -> int:
        """Return the number of sessions that were open at the same time."""
        return self.summary.peak_open

    @property
    def errors(self) -> dict[str, int]:
        """Return error texts with their counts, the most frequent first."""
        return self.summary.errors

    @property
    def wrong(self) -> tuple[WrongReply, ...]:
        """Return examples of replies that differ from the reference."""
        return tuple(example for share in self.summary.shares for example in share.wrong)

    @property
    def ended_by(self) -> EndedBy:
        """Return whether the plan came to its end, or what ended it before."""
        return self.summary.ended_by

    def table(self) -> pa.Table:
        """Return all samples as a table of `bench.records.SAMPLES_SCHEMA`, by session and position."""
        parts = [samples_table(part) for part in self.samples]
        whole = pa.concat_tables(parts) if parts else SAMPLES_SCHEMA.empty_table()
        return (
            whole.unify_dictionaries()
            .combine_chunks()
            .sort_by([("session", "ascending"), ("seq", "ascending")])
        )

    def steps_per_s(self) -> float | None:
        """Return the rate of right steps between the start of the first step and the end of the last one.

        None when there are fewer than two.
        """
        table = self.table()
        steps = table.filter(pc.equal(table["phase"], Phase.STEP.value))
        right = pc.sum(pc.equal(steps["status"], Status.OK.value)).as_py() or 0
        if right < 2:
            return None
        begin = pc.min(steps["start_ns"]).as_py()
        end = pc.max(pc.add(steps["start_ns"], steps["ns"])).as_py()
        return float(right / ((end - begin) / 1e9)) if end > begin else None


def run_load(
    plan: LoadPlan,
    *,
    python: str = sys.executable,
    timeout_s: float | None = None,
    on_progress: Callable[[LoadProgress], None] | None = None,
    stop: threading.Event | None = None,
) -> LoadResult:
    """Carry out a plan in processes of their own and return what they measured.

    Args:
        plan: What to do. Its output folder is made; results of an earlier run in it are replaced.
        python: Interpreter with locust that runs the generators.
        timeout_s: Seconds after which everything is stopped; by default the plan's time limit and a minute more.
        on_progress: Called as often as there is news.
        stop: Ends the run early when it is set, from any thread; what was measured is read as usual.

    Returns:
        The result, also when sessions failed, the time limit was hit, or the generator was interrupted: see
        `LoadResult.ended_by`.

    Raises:
        LoadFailed: The plan could not be carried out, such as when no session reached the server. What was measured
            until then is in the output folder.
        GeneratorDied: The generator ended, or had to be ended, without a result.
        KeyboardInterrupt: The caller was interrupted; what was measured is in the output folder, for `read_load`.
        OSError: The output folder cannot be written to.
    """
    out = plan.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for old in (out / SUMMARY_FILE, out / PROGRESS_FILE):
        old.unlink(missing_ok=True)
    own = plan.model_copy(update={"out": out})
    (out / PLAN_FILE).write_text(own.to_json(), encoding="utf-8")
    patience = plan.time_limit_s + START_UP_S if timeout_s is None else timeout_s
    generator, lease = _start(python, own)
    try:
        in_time = _follow(generator, out, time.monotonic() + patience, on_progress, stop)
    finally:
        _end(generator)
        os.close(lease)
    code = generator.returncode
    if not (out / SUMMARY_FILE).exists():
        why = (
            f"the load generator ended with exit code {code} and no result"
            if in_time
            else f"the load generator did not finish within {patience:g} s and had to be stopped"
        )
        raise GeneratorDied(why, code, _tail(out / LOG_FILE))
    result = read_load(out)
    if result.summary.failure is not None:
        raise LoadFailed(result.summary.failure)
    return result


def read_load(folder: Path) -> LoadResult:
    """Read the result of a run from its output folder.

    Raises:
        LoadFailed: There is no result in the folder, or it is damaged.
    """
    try:
        summary = LoadSummary.model_validate_json((folder / SUMMARY_FILE).read_bytes())
        parts = tuple(
            _read_part(folder / share.part, shift_ns(share)) for share in summary.shares if share.part
        )
    except FileNotFoundError as e:
        raise LoadFailed(
            f"there is no result of a load run in {folder}: {Path(e.filename).name} is missing"
        ) from e
    except (ValidationError, ValueError) as e:
        raise LoadFailed(f"the result of the load run in {folder} is damaged: {e}") from e
    return LoadResult(folder, summary, parts)


def _read_part(file: Path, ahead_ns: int) -> SampleColumns:
    with file.open("rb") as rows:
        samples = SampleColumns.load(rows)
    if ahead_ns:
        samples.shift(ahead_ns)
    return samples


def _start(python: str, plan: LoadPlan) -> tuple[subprocess.Popen[bytes], int]:
    """Start the generators in a session of their own; they end when the returned descriptor is closed."""
    read, write = os.pipe()
    try:
        with (plan.out / LOG_FILE).open("wb") as log:
            generator = subprocess.Popen(
                [*_command(python, plan), "--rosetta-lease", str(read)],
                cwd=ROOT,
                env={name: value for name, value in os.environ.items() if not name.startswith("LOCUST_")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(read,),
                start_new_session=True,
            )
    except BaseException:
        os.close(write)
        raise
    finally:
        os.close(read)
    return generator, write


def _command(python: str, plan: LoadPlan) -> list[str]:
    locustfile = Path(__file__).with_name("locustfile.py")
    # -P: the repository is not to shadow installed packages while locust imports its own.
    command = [
        python,
        "-P",
        "-m",
        "locust",
        "-f",
        str(locustfile),
        "--rosetta-plan",
        str(plan.out / PLAN_FILE),
    ]
    command += ["--headless", "--only-summary"]
    if plan.processes > 1:
        port = str(_free_port())
        command += ["--processes", str(plan.processes), "--master-bind-host", "127.0.0.1"]
        command += ["--master-bind-port", port, "--master-port", port]
    return command


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _follow(
    generator: subprocess.Popen[bytes],
    out: Path,
    deadline: float,
    on_progress: Callable[[LoadProgress], None] | None,
    stop: threading.Event | None,
) -> bool:
    """Tell progress until the generator ends or is to stop; return whether it ended before the deadline."""
    told = None
    while True:
        ended = _has_ended(generator)
        progress = read_progress(out) if on_progress else None
        if on_progress and progress and progress != told:
            told = progress
            on_progress(progress)
        if stop is not None and stop.is_set():
            return True
        if ended or time.monotonic() > deadline:
            return ended
        time.sleep(POLL_S)


def _has_ended(generator: subprocess.Popen[bytes]) -> bool:
    # Not reaped yet: while it is a zombie, its number can belong to no other process group.
    return os.waitid(os.P_PID, generator.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(generator: subprocess.Popen[bytes]) -> None:
    """End the generator's process group: in order if it listens, and for certain."""
    try:
        if not _has_ended(generator):
            _signal_group(generator, signal.SIGTERM)
            patience = time.monotonic() + STOP_PATIENCE_S
            while not _has_ended(generator) and time.monotonic() < patience:
                time.sleep(POLL_S)
    finally:
        _signal_group(generator, signal.SIGKILL)
        generator.wait()


def _signal_group(generator: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(generator.pid, number)


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-TAIL_LINES:])
