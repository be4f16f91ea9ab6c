"""What a command shows: results on stdout, progress and complaints on stderr."""

from __future__ import annotations

import io
import json
import sys
import traceback
import unicodedata
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


_TELLING = {"\n", "\t"}
_REORDERING = set("\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def visible(text: str) -> str:
    """Return text in which what would steer a terminal is written out, as an escape of Python.

    A model writes what is shown, and its tools print what they like: sequences that clear the screen, set its title or fill
    the clipboard, and marks that turn the order of characters round.
    """
    return "".join(
        letter.encode("unicode_escape").decode("ascii")
        if (unicodedata.category(letter) == "Cc" and letter not in _TELLING) or letter in _REORDERING
        else letter
        for letter in text
    )


def show(text: str) -> None:
    """Print a text that may come from anywhere."""
    click.echo(visible(text))


class Console:
    """Write for a person, or for a program when `as_json`; say nothing beside the result when `quiet`."""

    def __init__(self, *, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet = quiet or as_json
        self.as_json = as_json
        self._stderr = rich.console.Console(stderr=True, highlight=False)

    def result(self, text: str, value: Any) -> None:
        """Print a result: the text for a person, the value as JSON for a program."""
        if self.as_json:
            click.echo(_as_json(value))
        else:
            show(text)

    def say(self, text: str) -> None:
        """Say on stderr what is going on, unless quiet."""
        if not self.quiet:
            self._stderr.print(escape(visible(text)), soft_wrap=True)

    def error(self, text: str) -> None:
        """Say on stderr what went wrong."""
        self._stderr.print(f"[bold red]error:[/] {escape(visible(text))}", soft_wrap=True)

    def warn(self, text: str) -> None:
        """Say on stderr what is not as it should be, although the command goes on."""
        self._stderr.print(f"[bold yellow]warning:[/] {escape(visible(text))}", soft_wrap=True)

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
        told = f"{name}{place}\n  {type(raised).__name__}: {raised}"
        self._stderr.print(escape(visible(told)), soft_wrap=True)

    @contextmanager
    def progress(self) -> Iterator[OnProgress]:
        """Show bars with the time left while long work goes on, one for each part."""
        if self.quiet:
            yield lambda _: None
            return
        if not self._stderr.is_terminal:
            yield self._told_at_ends()
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

    def _told_at_ends(self) -> OnProgress:
        """Return what writes a line when a part begins and one when it ends, for logs, where bars show nothing until the end."""
        counts: dict[str, bool] = {}

        def tell(progress: Progress) -> None:
            if progress.part not in counts:
                counts[progress.part] = False
                self.say(f"{progress.part}: begun, {int(progress.total):,} to do")
            if progress.done >= progress.total and not counts[progress.part]:
                counts[progress.part] = True
                detail = f", {progress.detail}" if progress.detail else ""
                self.say(f"{progress.part}: done{detail}")

        return tell


def _as_json(value: Any) -> str:
    line = json.dumps(value, ensure_ascii=False)
    # Escaped as JSON escapes them, lone surrogates and what would steer a terminal can be printed anywhere and read back.
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value)
    return line if visible(line) == line else json.dumps(value)


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
