"""Where an environment's own code fails: the line, and the command that looks for the smallest case."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import click

from bench.conformance import BrokenEnvironmentError
from canonical.catalogue import UnknownEnvironmentError, definition_path, load_environment
from canonical.episode import StartError
from canonical.reward import ScoringError
from canonical.sandbox.backends import missing_backend
from canonical.task import TasksNotInstalledError
from rosetta.console import FINDING, Console

_SAID_OF_IT = (StartError, ScoringError, BrokenEnvironmentError)
"""What this project raises when the code of an environment fails, or gives what it may not give."""


def check_hint(source: str) -> str:
    """Return what to do about an environment whose own code fails."""
    return f"`rosetta check {source}` finds the smallest case of every broken promise"


def pointing_to_author(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command say where the code of its ENVIRONMENT failed, instead of how the command line came there."""

    @functools.wraps(command)
    def guarded(*, environment: str, **options: Any) -> None:
        try:
            with suppress(UnknownEnvironmentError):  # of which the command itself speaks
                load_environment(environment).require()
            command(environment=environment, **options)
        except Exception as raised:
            reason = _first(raised)
            missing = missing_backend(reason)
            if missing is not None:  # of which no line of the environment is to blame
                raise click.ClickException(str(missing)) from raised
            failure = _failure(reason, environment)
            if failure is None or isinstance(reason, TasksNotInstalledError):
                raise
            if not isinstance(failure, _SAID_OF_IT):
                Console().place(failure, definition_path(load_environment(environment)))
            if failure is reason and not isinstance(failure, _SAID_OF_IT):
                text = f"the code of {environment} raised {type(failure).__name__}"
            else:
                text = str(reason)
            if isinstance(reason, BrokenEnvironmentError):
                Console().error(f"{text}; {check_hint(environment)}")
                sys.exit(FINDING)
            raise click.ClickException(f"{text}; {check_hint(environment)}") from raised

    return guarded


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _failure(error: BaseException | None, source: str) -> BaseException | None:
    """Return what the environment's own code raised, or the error that says of it that it is wrong."""
    while error is not None:
        if isinstance(error, _SAID_OF_IT):
            return error.failure or error
        if _runs_through(error.__traceback__, _folder(source)):
            return error
        error = error.__cause__
    return None


def _folder(source: str) -> Path | None:
    try:
        return definition_path(load_environment(source)).resolve().parent
    except UnknownEnvironmentError:
        return None


def _runs_through(traceback: TracebackType | None, folder: Path | None) -> bool:
    while traceback is not None and folder is not None:
        if Path(traceback.tb_frame.f_code.co_filename).is_relative_to(folder):
            return True
        traceback = traceback.tb_next
    return False
