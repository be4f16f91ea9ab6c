"""What a command shows: results on stdout, progress and complaints on stderr."""

from __future__ import annotations

import io
import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import rich.console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars

from bench.progress import OnProgress, Progress

OK = 0
FINDING = 1
WRONG_COMMAND = 2
CANNOT_RUN = 3
INTERRUPTED = 130


class Console:
    """Write for a person, or for a program when `as_json`; say nothing beside the result when `quiet`."""

    def __init__(self, *, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet = quiet or as_json
        self.as_json = as_json
        self._stderr = rich.console.Console(stderr=True, highlight=False)

    def result(self, text: str, value: Any) -> None:
        """Print a result: the text for a person, the value as JSON for a program."""
        click.echo(_as_json(value) if self.as_json else text)

    def say(self, text: str) -> None:
        """Say on stderr what is going on, unless quiet."""
        if not self.quiet:
            self._stderr.print(escape(text), soft_wrap=True)

    def error(self, text: str) -> None:
        """Say on stderr what went wrong."""
        self._stderr.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)

    def warn(self, text: str) -> None:
        """Say on stderr what is not as it should be, although the command goes on."""
        self._stderr.print(f"[bold yellow]warning:[/] {escape(text)}", soft_wrap=True)

    def place(self, raised: BaseException, file: Path) -> None:
        """Say on stderr which line of an author's code raised what.

        Args:
            raised: What was raised, perhaps in code that the author's called, or that looked at what it returned.
            file: The file that defines the environment.
        """
        frames = [
            frame
            for frame in traceback.extract_tb(raised.__traceback__)
            if Path(frame.filename).is_relative_to(file.parent)
        ]
        place = "".join(f", line {one.lineno}, in {one.name}: {one.line}" for one in frames[-1:])
        name = frames[-1].filename if frames else file
        self._stderr.print(escape(f"{name}{place}\n  {type(raised).__name__}: {raised}"), soft_wrap=True)

    @contextmanager
    def progress(self) -> Iterator[OnProgress]:
        """Show bars with the time left while long work goes on, one for each part."""
        if self.quiet:
            yield lambda _: None
            return
        with Bars(
            SpinnerColumn(finished_text="[green]✓[/]"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("[dim]{task.fields[detail]}[/]"),
            console=self._stderr,
        ) as bars:
            tasks: dict[str, Any] = {}

            def show(progress: Progress) -> None:
                if progress.part not in tasks:
                    tasks[progress.part] = bars.add_task(progress.part, detail="")
                bars.update(
                    tasks[progress.part],
                    completed=int(progress.done),
                    total=int(progress.total),
                    detail=progress.detail,
                )

            yield show


def _as_json(value: Any) -> str:
    line = json.dumps(value, ensure_ascii=False)
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        # Escaped as JSON escapes it, a lone surrogate can be printed anywhere and read back.
        return json.dumps(value)
    return line


def print_anything() -> None:
    """Let both streams of the process take any text: what they cannot encode, a lone surrogate for one, is escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def output_options(command: Any) -> Any:
    """Add `--quiet` and `--json` to a command."""
    command = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; no progress.")(
        command
    )
    return click.option("--quiet", "-q", is_flag=True, help="No progress, only the result.")(command)
