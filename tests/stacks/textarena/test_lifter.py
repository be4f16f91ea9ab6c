"""Games of TextArena for one player are lifted as they are: what they show and pay, and when they are over."""

from __future__ import annotations

import asyncio
import random
import tomllib
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import textarena
from textarena.envs.registration import ENV_REGISTRY

from canonical.adapter import SessionError
from canonical.bridge.source import LiftError, LiftOptions
from canonical.reward import Aggregation
from canonical.step import Cause
from canonical.stone import Concern
from canonical.tool import ToolCall
from libraries.textarena import lifter
from libraries.textarena.lifter import LIFTER

TRIED = tomllib.loads(Path(lifter.__file__).with_name("sources.toml").read_text())["source"]
OPTIONS = LiftOptions(tasks=64)
HANOI = ["[A C]", "[A B]", "[C B]", "[A C]", "[B A]", "[B C]", "[A C]"]


@asynccontextmanager
async def lifted(reference, options=OPTIONS):
    async with LIFTER.lift(reference, options) as source:
        yield source


async def play(source, task, actions):
    async with source.connect() as session:
        opened = await session.open(task, 0)
        results = []
        for action in actions:
            results.append(await session.step(action))
            if results[-1].cause is not None:
                break
        return opened, results, await session.reported_return(), await session.public_state()


def at_home(reference, seed, actions):
    """Play as TextArena's documentation does."""
    env = textarena.make(reference)
    env.reset(num_players=1, seed=seed)
    shown = [env.get_observation()[1]]
    for action in actions:
        done, _ = env.step(action=action)
        if done:
            break
        shown.append(env.get_observation()[1])
    return shown, env.close()[0]


@pytest.mark.parametrize("tried", TRIED, ids=lambda one: one["reference"])
def test_a_game_shows_and_pays_what_it_does_at_home_and_repeats_itself(tried):
    reference = tried["reference"]

    async def run(seed, actions):
        async with lifted(reference) as source:
            first = await play(source, f"train/{seed}", actions)
            assert first == await play(source, f"train/{seed}", actions)
            return first

    for seed in range(3):
        actions = random.Random(seed).choices(tried["actions"], k=30)
        shown, rewards = at_home(reference, seed, actions)
        opened, results, total, _ = asyncio.run(run(seed, actions))
        texts = [opened.prompt[0].text, *(one.observation.text for one in results if one.cause is None)]
        assert texts == shown
        assert [one.reward for one in results[:-1]] == [0.0] * (len(results) - 1)
        assert (results[-1].cause is None) is (rewards is None)
        assert total == results[-1].reward == (0.0 if rewards is None else rewards[0])


def test_a_game_that_is_won_is_submitted_and_pays_one():
    async def run():
        async with lifted("TowerOfHanoi-v0") as source:
            return source.facts, await play(source, "train/0", HANOI)

    facts, (_, results, total, shown) = asyncio.run(run())
    assert facts.aggregation is Aggregation.TERMINAL
    assert [one.cause for one in results] == [None] * 6 + [Cause.SUBMITTED]
    assert (results[-1].reward, results[-1].total, total) == (1.0, 1.0, 1.0)
    assert results[-1].observation.blocks == ()
    assert shown["game_info"]["reason"].startswith("Congratulations!")


def test_an_invalid_move_is_forgiven_once_and_then_the_game_has_failed():
    async def run():
        async with lifted("TowerOfHanoi-v0") as source:
            return await play(source, "train/0", ["nothing", "[A C]", "nothing", "nothing", "nothing"])

    _, results, total, shown = asyncio.run(run())
    assert "You attempted an invalid move" in results[0].observation.text
    assert ([one.cause for one in results][-1], len(results), total) == (Cause.FAILED, 4, 0.0)
    assert shown["game_info"]["invalid_move"] is True


def test_the_game_and_not_the_bridge_ends_an_episode_at_the_turn_limit():
    async def run():
        async with lifted("TowerOfHanoi-v0") as source:
            moves = ["[A B]", "nothing", "[B A]", "nothing"] * 20
            return source.facts.max_turns, await play(source, "train/0", moves)

    turns, (_, results, _, shown) = asyncio.run(run())
    assert results[-1].cause is Cause.SUBMITTED
    assert "turn limit" in shown["game_info"]["reason"]
    assert 14 < len(results) < turns


@pytest.mark.parametrize("reference", ["Minesweeper-v0-small", "FrozenLake-v0-random", "GuessTheNumber-v0"])
def test_interleaved_sessions_show_what_each_shows_alone(reference):
    """Games seed the generator of the whole process, and some draw from it while they are played."""
    pool = {
        "Minesweeper-v0-small": [f"[{row} {column}]" for row in range(5) for column in range(5)],
        "FrozenLake-v0-random": ["[up]", "[down]", "[left]", "[right]"],
        "GuessTheNumber-v0": [f"[{number}]" for number in range(1, 21)],
    }[reference]

    async def run():
        async with lifted(reference) as source:
            # Not of the seed itself: a game would draw the same.
            games = [
                (f"train/{seed}", random.Random(f"moves {seed}").sample(pool, k=4)) for seed in range(64)
            ]
            together = await asyncio.gather(*(play(source, *one) for one in games))
            return together, [await play(source, *one) for one in games]

    before = random.getstate()
    together, alone = asyncio.run(run())
    assert together == alone
    assert random.getstate() == before
    assert len({str(one[:2]) for one in alone}) > 32


def test_a_session_plays_several_games_and_remembers_none():
    """Wrappers keep what they have shown when a game is begun anew."""

    async def run():
        async with lifted("GuessTheNumber-v0") as source, source.connect() as session:
            first = await session.open("train/1", 0)
            await session.step("[3]")
            assert await session.open("train/1", 0) == first
            return await session.reported_return()

    assert asyncio.run(run()) == 0.0


def test_without_wrappers_each_message_is_a_block_and_the_ledger_says_what_that_loses():
    async def run():
        async with lifted("GuessTheNumber-v0-raw") as source:
            return source.facts, await play(source, "train/1", ["[3]"])

    facts, (opened, results, _, _) = asyncio.run(run())
    assert opened.prompt[0].text.startswith("You are Player 0.")
    assert results[0].observation.blocks[0].text == "[3]"
    assert any("without their senders" in loss.note for loss in facts.losses)


def test_arguments_reach_the_constructor():
    async def run():
        options = LiftOptions(tasks=3, arguments={"num_disks": 1, "max_turns": 5})
        async with lifted("TowerOfHanoi-v0", options) as source:
            return source.facts, await play(source, "train/2", ["[A C]"])

    facts, (_, results, total, _) = asyncio.run(run())
    assert ([task.id for task in facts.tasks], facts.max_turns) == (["train/0", "train/1", "train/2"], 13)
    assert (len(results), total) == (1, 1.0)


def test_an_action_needs_a_game_that_goes_on_and_is_text():
    async def run():
        async with lifted("TowerOfHanoi-v0") as source, source.connect() as session:
            with pytest.raises(SessionError, match="open an episode"):
                await session.step("[A C]")
            await session.open("train/0", 0)
            with pytest.raises(SessionError, match="take text"):
                await session.step(ToolCall("move", {}))
            assert await session.reported_return() == 0.0
            for move in HANOI:
                await session.step(move)
            with pytest.raises(SessionError, match="is over"):
                await session.step("[A C]")

    asyncio.run(run())


def test_what_a_trainer_notices_is_said():
    async def run():
        async with lifted("FrozenLake-v0-random") as source:
            return source.facts.losses

    losses = asyncio.run(run())
    said = {loss.concern for loss in losses}
    assert {Concern.SEED, Concern.REWARD_AGGREGATION, Concern.END_AND_CAUSE, Concern.TRUNCATION} <= said
    assert not [loss for loss in losses if loss.status == "lost"]


@pytest.mark.parametrize(
    ("reference", "options", "words"),
    [
        ("GuesTheNumber-v0", LiftOptions(), r"no game 'GuesTheNumber-v0' \(GuessTheNumber-v0, .*--import"),
        ("qqqqqqqqqqq", LiftOptions(), "none that resembles it"),
        (
            "TicTacToe-v0",
            LiftOptions(),
            "one player cannot begin TicTacToe-v0, and only games for one player",
        ),
        ("TowerOfHanoi-v0", LiftOptions(arguments={"disks": 3}), "failed: TypeError.*'disks'"),
        ("Chess-v0", LiftOptions(imports=("no_such_module",)), "there is no module 'no_such_module'"),
    ],
)
def test_what_cannot_be_lifted_is_said(reference, options, words):
    async def run():
        async with lifted(reference, options):
            pass

    with pytest.raises(LiftError, match=words):
        asyncio.run(run())


def test_the_ids_that_are_tried_are_registered_and_three():
    assert len(TRIED) == 3
    assert all(one["reference"] in ENV_REGISTRY for one in TRIED)
