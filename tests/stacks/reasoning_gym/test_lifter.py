"""Data sets of Reasoning Gym are lifted as they are: their questions, and what they pay for answers."""

from __future__ import annotations

import asyncio
import json
import tomllib
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from reasoning_gym.arithmetic.chain_sum import ChainSumConfig, ChainSumDataset
from reasoning_gym.factory import DATASETS, create_dataset, register_dataset

from canonical.adapter import SessionError
from canonical.bridge.source import LiftError, LiftOptions
from canonical.content import ErrorCode
from canonical.reward import Aggregation
from canonical.step import Cause
from canonical.stone import Concern
from canonical.tool import ToolCall
from libraries.reasoning_gym import lifter
from libraries.reasoning_gym.lifter import LIFTER

TRIED = [
    one["reference"]
    for one in tomllib.loads(Path(lifter.__file__).with_name("sources.toml").read_text())["source"]
]
OPTIONS = LiftOptions(tasks=16)


class NumbersOnly(ChainSumDataset):
    """Make questions that are no text."""

    def __getitem__(self, idx):
        return {"question": idx, "answer": "0", "metadata": {}}


@asynccontextmanager
async def lifted(reference, options=OPTIONS):
    async with LIFTER.lift(reference, options) as source:
        yield source


async def answered(source, task, answer):
    async with source.connect() as session:
        opened = await session.open(task, 0)
        result = await session.step(answer)
        return opened, result, await session.reported_return()


def test_ten_data_sets_of_as_many_kinds_are_tried():
    kinds = {create_dataset(name, size=1, seed=0).category for name in TRIED}
    assert (len(TRIED), len(set(TRIED))) == (10, 10)
    assert len(kinds) >= 8


@pytest.mark.parametrize("reference", TRIED)
def test_a_data_set_pays_what_it_pays_at_home_and_repeats_itself(reference):
    """Its own answer is worth everything, another one less."""
    home = create_dataset(reference, size=16, seed=0)

    async def run():
        async with lifted(reference) as source:
            for place in (0, 5, 11):
                entry = home[place]
                right = await answered(source, f"train/{place}", entry["answer"])
                assert right == await answered(source, f"train/{place}", entry["answer"])
                opened, result, total = right
                assert [message.text for message in opened.prompt] == [entry["question"]]
                assert (result.reward, result.total, total, result.cause) == (1.0, 1.0, 1.0, Cause.SUBMITTED)
                wrong = await answered(source, f"train/{place}", "7 x")
                assert wrong[2] == home.score_answer("7 x", entry) < 1.0

    asyncio.run(run())


def test_a_task_is_a_place_and_tells_no_answer():
    async def run():
        async with lifted("chain_sum", LiftOptions(tasks=3, arguments={"seed": 9})) as source:
            return source.facts

    facts = asyncio.run(run())
    assert facts.aggregation is Aggregation.TERMINAL
    assert [(task.id, dict(task.inputs)) for task in facts.tasks] == [
        (f"train/{place}", {"dataset": "chain_sum", "seed": 9, "place": place}) for place in range(3)
    ]
    answers = {str(create_dataset("chain_sum", size=3, seed=9)[place]["answer"]) for place in range(3)}
    assert not any(answer in json.dumps(facts.to_json()) for answer in answers)


def test_arguments_are_the_configuration_of_the_data_set():
    given = {"min_terms": 2, "max_terms": 2, "seed": 3}

    async def run():
        async with lifted("chain_sum", LiftOptions(tasks=4, arguments=given)) as source:
            return await answered(source, "train/1", "0")

    opened, _, _ = asyncio.run(run())
    assert opened.prompt[0].text == create_dataset("chain_sum", size=4, **given)[1]["question"]


def test_what_is_handed_out_beside_the_question_can_be_seen_by_whoever_drives_it_so_that_a_port_can_say_so():
    async def run():
        async with lifted("word_sorting") as source, source.connect() as session:
            assert await session.public_state() is None
            await session.open("train/0", 0)
            return await session.public_state()

    shown = asyncio.run(run())
    assert set(shown) == {"answer", "metadata"}
    assert "sorted_words" in shown["metadata"]


def test_interleaved_sessions_show_what_each_shows_alone():
    """The data set seeds the generator of the whole process for each question."""

    async def run():
        async with lifted("pool_matrix", LiftOptions(tasks=64)) as source:
            tasks = [(f"train/{place}", f"{place} {place + 1}") for place in range(64)]
            together = await asyncio.gather(*(answered(source, *one) for one in tasks))
            return together, [await answered(source, *one) for one in tasks]

    together, alone = asyncio.run(run())
    assert together == alone
    assert len({opened.prompt[0].text for opened, _, _ in alone}) == 64


def test_a_data_set_that_makes_another_question_each_time_is_not_made_to_look_as_if_it_did_not():
    async def run():
        async with lifted("list_functions") as source:
            return [(await answered(source, f"train/{place}", "1"))[0] for place in [*range(8), *range(8)]]

    seen = asyncio.run(run())
    assert seen[:8] != seen[8:]


def test_asking_for_a_random_action_changes_nothing_and_finds_answers_of_any_worth():
    async def run():
        async with lifted("countdown") as source:
            found = []
            for place in range(12):
                async with source.connect() as session:
                    assert await session.suggest() is None
                    await session.open(f"train/{place}", 0)
                    await session.suggest()
                    answer = await session.suggest()
                    found.append((await session.step(answer)).reward)
                    assert found[-1] == (await answered(source, f"train/{place}", answer))[2]
            return found

    found = asyncio.run(run())
    assert {1.0} < set(found)


def test_a_question_is_answered_once_and_with_text():
    async def run():
        async with lifted("chain_sum") as source, source.connect() as session:
            with pytest.raises(SessionError, match="open an episode"):
                await session.step("0")
            await session.open("train/0", 0)
            assert await session.reported_return() == 0.0
            with pytest.raises(SessionError, match="take text"):
                await session.step(ToolCall("answer", {}))
            await session.step("0")
            with pytest.raises(SessionError, match="was answered"):
                await session.step("0")
            await session.open("train/0", 0)
            return await session.step("0")

    assert asyncio.run(run()).cause is Cause.SUBMITTED


def test_an_answer_at_which_the_data_set_raises_pays_nothing_and_says_why():
    async def run():
        async with lifted("prime_factorization") as source:
            return source.facts.losses, await answered(source, "train/0", "zz")

    losses, (_, result, total) = asyncio.run(run())
    assert (result.reward, total, result.cause) == (0.0, 0.0, Cause.SUBMITTED)
    assert result.observation.error is ErrorCode.TOOL_ERROR
    assert result.observation.text.startswith("PrimeFactorizationDataset raised ValueError")
    assert any("score_answer raises" in loss.note for loss in losses)


def test_what_a_trainer_notices_is_said():
    async def run():
        async with lifted("chain_sum") as source:
            return source.facts.losses

    losses = asyncio.run(run())
    assert {Concern.SEED, Concern.REWARD_AGGREGATION, Concern.END_AND_CAUSE} <= {
        one.concern for one in losses
    }
    assert not [loss for loss in losses if loss.status == "lost"]


@pytest.mark.parametrize(
    ("reference", "options", "words"),
    [
        ("chain_sun", OPTIONS, r"has no data set 'chain_sun' \(chain_sum, .*--import"),
        ("qqqqqqqqqqq", OPTIONS, "none that resembles it"),
        ("chain_sum", LiftOptions(imports=("no_such_module",)), "there is no module 'no_such_module'"),
        (
            "chain_sum",
            LiftOptions(arguments={"min_terms": 9}),
            "seed=0, size=256, min_terms=9.*AssertionError",
        ),
        ("chain_sum", LiftOptions(arguments={"terms": 9}), "TypeError.*'terms'.*--argument NAME=VALUE"),
        ("composite", OPTIONS, "AssertionError: Must specify at least one dataset"),
        ("numbers_only", OPTIONS, "the first question of numbers_only cannot be made: the question is a int"),
    ],
)
def test_what_cannot_be_lifted_is_said(reference, options, words):
    if "numbers_only" not in DATASETS:
        register_dataset("numbers_only", NumbersOnly, ChainSumConfig)

    async def run():
        async with lifted(reference, options):
            pass

    with pytest.raises(LiftError, match=words):
        asyncio.run(run())
