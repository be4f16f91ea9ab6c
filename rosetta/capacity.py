"""Verbs about size: plan, which says what many sessions need, and bench-settings, which says what settings change."""

from __future__ import annotations

import asyncio
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.stacks import ROOT, Stack
from canonical.catalogue import load_environment
from rosetta.console import Console, output_options
from rosetta.options import choose_stack, framework_option, make_ready, out_folder_option, release_option

if TYPE_CHECKING:
    from bench.planner import CapacityPlan, CostModel

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_LOADS = "50,100,200,400"


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases only
    """Take a time with its unit, such as `20s`, `250ms` or `2m`; a bare number is seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", str(value).strip())
        if found is None or (found[2] and found[2] not in _UNITS):
            self.fail(f"{value!r} is no time; write 20s, 250ms or 2m", param, ctx)
        return float(found[1]) * _UNITS[found[2] or "s"]


class Size(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases only
    """Take an amount of memory, such as `16G` or `512M`; a bare number is bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return bytes."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", str(value).strip())
        if found is None:
            self.fail(f"{value!r} is no amount of memory; write 16G or 512M", param, ctx)
        return round(float(found[1]) * _SIZES[found[2]])


class Loads(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases only
    """Take ascending numbers of sessions, such as `50,100,200,400`."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers."""
        if isinstance(value, tuple):
            return value
        words = str(value).split(",")
        numbers = tuple(int(word) for word in words if word.strip().isdecimal())
        if (
            len(numbers) != len(words)
            or len(numbers) < 2
            or sorted(set(numbers)) != list(numbers)
            or not numbers[0]
        ):
            self.fail(f"{value!r} is not two or more ascending numbers, such as {_LOADS}", param, ctx)
        return numbers


@click.command()
@framework_option
@release_option
@click.option("--environment", default="wordle", show_default=True, help="Name or path of the environment.")
@click.option("--sessions", type=click.IntRange(1), help="Sessions that are held at the same time.")
@click.option(
    "--turns", default=8, show_default=True, type=click.IntRange(1), help="Tool calls of an episode."
)
@click.option(
    "--think", default="20s", show_default=True, type=Duration(), help="Time of the policy before each call."
)
@click.option("--tool", default="1s", show_default=True, type=Duration(), help="Time that each tool works.")
@click.option(
    "--costs",
    type=click.Path(exists=True, path_type=Path),
    help="Run folder with measured costs; the newest of this machine, or the published one, when left out.",
)
@click.option(
    "--cores", type=click.IntRange(1), help="Cores of a node for servers; this machine's when left out."
)
@click.option("--memory", type=Size(), help="Memory of a node; this machine's when left out.")
@click.option(
    "--nofile", type=click.IntRange(1), help="Descriptors of a process; this machine's limit when left out."
)
@click.option(
    "--utilisation",
    default=0.6,
    show_default=True,
    type=click.FloatRange(0.0, 1.0, min_open=True),
    help="Share of its core that a replica may use.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Measure: fit the costs, predict other loads, and compare with what is measured.",
)
@click.option(
    "--loads", default=_LOADS, show_default=True, type=Loads(), help="With --check, the numbers of sessions."
)
@click.option(
    "--trials",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="With --check, how often each cell is measured.",
)
@click.option(
    "--ceiling",
    "searched",
    type=click.Path(exists=True, path_type=Path),
    help="Run folder of a bench: compare the ceiling that it found with the one that the costs predict.",
)
@out_folder_option("With --check, the folder for records and report; a new one under runs/ when left out.")
@click.option("--build", is_flag=True, help="With --check, build the stack first when it is not ready.")
@output_options
def plan(
    framework: str,
    *,
    release: str | None,
    environment: str,
    sessions: int | None,
    turns: int,
    think: float,
    tool: float,
    costs: Path | None,
    cores: int | None,
    memory: int | None,
    nofile: int | None,
    utilisation: float,
    check: bool,
    loads: tuple[int, ...],
    trials: int,
    searched: Path | None,
    out: Path | None,
    build: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Say how many nodes, replicas and descriptors many sessions need, from measured costs, with the arithmetic.

    With --check the costs are measured first, and what they predict for four loads is compared with what is measured.
    """
    console = Console(quiet=quiet, as_json=as_json)
    stack = choose_stack(framework, release)
    if stack.facts.kind != "server":
        raise click.UsageError(
            f"{stack.facts.title} runs environments in process, so there are no replicas to plan"
        )
    if sessions is None and searched is None and not check:
        raise click.UsageError("say how many --sessions are to be held, or --check the planner")
    if check:
        if costs is not None:
            raise click.UsageError("--check measures the costs anew; leave --costs out")
        make_ready([stack], console, build=build)
        costs = _check(stack, environment, loads, trials=trials, out=out, console=console)
    if sessions is None and searched is None:
        return
    folder = costs or _newest(stack, load_environment(environment).name)
    if folder is None:
        raise click.ClickException(
            f"no costs of {stack.label} have been measured yet: rosetta plan --check --as {framework}"
        )
    if searched is not None:
        _compare_ceilings(folder, searched, console)
    if sessions is None:
        return
    _plan(
        folder,
        (framework, environment),
        sessions,
        (turns, think, tool),
        (cores, memory, nofile),
        utilisation=utilisation,
        console=console,
    )


def _folder(stack: Stack) -> Path:
    return ROOT / "runs" / "capacity" / stack.label


def _newest(stack: Stack, environment: str) -> Path | None:
    own = sorted(_folder(stack).glob(f"*-{environment}/records.jsonl"))
    published = ROOT / "reports" / "published" / "capacity" / f"{stack.label}-{environment}" / "records.jsonl"
    return own[-1].parent if own else published.parent if published.is_file() else None


def _check(
    stack: Stack, environment: str, loads: tuple[int, ...], *, trials: int, out: Path | None, console: Console
) -> Path:
    # The statistics behind it take seconds to import, which no other verb should pay.
    from bench.calibration import calibrate  # noqa: PLC0415
    from bench.plan import QUICK  # noqa: PLC0415
    from bench.recording import Request  # noqa: PLC0415
    from bench.records import read_run  # noqa: PLC0415
    from reports.capacity import render_capacity  # noqa: PLC0415
    from reports.render import write_report  # noqa: PLC0415

    name = load_environment(environment).name
    folder = out or _folder(stack) / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{name}"
    request = Request(
        stack=stack, environment=environment, plan=QUICK, folder=folder, arguments=tuple(sys.argv[1:])
    )
    with console.progress() as show:
        asyncio.run(calibrate(request, loads, trials=trials, on_progress=show))
    rendered = render_capacity(read_run(folder))
    page = write_report(rendered, folder)
    console.result(
        "\n".join([*rendered.summary, f"report: {page}"]),
        {"summary": list(rendered.summary), "report": str(page), "records": str(folder)},
    )
    return folder


def _compare_ceilings(folder: Path, searched: Path, console: Console) -> None:
    from bench.planner import NotEnough, check_ceilings, cost_of  # noqa: PLC0415 - as in `_check`
    from bench.records import read_run  # noqa: PLC0415

    try:
        found = check_ceilings(cost_of(read_run(folder)), read_run(searched))
    except NotEnough as error:
        raise click.ClickException(f"{error} (costs from {folder})") from error
    if not found:
        raise click.ClickException(f"{searched} has searched no ceiling by the written criterion")
    lines = []
    for one in found:
        off = "no error can be told" if one.error is None else f"error {one.error:+.1%}"
        upper = "none seen" if one.upper is None else f"{one.upper:,}"
        predicted = "without limit" if one.predicted is None else f"{one.predicted:,}"
        lines.append(
            f"ceiling with a tool of {one.tool_s:g} s and {one.think_s:g} s of thinking: predicted {predicted}, found "
            f"{one.lower:,} passed and {upper} failed ({one.stopped_by}): {off}"
        )
    console.result("\n".join(lines), [{**one.model_dump(mode="json"), "error": one.error} for one in found])


def _plan(
    folder: Path,
    served: tuple[str, str],
    sessions: int,
    shape: tuple[int, float, float],
    given: tuple[int | None, int | None, int | None],
    *,
    utilisation: float,
    console: Console,
) -> None:
    from bench.machine import Machine  # noqa: PLC0415 - as in `_check`
    from bench.planner import EpisodeModel, Impossible, Node, NotEnough, cost_of, plan_capacity  # noqa: PLC0415
    from bench.records import read_run  # noqa: PLC0415

    turns, think, tool = shape
    node = Node.of(Machine.read())
    changes = dict(zip(("cores", "memory_bytes", "nofile"), given, strict=True))
    node = node.model_copy(update={key: value for key, value in changes.items() if value is not None})
    try:
        found = plan_capacity(
            sessions,
            EpisodeModel(turns=turns, think_s=think, tool_s=tool),
            cost_of(read_run(folder)),
            node,
            utilisation=utilisation,
        )
    except (Impossible, NotEnough) as error:
        raise click.ClickException(f"{error} (costs from {folder})") from error
    command = _serve_command(found, *served)
    console.result(
        _text(found, folder, command),
        {"costs": str(folder), "serve": command, **found.model_dump(mode="json")},
    )


def _serve_command(found: CapacityPlan, framework: str, environment: str) -> str:
    """Return the command that serves a node's share."""
    share = -(-found.sessions // found.nodes)
    return (
        f"rosetta serve {environment} --as {framework} --replicas {found.replicas_per_node} --proxy envoy "
        f"--target-sessions {share}"
    )


def _text(found: CapacityPlan, folder: Path, command: str) -> str:
    node = found.node
    lines = [
        (
            f"{found.sessions:,} sessions of {found.episode.turns} turns, {found.episode.think_s:g} s of thinking and a tool of "
            f"{found.episode.tool_s:g} s: {found.replicas:,} replicas on {found.nodes:,} nodes"
        ),
        f"a replica holds {found.per_replica:,} sessions, bound by {found.bound_by}",
        f"on each node: {command}",
        f"node: {node.cores} cores, {node.memory_bytes / 2**30:.1f} GiB, {node.nofile:,} descriptors per process",
        f"costs: {found.cost.source} ({folder})",
        *_costs(found.cost),
        "",
        "arithmetic",
        *(f"  {line.name} = {line.formula} = {_number(line.value)} {line.unit}" for line in found.lines),
        "",
        "settings of each replica",
        *(f"  {name} = {value:,}" for name, value in found.settings.items()),
        "",
        "limits of the proxy",
        *(f"  {name} = {value:,}" for name, value in found.proxy.items()),
        *(["", *(f"note: {warning}" for warning in found.warnings)] if found.warnings else []),
    ]
    return "\n".join(lines)


def _costs(cost: CostModel) -> list[str]:
    return [
        (
            f"  CPU {cost.session_s * 1e3:.3f} ms per session, {cost.step_s * 1e3:.3f} ms per step, "
            f"{cost.second_s * 1e3:.2f} ms per second"
        ),
        (
            f"  memory {cost.memory_base / 2**20:.0f} MiB and {cost.memory_session / 1024:.1f} KiB per session; descriptors "
            f"{cost.fds_base:.0f} and {cost.fds_session:.2f}; threads {cost.threads_base:.0f} and {cost.threads_session:.2f}"
        ),
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


@click.command("bench-settings")
@click.argument("framework")
@release_option
@click.option("--environment", default="wordle", show_default=True, help="Name or path of the environment.")
@click.option(
    "--sessions", default=400, show_default=True, type=click.IntRange(1), help="Sessions that are held."
)
@click.option(
    "--pairs",
    default=6,
    show_default=True,
    type=click.IntRange(6),
    help="How often each setting is measured; fewer than six pairs give no interval.",
)
@click.option(
    "--budget",
    default="220s",
    show_default=True,
    type=Duration(),
    help="When no further round begins any more.",
)
@click.option(
    "--tool",
    default="async",
    show_default=True,
    type=click.Choice(["async", "sync"]),
    help="Whether the tool waits on the event loop or blocks its thread.",
)
@click.option(
    "--setting", "only", multiple=True, help="A setting to compare, such as gc=python; all when left out."
)
@out_folder_option("Folder for records and report; a new one under runs/ when left out.")
@click.option("--build", is_flag=True, help="Build the stack first when it is not ready.")
@output_options
def bench_settings(
    framework: str,
    *,
    release: str | None,
    environment: str,
    sessions: int,
    pairs: int,
    budget: float,
    tool: str,
    only: tuple[str, ...],
    out: Path | None,
    build: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure what settings of the server of FRAMEWORK change, against the defaults of `rosetta serve`, as ratios."""
    from bench.plan import QUICK  # noqa: PLC0415 - as in `_check`
    from bench.recording import Request  # noqa: PLC0415
    from bench.records import SettingRatio, read_run  # noqa: PLC0415
    from bench.settings import UnknownSetting, compare_settings  # noqa: PLC0415
    from reports.render import write_report  # noqa: PLC0415
    from reports.settings import render_settings  # noqa: PLC0415

    console = Console(quiet=quiet, as_json=as_json)
    stack = choose_stack(framework, release)
    if stack.facts.kind != "server":
        raise click.UsageError(
            f"{stack.facts.title} runs environments in process, so it has no server settings"
        )
    name = load_environment(environment).name
    make_ready([stack], console, build=build)
    folder = out or ROOT / "runs" / "settings" / stack.label / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{name}"
    request = Request(
        stack=stack, environment=environment, plan=QUICK, folder=folder, arguments=tuple(sys.argv[1:])
    )
    try:
        with console.progress() as show:
            asyncio.run(
                compare_settings(
                    request,
                    sessions=sessions,
                    rounds=pairs,
                    budget_s=budget,
                    tool_kind=tool,
                    only=only,
                    on_progress=show,
                )
            )
    except UnknownSetting as error:
        raise click.UsageError(str(error)) from error
    run = read_run(folder)
    rendered = render_settings(run)
    page = write_report(rendered, folder)
    if not run.of(SettingRatio):
        raise click.ClickException(
            f"nothing was compared before the time was up; give a larger --budget than {budget:g} s, or fewer --sessions. "
            f"What was measured: {page}"
        )
    console.result(
        "\n".join([*rendered.summary, f"report: {page}"]),
        {"summary": list(rendered.summary), "report": str(page), "records": str(folder)},
    )


COMMANDS = (plan, bench_settings)
