"""Environments and task sets that nobody here compiled, as sources: what their rollouts showed and paid."""

from __future__ import annotations

import asyncio
import signal
from importlib import import_module

import pytest

from adapters.verifiers.compiler import Target, targets
from adapters.verifiers.lifter import LIFTER
from canonical.adapter import SessionError
from canonical.bridge.source import LiftError, LiftOptions
from canonical.reward import Aggregation
from canonical.step import Cause
from canonical.tool import ToolCall

SOURCES = "tests.stacks.verifiers.sources"
WORDLE = {
    Target.ENVIRONMENT: "bench.baselines.verifiers.wordle_environment",
    Target.TASK_SET: "bench.baselines.verifiers.wordle",
}
HIGHER_LOWER = "docs/examples/higher_lower.py"
COMPILED = {
    Target.ENVIRONMENT: (f"{SOURCES}.compiled", {}),
    Target.TASK_SET: ("adapters.verifiers.tasks", {"environment": HIGHER_LOWER}),
}
earlier = pytest.mark.skipif(Target.ENVIRONMENT not in targets(), reason="this release has no environments")
later = pytest.mark.skipif(Target.TASK_SET not in targets(), reason="this release has no task sets")


async def episode(source, task, actions):
    """Return what an episode showed, what each action led to, and its return."""
    async with source.connect() as session:
        opened = await session.open(task, 0)
        results = [await session.step(action) for action in actions]
        return opened, results, await session.reported_return()


def play(reference, task, actions, **options):
    async def main():
        async with LIFTER.lift(reference, LiftOptions(**options)) as source:
            return await episode(source, task, actions)

    return asyncio.run(main())


def guess(word):
    return ToolCall("guess", {"word": word})


def number(value):
    return ToolCall("guess", {"number": value})


@pytest.fixture(params=list(targets()))
def target(request):
    return request.param


def answer(target, place):
    return import_module(WORDLE[target]).SPLITS["train"][place]


def test_the_handwritten_wordle_shows_its_marks_and_ends_with_the_word(target):
    opened, results, paid = play(
        WORDLE[target], "train/7", [guess("crane"), guess("no"), guess(answer(target, 7))]
    )
    assert opened.prompt[-1].text.startswith("Find the hidden")
    assert [tool.name for tool in opened.tools] == ["guess"]
    assert list(opened.tools[0].parameters["properties"]) == ["word"]
    texts = [result.observation.text for result in results]
    assert texts[0].startswith("C R A N E\n")
    assert texts[1].endswith("A guess has 5 letters, this one has 2; it costs no guess.")
    assert texts[2].splitlines()[1] == "G G G G G"
    assert [result.cause for result in results] == [None, None, Cause.SUBMITTED]
    assert [result.reward for result in results] == [0.0, 0.0, 1.0]
    assert paid == 1.0


def test_a_text_ends_a_rollout_of_tools_and_is_scored(target):
    _, results, paid = play(WORDLE[target], "train/0", [guess("crane"), "I give up."])
    assert results[1].cause is Cause.SUBMITTED
    assert 0 < paid == results[1].total < 0.5


def test_a_rollout_that_is_cut_off_is_scored_as_it_is(target):
    async def main():
        async with LIFTER.lift(WORDLE[target], LiftOptions()) as source, source.connect() as session:
            await session.open("train/0", 0)
            await session.step(guess("crane"))
            paid = await session.reported_return()
            with pytest.raises(SessionError):
                await session.step(guess("crane"))
            return paid, await session.reported_return()

    first, second = asyncio.run(main())
    assert 0 < first == second < 0.5


def test_a_compiled_environment_is_played_like_any_other_in_any_interleaving(target):
    reference, arguments = COMPILED[target]

    async def main():
        async with LIFTER.lift(reference, LiftOptions(arguments=arguments)) as source:
            assert source.facts.aggregation is Aggregation.TERMINAL
            hidden = {place: place * 37 % 100 + 1 for place in range(64)}
            scripts = {
                f"train/{place}": [
                    *[number((value + step) % 100 + 1) for step in range(place % 4)],
                    number(value),
                ]
                for place, value in hidden.items()
            }
            alone = [await episode(source, *script) for script in scripts.items()]
            together = await asyncio.gather(*(episode(source, *script) for script in scripts.items()))
            assert list(together) == alone
            assert {paid for _, _, paid in alone} == {1.0}
            assert all(results[-1].observation.text == "Right!" for _, results, _ in alone)

    asyncio.run(main())


def test_many_sessions_at_once_and_those_that_are_given_up_leave_nothing_behind(target):
    reference, arguments = COMPILED[target]

    async def begin(source, place):
        async with source.connect() as session:
            await session.open(f"train/{place % 100}", 0)
            await session.step(number(50))
            await asyncio.sleep(0)

    async def main():
        async with LIFTER.lift(reference, LiftOptions(arguments=arguments)) as source:
            await asyncio.gather(*(begin(source, place) for place in range(512)))
            _, _, paid = await episode(source, "train/1", [number(38)])
            left = asyncio.run_coroutine_threadsafe(_tasks(), source.loop)
            return paid, await asyncio.wrap_future(left)

    paid, left = asyncio.run(main())
    assert paid == 1.0
    assert left < 100


async def _tasks():
    return len(asyncio.all_tasks())


@earlier
def test_arguments_reach_load_environment_and_its_own_limit_ends_an_episode():
    calls = [ToolCall("add", {"first": 1, "second": 2}), ToolCall("add", {"first": "x"})]
    opened, results, paid = play(f"{SOURCES}.counting", "train/1", [*calls, "3"])
    assert [message.role for message in opened.prompt] == ["system", "user"]
    assert opened.prompt[1].text == "What is 1 and 2?"
    assert results[0].observation.text == "3"
    assert "second" in results[1].observation.text
    assert paid == pytest.approx(1 + 0.5 / 5)
    _, results, paid = play(f"{SOURCES}.counting", "train/1", calls[:1], arguments={"max_turns": 1})
    assert results[0].cause is Cause.BUDGET
    assert results[0].observation.blocks == ()


@earlier
def test_answers_to_signals_stay_those_of_the_process():
    before = signal.getsignal(signal.SIGTERM)
    play(f"{SOURCES}.counting", "train/0", ["2"])
    assert signal.getsignal(signal.SIGTERM) is before


@later
def test_an_environment_that_talks_is_played_with_text():
    opened, results, paid = play(f"{SOURCES}.talking", "train/0", ["4", "2", "0"], tasks=3)
    assert [(message.role, message.text) for message in opened.prompt] == [
        ("system", "Count down."),
        ("user", "I say 5."),
    ]
    assert [result.observation.text for result in results] == ["I say 3.", "I say 1.", ""]
    assert results[-1].cause is Cause.SUBMITTED
    assert paid == 3.0


@later
def test_tasks_without_an_end_are_as_many_as_are_asked_for():
    async def main():
        async with LIFTER.lift(f"{SOURCES}.talking", LiftOptions(tasks=3, max_turns=2)) as source:
            results = (await episode(source, "train/2", ["6", "4"]))[1]
            return [task.id for task in source.facts.tasks], results

    tasks, results = asyncio.run(main())
    assert tasks == ["train/0", "train/1", "train/2"]
    assert results[-1].cause is Cause.BUDGET


@later
def test_more_than_one_agent_is_refused():
    with pytest.raises(LiftError, match="2 agents play this task set"):
        play(f"{SOURCES}.two_agents", "train/0", [])


@pytest.mark.parametrize(
    ("reference", "arguments", "words"),
    [
        ("no_such_module", {}, "no_such_module"),
        ("json", {}, "json has nothing that Verifiers"),
        ("no/such/file.py", {}, "there is no file"),
    ],
)
def test_a_wrong_reference_says_what_is_wrong(reference, arguments, words):
    with pytest.raises(LiftError, match=words):
        play(reference, "train/0", [], arguments=arguments)


def test_wrong_arguments_are_named(target):
    reference = f"{SOURCES}.counting" if target is Target.ENVIRONMENT else WORDLE[target]
    with pytest.raises(LiftError, match="nonsense"):
        play(reference, "train/0", [], arguments={"nonsense": 1})
