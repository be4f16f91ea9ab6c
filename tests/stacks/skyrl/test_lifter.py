"""Environments that SkyRL Gym makes are lifted as they are, with the rows that a trainer would give them."""

from __future__ import annotations

import asyncio
import json

import pytest

from adapters.skyrl.lifter import LIFTER
from canonical.bridge.source import LiftError, LiftOptions
from canonical.step import Cause

HAND = LiftOptions(
    imports=("bench.baselines.skyrl.wordle",), data="bench.baselines.skyrl.wordle:rows", max_turns=12
)


def guess(word):
    return f'<tool_call>{{"name": "guess", "arguments": {{"word": "{word}"}}}}</tool_call>'


async def play(source, task, actions):
    async with source.connect() as session:
        opened = await session.open(task, 0)
        results = []
        for action in actions:
            results.append(await session.step(action))
            if results[-1].cause is not None:
                return opened, results, await session.reported_return()
        return opened, results, None


def run(reference, options, work):
    async def inside():
        async with LIFTER.lift(reference, options) as source:
            return await work(source)

    return asyncio.run(inside())


def test_the_hand_written_wordle_is_solved_as_at_home():
    from bench.baselines.skyrl.wordle import PROMPT, SPLITS, SYSTEM

    word = SPLITS["test"][3]
    opened, results, total = run(
        "handwritten_wordle",
        HAND,
        lambda source: play(source, "test/0003", ["?", guess("zzzzz"), guess(word)]),
    )
    assert [(message.role, message.text) for message in opened.prompt] == [
        ("system", SYSTEM),
        ("user", PROMPT),
    ]
    assert results[0].observation.text == "No <tool_call>...</tool_call> block found in action string."
    assert [result.reward for result in results] == [0.0, 0.0, 1.0]
    assert (results[-1].cause, total) == (Cause.SUBMITTED, 1.0)


def test_the_limit_of_the_trainer_ends_the_episode_in_the_source():
    async def work(source):
        return source.facts.max_turns, await play(source, "train/0000", ["?"] * 20)

    turns, (_, results, _) = run("handwritten_wordle", HAND, work)
    assert (turns, len(results), results[-1].cause) == (13, 12, Cause.SUBMITTED)


def test_interleaved_sessions_show_what_each_shows_alone():
    async def work(source):
        rows = [(f"train/{i:04d}", [guess("crane"), guess("sloth"), "?"] * 4) for i in range(64)]
        together = await asyncio.gather(*(play(source, *row) for row in rows))
        return together, [await play(source, *row) for row in rows]

    together, alone = run("handwritten_wordle", HAND, work)
    assert together == alone


def test_a_built_in_environment_scores_rows_of_a_file(tmp_path):
    """GSM8K of SkyRL Gym ends after one answer, shows nothing, and pays for the number after ####."""
    file = tmp_path / "rows.jsonl"
    rows = [
        {
            "prompt": [{"role": "user", "content": f"{n} + {n}?"}],
            "reward_spec": {"method": "rule", "ground_truth": str(2 * n)},
            "env_class": "gsm8k",
        }
        for n in (3, 4)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    async def work(source):
        return await play(source, "train/0000", ["#### 6"]), await play(source, "train/0001", ["#### 6"])

    (opened, (right,), total), (_, (wrong,), _) = run("gsm8k", LiftOptions(data=str(file)), work)
    assert opened.prompt[0].text == "3 + 3?"
    assert (right.reward, right.cause, total, right.observation.blocks) == (1.0, Cause.SUBMITTED, 1.0, ())
    assert wrong.reward == 0.0


@pytest.mark.parametrize(
    ("reference", "options", "words"),
    [
        ("nothing", HAND, "SkyRL Gym has no environment 'nothing'"),
        ("gsm8k", LiftOptions(), "needs rows, which SkyRL's trainer owns"),
        ("gsm8k", HAND, "no row is of the environment gsm8k"),
    ],
)
def test_what_cannot_be_lifted_is_said(reference, options, words):
    with pytest.raises(LiftError, match=words):
        run(reference, options, lambda source: play(source, "train/0000", []))
