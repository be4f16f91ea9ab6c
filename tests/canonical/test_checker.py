"""The self-check: every liar is caught for exactly its promise, honest environments pass, and examples are small."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import pytest

from canonical.catalogue import load_environment
from canonical.checker import (
    DEAR_EPISODES,
    EPISODES,
    CheckReport,
    CheckResult,
    Outcome,
    Promise,
    check_environment,
    check_environment_async,
)
from canonical.content import ErrorCode
from canonical.environment import Environment
from canonical.step import Cause
from canonical.task import Task, TaskSet
from canonical.tool import ToolCall, tool
from canonical.transcript import Transcript, first_difference
from tests.canonical import liars, miniatures
from tests.canonical.liars import LIARS
from tests.canonical.miniatures import CANARY, STORES, Count, Counter, CustomStore, Loose, Waiter
from tests.canonical.playing import play

HONEST: list[Environment[Any]] = [
    load_environment("wordle"),
    miniatures.Counter(),
    miniatures.ForgivingCounter(),
    miniatures.SilentCounter(),
    miniatures.Dice(),
    miniatures.Climb(),
    miniatures.DenseClimb(),
    miniatures.LatestClimb(),
    miniatures.TwoPartClimb(),
    miniatures.Gallery(),
    miniatures.Waiter(),
    miniatures.Closing(),
    miniatures.Handle(),
    liars.NoOracle(),
    *(store() for store in STORES),
]

SHORTEST = {
    liars.StirsTheGlobalGenerator: [1],
    liars.SeedsTheGlobalGenerator: [0],
    liars.CountsItsCalls: [1, 1],
    liars.ShowsHowManyPlay: [1, 1, 1],
    liars.PaysNoNumber: [1],
    liars.TellsInThePrompt: [0],
    liars.TellsWhenAsked: [1],
    liars.TellsInAnError: [1],
    liars.TellsInTheLog: [1],
    liars.NotesEveryError: [1],
    liars.TripsOverANumber: [1],
    liars.CannotTellTheEnd: [0],
    liars.HasABrokenStatus: [1],
    liars.KeepsAMemoryBesideTheState: [2, 2],
    liars.CannotBeClosedEarly: [0],
}
"""How many actions the transcripts of the smallest example have; one that fails in an action lacks that action."""


def check(environment: Environment[Any], episodes: int = 8, seed: int = 0) -> CheckReport:
    return check_environment(environment, episodes=episodes, seed=seed)


def result_of(report: CheckReport, promise: Promise) -> CheckResult:
    return next(result for result in report.results if result.promise is promise)


@pytest.mark.parametrize("environment", HONEST, ids=lambda environment: environment.name)
def test_an_honest_environment_breaks_nothing(environment: Environment[Any]) -> None:
    report = check(environment)
    assert report.broken == (), report.render()
    assert report.passed
    assert [result.promise for result in report.results] == list(Promise)
    assert {r.promise for r in report.results if r.outcome is Outcome.UNSUPPORTED} <= {
        Promise.ORACLE,
        Promise.SECRETS,
    }
    assert {r.promise for r in report.results if r.outcome is Outcome.UNCHECKED} <= {Promise.SECRETS}


@pytest.mark.parametrize("liar", LIARS, ids=lambda liar: liar.__name__)
def test_a_liar_is_caught_for_exactly_its_promise(liar: type[Environment[Any]]) -> None:
    report = check(liar(), episodes=12)
    assert [result.promise for result in report.broken] == [LIARS[liar]], report.render()
    assert not report.passed
    (broken,) = report.broken
    assert "\n" not in broken.sentence
    assert broken.sentence in report.render()


def test_every_promise_has_a_liar() -> None:
    assert set(LIARS.values()) == set(Promise)


@pytest.mark.parametrize("liar", SHORTEST, ids=lambda liar: liar.__name__)
def test_the_example_is_as_small_as_it_can_be(liar: type[Environment[Any]]) -> None:
    (broken,) = check(liar(), episodes=12).broken
    assert [len(Transcript.from_line(line).steps) for line in broken.example] == SHORTEST[liar]


class TestExamples:
    def example(self, liar: type[Environment[Any]]) -> list[Transcript]:
        (broken,) = check(liar(), episodes=12).broken
        return [Transcript.from_line(line) for line in broken.example]

    def test_an_example_can_be_played_again(self) -> None:
        (example,) = self.example(liars.TripsOverANumber)
        again = play(
            liars.TripsOverANumber(), example.task, example.seed, [step.action for step in example.steps]
        )
        assert first_difference(example, again) is None
        assert again.steps[-1].result.observation.error is ErrorCode.INTERNAL_ERROR

    def test_two_plays_that_should_be_equal_are_both_shown(self) -> None:
        one, other = self.example(liars.CountsItsCalls)
        assert [step.action for step in one.steps] == [step.action for step in other.steps]
        assert first_difference(one, other) is not None

    def test_an_endless_episode_is_shown_up_to_its_last_allowed_action(self) -> None:
        (example,) = self.example(liars.MovesItsGoalposts)
        assert example.cause is None
        assert len(example.steps) >= 6

    def test_a_shown_secret_is_in_the_example(self) -> None:
        (example,) = self.example(liars.TellsWhenAsked)
        assert CANARY in example.to_line().lower()


class TestSentences:
    @pytest.mark.parametrize(
        ("liar", "parts"),
        [
            (liars.BadlyNamed, ["name must be", "'badly named!'"]),
            (liars.ForgetsItsTasks, ["two calls of tasks differ: the contents of task 'train/1'"]),
            (liars.DescribesNoArgument, ["argument 'amount' of tool add has no description"]),
            (liars.FailsToStart, ["start failed for task 'train/5'", "KeyError at FailsToStart.start:"]),
            (liars.FailsToPrompt, ["prompt failed", "LookupError at FailsToPrompt.prompt:", "no template"]),
            (
                liars.CountsItsCalls,
                ["gave two transcripts: observation differs at action 1", "This was call"],
            ),
            (liars.PaysNoNumber, ["component 'reached' of the rubric gave nan", "at action 2: "]),
            (liars.CannotScore, ["the rubric raised ZeroDivisionError at CannotScore.<lambda>:"]),
            (liars.HasALazyOracle, ["the calls of the oracle do not end the episode of task 'train/"]),
            (liars.HasAModestOracle, ["the oracle reaches 0.0 of 1.0 in task 'train/"]),
            (liars.TellsWhenAsked, ["the secret 'canary-7f3a9e-", "is shown in observation 1"]),
            (liars.TellsInTheLog, ["is shown in the log"]),
            (liars.NotesEveryError, ["an unknown tool changed the state"]),
            (liars.TripsOverANumber, ["tool add raised IndexError at TripsOverANumber.add:", "below zero"]),
            (liars.EndsWithAWord, ["outcome raised TypeError", "a Cause or None, not str"]),
            (liars.CannotBeClosedEarly, ["close failed after 0 actions: RuntimeError", "still playing"]),
        ],
        ids=lambda value: value.__name__ if isinstance(value, type) else "",
    )
    def test_the_sentence_says_what_and_where(self, liar: type[Environment[Any]], parts: list[str]) -> None:
        (broken,) = check(liar(), episodes=20).broken
        for part in parts:
            assert part in broken.sentence

    def test_the_report_reads_as_text(self) -> None:
        text = check(liars.TripsOverANumber(), episodes=12).render()
        rows = text.splitlines()
        assert rows[0] == ("trips_over_a_number (version 1): 15 kept, 1 broken; 12 episodes, seed 0")
        assert "kept            determinism  the same task, seed and actions give the same transcript" in rows
        place = next(index for index, row in enumerate(rows) if row.startswith("BROKEN          exceptions"))
        assert rows[place + 1].startswith("    example: task train/")
        assert rows[place + 2].startswith("       1. add(amount=-")
        assert rows[place + 3].endswith("[error internal_error]")


class TestWhatCannotBeChecked:
    def test_without_an_oracle_the_promise_about_it_does_not_apply(self) -> None:
        result = result_of(check(liars.NoOracle()), Promise.ORACLE)
        assert result == CheckResult(Promise.ORACLE, Outcome.UNSUPPORTED, "the environment has no oracle")

    def test_a_state_that_is_no_plain_data_is_reported_and_no_failure(self) -> None:
        report = check(CustomStore(lambda _: Loose({1})))
        assert report.passed
        result = result_of(report, Promise.SNAPSHOT)
        assert result.outcome is Outcome.UNSUPPORTED
        assert "is not plain data: value is a set and would come back as a list" in result.sentence

    @pytest.mark.parametrize(
        ("change", "promise", "part"),
        [
            ({"max_turns": 0}, Promise.DEFINITION, "max_turns must be an integer of at least 1; it is 0"),
            ({"max_turns": True}, Promise.DEFINITION, "max_turns must be"),
            ({"max_turns": 2.0}, Promise.DEFINITION, "max_turns must be"),
            ({"free_errors": -1}, Promise.DEFINITION, "free_errors must be an integer of at least 0"),
            ({"version": 1}, Promise.DEFINITION, "version must be a text"),
            ({"name": None}, Promise.DEFINITION, "name must be a text"),
            ({"reward": (0, 1)}, Promise.DEFINITION, "reward must be a RewardSpec"),
            ({"rubric": None}, Promise.DEFINITION, "rubric must be a Rubric; it is missing"),
            ({"tasks": lambda _: []}, Promise.TASKS, "tasks must return a TaskSet; it returned a list"),
            ({"tasks": lambda _: 1 / 0}, Promise.TASKS, "tasks failed: ZeroDivisionError"),
            ({"add": None, "refuse": None}, Promise.TOOLS, "there is no tool"),
        ],
    )
    def test_without_the_basics_nothing_else_is_checked(
        self, change: dict[str, Any], promise: Promise, part: str
    ) -> None:
        report = check(type("Basic", (Counter,), change)())
        assert [result.promise for result in report.broken] == [promise]
        assert part in report.broken[0].sentence
        later = list(Promise)[list(Promise).index(promise) + 1 :]
        for result in report.results:
            if result.promise in later:
                assert result.outcome is Outcome.UNCHECKED
                assert result.sentence == f"the promise about {promise} is broken"
        not_checked = f"{len(later)} not checked"
        assert not_checked in report.render().splitlines()[0]
        assert "does not apply" not in report.render()
        assert [result.promise for result in report.results] == list(Promise)

    def test_a_tool_that_cannot_be_offered_is_named(self) -> None:
        class Careless(Counter):
            name = "careless"

            @tool
            def undo(self, state: Any) -> str:
                return ""

        (broken,) = check(Careless()).broken
        assert (broken.promise, "undo: the docstring is missing" in broken.sentence) == (Promise.TOOLS, True)

    def test_an_environment_that_never_starts_is_broken_there_and_unknown_elsewhere(self) -> None:
        class Dead(Counter):
            name = "dead"

            def start(self, task: Task, rng: random.Random) -> Any:
                raise MemoryError

        report = check(Dead())
        assert [result.promise for result in report.broken] == [Promise.START]
        assert result_of(report, Promise.CLOSE).outcome is Outcome.UNCHECKED
        assert "no episode could be started" in result_of(report, Promise.CLOSE).sentence


class TestSecrets:
    def secret_of(self, secret: dict[str, Any], prompt: str, count: int = 3) -> CheckResult:
        class Told(Counter):
            name = "told"

            def tasks(self) -> TaskSet:
                return TaskSet(
                    Task(
                        id=f"train/{number}",
                        inputs={"largest": 9, "passage": "The capital of France is Paris."},
                        secret={"goal": 3, **(secret if number == 0 else {"word": "something else"})},
                    )
                    for number in range(count)
                )

            def prompt(self, task: Task, state: Any) -> str:
                return prompt

            def oracle(self, task: Task) -> Any:
                return Environment.oracle(self, task)

        return result_of(check(Told(), episodes=6), Promise.SECRETS)

    def test_words_that_every_task_shows_are_no_secret(self) -> None:
        assert self.secret_of({"word": "guess"}, "Guess the word.").outcome is Outcome.PASSED

    def test_words_that_the_public_half_holds_are_no_secret(self) -> None:
        result = self.secret_of({"word": "Paris"}, "Paris?", count=1)
        assert result.outcome is Outcome.UNCHECKED
        assert "'word' not searched: the public half of the task shows it" in result.sentence

    def test_words_of_three_letters_are_found_everywhere_so_that_nobody_can_say_whether_they_are_told(
        self,
    ) -> None:
        result = self.secret_of({"word": "the"}, "Guess the word.", count=1)
        assert result.outcome is Outcome.UNCHECKED
        assert "'goal', 'word' not searched: shorter than four characters or digits" in result.sentence

    def test_what_was_not_searched_is_named_beside_what_was(self) -> None:
        result = self.secret_of({"word": "zebra", "deep": [{"flag": True}]}, "Guess.", count=1)
        assert result.outcome is Outcome.PASSED
        assert result.sentence.startswith("no secret of a task is shown before the end (")
        assert "'goal', 'deep.flag' not searched" in result.sentence

    def test_an_environment_without_secrets_cannot_tell_any(self) -> None:
        class Open(Counter):
            name = "open"

            def tasks(self) -> TaskSet:
                return TaskSet([Task(id="train/0", inputs={"largest": 9})])

            def start(self, task: Task, rng: random.Random) -> Any:
                return super().start(Task(id="train/0", inputs={"largest": 9}, secret={"goal": 3}), rng)

            def oracle(self, task: Task) -> Any:
                return Environment.oracle(self, task)

        result = result_of(check(Open(), episodes=3), Promise.SECRETS)
        assert result == CheckResult(Promise.SECRETS, Outcome.UNSUPPORTED, "no task has a secret")

    @pytest.mark.parametrize("told", ["103,556", "103.556", "103\u202f556", "0x19484", "MTAzNTU2"])
    def test_a_number_is_found_in_another_spelling(self, told: str) -> None:
        result = self.secret_of({"n": 103556}, f"The answer may be {told}.", count=1)
        assert result.outcome is Outcome.FAILED
        assert "the secret 103556 of task 'train/0' is shown in the prompt" in result.sentence

    def test_a_number_with_a_fraction_is_searched(self) -> None:
        assert self.secret_of({"n": 2718.25}, "About 2,718.25.", count=1).outcome is Outcome.FAILED

    @pytest.mark.parametrize(
        "secret", [{"n": 12345}, {"list": ["x", {"deep": "12345"}]}, {"pair": [[12345]]}]
    )
    def test_numbers_and_nested_values_are_searched(self, secret: dict[str, Any]) -> None:
        assert self.secret_of(secret, "Not 12345.", count=1).outcome is Outcome.FAILED

    def test_what_the_agent_wrote_itself_may_be_echoed(self) -> None:
        class Parrot(Counter):
            name = "parrot"

            @tool
            def say(self, state: Any, word: str) -> str:
                """Say a word.

                Args:
                    word: The word.
                """
                return word

            def random_call(self, task: Task, rng: random.Random) -> Any:
                return ToolCall("say", {"word": task.secret["code"]})

        assert check(Parrot()).passed

    def test_the_observation_that_ends_the_episode_may_tell(self) -> None:
        class Reveals(Counter):
            name = "reveals"

            @tool
            def add(self, state: Any, amount: int = 1) -> str:
                """Add to the counter.

                Args:
                    amount: How much to add.
                """
                text = super().add(state, amount)
                return text if self.outcome(state) is None else f"{text} It was {CANARY}-{state.goal}."

        assert check(Reveals()).passed


class TestManners:
    def test_the_same_check_gives_the_same_report(self) -> None:
        for environment in (load_environment("wordle"), liars.TripsOverANumber(), liars.TellsWhenAsked()):
            assert check(environment, seed=3) == check(environment, seed=3)

    def test_another_seed_plays_other_episodes(self) -> None:
        reports = {
            check(liars.TripsOverANumber(), episodes=12, seed=seed).broken[0].example for seed in range(3)
        }
        assert len(reports) == 3

    @pytest.mark.parametrize(
        "environment", [Counter(), liars.SeedsTheGlobalGenerator()], ids=lambda e: e.name
    )
    def test_the_global_generator_is_as_it_was(self, environment: Environment[Any]) -> None:
        random.seed(5)
        before = random.getstate()
        check(environment)
        assert random.getstate() == before

    def test_no_log_handler_is_left_behind(self) -> None:
        before = list(logging.getLogger().handlers)
        check(liars.TripsOverANumber())
        assert logging.getLogger().handlers == before

    def test_every_session_is_closed(self) -> None:
        environment = liars.ShowsHowManyPlay()
        check(environment)
        assert environment.open == 0

    @pytest.mark.parametrize("episodes", [0, -1])
    def test_a_check_of_nothing_is_refused(self, episodes: int) -> None:
        with pytest.raises(ValueError, match="a check needs at least one episode"):
            check(Counter(), episodes=episodes)

    @pytest.mark.parametrize("episodes", [1, 2, 20])
    def test_any_number_of_episodes_will_do(self, episodes: int) -> None:
        assert check(Counter(), episodes=episodes).passed

    def test_of_dear_episodes_few_are_played_and_each_promise_is_told_as_it_is_checked(self) -> None:
        class Dear(Counter):
            dear = True

        heard: list[tuple[Promise, int]] = []
        report = check_environment(Dear(), on_promise=lambda promise, done: heard.append((promise, done)))
        assert report.passed
        assert report.episodes == DEAR_EPISODES < EPISODES == check_environment(Counter()).episodes
        played = list(Promise)[3:]
        assert heard == [(promise, done) for promise in played for done in range(DEAR_EPISODES + 1)]

    def test_flaws_of_tasks_are_told_first_and_nothing_is_played(self) -> None:
        class Flawed(Counter):
            def start(self, task: Task, rng: random.Random) -> Count:
                raise AssertionError("an episode was started")

            async def flaws(self, task: Task) -> list[str]:
                return ["a wrong patch is paid"]

        report = check_environment(Flawed(), episodes=2)
        (broken,) = report.broken
        assert broken.promise is Promise.ORACLE
        assert "a wrong patch is paid" in report.render()
        left = [result for result in report.results if result.outcome is Outcome.UNCHECKED]
        assert len(left) == len(Promise) - 4

    def test_an_async_environment_is_checked_from_sync_and_async_code(self) -> None:
        assert check(Waiter(), episodes=2) == asyncio.run(check_environment_async(Waiter(), episodes=2))

    def test_an_async_environment_inside_a_running_loop_needs_the_async_check(self) -> None:
        async def main() -> None:
            with pytest.raises(RuntimeError, match="await check_environment_async instead"):
                check(Waiter())
            assert check(Counter()).passed

        asyncio.run(main())

    def test_a_sync_environment_is_checked_without_an_event_loop(self) -> None:
        """Its tools may therefore run a loop of their own."""

        class Blocking(Counter):
            name = "blocking"

            @tool
            def add(self, state: Any, amount: int = 1) -> str:
                """Add to the counter.

                Args:
                    amount: How much to add.
                """
                asyncio.run(asyncio.sleep(0))
                return super().add(state, amount)

        assert check(Blocking(), episodes=2).passed

    @pytest.mark.parametrize(
        ("environment", "promises"),
        [
            (liars.HasOneCurrentState(), {Promise.ISOLATION, Promise.SNAPSHOT}),
            (liars.UsesTheGlobalGenerator(), {Promise.RANDOMNESS, Promise.DETERMINISM}),
        ],
        ids=lambda value: getattr(value, "name", ""),
    )
    def test_an_environment_may_break_more_than_one_promise(
        self, environment: Environment[Any], promises: set[Promise]
    ) -> None:
        report = check(environment, episodes=12)
        assert {result.promise for result in report.broken} == promises
        assert f"{len(promises)} broken" in report.render()

    def test_long_episodes_are_checked_to_their_end(self) -> None:
        class Long(liars.NoOracle):
            name = "long"
            max_turns = 700

            def outcome(self, state: Any) -> Cause | None:
                return None

        assert check(Long(), episodes=1).passed


def test_the_numbers_that_code_forgets_are_tried() -> None:
    class TripsOverNothing(Counter):
        @tool
        def add(self, state: Count, amount: int = 1) -> str:
            """Add to the counter.

            Args:
                amount: How much to add.
            """
            return super().add(state, amount + 0 // amount)

    result = result_of(check(TripsOverNothing(), episodes=50), Promise.EXCEPTIONS)
    assert result.outcome is Outcome.FAILED
    assert "tool add raised ZeroDivisionError" in result.sentence
