"""Contract 2, 3, 4, 6 and 8: actions, errors as observations, the turn budget, and what happens after the end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from canonical.catalogue import load_environment
from canonical.content import ErrorCode, Image, Observation, Text
from canonical.dialect import TextForm, write_calls
from canonical.environment import Environment
from canonical.episode import Episode
from canonical.step import Cause, Ending, StepResult
from canonical.task import UnknownTaskError
from canonical.tool import ToolCall, ToolError
from canonical.transcript import Action
from tests.canonical.miniatures import (
    CANARY,
    Answering,
    Count,
    Counter,
    Dice,
    ForgivingCounter,
    Fragile,
    Gallery,
    SilentCounter,
)
from tests.canonical.strategies import any_text, counter_calls, json_values, messy, wild_calls

ADD = ToolCall("add", {"amount": 1})
NOTHING = ToolCall("add", {"amount": 0})
ERRORS: dict[ErrorCode, Action] = {
    ErrorCode.UNKNOWN_TOOL: ToolCall("subtract", {"amount": 1}),
    ErrorCode.INVALID_ARGUMENTS: ToolCall("add", {"amount": "many"}),
    ErrorCode.UNPARSABLE: "I would rather not.",
    ErrorCode.TOOL_ERROR: ToolCall("refuse", {}),
    ErrorCode.INTERNAL_ERROR: ADD,
}


def opened(environment: Environment[Any], task: str = "train/7", seed: int = 0) -> Episode[Any]:
    return Episode.open(environment, task, seed=seed)


def broken_counter() -> Fragile:
    return Fragile(ValueError(f"at line 7: {CANARY}"))


def visible(episode: Episode[Any]) -> tuple[object, ...]:
    state = episode.snapshot().value
    return (json.dumps(state, sort_keys=True), episode.total, episode.payments, episode.cause, episode.turn)


class TestTurnBudget:
    @pytest.mark.parametrize("environment", [Counter(), SilentCounter(), Dice()])
    def test_the_last_allowed_action_ends_the_episode_and_no_earlier_one(
        self, environment: Environment[Any]
    ) -> None:
        episode = Episode.open(environment, next(iter(environment.tasks())))
        action = ToolCall("add", {"amount": 0}) if environment.name != "dice" else ToolCall("roll")
        causes = [episode.step(action).cause for _ in range(environment.max_turns)]
        assert causes == [None] * (environment.max_turns - 1) + [Cause.BUDGET]
        assert episode.turn == environment.max_turns

    @given(st.lists(messy(counter_calls), min_size=5, max_size=9))
    def test_no_action_list_outlasts_the_budget(self, actions: list[Action]) -> None:
        episode = opened(Counter())
        for used, action in enumerate(actions):
            assert episode.turn >= min(used, 5) or episode.cause is not None
            episode.step(action)
        assert episode.cause is not None
        assert episode.turn <= 5

    @given(st.lists(messy(counter_calls), min_size=7, max_size=12))
    def test_free_errors_lengthen_an_episode_by_at_most_their_number(self, actions: list[Action]) -> None:
        episode = opened(ForgivingCounter())
        for action in actions:
            episode.step(action)
        assert episode.cause is not None
        assert episode.turn <= 5

    @pytest.mark.parametrize("code", [code for code in ERRORS if code is not ErrorCode.INTERNAL_ERROR])
    def test_the_first_two_errors_are_free_and_the_third_is_not(self, code: ErrorCode) -> None:
        episode = opened(ForgivingCounter())
        turns = []
        for _ in range(4):
            episode.step(ERRORS[code])
            turns.append(episode.turn)
        assert turns == [0, 0, 1, 2]

    def test_free_errors_are_used_up_by_errors_of_any_kind_and_not_by_good_actions(self) -> None:
        episode = opened(ForgivingCounter())
        kinds = (ErrorCode.UNKNOWN_TOOL, ErrorCode.UNPARSABLE, ErrorCode.TOOL_ERROR)
        actions = [ERRORS[kinds[0]], NOTHING, ERRORS[kinds[1]], NOTHING, ERRORS[kinds[2]]]
        turns = []
        for action in actions:
            episode.step(action)
            turns.append(episode.turn)
        assert turns == [0, 1, 1, 2, 3]

    def test_seven_errors_end_a_forgiving_episode_of_five_turns(self) -> None:
        episode = opened(ForgivingCounter())
        causes = [episode.step("?").cause for _ in range(7)]
        assert causes == [None] * 6 + [Cause.BUDGET]

    def test_a_truncated_episode_is_still_scored(self) -> None:
        episode = Episode.open(load_environment("wordle"), "train/0000")
        answer = episode.state.answer
        near = next(
            word for word in ("slate", "crane", "moist") if set(word) & set(answer) and word != answer
        )
        paid = [episode.step(ToolCall("guess", {"word": near})).reward]
        paid += [episode.step("?").reward for _ in range(11)]
        assert episode.cause is Cause.BUDGET
        assert paid[:-1] == [0.0] * 11
        assert 0 < paid[-1] == episode.total < 0.5

    def test_an_episode_that_solves_the_task_on_its_last_turn_is_terminated(self) -> None:
        episode = opened(Counter(), "train/5")
        results = [episode.step(ADD) for _ in range(5)]
        assert results[-1].cause is Cause.SOLVED
        assert results[-1].ending is Ending.TERMINATED
        assert results[-1].reward == 1.0

    def test_a_failure_on_the_last_turn_is_terminated_too(self) -> None:
        episode = opened(Counter(), "train/5")
        for _ in range(4):
            episode.step(ADD)
        assert episode.step(ToolCall("add", {"amount": 2})).cause is Cause.FAILED

    @given(st.lists(messy(counter_calls), max_size=8), st.sampled_from(list(Counter().tasks())))
    def test_terminated_and_truncated_exclude_each_other(self, actions: list[Action], task: Any) -> None:
        episode = Episode.open(Counter(), task)
        endings = [episode.step(action).ending for action in actions]
        known = [ending for ending in endings if ending is not None]
        assert len(set(known)) <= 1
        assert endings == [None] * (len(endings) - len(known)) + known


class TestErrors:
    def episode(self, code: ErrorCode) -> Episode[Any]:
        return opened(broken_counter() if code is ErrorCode.INTERNAL_ERROR else Counter())

    @pytest.mark.parametrize("code", ERRORS)
    def test_an_error_pays_nothing_changes_nothing_and_costs_a_turn(self, code: ErrorCode) -> None:
        episode = self.episode(code)
        before = json.dumps(episode.snapshot().value["state"])
        result = episode.step(ERRORS[code])
        assert result.observation.error is code
        assert (result.reward, result.total, result.cause, dict(result.components)) == (0.0, 0.0, None, {})
        assert json.dumps(episode.snapshot().value["state"]) == before
        assert episode.turn == 1

    @pytest.mark.parametrize(
        ("code", "text"),
        [
            (ErrorCode.UNKNOWN_TOOL, 'There is no tool "subtract". The tools are: add, refuse.'),
            (ErrorCode.INVALID_ARGUMENTS, 'Invalid arguments for add: "amount" must be an integer.'),
            (
                ErrorCode.UNPARSABLE,
                (
                    "The message holds no tool call. Write a call as "
                    '<tool_call>{"name": "TOOL", "arguments": {"ARGUMENT": VALUE}}</tool_call>'
                ),
            ),
            (ErrorCode.TOOL_ERROR, "No."),
            (ErrorCode.INTERNAL_ERROR, "The tool add failed with an internal error."),
        ],
    )
    def test_the_message_is_clear_fixed_and_followed_by_the_status(self, code: ErrorCode, text: str) -> None:
        result = self.episode(code).step(ERRORS[code])
        assert result.observation.text == f"{text}\nThe counter stays at 0."

    def test_without_a_status_the_message_stands_alone(self) -> None:
        assert opened(SilentCounter()).step(ToolCall("refuse")).observation.text == "No."

    @pytest.mark.parametrize("code", ERRORS)
    def test_the_episode_goes_on_after_an_error(self, code: ErrorCode) -> None:
        episode = opened(Counter(), "train/1")
        if code is not ErrorCode.INTERNAL_ERROR:
            episode.step(ERRORS[code])
        assert episode.step(ADD).cause is Cause.SOLVED

    @pytest.mark.parametrize(
        "error",
        [
            ValueError(CANARY),
            KeyError(CANARY),
            SystemExit(CANARY),
            SystemExit(3),
            RecursionError(CANARY),
            MemoryError(),
            AssertionError(CANARY),
            StopIteration(CANARY),
            TimeoutError(CANARY),
            ExceptionGroup(CANARY, [ValueError(CANARY)]),
            asyncio.CancelledError(CANARY),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_whatever_a_tool_raises_is_an_observation_without_its_text(self, error: BaseException) -> None:
        episode = opened(Fragile(error))
        result = episode.step(ADD)
        assert result.observation.error is ErrorCode.INTERNAL_ERROR
        assert CANARY not in result.observation.text
        assert type(error).__name__ not in result.observation.text
        assert episode.failure is error

    @pytest.mark.parametrize(
        "error", [KeyboardInterrupt(), GeneratorExit()], ids=lambda error: type(error).__name__
    )
    def test_what_stops_the_whole_program_passes_through(self, error: BaseException) -> None:
        episode = opened(Fragile(error))
        with pytest.raises(type(error)):
            episode.step(ADD)
        episode.close()

    @pytest.mark.parametrize(
        "output",
        [None, 7, b"bytes", ["text"], [Text("fine"), "text"], {"a": 1}, ErrorCode, [None]],
        ids=repr,
    )
    def test_a_tool_that_returns_no_content_is_an_internal_error(self, output: object) -> None:
        episode = opened(Answering(output))
        result = episode.step(ADD)
        assert result.observation.error is ErrorCode.INTERNAL_ERROR
        assert (
            result.observation.text == "The tool add failed with an internal error.\nThe counter stays at 0."
        )

    @pytest.mark.parametrize(
        ("output", "blocks"),
        [
            ("text", (Text("text"),)),
            (ErrorCode.TOOL_ERROR, (Text("tool_error"),)),
            ("", (Text(""),)),
            ([], ()),
            ([Text("a"), Image(b"b", "image/png")], (Text("a"), Image(b"b", "image/png"))),
            ((Text("a"),), (Text("a"),)),
            (Observation((Text("a"),)), (Text("a"),)),
        ],
        ids=repr,
    )
    def test_text_blocks_and_observations_are_content(
        self, output: object, blocks: tuple[object, ...]
    ) -> None:
        result = opened(Answering(output)).step(ADD)
        assert result.observation.error is None
        assert result.observation.blocks == blocks
        assert all(type(block) in {Text, Image} for block in result.observation.blocks)
        json.dumps(result.to_json())

    @given(any_text)
    def test_what_a_tool_says_is_what_the_model_reads(self, text: str) -> None:
        assert opened(Answering(text)).step(ADD).observation == Observation((Text(text),))

    @pytest.mark.parametrize("arguments", [None, [], [1], "amount", 3, [("amount", 1, 2)]], ids=repr)
    def test_arguments_that_are_no_object_are_an_observation(self, arguments: Any) -> None:
        result = opened(Counter()).step(ToolCall("add", arguments))
        assert result.observation.error is ErrorCode.INVALID_ARGUMENTS
        assert result.observation.text.startswith(
            "Invalid arguments for add: the arguments must be an object."
        )

    @given(wild_calls)
    def test_wild_calls_are_answered_with_text_that_can_be_sent(self, call: ToolCall) -> None:
        assume(call.name not in {"add", "refuse"})
        result = opened(Counter()).step(call)
        assert result.observation.error is ErrorCode.UNKNOWN_TOOL
        result.observation.text.encode("utf-8")

    @given(st.dictionaries(any_text, json_values, min_size=1, max_size=4))
    def test_wild_arguments_are_answered_with_text_that_can_be_sent(self, arguments: dict[str, Any]) -> None:
        assume("amount" not in arguments)
        result = opened(Counter()).step(ToolCall("add", arguments))
        assert result.observation.error is ErrorCode.INVALID_ARGUMENTS
        result.observation.text.encode("utf-8")

    @given(any_text)
    def test_any_text_is_an_action(self, text: str) -> None:
        result = opened(Counter()).step(text)
        assert result.observation.error is ErrorCode.UNPARSABLE
        result.observation.text.encode("utf-8")

    @pytest.mark.parametrize(
        "text",
        ["", " ", "\0", "<tool_call>", "{" * 5000, "[" * 100_000, "a" * 1_000_000, "<tool_call>" * 1000],
    )
    def test_odd_and_giant_texts_are_answered_briefly(self, text: str) -> None:
        result = opened(Counter()).step(text)
        assert result.observation.error is ErrorCode.UNPARSABLE
        assert len(result.observation.text) < 6_000

    def test_a_giant_tool_name_is_not_echoed_in_full(self) -> None:
        result = opened(Counter()).step(ToolCall("x" * 1_000_000))
        assert len(result.observation.text) < 300

    def test_an_error_of_the_rules_of_the_environment_may_be_an_observation_with_a_code(self) -> None:
        result = opened(Answering(Observation.of("Not now.", ErrorCode.TOOL_ERROR))).step(ADD)
        assert result.observation == Observation.of("Not now.", ErrorCode.TOOL_ERROR)

    @pytest.mark.parametrize(
        "name", ["reset", "close", "state", "status", "oracle", "start", "_call", "__init__", "tasks"]
    )
    def test_the_agent_reaches_tools_and_nothing_else(self, name: str) -> None:
        episode = opened(Counter())
        assert episode.step(ToolCall(name)).observation.error is ErrorCode.UNKNOWN_TOOL
        assert episode.cause is None

    def test_the_first_parameters_of_a_tool_cannot_be_written_by_the_agent(self) -> None:
        for name in ("self", "state"):
            result = opened(Counter()).step(ToolCall("add", {name: {"value": 7}}))
            assert result.observation.error is ErrorCode.INVALID_ARGUMENTS

    def test_an_unknown_task_is_refused(self) -> None:
        with pytest.raises(UnknownTaskError, match=r"there is no task 'train/99'; this set holds 7 tasks"):
            opened(Counter(), "train/99")


class TestSeveralCalls:
    @given(st.lists(counter_calls, min_size=1, max_size=4), st.sampled_from(TextForm))
    def test_a_text_of_several_calls_does_what_the_calls_do_in_order(
        self, calls: list[ToolCall], form: TextForm
    ) -> None:
        together, apart = opened(Counter()), opened(Counter())
        merged = together.step(write_calls(calls, form))
        single = [apart.step(call) for call in calls]
        over = [result.observation.error for result in single].count(ErrorCode.EPISODE_OVER)
        single = single[: len(single) - max(over - 1, 0)]  # that the episode is over is said once
        assert visible(together) == visible(apart)
        assert merged.observation.blocks == tuple(b for result in single for b in result.observation.blocks)
        assert merged.reward == pytest.approx(sum(result.reward for result in single))
        assert (merged.total, merged.cause) == (single[-1].total, single[-1].cause)

    def test_each_call_of_a_text_costs_a_turn_and_none_runs_after_the_end(self) -> None:
        episode = opened(Counter(), "train/7")
        result = episode.step(write_calls([ADD] * 9))
        assert (episode.turn, episode.state.value, result.cause) == (5, 5, Cause.BUDGET)
        assert [block.to_json()["text"] for block in result.observation.blocks][5:] == [
            "The episode is over (budget); this call changed nothing.\nThe counter stays at 5."
        ]

    def test_calls_before_an_unreadable_one_are_carried_out(self) -> None:
        episode = opened(Counter())
        text = write_calls([ADD]) + '\n<tool_call>{"name": add}</tool_call>\n' + write_calls([ADD])
        result = episode.step(text)
        assert episode.state.value == 2
        assert result.observation.error is ErrorCode.UNPARSABLE
        assert episode.turn == 3

    def test_the_code_of_a_text_is_that_of_its_first_error(self) -> None:
        text = write_calls([ADD, ToolCall("nothing"), ToolCall("refuse")])
        assert opened(Counter()).step(text).observation.error is ErrorCode.UNKNOWN_TOOL

    def test_the_payments_of_one_text_add_up(self) -> None:
        episode = opened(Dice(), "train/0")
        result = episode.step(write_calls([ToolCall("roll", {"sides": 100})] * 3))
        assert result.reward == pytest.approx(sum(episode.state.rolls[1:]) / 100)
        assert result.components == pytest.approx({"roll": result.reward})


class TestAfterTheEnd:
    def ended(self) -> Episode[Any]:
        episode = opened(Counter(), "train/1")
        episode.step(ADD)
        return episode

    @given(st.lists(messy(counter_calls), min_size=1, max_size=5))
    def test_every_further_action_changes_nothing_pays_nothing_and_says_so(
        self, actions: list[Action]
    ) -> None:
        episode = self.ended()
        before = visible(episode)
        for action in actions:
            result = episode.step(action)
            assert result.observation.error is ErrorCode.EPISODE_OVER
            assert result.observation.text.startswith(
                "The episode is over (solved); this call changed nothing."
            )
            assert (result.reward, result.total, result.cause) == (0.0, 1.0, Cause.SOLVED)
            assert result.ending is Ending.TERMINATED
            assert dict(result.components) == {}
        assert visible(episode) == before

    @given(st.sampled_from([Cause.BUDGET, Cause.TIMEOUT, Cause.CANCELLED, Cause.ERROR]), messy(counter_calls))
    def test_an_ending_from_outside_stays(self, cause: Cause, action: Action) -> None:
        episode = opened(Counter())
        result = finish_truncation(episode, cause)
        assert (result.cause, result.ending) == (cause, Ending.TRUNCATED)
        later = episode.step(action)
        assert (later.cause, later.reward, later.observation.error) == (cause, 0.0, ErrorCode.EPISODE_OVER)
        again = finish_truncation(episode, Cause.TIMEOUT)
        assert (again.cause, again.reward, again.observation.error) == (cause, 0.0, ErrorCode.EPISODE_OVER)

    def test_truncation_from_outside_scores_the_state(self) -> None:
        class Endless(Counter):
            name = "endless"

            def outcome(self, state: Count) -> Cause | None:
                return None

        episode = opened(Endless(), "train/1")
        episode.step(ADD)
        result = finish_truncation(episode, Cause.TIMEOUT)
        assert (result.reward, episode.total, result.observation.text) == (
            1.0,
            1.0,
            "The episode has ended: timeout.",
        )

    @pytest.mark.parametrize("cause", [Cause.SOLVED, Cause.FAILED, Cause.SUBMITTED])
    def test_nobody_but_the_environment_terminates(self, cause: Cause) -> None:
        episode = opened(Counter())
        with pytest.raises(ValueError, match=f"cause {cause} terminates"):
            finish_truncation(episode, cause)
        assert episode.cause is None

    def test_the_rules_of_an_ended_game_are_not_run_again(self) -> None:
        environment = Gallery()
        episode = Episode.open(environment, "train/hall")
        episode.step(ToolCall("leave"))
        assert episode.step(ToolCall("look")).observation.error is ErrorCode.EPISODE_OVER


def finish_truncation(episode: Episode[Any], cause: Cause) -> StepResult:
    from canonical.reward import finish

    return finish(episode.truncate(cause))


def test_a_tool_error_is_part_of_the_public_words() -> None:
    """Authors raise it, so it must carry its text unchanged."""
    assert str(ToolError("No.")) == "No."
