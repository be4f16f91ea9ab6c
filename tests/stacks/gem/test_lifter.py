"""Environments that GEM makes are lifted as they are: what they show, pay and end, and nothing else."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager

import gem
import pytest
from gem.envs.registration import ENV_REGISTRY

from adapters.gem.lifter import LIFTER
from canonical.adapter import SessionError
from canonical.bridge.source import TEXT_TOOL, LiftError, LiftOptions
from canonical.step import Cause
from canonical.stone import Concern
from canonical.tool import ToolCall

HAND = LiftOptions(imports=("bench.baselines.gem.wordle",), tasks=64)


@asynccontextmanager
async def lifted(reference, options=HAND):
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
        total = await session.reported_return() if results[-1].cause else None
        return opened, results, total


def test_the_hand_written_wordle_is_solved_as_at_home():
    """The word is known from the seed, because the environment draws it with `random.Random(seed)`."""
    from bench.baselines.gem.wordle import PROMPT, SPLITS

    word = random.Random(5).choice(SPLITS["train"])

    async def run():
        async with lifted("hand:Wordle-v0") as source:
            assert [task.id for task in source.facts.tasks][:2] == ["train/0", "train/1"]
            assert source.facts.text_tool == TEXT_TOOL
            return await play(source, "train/5", ["no box", "\\boxed{zzzzz}", f"\\boxed{{{word}}}"])

    opened, results, total = asyncio.run(run())
    assert opened.prompt[0].text == PROMPT
    assert results[0].observation.text.startswith("Write your guess as \\boxed{word}.")
    assert [result.reward for result in results] == [0.0, 0.0, 1.0]
    assert (results[-1].cause, total) == (Cause.SUBMITTED, 1.0)


def test_turns_that_run_out_cut_the_episode_off():
    async def run():
        async with lifted("hand:Wordle-v0") as source:
            return source.facts.max_turns, await play(source, "train/1", ["nothing"] * 20)

    turns, (_, results, _) = asyncio.run(run())
    assert (len(results), results[-1].cause) == (12, Cause.BUDGET)
    assert turns == 13  # the source ends the episode, and not the bridge


@pytest.mark.parametrize(
    ("game", "choices"),
    [
        ("game:Game2048-v0-easy", ["up", "left", "down"]),
        ("game:GuessTheNumber-v0-random", [str(number) for number in range(1, 21)]),
        ("game:Sokoban-v0-easy", ["up", "left", "down", "right"]),
    ],
)
def test_interleaved_sessions_of_games_that_share_global_generators_show_what_each_shows_alone(game, choices):
    """Games of GEM draw from `random` and `numpy.random`, which all sessions of a process share."""
    if game not in ENV_REGISTRY:
        pytest.skip(f"this release of GEM has no {game}")

    async def run():
        async with lifted(game, LiftOptions(tasks=64)) as source:
            moves = [
                (
                    f"train/{seed}",
                    [f"\\boxed{{{move}}}" for move in random.Random(seed).choices(choices, k=12)],
                )
                for seed in range(32)
            ]
            together = await asyncio.gather(*(play(source, *one) for one in moves))
            return together, [await play(source, *one) for one in moves]

    together, alone = asyncio.run(run())
    assert together == alone


def draws_its_limit(env):
    limits = set()
    for seed in range(20):
        env.reset(seed=seed)
        limits.add(env.max_turns)
    return len(limits) > 1


@pytest.mark.parametrize("game", ["game:Game2048-v0-random", "game:Mastermind-v0-random"])
def test_a_limit_of_turns_that_is_drawn_is_said_and_the_port_cuts_nothing_off_before_it(game):
    if game not in ENV_REGISTRY:
        pytest.skip(f"this release of GEM has no {game}")
    if not draws_its_limit(gem.make(game)):
        pytest.skip(f"in this release of GEM, {game} has one limit for all episodes")

    async def run():
        async with lifted(game, LiftOptions(tasks=20)) as source:
            notes = [loss.note for loss in source.facts.losses if loss.concern is Concern.TRUNCATION]
            lengths = []
            for task in source.facts.tasks:
                async with source.connect() as session:
                    await session.open(task.id, 0)
                    lengths.append(1)
                    while (await session.step(await session.suggest())).cause is None:
                        lengths[-1] += 1
            return source.facts.max_turns, notes, lengths

    turns, notes, lengths = asyncio.run(run())
    assert len(set(lengths)) > 1
    assert max(lengths) < turns
    assert len(notes) == 1
    assert notes[0].startswith("the source draws a limit of turns for each episode, such as ")


def test_asking_for_a_random_action_changes_nothing():
    async def run(asks):
        async with (
            lifted("game:GuessTheNumber-v0-random", LiftOptions()) as source,
            source.connect() as session,
        ):
            await session.open("train/3", 0)
            seen = []
            for _ in range(3):
                if asks:
                    assert isinstance(await session.suggest(), str)
                seen.append(await session.step("\\boxed{7}"))
            return seen

    assert asyncio.run(run(asks=True)) == asyncio.run(run(asks=False))


def test_suggested_actions_differ_and_do_not_follow_what_the_game_has_drawn():
    """GuessTheNumber draws its number as it draws a random guess: with one seed for both, each first guess would be right."""

    async def run():
        async with lifted("game:GuessTheNumber-v0-random", LiftOptions(tasks=16)) as source:
            firsts, solved = [], 0
            for seed in range(16):
                async with source.connect() as session:
                    await session.open(f"train/{seed}", 0)
                    firsts += [await session.suggest(), await session.suggest()]
                    solved += (await session.step(firsts[-2])).reward == 1.0
            return firsts, solved

    firsts, solved = asyncio.run(run())
    assert len(set(firsts)) > 8
    assert solved < 8


def test_what_was_compiled_is_lifted_too():
    async def run():
        async with lifted("compiled:wordle", LiftOptions(tasks=8)) as source:
            return await play(
                source,
                "train/2",
                ['<tool_call>{"name": "guess", "arguments": {"word": "crane"}}</tool_call>'],
            )

    opened, results, _ = asyncio.run(run())
    assert "<tools>" in opened.prompt[0].text
    assert results[0].observation.text.startswith("C R A N E")


@pytest.mark.parametrize(
    ("reference", "options", "words"),
    [
        ("game:Sudoko-v0-easy", LiftOptions(), "game:Sudoku-v0-easy"),
        ("none", LiftOptions(imports=("no_such_module",)), "there is no module 'no_such_module'"),
        ("hand:Wordle-v0", LiftOptions(imports=HAND.imports, arguments={"seed": []}), "failed: TypeError"),
    ],
)
def test_what_cannot_be_lifted_is_said(reference, options, words):
    async def run():
        async with lifted(reference, options):
            pass

    with pytest.raises(LiftError, match=words):
        asyncio.run(run())


def test_arguments_reach_the_constructor():
    async def run():
        async with lifted(
            "hand:Wordle-v0", LiftOptions(imports=HAND.imports, arguments={"max_turns": 3})
        ) as source:
            return source.facts.max_turns, await play(source, "train/0", ["nothing"] * 5)

    turns, (_, results, _) = asyncio.run(run())
    assert (turns, len(results)) == (4, 3)


def test_a_call_of_a_tool_is_refused_because_gem_takes_text():
    async def run():
        async with lifted("hand:Wordle-v0") as source:
            await play(source, "train/0", [ToolCall("guess", {})])

    with pytest.raises(SessionError, match="take text"):
        asyncio.run(run())
