"""Verbs about environments: envs, play, rollout, check."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import click

from bench.client import start_worker
from bench.progress import Progress
from bench.session import connect_session, serve
from canonical.adapter import Session
from canonical.catalogue import definition_path, environment_names, load_environment
from canonical.checker import (
    DEAR_EPISODES,
    EPISODES,
    CheckReport,
    Outcome,
    Promise,
    check_environment,
    planned_episodes,
)
from canonical.content import ErrorCode, Message
from canonical.environment import Environment, NoOracleError
from canonical.episode import Episode
from canonical.policy import ModelPolicy, OraclePolicy, Policy, RandomPolicy, ReplayPolicy, ScriptedPolicy
from canonical.reference import ReferenceSession
from canonical.rollout import roll_out
from canonical.transcript import Transcript, end_text, step_text
from rosetta.actions import ActionsError, read_actions, read_transcripts
from rosetta.authorship import check_hint, pointing_to_author
from rosetta.console import FINDING, Console, output_options, show
from rosetta.keyboard import Keyboard, Misspelled
from rosetta.options import choose_stack, make_ready, out_file_option, release_option


@click.command()
@output_options
def envs(*, quiet: bool, as_json: bool) -> None:
    """List the environments of the catalogue."""
    console = Console(quiet=quiet, as_json=as_json)
    rows: list[dict[str, Any]] = []
    for name in environment_names():
        environment = load_environment(name)
        tasks = environment.tasks()
        rows.append(
            {
                "name": name,
                "version": environment.version,
                "splits": {split: len(tasks.split(split)) for split in tasks.splits},
                "tools": [tool.name for tool in environment.tools],
                "max_turns": environment.max_turns,
                "reward": f"{environment.reward.aggregation} in [{environment.reward.low:g}, {environment.reward.high:g}]",
            }
        )
    text = "\n\n".join(
        f"{row['name']} (version {row['version']})\n"
        f"  tasks    {', '.join(f'{split} {size:,}' for split, size in row['splits'].items())}\n"
        f"  tools    {', '.join(row['tools'])}\n"
        f"  turns    at most {row['max_turns']}\n"
        f"  reward   {row['reward']}"
        for row in rows
    )
    console.result(text, rows)


@click.command()
@click.argument("environment")
@click.option("--task", help="Task id; the first one for training when left out.")
@click.option("--seed", default=0, show_default=True, help="Seed of the episode.")
@pointing_to_author
def play(environment: str, *, task: str | None, seed: int) -> None:
    """Play ENVIRONMENT yourself, in the terminal.

    With one tool that takes one argument, a line is that argument; otherwise write the tool's name and its first argument.
    """
    loaded = load_environment(environment)
    tasks = loaded.tasks()
    asyncio.run(_play(loaded, task or tasks.split(tasks.training_split)[0].id, seed))


async def _play(environment: Environment[Any], task: str, seed: int) -> None:
    episode = await Episode.open_async(environment, task, seed=seed)
    keyboard = Keyboard(environment.tools, input)
    try:
        show(_messages_text(episode.prompt))
        show(f"\n{keyboard.how_to_act()}\nCtrl-D stops.\n")
        while episode.cause is None:
            try:
                line = await asyncio.to_thread(input, "> ")
                if not line.strip():
                    continue
                if (told := keyboard.help(line)) is not None:
                    show(f"{told}\n")
                    continue
                action = await asyncio.to_thread(keyboard.action, line)
            except EOFError:
                click.echo("stopped")
                return
            except Misspelled as error:
                show(f"{error}\n")
                continue
            result = await episode.step_async(action)
            show(f"{result.observation.text}\n")
        click.echo(f"{episode.cause.ending}, {episode.cause}: reward {episode.total:g}")
    finally:
        await episode.close_async()


def _messages_text(messages: tuple[Message, ...]) -> str:
    return "\n\n".join(message.text for message in messages)


@click.command()
@click.argument("environment")
@click.option(
    "--policy",
    "policy_name",
    default="oracle",
    show_default=True,
    type=click.Choice(["oracle", "random", "scripted", "replay", "model"]),
    help="What decides the actions.",
)
@click.option(
    "--actions",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="scripted: one action per line, a call as JSON or a JSON text. replay: transcripts.",
)
@click.option("--model", help="model: the name that the endpoint knows it by.")
@click.option(
    "--base-url", help="model: address of an OpenAI-compatible API, such as http://127.0.0.1:8000/v1."
)
@click.option("--temperature", type=float, help="model: sent with every request.")
@click.option("--task", "task_ids", multiple=True, help="Task id; may be given several times.")
@click.option("--split", help="Split to take tasks from; all, those for training first, when left out.")
@click.option(
    "--episodes",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    help="How many tasks to play.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the episodes and of the random policy.")
@click.option(
    "--framework", "--as", "framework", help="A framework; the canonical episode itself when left out."
)
@release_option
@click.option("--build", is_flag=True, help="Build its stack first when it is not ready.")
@out_file_option("Write transcripts to this file, one per line.")
@output_options
@pointing_to_author
def rollout(
    environment: str,
    *,
    policy_name: str,
    actions: Path | None,
    model: str | None,
    base_url: str | None,
    temperature: float | None,
    task_ids: tuple[str, ...],
    split: str | None,
    episodes: int,
    seed: int,
    framework: str | None,
    release: str | None,
    build: bool,
    out: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Let a policy play ENVIRONMENT, and show each step."""
    console = Console(quiet=quiet, as_json=as_json)
    loaded = load_environment(environment)
    tasks = loaded.tasks()
    # Those for training first: whoever names no split does not mean the tasks that others are to be judged by.
    splits = [split] if split else sorted(tasks.splits, key=lambda name: name != tasks.training_split)
    listed = [task.id for name in splits for task in tasks.split(name)]
    chosen = list(task_ids) or listed[:episodes]
    for task in chosen:
        tasks.get(task)
    if framework is None and (release is not None or build):
        raise click.UsageError("--release and --build are about a framework; name it with --framework")
    if policy_name == "model" and not model:
        raise click.UsageError("the policy 'model' needs --model")
    if policy_name in {"scripted", "replay"} and actions is None:
        raise click.UsageError(f"the policy '{policy_name}' needs --actions FILE")
    try:
        policies = _policies(policy_name, loaded, actions, seed, model, base_url, temperature)
    except ActionsError as error:
        raise click.BadParameter(str(error), param_hint="'--actions'") from error

    if out is not None:
        # Opened before anything is played, and written to as episodes end: what was played is never lost.
        out.write_bytes(b"")

    async def run() -> list[Transcript]:
        played = []
        async with _sessions(environment, loaded, framework, release, console, build=build) as connect:
            for index, task in enumerate(chosen):
                if not (quiet or as_json):
                    show(f"--- {task}, seed {seed}")
                async with connect() as session:
                    transcript = await roll_out(
                        session,
                        policies[index % len(policies)],
                        task=task,
                        seed=seed,
                        environment=loaded.name,
                        version=loaded.version,
                        watch=None if quiet or as_json else lambda step: show(step_text(step)),
                    )
                played.append(transcript)
                if any(
                    step.result.observation.error is ErrorCode.INTERNAL_ERROR for step in transcript.steps
                ):
                    failure = (
                        session.episode.failure
                        if isinstance(session, ReferenceSession) and session.episode
                        else None
                    )
                    if failure is not None:
                        console.place(failure, definition_path(loaded))
                    console.warn(
                        f"a tool of {loaded.name} raised what is no ToolError; {check_hint(environment)}"
                    )
                if out is not None:
                    with out.open("a", encoding="ascii") as file:
                        file.write(transcript.to_line() + "\n")
        return played

    try:
        transcripts = asyncio.run(run())
    except NoOracleError as error:
        raise click.ClickException(f"{error}; --policy random plays without one") from None
    lines = [
        f"{one.task}: {end_text(one.steps[-1].result) if one.steps else 'no step'}, {len(one.steps)} steps, "
        f"reward {one.total:g}"
        for one in transcripts
    ]
    console.result("\n".join(lines), [transcript.to_json() for transcript in transcripts])


def _policies(  # noqa: PLR0917 - the options of one command
    name: str,
    environment: Environment[Any],
    actions: Path | None,
    seed: int,
    model: str | None,
    base_url: str | None,
    temperature: float | None,
) -> list[Policy]:
    if name == "random":
        return [RandomPolicy(seed, environment)]
    if name == "model" and model is not None:
        return [ModelPolicy(model, base_url=base_url, temperature=temperature)]
    if name == "scripted" and actions is not None:
        return [ScriptedPolicy(read_actions(actions))]
    if name == "replay" and actions is not None:
        return list(map(ReplayPolicy, read_transcripts(actions)))
    return [OraclePolicy(environment)]


@asynccontextmanager
async def _sessions(
    source: str,
    environment: Environment[Any],
    framework: str | None,
    release: str | None,
    console: Console,
    *,
    build: bool,
) -> AsyncIterator[Any]:
    """Yield a function that connects a session: to the canonical episode, or through a framework's stack."""
    if framework is None:

        @asynccontextmanager
        async def reference() -> AsyncIterator[Session]:
            yield ReferenceSession(environment)

        yield reference
        return
    stack = choose_stack(framework, release)
    make_ready([stack], console, build=build)
    async with AsyncExitStack() as running:
        client = await running.enter_async_context(start_worker(stack.python, stack.adapter))
        url = None
        if stack.facts.kind == "server":
            host = await running.enter_async_context(start_worker(stack.python, stack.adapter))
            url = (await serve(host, source)).url
        yield lambda: connect_session(client, source, url=url)


@click.command()
@click.argument("environment")
@click.option(
    "--episodes",
    type=click.IntRange(1, 1_000_000),
    help=f"Random episodes per promise; {EPISODES} when left out, or {DEAR_EPISODES} where an episode costs seconds.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the random episodes.")
@output_options
def check(environment: str, *, episodes: int | None, seed: int, quiet: bool, as_json: bool) -> None:
    """Check that ENVIRONMENT keeps its promises; show the smallest failing example of each broken one."""
    console = Console(quiet=quiet, as_json=as_json)
    loaded = load_environment(environment)
    loaded.require()
    wanted = planned_episodes(loaded) if episodes is None else episodes
    promises = list(Promise)
    with console.progress() as show_bar:

        def hear(promise: Promise, done: int) -> None:
            came = promises.index(promise) * wanted + done
            show_bar(Progress("promises", came, len(promises) * wanted, promise))

        report = check_environment(loaded, episodes=wanted, seed=seed, on_promise=hear)
    console.result(report.render(), _report_value(report))
    if not report.passed:
        sys.exit(FINDING)


def _report_value(report: CheckReport) -> Any:
    return [
        {
            "promise": one.promise,
            "outcome": one.outcome,
            "sentence": one.sentence,
            "example": list(one.example),
        }
        for one in report.results
    ]


COMMANDS = (envs, play, rollout, check)
__all__ = ["COMMANDS", "Outcome"]
