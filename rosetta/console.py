"""What a command shows: results on stdout, progress and complaints on stderr."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
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
        click.echo(json.dumps(value, ensure_ascii=False) if self.as_json else text)

    def say(self, text: str) -> None:
        """Say on stderr what is going on, unless quiet."""
        if not self.quiet:
            self._stderr.print(escape(text), soft_wrap=True)

    def error(self, text: str) -> None:
        """Say on stderr what went wrong."""
        self._stderr.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)

    def place(self, raised: BaseException) -> None:
        """Say on stderr which line of an author's code raised what."""
        frame = traceback.extract_tb(raised.__traceback__)[-1]
        self._stderr.print(
            escape(
                f"{frame.filename}, line {frame.lineno}, in {frame.name}: {frame.line}\n  {type(raised).__name__}: {raised}"
            ),
            soft_wrap=True,
        )

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


def output_options(command: Any) -> Any:
    """Add `--quiet` and `--json` to a command."""
    command = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; no progress.")(
        command
    )
    return click.option("--quiet", "-q", is_flag=True, help="No progress, only the result.")(command)
