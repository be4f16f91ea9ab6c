"""Options that mean the same in every verb: which frameworks, at which releases, and where results go."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import click

from bench.stacks import (
    ReleaseStack,
    Stack,
    StackError,
    adapter_names,
    all_stacks,
    build_stack,
    find_stack,
    releases_of,
    require_stack,
)
from rosetta.console import Console

Decorator: TypeAlias = Callable[[Any], Any]

DEFAULT = "default"
"""What stands for the release of each framework that is used when none is named."""

ALL = "all"
"""What stands for the everyday releases: the supported ones that not only the matrix of versions plays."""


def release_option(command: Any) -> Any:
    """Add `--release` to a command that takes one framework."""
    return click.option(
        "--release", help=f"A release by its version or label, or '{DEFAULT}'; '{DEFAULT}' when left out."
    )(command)


def releases_option(left_out: str) -> Decorator:
    """Return what adds `--release` to a command that takes several frameworks.

    Args:
        left_out: What the option is when it is left out, `DEFAULT` or `ALL`.
    """
    return click.option(
        "--release",
        default=left_out,
        help=f"A release by its version or label, '{DEFAULT}', or '{ALL}' everyday ones; '{left_out}' when left out.",
    )


def frameworks_option(left_out: str) -> Decorator:
    """Return what adds `--framework` to a command that takes several frameworks.

    Args:
        left_out: What happens when the option is left out, as a sentence without its full stop.
    """
    return click.option(
        "--framework", "--as", "frameworks", multiple=True,
        help=f"A framework; may be repeated. {left_out} when left out.",
    )  # fmt: skip


def framework_option(command: Any) -> Any:
    """Add `--framework` to a command that needs one framework."""
    return click.option("--framework", "--as", "framework", required=True, help="A framework.")(command)


def choose_stack(framework: str, release: str | None) -> Stack:
    """Return the one stack that the options name.

    Raises:
        click.UsageError: Every release was asked for.
        bench.stacks.UnknownStackError: There is no such framework or release.
    """
    if release == ALL:
        raise click.UsageError(f"this works with one release at a time, not with '{ALL}'")
    return find_stack(framework, None if release == DEFAULT else release)


def choose_stacks(frameworks: Iterable[str], release: str) -> list[Stack]:
    """Return the stacks that the options name, each once; a release that has a choice of targets, once for each.

    Args:
        frameworks: Their names, as often as they were given; all of them when there is none.
        release: A version, a label, `DEFAULT` or `ALL`. Without a framework it must belong to a single one.

    Raises:
        click.UsageError: The release belongs to no framework, or to several.
        bench.stacks.UnknownStackError: There is no such framework or release.
    """
    named = tuple(frameworks)
    if release == ALL:
        stacks = [one for framework in named for one in releases_of(framework)] if named else all_stacks()
    elif release == DEFAULT:
        stacks = [find_stack(framework) for framework in named or adapter_names()]
    elif named:
        stacks = [find_stack(framework, release) for framework in named]
    else:
        stacks = [one for one in all_stacks() if release in {one.label, one.release.version}]
        if len(stacks) != 1:
            raise click.UsageError(f"{release!r} names no single release; name its framework too")
    return list({target.label: target for one in stacks for target in one.per_target()}.values())


def make_ready(stacks: Iterable[ReleaseStack], console: Console, *, build: bool) -> None:
    """Make sure that stacks are ready, and build those that are not where that was asked for.

    Raises:
        bench.stacks.StackError: One is not ready, or cannot be built; the text says what to do.
    """
    wanted = list(stacks)
    if build:
        for one in wanted:
            build_stack(one, on_progress=console.say)
    missing = list(dict.fromkeys(one.release.label for one in wanted if not (one.is_ready() and one.works())))
    if len(missing) > 1:
        raise StackError(
            f"{len(missing)} stacks are not built, or out of date: {', '.join(missing)}; --build builds them first"
        )
    for one in wanted:
        require_stack(one)


def out_folder_option(words: str, *files: str, required: bool = False) -> Decorator:
    """Return what adds `--out`, a folder for results, which is refused before any work is done if it cannot be written.

    Args:
        words: The help.
        files: The names of the files that are going to be written, over those of the same name that are there.
        required: Whether the option may not be left out.
    """

    def checked(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
        if value is None:
            return None
        problem = folder_problem(Path(value), files) if value else "no folder is named"
        if problem is not None:
            raise click.BadParameter(problem, ctx, param)
        return Path(value)

    return click.option("--out", type=click.Path(), callback=checked, required=required, help=words)


def out_file_option(words: str) -> Decorator:
    """Return what adds `--out`, a file for results, which is refused before any work is done if it cannot be written.

    Args:
        words: The help.
    """

    def checked(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
        if value is None:
            return None
        file = Path(value)
        problem = folder_problem(file.parent, (file.name,)) if file.name else "no file is named"
        if problem is None and not file.parent.is_dir():
            problem = f"there is no folder {file.parent}"
        if problem is not None:
            raise click.BadParameter(problem, ctx, param)
        return file

    return click.option("--out", type=click.Path(), callback=checked, help=words)


def folder_problem(folder: Path, files: Iterable[str] = ()) -> str | None:
    """Return why files cannot be written into a folder, which need not be there yet, or None when they can.

    Rights say little about what a file system takes, so a folder is made for a moment, and goes again.
    """
    try:
        place = folder.absolute()
        while not _is_there(place):
            place = place.parent
        if not place.is_dir():
            return f"{place} is not a folder"
        with tempfile.TemporaryDirectory(prefix=".rosetta-", dir=place):
            pass
        for file in (folder / name for name in files):
            if _is_there(file) and not file.is_file():
                return f"{file} is there and is not a file"
            if file.exists() and not os.access(file, os.W_OK):
                return f"{file} is there and cannot be written"
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror or error}"
    return None


def _is_there(path: Path) -> bool:
    # Unlike `exists`, this lets a name that the file system does not take be heard of.
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
