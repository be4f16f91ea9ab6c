"""Closing, coroutine tools, and event loops: a sync environment never needs one, an async one never blocks one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical.content import ErrorCode
from canonical.environment import Environment
from canonical.episode import Episode
from canonical.reward import Criterion, Exchanges, Score
from canonical.step import Cause
from canonical.tool import ToolCall, tool
from canonical.transcript import Action
from tests.canonical.miniatures import Closing, Count, Counter, Fragile, Waiter
from tests.canonical.playing import Playing, play, play_async
from tests.canonical.strategies import counter_calls, messy, waiter_calls

ADD = ToolCall("add")
ORDER = ToolCall("order")


class HalfAsync(Counter):
    """Count with one tool that waits and one that does not."""

    name = "half_async"

    @tool
    async def later(self, state: Count, amount: int = 1) -> str:
        """Add later.

        Args:
            amount: How much to add.
        """
        await asyncio.sleep(0.0001)
        state.value += amount
        return f"The counter is at {state.value}."


class Patient(Criterion[Count]):
    """Score after waiting."""

    is_async = True

    async def evaluate(self, state: Count, exchanges: Exchanges) -> Score:
        await asyncio.sleep(0.0001)
        return await super().evaluate(state, exchanges)


class Judged(Counter):
    """Count, and score with a rubric that waits."""

    name = "judged"
    rubric = Patient("reached", lambda state: float(state.value == state.goal))


class TestWithoutALoop:
    def test_a_sync_episode_needs_no_event_loop(self) -> None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        transcript = play(Counter(), "train/2", 0, [ADD, ADD])
        assert transcript.cause is Cause.SOLVED

    @given(st.lists(messy(counter_calls), max_size=6))
    def test_a_sync_step_works_inside_a_running_loop_and_lets_nothing_else_run(
        self, actions: list[Action]
    ) -> None:
        ran: list[str] = []

        async def other() -> None:
            ran.append("other")

        async def main() -> Any:
            task = asyncio.ensure_future(other())
            playing = Playing(Episode.open(Counter(), "train/2"))
            for action in actions:
                playing.step(action)
                await playing.step_async(action)
            playing.episode.close()
            assert ran == []
            await task
            return playing.transcript

        doubled = [action for action in actions for _ in range(2)]
        assert asyncio.run(main()) == play(Counter(), "train/2", 0, doubled)

    def test_a_step_makes_no_loop_and_no_task(self) -> None:
        """A coroutine that never waits is driven by hand, so no policy or loop is ever asked for."""

        class Forbidding(asyncio.DefaultEventLoopPolicy):
            def get_event_loop(self) -> asyncio.AbstractEventLoop:
                raise AssertionError("asked for a loop")

            new_event_loop = get_event_loop

        before = asyncio.get_event_loop_policy()
        asyncio.set_event_loop_policy(Forbidding())
        try:
            assert play(Counter(), "train/1", 0, [ADD]).cause is Cause.SOLVED
        finally:
            asyncio.set_event_loop_policy(before)

    @pytest.mark.parametrize("inside", [False, True], ids=["without a loop", "inside a loop"])
    def test_a_sync_step_of_a_coroutine_tool_is_refused_before_anything_happens(self, inside: bool) -> None:
        def step() -> Episode[Any]:
            episode = Episode.open(HalfAsync(), "train/3")
            with pytest.raises(RuntimeError, match="later is a coroutine function; await step_async"):
                episode.step(ToolCall("later"))
            return episode

        async def main() -> Episode[Any]:
            return step()

        episode = asyncio.run(main()) if inside else step()
        assert (episode.turn, episode.state.value, episode.failure) == (0, 0, None)
        assert episode.step(ADD).cause is None

    def test_a_sync_step_is_refused_when_the_rubric_waits(self) -> None:
        episode = Episode.open(Judged(), "train/1")
        with pytest.raises(RuntimeError, match="the rubric of judged waits; await step_async"):
            episode.step(ADD)
        assert (episode.turn, episode.state.value) == (0, 0)

    def test_an_async_start_is_refused_without_await(self) -> None:
        with pytest.raises(RuntimeError, match="start is a coroutine function; await open_async"):
            Episode.open(Waiter(), "train/table")

    def test_a_sync_close_of_an_async_environment_is_refused_and_leaves_the_episode_open(self) -> None:
        async def main() -> None:
            environment = Waiter()
            episode = await Episode.open_async(environment, "train/table")
            with pytest.raises(RuntimeError, match="await close_async"):
                episode.close()
            before = len(environment.closed)
            await episode.close_async()
            assert len(environment.closed) == before + 1

        asyncio.run(main())


class TestWithALoop:
    @given(st.lists(messy(waiter_calls), max_size=7))
    def test_async_tools_are_as_deterministic_as_sync_ones(self, actions: list[Action]) -> None:
        first = asyncio.run(play_async(Waiter(), "train/table", 0, actions))
        assert first == asyncio.run(play_async(Waiter(), "train/table", 0, actions))

    @given(st.lists(st.lists(messy(waiter_calls), max_size=4), min_size=2, max_size=4))
    def test_concurrent_async_sessions_equal_sequential_ones(self, plans: list[list[Action]]) -> None:
        async def together() -> list[Any]:
            return await asyncio.gather(*(play_async(Waiter(), "train/table", 0, plan) for plan in plans))

        alone = [asyncio.run(play_async(Waiter(), "train/table", 0, plan)) for plan in plans]
        assert asyncio.run(together()) == alone

    def test_a_step_that_waits_lets_others_run(self) -> None:
        async def main() -> list[str]:
            ran: list[str] = []

            async def other() -> None:
                ran.append("other")

            episode = await Episode.open_async(Waiter(), "train/table")
            task = asyncio.ensure_future(other())
            await episode.step_async(ORDER)
            await task
            return ran

        assert asyncio.run(main()) == ["other"]

    def test_sync_and_async_tools_mix(self) -> None:
        actions: list[Action] = [ORDER, ToolCall("ask"), ORDER]
        transcript = asyncio.run(play_async(Waiter(), "train/table", 0, actions))
        assert transcript.steps[1].result.observation.text == "There are 1."

    def test_a_rubric_may_wait(self) -> None:
        transcript = asyncio.run(play_async(Judged(), "train/1", 0, [ADD]))
        assert (transcript.cause, transcript.total) == (Cause.SOLVED, 1.0)

    @pytest.mark.parametrize("error", [SystemExit(2), asyncio.CancelledError("as if from outside")], ids=repr)
    def test_an_async_tool_that_raises_is_an_observation(self, error: BaseException) -> None:
        class Failing(Waiter):
            name = "failing"

            @tool
            async def order(self, state: Count, dishes: int = 1) -> str:
                """Order.

                Args:
                    dishes: How many.
                """
                await asyncio.sleep(0)
                raise error

        transcript = asyncio.run(play_async(Failing(), "train/table", 0, [ORDER]))
        assert transcript.steps[0].result.observation.error is ErrorCode.INTERNAL_ERROR

    def test_a_cancelled_step_ends_nothing_and_the_episode_can_be_closed(self) -> None:
        async def main() -> tuple[Any, ...]:
            environment = Waiter()
            episode = await Episode.open_async(environment, "train/table")
            step = asyncio.ensure_future(episode.step_async(ORDER))
            await asyncio.sleep(0)
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step
            assert (episode.turn, episode.state.value, episode.cause) == (0, 0, None)
            await episode.close_async()
            return (episode.cause, environment.closed[-1] == id(episode.state))

        assert asyncio.run(main()) == (Cause.CANCELLED, True)


class TestClose:
    def test_closing_early_cancels_and_closing_twice_calls_the_environment_once(self) -> None:
        environment = Closing()
        episode = Episode.open(environment, "train/2")
        episode.close()
        episode.close()
        assert episode.cause is Cause.CANCELLED
        assert environment.closed == [episode.state]

    def test_closing_after_the_end_keeps_the_ending(self) -> None:
        environment = Closing()
        episode = Episode.open(environment, "train/1")
        episode.step(ADD)
        episode.close()
        assert (episode.cause, len(environment.closed), episode.total) == (Cause.SOLVED, 1, 1.0)

    def test_each_session_closes_its_own_state(self) -> None:
        environment = Closing()
        episodes = [Episode.open(environment, "train/2") for _ in range(3)]
        for episode in reversed(episodes):
            episode.close()
        assert all(
            a is b for a, b in zip(environment.closed, [e.state for e in reversed(episodes)], strict=True)
        )

    def test_an_environment_whose_close_raises_is_not_asked_again(self) -> None:
        environment = Fragile(OSError("gone"), "close")
        episode = Episode.open(environment, "train/2")
        with pytest.raises(OSError, match="gone"):
            episode.close()
        episode.close()
        assert episode.cause is Cause.CANCELLED

    def test_an_episode_is_closed_once_after_a_tool_failed(self) -> None:
        class FailingClosing(Closing):
            name = "failing_closing"

            @tool
            def add(self, state: Count, amount: int = 1) -> str:
                """Fail.

                Args:
                    amount: Ignored.
                """
                raise SystemExit

        environment = FailingClosing()
        episode = Episode.open(environment, "train/2")
        episode.step(ADD)
        episode.close()
        episode.close()
        assert len(environment.closed) == 1

    def test_an_async_close_is_awaited_once(self) -> None:
        async def main() -> int:
            environment = Waiter()
            before = len(environment.closed)
            episode = await Episode.open_async(environment, "train/table")
            await asyncio.gather(episode.close_async(), episode.close_async())
            return len(environment.closed) - before

        assert asyncio.run(main()) == 1

    def test_a_step_after_closing_says_that_the_episode_is_over(self) -> None:
        episode = Episode.open(Counter(), "train/2")
        episode.close()
        result = episode.step(ADD)
        assert (result.cause, result.reward, result.observation.error) == (
            Cause.CANCELLED,
            0.0,
            ErrorCode.EPISODE_OVER,
        )
        assert episode.state.value == 0

    def test_closing_one_session_while_another_is_in_a_step_disturbs_nobody(self) -> None:
        async def main() -> tuple[Any, ...]:
            environment: Environment[Count] = Waiter()
            one, two = [await Episode.open_async(environment, "train/table") for _ in range(2)]
            step = asyncio.ensure_future(one.step_async(ORDER))
            await asyncio.sleep(0)
            await two.close_async()
            result = await step
            await one.close_async()
            return result.observation.text, one.cause, two.cause

        assert asyncio.run(main()) == ("1 dishes are on the table.", Cause.CANCELLED, Cause.CANCELLED)
