"""The reference adapter: an episode in process, behind the port that every framework is seen through."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical.adapter import Endpoint, Feature, Level, Opened, Session, SessionError
from canonical.environment import Environment
from canonical.reference import ADAPTER, ReferenceSession
from canonical.step import Cause, StepResult
from canonical.tool import ToolCall
from canonical.transcript import Action
from tests.canonical.miniatures import CANARY, Closing, Counter, Fragile, Waiter
from tests.canonical.playing import play_async
from tests.canonical.strategies import counter_calls, messy

ADD = ToolCall("add")


async def played(
    environment: Environment[Any], task: str, actions: list[Action]
) -> tuple[Opened, list[StepResult]]:
    async with (
        ADAPTER.serve(ADAPTER.compile(environment)) as endpoint,
        ADAPTER.connect(environment, endpoint) as session,
    ):
        opened = await session.open(task, 0)
        return opened, [await session.step(action) for action in actions]


@given(st.lists(messy(counter_calls), max_size=8))
def test_a_session_shows_what_the_episode_does(actions: list[Action]) -> None:
    environment = Counter()
    opened, results = asyncio.run(played(environment, "train/3", actions))
    transcript = asyncio.run(play_async(environment, "train/3", 0, actions))
    assert opened == Opened(transcript.prompt, transcript.tools)
    assert results == [step.result for step in transcript.steps]


def test_an_async_environment_is_served_too() -> None:
    _, results = asyncio.run(played(Waiter(), "train/table", [ToolCall("order", {"dishes": 3})]))
    assert results[0].cause is Cause.SOLVED


def test_leaving_the_connection_closes_the_episode_once() -> None:
    environment = Closing()
    asyncio.run(played(environment, "train/3", [ADD]))
    assert len(environment.closed) == 1


def test_opening_again_closes_the_episode_before() -> None:
    async def main() -> list[int]:
        environment = Closing()
        session = ReferenceSession(environment)
        counts = []
        for _ in range(3):
            await session.open("train/3", 0)
            counts.append(len(environment.closed))
        await session.close()
        await session.close()
        return [*counts, len(environment.closed)]

    assert asyncio.run(main()) == [0, 1, 2, 3]


def test_what_fails_is_a_session_error_in_words_and_without_secrets() -> None:
    async def failures() -> list[str]:
        found = []
        with pytest.raises(SessionError) as caught:
            await ReferenceSession(Counter()).step(ADD)
        found.append(str(caught.value))
        with pytest.raises(SessionError) as caught:
            await ReferenceSession(Counter()).open("train/99", 0)
        found.append(str(caught.value))
        for place in ("start", "prompt", "outcome", "rubric"):
            with pytest.raises(SessionError) as caught:
                await played(Fragile(ValueError(CANARY), place), "train/1", [ADD])
            found.append(str(caught.value))
        return found

    assert asyncio.run(failures()) == [
        "open an episode before stepping",
        "there is no task 'train/99'; this set holds 7 tasks, the first is 'train/1'",
        "the start of fragile failed with ValueError",
        "the prompt of fragile failed with ValueError",
        "the outcome of fragile failed with ValueError",
        "the rubric of fragile failed with ValueError",
    ]


def test_it_needs_the_environment_itself() -> None:
    async def main() -> None:
        async with ADAPTER.connect(None, Endpoint(None, lambda: 0)):
            pass

    with pytest.raises(SessionError, match="needs the environment itself"):
        asyncio.run(main())


def test_it_supports_everything_but_a_network() -> None:
    features = ADAPTER.features()
    assert set(features) == set(Feature)
    assert {feature for feature, support in features.items() if support.level is not Level.NATIVE} == {
        Feature.REMOTE
    }
    assert features[Feature.REMOTE].note
    assert list(ADAPTER.packages()) == ["rosetta-environments"]


def test_it_has_no_public_state_and_keeps_the_port() -> None:
    async def main() -> Any:
        session = ReferenceSession(Counter())
        assert isinstance(session, Session)
        await session.open("train/3", 0)
        state = await session.public_state()
        await session.close()
        return state

    assert asyncio.run(main()) == {}
