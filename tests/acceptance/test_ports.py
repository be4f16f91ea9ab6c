"""Ports: environments of other frameworks behave under a framework as they do at home, in crowds and when their process dies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.porting.episodes import PortEpisode, play_session, record_episodes
from bench.porting.port import bridged, open_side
from bench.porting.records import read_port
from bench.porting.sources import RunningSource, run_source
from bench.porting.tried import tried_sources
from bench.porting.verify import Side, verify
from bench.session import connect_session
from bench.stacks import build_stack, find_stack
from canonical.adapter import SessionError
from canonical.bridge.environment import BridgedEnvironment
from canonical.step import Cause
from rosetta.__main__ import cli
from rosetta.console import FINDING

SESSIONS = 512
Work = Callable[[RunningSource, BridgedEnvironment, Side, list[PortEpisode]], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module", autouse=True)
def stacks() -> None:
    for framework in ("skyrl", "openenv", "gem"):
        build_stack(find_stack(framework))


def lent_to_openenv(work: Work, episodes: int) -> None:
    """Lend the Wordle that was written by hand for SkyRL Gym to OpenEnv's server, and do something with it."""
    (source,) = (one for one in tried_sources("skyrl") if one.baseline)

    async def run() -> None:
        async with (
            run_source(source.request("skyrl")) as running,
            open_side(find_stack("openenv"), running.environment) as side,
        ):
            environment = bridged(running)
            random_ones = episodes * 2 // 3
            recorded = await record_episodes(environment, random_ones, seed=1, pool=source.pool())
            await work(running, environment, side, recorded[:episodes])

    asyncio.run(run())


@pytest.mark.slow
def test_hundreds_of_sessions_over_one_bridge_show_what_each_would_show_alone() -> None:
    """All are open at the same moment, and each takes its steps while the others take theirs."""

    async def work(
        _: RunningSource, environment: BridgedEnvironment, side: Side, episodes: list[PortEpisode]
    ) -> None:
        async def alone(episode: PortEpisode) -> list[Any]:
            async with connect_session(side.worker, side.environment, url=side.url) as session:
                played = await play_session(session, episode, environment)
                return [step.result for step in played.transcript.steps]

        are_open = asyncio.Event()
        opened = 0

        async def together(episode: PortEpisode) -> list[Any]:
            nonlocal opened
            async with connect_session(side.worker, side.environment, url=side.url) as session:
                await session.open(episode.task, episode.seed)
                opened += 1
                if opened == len(episodes):
                    are_open.set()
                await are_open.wait()
                return [await session.step(action) for action in episode.read_actions()]

        one_by_one = [await alone(episode) for episode in episodes]
        at_once = await asyncio.gather(*map(together, episodes))
        assert len(episodes) == opened == SESSIONS
        assert at_once == one_by_one

    lent_to_openenv(work, SESSIONS)


@pytest.mark.slow
def test_a_source_that_is_killed_ends_every_session_with_a_word_and_none_hangs() -> None:
    async def work(
        running: RunningSource, _: BridgedEnvironment, side: Side, episodes: list[PortEpisode]
    ) -> None:
        is_dead = asyncio.Event()
        opened = 0

        async def play(episode: PortEpisode) -> Any:
            nonlocal opened
            async with connect_session(side.worker, side.environment, url=side.url) as session:
                await session.open(episode.task, episode.seed)
                opened += 1
                if opened == len(episodes):
                    os.killpg(running.pid, signal.SIGKILL)
                    is_dead.set()
                await is_dead.wait()
                return await session.step(episode.read_actions()[0])

        async with asyncio.timeout(120):
            results = await asyncio.gather(*map(play, episodes))
        assert len(results) == SESSIONS
        for result in results:
            assert (result.cause, result.reward) == (Cause.ERROR, 0.0)
            assert result.observation.text.startswith("The source skyrl:handwritten_wordle is gone: ")
            assert result.observation.text.endswith("This episode cannot go on.")
        async with connect_session(side.worker, side.environment, url=side.url) as session:
            with pytest.raises(SessionError, match="SourceGoneError"):
                await session.open(episodes[0].task, 0)

    lent_to_openenv(work, SESSIONS)


def test_a_game_of_gem_is_ported_only_when_its_losses_are_accepted_and_verifies_again(tmp_path: Path) -> None:
    """The command refuses silently lost pieces, writes ledger and episodes, and what it wrote can be verified."""
    out = tmp_path / "port"
    command = ["port", "gem:game:GuessTheNumber-v0-easy", "--to", "openenv", "--out", str(out)]
    refused = CliRunner().invoke(cli, command)
    assert refused.exit_code == FINDING, refused.output
    assert "observation format: what the source shows beside its observations: suffix" in refused.output
    assert "Nothing was written" in refused.output
    assert not out.exists()
    accepted = CliRunner().invoke(cli, [*command, "--accept", "observation-format", "--quiet"])
    assert accepted.exit_code == 0, accepted.output
    record = read_port(out)
    assert record.proof is not None
    assert record.proof.mismatches == []
    assert any("after the end" in entry.note for entry in record.ledger)
    verified = CliRunner().invoke(cli, ["verify-port", str(out), "--json"])
    assert verified.exit_code == 0, verified.output
    assert json.loads(verified.stdout)["proof"]["episodes"] == record.proof.episodes


def test_a_port_that_differs_from_its_source_is_found() -> None:
    """Where the target plays another environment, the first thing that differs is said."""

    async def run() -> list[str]:
        (source,) = (one for one in tried_sources("gem") if "GuessTheNumber" in one.reference)
        (other,) = (one for one in tried_sources("gem") if "Mastermind" in one.reference)
        async with (
            run_source(source.request("gem")) as running,
            run_source(other.request("gem")) as wrong,
            open_side(find_stack("gem"), wrong.environment) as side,
        ):
            environment = bridged(running)
            episodes = await record_episodes(environment, 4, seed=0)
            return [one.piece for one in (await verify(environment, side, episodes)).mismatches]

    pieces = asyncio.run(run())
    assert pieces
    assert set(pieces) == {"prompt"}
