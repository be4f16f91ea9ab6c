"""Verbs about parity: golden and certify."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from bench.certificate import CERTIFICATE_FILE, Certificate, endurance_section, read_section
from bench.certify import Subject
from bench.certify import certify as certify_environment
from bench.golden import record_golden
from bench.stacks import ROOT, Stack, adapter_names, all_stacks, build_stack, find_stack, require_stack
from canonical.catalogue import load_environment
from canonical.golden import EPISODES, GoldenSet, difference, golden_folder
from reports.certificate import render_certificate, render_summary
from rosetta.console import FINDING, Console, output_options

CERTIFICATE_PAGE = "certificate.md"
DEFAULT = "default"
"""What stands for the release of each framework that is used when none is named."""


@click.command()
@click.argument("environment")
@click.option(
    "--write", is_flag=True, help="Write the file; look at every line that changes before committing it."
)
@output_options
def golden(environment: str, *, write: bool, quiet: bool, as_json: bool) -> None:
    """Record the golden set of ENVIRONMENT from the reference, and compare it with the one beside the environment."""
    console = Console(quiet=quiet, as_json=as_json)
    loaded = load_environment(environment)
    path = golden_folder(loaded) / EPISODES
    recorded = asyncio.run(record_golden(loaded))
    found = difference(GoldenSet.read(path), recorded) if path.is_file() else "there is no such file yet"
    if found is not None and write:
        path.parent.mkdir(exist_ok=True)
        path.write_text(recorded.to_text(), encoding="ascii", newline="\n")
    state = "equal" if found is None else "written" if write else "different"
    text = f"{path}: {len(recorded.episodes)} episodes, {recorded.steps} steps, {state}"
    if state == "different":
        text = f"{path}: {found}\nNothing was written; --write writes the new recording."
    value = {
        "file": str(path),
        "episodes": len(recorded.episodes),
        "steps": recorded.steps,
        "digest": recorded.digest(),
        "state": state,
        "difference": found,
    }
    console.result(text, value)
    if state == "different":
        sys.exit(FINDING)


@click.command()
@click.argument("environment")
@click.option(
    "--framework",
    "frameworks",
    multiple=True,
    help="Only this framework; every one when left out. Repeatable.",
)
@click.option(
    "--release",
    help="Only this release, by its version or label, or 'default'; every supported release when left out.",
)
@click.option("--build", is_flag=True, help="Build the stacks first when they are not ready.")
@click.option(
    "--endurance",
    type=click.Path(path_type=Path),
    help="The endurance.json of `rosetta endure`, to be certified too.",
)
@click.option(
    "--section",
    "sections",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A JSON file with something else that was proven, to be certified too. Repeatable.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the certificate; a new one under runs/ when left out.",
)
@output_options
def certify(
    environment: str,
    *,
    frameworks: tuple[str, ...],
    release: str | None,
    build: bool,
    endurance: Path | None,
    sections: tuple[Path, ...],
    out: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Certify that ENVIRONMENT behaves alike under every framework: replay its golden set and compare byte for byte.

    The certificate is written as JSON and Markdown. The exit code is 1 when anything differs.
    """
    console = Console(quiet=quiet, as_json=as_json)
    name = load_environment(environment).name
    stacks = chosen_stacks(frameworks, release)
    for stack in stacks:
        if build:
            build_stack(stack, on_progress=console.say)
        require_stack(stack)
    read = [*([endurance_section(endurance)] if endurance else []), *map(read_section, sections)]
    with console.progress() as show:
        certificate = asyncio.run(
            certify_environment(
                environment,
                [Subject.of(target) for stack in stacks for target in stack.per_target()],
                sections=read,
                on_progress=show,
            )
        )
    folder = out or ROOT / "runs" / "certificates" / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{name}"
    hand_over(certificate, folder, console)


def hand_over(certificate: Certificate, folder: Path, console: Console) -> None:
    """Write a certificate as JSON and as Markdown into a folder, over one that is there, and show it.

    Raises:
        SystemExit: Something differs; the code says so.
    """
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / CERTIFICATE_PAGE
    (folder / CERTIFICATE_FILE).write_text(certificate.to_text(), encoding="ascii", newline="\n")
    page.write_text(render_certificate(certificate), encoding="utf-8", newline="\n")
    console.result(
        f"{render_summary(certificate)}\n\n{page}",
        {**certificate.model_dump(), "passed": certificate.passed, "page": str(page)},
    )
    if not certificate.passed:
        sys.exit(FINDING)


def chosen_stacks(frameworks: tuple[str, ...], release: str | None) -> list[Stack]:
    """Return the stacks that the options name: every release of every framework when they name none.

    Raises:
        click.UsageError: The release is one of no framework or of several.
        bench.stacks.StackError: There is no such framework or release.
    """
    if release == DEFAULT:
        return [find_stack(framework) for framework in frameworks or adapter_names()]
    if release is not None:
        if not frameworks:
            labelled = [stack for stack in all_stacks() if release in {stack.label, stack.release.version}]
            if len(labelled) != 1:
                raise click.UsageError(f"{release!r} names no single release; name its --framework too")
            return labelled
        return [find_stack(framework, release) for framework in frameworks]
    names = {find_stack(framework).adapter for framework in frameworks}
    return [stack for stack in all_stacks() if not names or stack.adapter in names]


COMMANDS = (golden, certify)
