"""Verbs about frameworks: doctor, stack, conformance, bench, report."""

from __future__ import annotations

import asyncio
import shutil
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from bench.arrival import CLOSED, Arrival
from bench.client import start_both
from bench.conformance import ConformanceResult, run_conformance
from bench.features import keep_proven
from bench.plan import BURST_METHOD, BURST_SIZES, HELD, PLANS, Plan
from bench.progress import Progress
from bench.serving.proxies import load_proxy, proxy_names
from bench.stacks import (
    ROOT,
    ReleaseStack,
    Stack,
    adapter_names,
    all_stacks,
    build_stack,
    builder_of,
    find_library,
    find_owner,
    find_python,
    find_uv,
    library_names,
    library_stacks,
)
from canonical.adapter import Level
from canonical.catalogue import load_environment
from rosetta.authorship import check_hint, pointing_to_author
from rosetta.console import CANNOT_RUN, FINDING, Console, output_options, show
from rosetta.options import (
    ALL,
    DEFAULT,
    choose_stack,
    choose_stacks,
    folder_problem,
    make_ready,
    out_folder_option,
    release_option,
    releases_option,
)
from rosetta.serving import show_proxy_report

_NANOSECONDS = 1_000_000_000
RESULTS = ("report.md", "index.html")


@click.command()
@output_options
def doctor(*, quiet: bool, as_json: bool) -> None:
    """Say what is installed, which stacks are ready, what is missing, and the command that fixes it."""
    console = Console(quiet=quiet, as_json=as_json)
    rows: list[dict[str, Any]] = []
    for stack in [*all_stacks(), *library_stacks()]:
        python = find_python(stack.release.python)
        if stack.is_ready() and stack.works():
            state, fix = "ready", ""
        elif (builder := builder_of(stack)) is not None:
            state, fix = "being built", f"wait for {builder}"
        elif python is None:
            state = f"no Python {stack.release.python}"
            fix = f"uv python install {stack.release.python}"
        else:
            state, fix = ("out of date" if stack.python.exists() else "not built"), stack.build_command()
        rows.append({"stack": stack.label, "framework": stack.facts.title, "state": state, "fix": fix})
    tools = [
        {"tool": name, "state": "found" if found else "missing", "purpose": purpose}
        for name, found, purpose in (
            ("uv", find_uv(), "builds stacks"),
            ("git", shutil.which("git"), "names the commit in records"),
            *(
                (proxy.name, proxy.find(), f"optional, stands before replicas: {proxy.how_to_get}")
                for proxy in map(load_proxy, proxy_names())
            ),
        )
    ]
    width = max(len(row["stack"]) for row in rows)
    lines = [f"Python {sys.version.split()[0]}, harness ready", ""]
    lines += [f"  {tool['tool']:<{width}}  {tool['state']:<14} {tool['purpose']}" for tool in tools]
    lines += [""]
    lines += [f"  {row['stack']:<{width}}  {row['state']:<14} {row['fix']}".rstrip() for row in rows]
    console.result("\n".join(lines), {"stacks": rows, "tools": tools})


@click.group()
def stack() -> None:
    """Build and list the virtual environments of the frameworks and libraries of tasks."""


@stack.command("build")
@click.argument("framework")
@releases_option(DEFAULT)
@click.option("--all", "every", is_flag=True, help=f"The same as --release {ALL}.")
@output_options
def stack_build(framework: str, *, release: str, every: bool, quiet: bool, as_json: bool) -> None:
    """Build the stack of FRAMEWORK, which may be a library of tasks, unless it is ready."""
    console = Console(quiet=quiet, as_json=as_json)
    stacks = _built_stacks(framework, ALL if every else release)
    for one in stacks:
        build_stack(one, on_progress=console.say)
    console.result(
        "\n".join(f"{one.label} is ready" for one in stacks), {"ready": [one.label for one in stacks]}
    )


def _built_stacks(framework: str, release: str) -> list[ReleaseStack]:
    name = find_owner(framework.partition(":")[0]).name
    if name in library_names():
        if release == ALL:
            return [one for one in library_stacks() if one.name == name]
        return [find_library(name, None if release == DEFAULT else release)]
    # What environments become in a release is not installed, so that its stack is named once.
    chosen = choose_stacks([framework], release)
    return list({one.folder: replace(one, target="") for one in chosen}.values())


@click.command()
@click.argument("frameworks", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every framework.")
@click.option("--environment", default="wordle", show_default=True, help="Name or path of the environment.")
@releases_option(ALL)
@click.option(
    "--episodes",
    default=200,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    help="At least so many episodes.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the fuzzer.")
@click.option(
    "--keep-features",
    is_flag=True,
    help="Write the features that were proven into the adapter's folder, for its README.",
)
@click.option("--build", is_flag=True, help="Build the stacks first when they are not ready.")
@output_options
@pointing_to_author
def conformance(
    frameworks: tuple[str, ...],
    *,
    every: bool,
    environment: str,
    release: str,
    episodes: int,
    seed: int,
    keep_features: bool,
    build: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Play scenarios and fuzz through FRAMEWORKS and compare every observation, reward and ending with the reference."""
    console = Console(quiet=quiet, as_json=as_json)
    load_environment(environment)
    if not every and not frameworks and release == ALL:
        raise click.UsageError("name at least one framework, or --all")
    stacks = choose_stacks(() if every else frameworks, release)
    make_ready(stacks, console, build=build)
    results: list[dict[str, Any]] = []
    for one in stacks:
        result = prove(one, environment, console, episodes=episodes, seed=seed)
        results.append(_conformance_value(one, result))
        if keep_features and result.passed:
            keep_proven(one.features_file, one.label, result.features)
        if not as_json:
            show(_conformance_text(one, result))
        for place, count in result.raised.most_common():
            often = "1 episode" if count == 1 else f"{count} episodes"
            console.warn(f"the environment raised {place}, in {often}; {check_hint(environment)}")
    if as_json:
        console.result("", results)
    if any(result["divergences"] for result in results):
        sys.exit(FINDING)


def prove(stack: Stack, environment: str, console: Console, *, episodes: int, seed: int) -> ConformanceResult:
    """Run conformance for one stack, with a bar."""

    async def run() -> ConformanceResult:
        async with start_both(stack) as (host, driver):
            with console.progress() as show:
                return await run_conformance(
                    host, driver, source=environment, episodes=episodes, seed=seed,
                    on_progress=lambda done, of: show(Progress(stack.label, done, of, "episodes")),
                )  # fmt: skip

    return asyncio.run(run())


def _conformance_value(stack: Stack, result: ConformanceResult) -> dict[str, Any]:
    return {
        "stack": stack.label,
        "episodes": result.episodes,
        "steps": result.steps,
        "returns": result.returns,
        "divergences": [divergence.render() for divergence in result.divergences],
        "raised": dict(result.raised),
        "not_compared": list(result.not_compared),
        "features": [proof.to_json() for proof in result.features],
        "digest": result.digest,
        "seconds": round(result.seconds, 3),
    }


def _conformance_text(stack: Stack, result: ConformanceResult) -> str:
    head = (
        f"{stack.label}: {result.episodes} episodes, {result.steps} steps, "
        f"{len(result.divergences)} divergences, {result.seconds:.1f} s"
    )
    if result.not_compared:
        head += f" (not compared, declared absent: {', '.join(result.not_compared)})"
    levels = [proof.declared.level for proof in result.features if proof.declared and not proof.problem]
    told = ", ".join(f"{levels.count(level)} {level}" for level in Level)
    head += f"\n  features proven as declared: {told}"
    return "\n\n".join([head, *(divergence.render() for divergence in result.divergences)])


@click.command(epilog=f"Frameworks: {', '.join(adapter_names())}.")
@click.argument("framework")
@click.option("--environment", default="wordle", show_default=True, help="Name or path of the environment.")
@release_option
@click.option(
    "--plan",
    "plan_name",
    default="quick",
    show_default=True,
    type=click.Choice(list(PLANS)),
    help="How much is measured: 'smoke' sees whether it works, 'quick' takes minutes, 'full' much longer.",
)
@click.option(
    "--sessions", type=click.IntRange(1), help="Largest number of sessions to hold; the plan's when left out."
)
@click.option(
    "--wait", type=click.FloatRange(0.0), help="How long a tool works while sessions are held, in seconds."
)
@click.option(
    "--tool",
    type=click.Choice(["async", "sync"]),
    help="Whether that tool waits on the event loop or blocks its thread.",
)
@click.option("--turns", type=click.IntRange(1), help="How many steps an episode has under load.")
@click.option(
    "--think", type=click.FloatRange(0.0), help="How long the policy thinks before each of them, in seconds."
)
@click.option(
    "--arrival",
    default=CLOSED,
    show_default=True,
    help="'closed' searches how many sessions can be held; 'open:RATE' lets so many sessions arrive per second instead "
    "(at random, or with 'open:RATE:constant' at equal intervals), each of which plays its episode. They arrive for "
    + ", ".join(f"{plan.arrival_s:g} s ({name})" for name, plan in PLANS.items())
    + ", and no more of them than --sessions.",
)
@click.option(
    "--method",
    default=HELD,
    show_default=True,
    type=click.Choice([HELD, BURST_METHOD]),
    help=f"'{HELD}' holds sessions open at the same time; '{BURST_METHOD}' plays bursts of sessions as well, as published "
    "under this name, on the same server, with a tool of 1 s.",
)
@out_folder_option("Folder for records and report; a new one under runs/ when left out.", *RESULTS)
@click.option(
    "--seed", default=0, show_default=True, help="Seed of the fuzzer and of the order of the pairs."
)
@click.option("--build", is_flag=True, help="Build the stack first when it is not ready.")
@output_options
@pointing_to_author
def bench(
    framework: str,
    *,
    environment: str,
    release: str | None,
    plan_name: str,
    sessions: int | None,
    wait: float | None,
    tool: str | None,
    turns: int | None,
    think: float | None,
    arrival: str,
    method: str,
    out: Path | None,
    seed: int,
    build: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure FRAMEWORK: conformance, then connect, reset, step and close latencies, and the concurrency ceiling.

    Where --sessions, --wait, --tool, --turns or --think is left out, the plan says how much. Records and report go to one folder.
    Interrupting keeps what was measured; the report says that it is partial.
    """
    # The statistics behind a benchmark take seconds to import, which no other verb should pay.
    from bench.benchmark import run_benchmark  # noqa: PLC0415
    from bench.recording import Request  # noqa: PLC0415
    from bench.records import RECORDS_FILE, RunExists  # noqa: PLC0415

    console = Console(quiet=quiet, as_json=as_json)
    name = load_environment(environment).name
    chosen = choose_stack(framework, release)
    plan = _adapted(PLANS[plan_name], sessions=sessions, wait=wait, tool=tool, turns=turns, think=think)
    plan = _with_arrival(_with_method(plan, method, wait), arrival, seed)
    if plan != PLANS[plan_name]:
        plan = plan.model_copy(update={"name": f"{plan_name}, changed"})
    if (plan.arrival is not None or plan.burst) and chosen.facts.kind != "server":
        raise click.UsageError(
            f"{chosen.facts.title} runs environments in process; nothing arrives at a server"
        )
    started = datetime.now(UTC)
    folder = (
        out or ROOT / "runs" / chosen.adapter / f"{started:%Y%m%d-%H%M%S}-{chosen.release.version}-{name}"
    )
    if (folder / RECORDS_FILE).exists():
        raise click.UsageError(f"{folder} already holds a run; choose another folder with --out")
    make_ready([chosen], console, build=build)
    request = Request(
        stack=chosen,
        environment=environment,
        plan=plan,
        folder=folder,
        arguments=tuple(sys.argv[1:]),
        seed=seed,
    )
    problem: BaseException | None = None
    try:
        with console.progress() as show:
            asyncio.run(run_benchmark(request, show))
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - what was measured is shown first, then it is raised
        problem = error
    if problem is not None:
        # A folder that held a run before holds somebody else's.
        if not isinstance(problem, RunExists) and (folder / RECORDS_FILE).is_file():
            try:
                _show_report(folder, console)
            except Exception as error:  # noqa: BLE001 - the report's trouble must not hide what happened first
                console.error(str(error))
        raise problem
    _show_report(folder, console)
    if not _has_passed(folder):
        sys.exit(FINDING)


def _has_passed(folder: Path) -> bool:
    from bench.records import Conformance, Live, Rollouts, read_run  # noqa: PLC0415 - as in `bench`

    run = read_run(folder)
    return (
        all(record.status == "passed" for record in run.of(Conformance))
        and all(record.wrong == 0 for record in run.of(Live))
        and all(record.succeeded == record.rollouts for record in run.of(Rollouts))
    )


def _adapted(
    plan: Plan,
    *,
    sessions: int | None,
    wait: float | None,
    tool: str | None,
    turns: int | None,
    think: float | None,
) -> Plan:
    held = {
        "tool_ns": None if wait is None else round(wait * _NANOSECONDS),
        "tool_kind": tool,
        "turns": turns,
        "think_ns": None if think is None else round(think * _NANOSECONDS),
    }
    shape = plan.held.model_copy(update={name: value for name, value in held.items() if value is not None})
    return plan.model_copy(update={"held": shape, **({} if sessions is None else {"cap": sessions})})


def _with_method(plan: Plan, method: str, wait: float | None) -> Plan:
    if method == HELD:
        return plan
    held = plan.held if wait is not None else plan.held.model_copy(update={"tool_ns": _NANOSECONDS})
    sizes = tuple(size for size in BURST_SIZES if size <= plan.cap) or (plan.cap,)
    return plan.model_copy(update={"held": held, "burst": sizes})


def _with_arrival(plan: Plan, text: str, seed: int) -> Plan:
    if text == CLOSED:
        return plan
    try:
        arrival = Arrival.parse(text, seed=seed)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--arrival'") from error
    if plan.burst:
        raise click.UsageError("bursts and arrivals are two methods; leave --arrival or --method out")
    return plan.model_copy(update={"arrival": arrival})


def _show_report(folder: Path, console: Console, out: Path | None = None) -> None:
    from bench.records import RECORDS_FILE, read_run  # noqa: PLC0415 - as in `bench`
    from reports.render import render_run, summarise, write_report  # noqa: PLC0415

    run = read_run(folder)
    page = write_report(render_run(run), out or run.folder)
    lines = summarise(run)
    if run.torn_line is not None:
        console.warn(
            f"{run.folder / RECORDS_FILE}, line {run.torn_line} was cut off and is left out; the run is partial"
        )
    console.result(
        "\n".join([*lines, f"report: {page}"]),
        {"summary": lines, "report": str(page), "records": str(folder)},
    )


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@out_folder_option("Folder for the report; the run's own when left out.", *RESULTS)
@output_options
def report(folder: Path, *, out: Path | None, quiet: bool, as_json: bool) -> None:
    """Write the report of a run FOLDER again, from its records alone: of a benchmark, or of proxies."""
    from bench.serving.records import RECORDS_FILE  # noqa: PLC0415 - as in `bench`

    problem = None if out else folder_problem(folder if folder.is_dir() else folder.parent, RESULTS)
    if problem is not None:
        raise click.UsageError(f"{problem}; choose another folder with --out")
    console = Console(quiet=quiet, as_json=as_json)
    if (folder / RECORDS_FILE).is_file():
        show_proxy_report(folder, console, out)
    else:
        _show_report(folder, console, out)


COMMANDS = (doctor, stack, conformance, bench, report)
__all__ = ["CANNOT_RUN", "COMMANDS", "prove"]
