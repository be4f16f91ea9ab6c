"""Verbs about parity: golden and certify."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from bench.certificate import (
    CERTIFICATE_FILE,
    Certificate,
    CertificateError,
    Section,
    endurance_section,
    read_section,
)
from bench.certify import Subject, read_golden
from bench.certify import certify as certify_environment
from bench.endurance_records import EnduranceError, read_endurance
from bench.golden import record_golden
from bench.stacks import ROOT
from canonical.catalogue import load_environment
from canonical.golden import EPISODES, GoldenSet, difference, golden_folder
from reports.certificate import render_certificate, render_summary
from rosetta.authorship import pointing_to_author
from rosetta.console import FINDING, Console, output_options
from rosetta.options import (
    ALL,
    choose_stacks,
    folder_problem,
    frameworks_option,
    make_ready,
    out_folder_option,
    releases_option,
)

CERTIFICATE_PAGE = "certificate.md"


@click.command()
@click.argument("environment")
@click.option(
    "--write", is_flag=True, help="Write the file; look at every line that changes before committing it."
)
@output_options
@pointing_to_author
def golden(environment: str, *, write: bool, quiet: bool, as_json: bool) -> None:
    """Record the golden set of ENVIRONMENT from the reference, and compare it with the one beside the environment."""
    console = Console(quiet=quiet, as_json=as_json)
    loaded = load_environment(environment)
    path = golden_folder(loaded) / EPISODES
    problem = folder_problem(path.parent, (path.name,)) if write else None
    if problem is not None:
        raise click.UsageError(problem)
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
@frameworks_option("All of them")
@releases_option(ALL)
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
@out_folder_option(
    "Folder for the certificate; a new one under runs/ when left out.", CERTIFICATE_FILE, CERTIFICATE_PAGE
)
@output_options
@pointing_to_author
def certify(
    environment: str,
    *,
    frameworks: tuple[str, ...],
    release: str,
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
    loaded = load_environment(environment)
    stacks = choose_stacks(frameworks, release)
    # All that can be refused is refused before stacks are built and episodes replayed, which takes long.
    read_golden(loaded, environment)
    read: list[Section] = []
    try:
        if endurance is not None:
            read.append(endurance_section(read_endurance(endurance), loaded, [one.label for one in stacks]))
        read += map(read_section, sections)
    except EnduranceError as error:
        raise click.BadParameter(str(error), param_hint="'--endurance'") from error
    except CertificateError as error:
        raise click.BadParameter(str(error), param_hint="'--section'") from error
    make_ready(stacks, console, build=build)
    with console.progress() as show:
        certificate = asyncio.run(
            certify_environment(
                environment,
                list(map(Subject.of, stacks)),
                sections=read,
                on_progress=show,
            )
        )
    folder = out or ROOT / "runs" / "certificates" / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{loaded.name}"
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


COMMANDS = (golden, certify)
