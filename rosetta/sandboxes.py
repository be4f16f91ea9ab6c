"""Verbs about sandboxes: check-sandbox, bench-sandbox."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from bench.progress import Progress
from canonical.sandbox.backends import UNSAFE, UnknownBackendError, load_backend
from canonical.sandbox.check import (
    BackendReport,
    CheckResult,
    Outcome,
    UnknownCheckError,
    check_backend,
    select_checks,
)
from canonical.sandbox.protocol import Backend, Isolation
from rosetta.console import FINDING, Console, output_options
from rosetta.options import out_folder_option

_MARKS = {Outcome.PASSED: "kept", Outcome.FAILED: "BROKEN", Outcome.NOT_APPLICABLE: "does not apply"}


def require_backend(name: str, *, unsafe_no_isolation: bool) -> Backend:
    """Return the backend that a command was given.

    Raises:
        click.UsageError: There is no such backend; or it isolates nothing, and that was not said aloud.
        canonical.sandbox.protocol.BackendUnavailableError: What it is built on is missing.
    """
    if name == UNSAFE and not unsafe_no_isolation:
        raise click.UsageError(
            "the backend 'unsafe' runs every command with all rights of your user; say --unsafe-no-isolation to mean it"
        )
    try:
        return load_backend(name)
    except UnknownBackendError as error:
        raise click.UsageError(str(error)) from error


@click.command("check-sandbox")
@click.argument("backend")
@click.option("--check", "names", multiple=True, help="Only this check; may be given several times.")
@click.option(
    "--unsafe-no-isolation", is_flag=True, help="Allow the backend 'unsafe', which isolates nothing at all."
)
@output_options
def check_sandbox(
    backend: str, *, names: tuple[str, ...], unsafe_no_isolation: bool, quiet: bool, as_json: bool
) -> None:
    """Check which promises a sandbox BACKEND keeps on this machine, and show what was seen.

    The checks attack the sandbox from inside: they fill disks, memory and process tables, up to small limits. On a
    backend that does not hold its limits this is felt outside.
    """
    console = Console(quiet=quiet, as_json=as_json)
    try:
        checks = select_checks(names)
    except UnknownCheckError as error:
        raise click.UsageError(str(error)) from error
    chosen = require_backend(backend, unsafe_no_isolation=unsafe_no_isolation)
    with console.progress() as show:
        done: list[CheckResult] = []

        def hear(result: CheckResult) -> None:
            done.append(result)
            failed = sum(one.outcome is Outcome.FAILED for one in done)
            show(Progress("checks", len(done), len(checks), f"{failed} broken; {result.name}"))

        report = asyncio.run(check_backend(chosen, checks, on_result=hear))
    console.result(render_counts(report) if quiet else render(report), value_of(report))
    if not report.passed:
        sys.exit(FINDING)


def render_counts(report: BackendReport) -> str:
    """Write what came of a check in one line, below the promises that are broken."""
    broken = [
        f"{_MARKS[result.outcome]}  {result.name}: {result.promise}"
        for result in report.results
        if result.outcome is Outcome.FAILED
    ]
    return "\n".join([*broken, f"{report.isolation.backend}: {_counts(report)}"])


def render(report: BackendReport) -> str:
    """Write a report for a person."""
    width = max((len(result.name) for result in report.results), default=0)
    lines = [*isolation_lines(report.isolation), ""]
    for result in report.results:
        lines.append(f"{_MARKS[result.outcome]:<14}  {result.name:<{width}}  {result.promise}")
        lines.extend(f"{'':<{16 + width}}  {line}" for line in result.evidence.splitlines())
    return "\n".join([*lines, "", f"{report.isolation.backend}: {_counts(report)}"])


def _counts(report: BackendReport) -> str:
    return ", ".join(f"{report.count(outcome)} {word.lower()}" for outcome, word in _MARKS.items())


def isolation_lines(isolation: Isolation) -> list[str]:
    """Write what a backend enforces here."""
    return [
        f"{isolation.backend}: {isolation.tool}",
        f"  enforced  {', '.join(isolation.enforced) or 'nothing'}",
        *(f"  missing   {name}: {reason}" for name, reason in sorted(isolation.missing.items())),
    ]


def value_of(report: BackendReport) -> Any:
    """Return a report as plain data."""
    isolation = report.isolation
    return {
        "backend": isolation.backend,
        "passed": report.passed,
        "isolation": {
            "tool": isolation.tool,
            "enforced": list(isolation.enforced),
            "missing": dict(isolation.missing),
        },
        "checks": [{**asdict(result), "seconds": round(result.seconds, 3)} for result in report.results],
    }


@click.command("bench-sandbox")
@click.option("--backend", default="local", show_default=True, help="Which backend to measure.")
@click.option(
    "--plan",
    "plan_name",
    default="quick",
    show_default=True,
    type=click.Choice(["smoke", "quick"]),
    help="How much to measure.",
)
@click.option("--live", type=click.IntRange(1, 100_000), help="Sandboxes alive at once on the last rung.")
@out_folder_option(
    "Folder for records and report; a new one under runs/ when left out.", "report.md", "index.html"
)
@click.option(
    "--unsafe-no-isolation", is_flag=True, help="Allow the backend 'unsafe', which isolates nothing at all."
)
@output_options
def bench_sandbox(
    *,
    backend: str,
    plan_name: str,
    live: int | None,
    out: Path | None,
    unsafe_no_isolation: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure sandboxes: start, calls, memory, how many live at once, throughput, and what is left behind.

    Records and report go to one folder. Interrupting keeps what was measured; the report says that it is partial.
    """
    # The statistics behind a benchmark take seconds to import, which no other verb should pay.
    from bench.sandbox_records import RECORDS_FILE, read_sandbox_run  # noqa: PLC0415
    from bench.sandboxes import SANDBOX_PLANS, run_sandbox_benchmark  # noqa: PLC0415
    from bench.stacks import ROOT  # noqa: PLC0415
    from reports.render import write_report  # noqa: PLC0415
    from reports.sandboxes import render_sandbox_run  # noqa: PLC0415

    console = Console(quiet=quiet, as_json=as_json)
    chosen = require_backend(backend, unsafe_no_isolation=unsafe_no_isolation)
    plan = SANDBOX_PLANS[plan_name]
    if live is not None and live != plan.live:
        plan = plan.model_copy(update={"live": live, "name": f"{plan.name}, changed"})
    folder = out or ROOT / "runs" / "sandboxes" / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{backend}"
    if (folder / RECORDS_FILE).exists():
        raise click.UsageError(f"{folder} already holds a run; choose another folder with --out")
    try:
        with console.progress() as show:
            asyncio.run(
                run_sandbox_benchmark(chosen, plan, folder, arguments=tuple(sys.argv[1:]), on_progress=show)
            )
    finally:
        if (folder / RECORDS_FILE).is_file():
            rendered = render_sandbox_run(read_sandbox_run(folder))
            page = write_report(rendered, folder)
            lines = list(rendered.summary)
            console.result(
                "\n".join([*lines, f"report: {page}"]),
                {"summary": lines, "report": str(page), "records": str(folder)},
            )


COMMANDS = (check_sandbox, bench_sandbox)
__all__ = ["COMMANDS", "require_backend"]
