"""Verbs that serve: serve, balance, deploy, bench-proxy."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from bench.client import RequestFailed, start_worker
from bench.serving.deploy import Deployment, write_deployment
from bench.serving.fleet import (
    Fleet,
    FleetRequest,
    check_port,
    plan_fleet,
    serve_fleet,
    wait_until_over,
)
from bench.serving.plan import DEFAULT_TARGET, Replica
from bench.serving.proxies import ProxyError, find_binary, load_proxy, proxy_names
from bench.serving.running import start_proxy
from bench.session import serve as serve_environment
from bench.session import shut
from bench.stacks import ROOT, Stack
from canonical.catalogue import load_environment
from rosetta.console import Console, output_options
from rosetta.options import choose_stack, framework_option, make_ready, out_folder_option, release_option
from rosetta.signals import hear_signals
from rosetta.sources import playing, source_options

_DRAIN_S = 30.0


def _proxy_option(*, required: bool) -> Callable[[Any], Any]:
    return click.option(
        "--proxy",
        "proxy_name",
        required=required,
        type=click.Choice(proxy_names()),
        help="The proxy before the replicas.",
    )


_target_option = click.option(
    "--target-sessions",
    default=DEFAULT_TARGET,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    help="Sessions to be held at the same time, from which every limit of the proxy follows.",
)
_drain_option = click.option(
    "--drain",
    default=_DRAIN_S,
    show_default=True,
    type=click.FloatRange(0.0),
    help="How long sessions may take to end after SIGTERM or Ctrl-C, in seconds; a second signal ends them at once.",
)
_port_option = click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 picks a free one."
)
_host_option = click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")


@click.command()
@click.argument("environment")
@framework_option
@release_option
@_host_option
@_port_option
@click.option(
    "--replicas", type=click.IntRange(1, 1000), help="How many server processes; more than one needs a proxy."
)
@_proxy_option(required=False)
@_target_option
@_drain_option
@source_options
@click.option("--build", is_flag=True, help="Build the stack first when it is not ready.")
@output_options
def serve(
    environment: str,
    *,
    framework: str,
    release: str | None,
    host: str,
    port: int,
    replicas: int | None,
    proxy_name: str | None,
    target_sessions: int,
    drain: float,
    build: bool,
    quiet: bool,
    as_json: bool,
    **said: Any,
) -> None:
    """Serve ENVIRONMENT with a framework's own server until interrupted; open sessions then have --drain seconds to end.

    ENVIRONMENT may be one of another framework, FRAMEWORK:REFERENCE, which then runs in a stack of its own.

    With --replicas and --proxy it is served by many processes behind one address; a process that dies is started anew.
    SIGHUP starts all of them anew, one after the other, each when its sessions have ended.
    """
    console = Console(quiet=quiet, as_json=as_json)
    chosen = _server_stack(framework, release)
    if proxy_name is None and (replicas or 1) > 1:
        raise click.UsageError(
            f"{replicas} replicas need a proxy before them: add --proxy {', --proxy '.join(proxy_names())}"
        )
    proxy = None if proxy_name is None else load_proxy(proxy_name)
    if proxy is not None:
        find_binary(proxy)
    make_ready([chosen], console, build=build)

    async def run() -> None:
        async with playing(environment, said, console, build=build) as name:
            if proxy is None:
                await _serve_alone(chosen, name, (host, port), drain, console, shown=environment)
                return
            request = FleetRequest(
                stack=chosen, environment=name, replicas=replicas or 1, proxy=proxy, host=host, port=port,
                target_sessions=target_sessions,
            )  # fmt: skip
            await _serve_fleet(request, drain, console)

    asyncio.run(run())


def _server_stack(framework: str, release: str | None) -> Stack:
    chosen = choose_stack(framework, release)
    if chosen.facts.kind != "server":
        raise click.UsageError(
            f"{chosen.facts.title} runs environments in process; there is nothing to serve"
        )
    return chosen


async def _serve_alone(
    stack: Stack, environment: str, address: tuple[str, int], drain_s: float, console: Console, *, shown: str
) -> None:
    label = f"the {stack.label} server"
    async with start_worker(stack.python, stack.worker, label=label) as worker:
        try:
            serving = await serve_environment(worker, environment, host=address[0], port=address[1])
        except RequestFailed as error:
            raise click.ClickException(error.reason) from error
        # Not before: until it serves, a signal ends it at once.
        stop = hear_signals()
        console.result(
            f"{shown} is served by {stack.label} at {serving.url} (Ctrl-C ends it)",
            {"url": serving.url, "settings": serving.settings},
        )
        living = asyncio.create_task(worker.wait())

        async def count() -> dict[str, int]:
            return {label: (await worker.observe()).open_sessions}

        async def close() -> dict[str, int]:
            await shut(worker)
            return await wait_until_over(count, drain_s)

        try:
            await _until(stop, living)
            await _drain(close(), count, drain_s, stop, console)
        finally:
            living.cancel()
            await asyncio.gather(living, return_exceptions=True)


async def _serve_fleet(request: FleetRequest, drain_s: float, console: Console) -> None:
    stop = hear_signals()
    async with serve_fleet(request, on_event=console.say) as fleet:
        console.result(
            f"{request.environment} is served by {request.replicas} processes of {request.stack.label} behind "
            f"{request.proxy.title} at {fleet.url} (Ctrl-C ends it)",
            {"url": fleet.url, "plan": fleet.plan.model_dump(), "processes": fleet.plan.processes},
        )
        await _serve_until_stopped(fleet, drain_s, stop, console)
        await _drain(fleet.drain(drain_s), fleet.replicas.open_sessions, drain_s, stop, console)


async def _serve_until_stopped(fleet: Fleet, limit_s: float, stop: asyncio.Event, console: Console) -> None:
    renew = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, renew.set)

    async def renew_when_told() -> None:
        while True:
            await renew.wait()
            console.say(
                f"all replicas are started anew, each when its sessions have ended, or after {limit_s:g} s"
            )
            lost = await fleet.renew(limit_s)
            told = ", ".join(f"{name}: {count}" for name, count in lost.items()) or "none"
            console.say(f"all replicas are new; sessions that were lost: {told}")
            renew.clear()

    renewing = asyncio.create_task(renew_when_told())
    try:
        await _until(stop, fleet.failure, renewing)
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)


async def _drain(
    close: Coroutine[Any, Any, dict[str, int]],
    count: Callable[[], Awaitable[dict[str, int]]],
    limit_s: float,
    stop: asyncio.Event,
    console: Console,
) -> None:
    console.say(
        f"no new sessions are taken; those that are open have {limit_s:g} s to end (another signal ends them now)"
    )
    stop.clear()
    draining = asyncio.create_task(close)
    again = asyncio.create_task(stop.wait())
    await asyncio.wait({draining, again}, return_when=asyncio.FIRST_COMPLETED)
    again.cancel()
    if draining.done():
        left = draining.result()
    else:
        draining.cancel()
        left = {name: held for name, held in (await count()).items() if held}
    if left:
        each = ", ".join(f"{name}: {held}" for name, held in left.items())
        total = sum(left.values())
        console.say(f"{'1 session was' if total == 1 else f'{total:,} sessions were'} cut off ({each})")


async def _until(stop: asyncio.Event, *failures: asyncio.Task[None]) -> None:
    """Wait for the signal, or for the error of one of the tasks."""
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({stopped, *failures}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    for failure in failures:
        if failure.done():
            await failure


@click.command()
@framework_option
@release_option
@_host_option
@_port_option
@_proxy_option(required=True)
@click.option(
    "--at",
    "places",
    multiple=True,
    required=True,
    help="HOST:PORT of a replica that runs already; may be repeated.",
)
@_target_option
@_drain_option
@output_options
def balance(
    *,
    framework: str,
    release: str | None,
    host: str,
    port: int,
    proxy_name: str,
    places: tuple[str, ...],
    target_sessions: int,
    drain: float,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run a proxy before server processes that run already, here or on other machines."""
    console = Console(quiet=quiet, as_json=as_json)
    chosen = _server_stack(framework, release)
    proxy = load_proxy(proxy_name)
    find_binary(proxy)
    replicas = tuple(_place(number, place) for number, place in enumerate(places, 1))

    async def run() -> None:
        stop = hear_signals()
        check_port(host, port)
        plan = plan_fleet(chosen, replicas, host=host, port=port, target_sessions=target_sessions)
        for sentence in plan.shortages():
            console.say(sentence)
        with tempfile.TemporaryDirectory(prefix="rosetta-", dir="/tmp") as folder:
            async with start_proxy(proxy, plan, Path(folder), on_event=console.say) as (running, failure):
                console.result(
                    f"{proxy.title} stands before {len(replicas)} replicas at {host}:{port} (Ctrl-C ends it)",
                    {"host": host, "port": port, "plan": plan.model_dump()},
                )
                await _until(stop, failure)
                await running.drain()
                console.say(f"no new sessions are taken; this ends in {drain:g} s, or at another signal")
                stop.clear()
                try:
                    async with asyncio.timeout(drain):
                        await _until(stop, failure)
                except TimeoutError:
                    return

    asyncio.run(run())


def _place(number: int, place: str) -> Replica:
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65_535:
        raise click.BadParameter(f"{place!r} is no HOST:PORT", param_hint="'--at'")
    return Replica(name=f"r{number}", host=host.strip("[]"), port=int(port))


@click.command()
@click.argument("environment")
@framework_option
@release_option
@click.option(
    "--replicas",
    default=4,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Server processes per machine.",
)
@_proxy_option(required=True)
@_target_option
@click.option(
    "--drain",
    default=300,
    show_default=True,
    type=click.IntRange(0, 86_400),
    help="As of serve, in whole seconds.",
)
@click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(1, 65535), help="Where clients find it."
)
@out_folder_option("The folder to write.", "README.md", "Dockerfile", "compose.yaml")
@output_options
def deploy(
    environment: str,
    *,
    framework: str,
    release: str | None,
    replicas: int,
    proxy_name: str,
    target_sessions: int,
    drain: int,
    port: int,
    out: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Write a folder that serves ENVIRONMENT elsewhere: containers, a Hugging Face Space, a Slurm job, a proxy's configuration."""
    console = Console(quiet=quiet, as_json=as_json)
    if out is None:
        raise click.UsageError("name the folder to write with --out")
    load_environment(environment)
    chosen = _server_stack(framework, release)
    proxy = load_proxy(proxy_name)
    deployment = Deployment(chosen, environment, replicas, proxy, port, target_sessions, drain)
    validated = asyncio.run(write_deployment(deployment, out))
    judged = (
        f"{proxy.title} has validated its configuration"
        if validated
        else f"{proxy.title} is not installed here, so nobody has validated its configuration"
    )
    console.result(
        f"{out} is ready; {judged}. README.md there says how to start it.",
        {"folder": str(out), "validated": validated, "proxy": proxy.name, "replicas": replicas},
    )


@click.command("bench-proxy")
@click.option(
    "--proxy",
    "names",
    multiple=True,
    type=click.Choice(proxy_names()),
    help="May be repeated. All that are installed when left out.",
)
@click.option(
    "--framework",
    "--as",
    "frameworks",
    multiple=True,
    default=("openenv",),
    show_default=True,
    help="A framework; with --fault it may be repeated.",
)
@release_option
@click.option("--environment", default="wordle", show_default=True, help="Name or path of the environment.")
@click.option(
    "--sessions",
    default=2000,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    help="How many are to be held.",
)
@click.option(
    "--replicas", default=2, show_default=True, type=click.IntRange(1, 1000), help="Server processes."
)
@click.option(
    "--limits",
    type=click.Choice(["default", "derived"]),
    help="Only the proxy's own limits, or only the derived ones.",
)
@click.option("--turns", default=2, show_default=True, type=click.IntRange(1), help="Steps of each session.")
@click.option(
    "--wait",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.0),
    help="How long its tool works, in seconds.",
)
@click.option(
    "--generators", default=1, show_default=True, type=click.IntRange(1, 64), help="Load generator processes."
)
@click.option(
    "--patience",
    default=15.0,
    show_default=True,
    type=click.FloatRange(1.0),
    help="How long a connection may take, in seconds.",
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    help="Instead of measuring limits, do this while sessions are held; may be repeated, 'all' does all that can be done here.",
)
@out_folder_option(
    "Folder for records and report; a new one under runs/ when left out.", "report.md", "index.html"
)
@output_options
def bench_proxy(
    *,
    names: tuple[str, ...],
    frameworks: tuple[str, ...],
    release: str | None,
    environment: str,
    sessions: int,
    replicas: int,
    limits: str | None,
    turns: int,
    wait: float,
    generators: int,
    patience: float,
    faults: tuple[str, ...],
    out: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Hold sessions through proxies: with their own limits and with the derived ones, or while things break.

    Records and report go to one folder. Interrupting keeps what was measured; the report says that it is partial.
    """
    # The statistics behind a benchmark take seconds to import, which no other verb should pay.
    from bench.serving.caps import VARIANTS, CapsRequest, measure_caps  # noqa: PLC0415
    from bench.serving.faults import FAULTS, play_faults  # noqa: PLC0415
    from bench.serving.records import RECORDS_FILE  # noqa: PLC0415

    console = Console(quiet=quiet, as_json=as_json)
    stacks = [_server_stack(framework, release) for framework in dict.fromkeys(frameworks)]
    if len(stacks) > 1 and not faults:
        raise click.UsageError("limits are measured under one framework at a time; several go with --fault")
    if len(stacks) > 1 and release is not None:
        raise click.UsageError("a release is of one framework; leave --release out, or name one framework")
    unknown = [fault for fault in faults if fault not in {*FAULTS, "all"}]
    if unknown:
        raise click.UsageError(f"there is no fault {unknown[0]!r}; there are {', '.join(FAULTS)}, and 'all'")
    proxies = [load_proxy(name) for name in names or proxy_names()]
    if not names:
        proxies = [proxy for proxy in proxies if proxy.find() is not None]
    for proxy in proxies:
        find_binary(proxy)
    if not proxies:
        raise ProxyError(
            "no proxy is installed: "
            + "; ".join(f"{one}: {load_proxy(one).how_to_get}" for one in proxy_names())
        )
    make_ready(stacks, console, build=False)
    folder = out or ROOT / "runs" / "proxies" / f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    if (folder / RECORDS_FILE).exists():
        raise click.UsageError(f"{folder} already holds a run; choose another folder with --out")
    request = CapsRequest(
        stack=stacks[0], environment=environment, proxies=proxies,
        variants=[variant for variant in VARIANTS if limits in {None, variant}],
        sessions=sessions, replicas=replicas, turns=turns, tool_s=wait, folder=folder,
        connect_timeout_s=patience, processes=generators, arguments=tuple(sys.argv[1:]),
    )  # fmt: skip
    wanted = list(dict.fromkeys(faults))
    if "all" in wanted:
        obstacles = {name: deed.obstacle() for name, deed in FAULTS.items()}
        wanted = [name for name, obstacle in obstacles.items() if obstacle is None]
        for name, obstacle in obstacles.items():
            if obstacle is not None:
                console.say(f"the fault '{name}' is left out: {obstacle}")
    try:
        with console.progress() as show:
            if wanted:
                asyncio.run(play_faults(request, stacks, wanted, on_progress=show, on_event=console.say))
            else:
                asyncio.run(measure_caps(request, on_progress=show, on_event=console.say))
    finally:
        if (folder / RECORDS_FILE).is_file():
            show_proxy_report(folder, console)


def show_proxy_report(folder: Path, console: Console, out: Path | None = None) -> None:
    """Write the report of a run of proxies from its records, and show its summary.

    Args:
        folder: Where the records are.
        console: Where the summary goes.
        out: Where the report goes; to the records when left out.
    """
    from bench.serving.records import read_proxy_run  # noqa: PLC0415 - as in `bench_proxy`
    from reports.proxies import render_proxy_run  # noqa: PLC0415
    from reports.render import write_report  # noqa: PLC0415

    rendered = render_proxy_run(read_proxy_run(folder))
    page = write_report(rendered, out or folder)
    lines = list(rendered.summary)
    console.result(
        "\n".join([*lines, f"report: {page}"]),
        {"summary": lines, "report": str(page), "records": str(folder)},
    )


COMMANDS = (serve, balance, deploy, bench_proxy)
