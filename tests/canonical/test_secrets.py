"""Contract 7: a task's secret is in no byte that leaves before the end, whatever an environment does."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical.catalogue import load_environment
from canonical.content import ErrorCode
from canonical.environment import Environment
from canonical.episode import Episode, SnapshotError, StartError
from canonical.reward import Criterion, ScoringError
from canonical.step import Cause
from canonical.tool import ToolCall
from canonical.transcript import Action
from tests.canonical.miniatures import CANARY, Count, Counter, CustomStore, Fragile, Handle, Loose
from tests.canonical.playing import Playing
from tests.canonical.strategies import counter_calls, messy

ADD = ToolCall("add", {"amount": 1})


def everything_visible(playing: Playing, caplog: pytest.LogCaptureFixture | None = None) -> str:
    environment, task = playing.episode.environment, playing.episode.task
    parts = [
        playing.transcript.to_line(),
        repr(playing.transcript),
        repr(task),
        str(task),
        repr(playing.episode),
        repr(environment),
        repr(environment.tasks()),
        repr(environment.tools),
        str([task.id for task in environment.tasks()]),
    ]
    if caplog is not None:
        parts += [caplog.text, *(str(vars(record)) for record in caplog.records)]
    return "\n".join(parts)


@given(st.lists(messy(counter_calls), max_size=8), st.sampled_from([0, 1, 2]))
def test_no_canary_is_visible_in_any_play(actions: list[Action], index: int) -> None:
    task = list(Counter().tasks())[index]
    playing = Playing(Episode.open(Counter(), task))
    for action in actions:
        playing.step(action)
    assert CANARY not in everything_visible(playing)


@pytest.mark.parametrize("place", ["tool", "status", "outcome", "rubric"])
@pytest.mark.parametrize(
    "error", [ValueError, KeyError, SystemExit, RecursionError], ids=lambda error: error.__name__
)
def test_an_exception_that_holds_the_secret_shows_it_to_nobody(
    place: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    environment = Fragile(error(f"the answer is {CANARY}"), place)
    playing = Playing(Episode.open(environment, "train/1"))
    texts = []
    for action in (ToolCall("refuse"), ToolCall("nothing"), "?", ADD, ADD):
        try:
            playing.step(action)
        except ScoringError as failure:
            texts += [str(failure), repr(failure), "".join(traceback.format_exception(failure))]
    assert CANARY not in everything_visible(playing, caplog)
    assert not any(CANARY in text for text in texts)
    assert playing.episode.failure is environment.error


@pytest.mark.parametrize(("part", "closed"), [("start", 0), ("prompt", 1)])
@pytest.mark.parametrize("error", [ValueError, SystemExit], ids=lambda error: error.__name__)
def test_an_environment_that_cannot_start_shows_no_secret_and_is_closed(
    part: str, closed: int, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    environment = Fragile(error(f"the answer is {CANARY}"), part)
    with pytest.raises(StartError, match=rf"^the {part} of fragile failed with {error.__name__}$") as caught:
        Episode.open(environment, "train/1")
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert CANARY not in caplog.text
    assert (caught.value.part, caught.value.failure) == (part, environment.error)
    assert environment.closed == closed


def test_a_prompt_that_is_no_prompt_is_refused_at_the_start() -> None:
    class Wrong(Counter):
        name = "wrong"

        def prompt(self, task: Any, state: Count) -> Any:
            return ["Count."]

    with pytest.raises(StartError, match="the prompt of wrong failed with TypeError"):
        Episode.open(Wrong(), "train/1")


def test_the_log_names_the_tool_the_kind_and_the_place(caplog: pytest.LogCaptureFixture) -> None:
    """Without the text of the exception an author still needs to find it."""
    episode = Episode.open(Fragile(ValueError(CANARY)), "train/1")
    episode.step(ADD)
    (record,) = caplog.records
    assert record.getMessage().startswith("tool add of fragile raised ValueError at Fragile._raise_in:")
    assert record.exc_info is None


@pytest.mark.parametrize("place", ["outcome", "rubric"])
def test_an_environment_whose_rules_fail_ends_the_episode_with_cause_error(place: str) -> None:
    episode = Episode.open(Fragile(ValueError(CANARY), place), "train/1")
    with pytest.raises(ScoringError, match=rf"^the {place} of fragile failed with ValueError$"):
        episode.step(ADD)
    assert episode.cause is Cause.ERROR
    result = episode.step(ADD)
    assert (result.observation.error, result.cause, result.reward) == (
        ErrorCode.EPISODE_OVER,
        Cause.ERROR,
        0.0,
    )


def test_a_failing_status_line_is_left_out() -> None:
    episode = Episode.open(Fragile(ValueError(CANARY), "status"), "train/1")
    result = episode.step(ToolCall("refuse"))
    assert (result.observation.text, result.observation.error) == ("No.", ErrorCode.TOOL_ERROR)
    assert isinstance(episode.failure, ValueError)


def test_a_call_after_closing_asks_the_environment_nothing() -> None:
    """What the status line needs may be gone."""
    episode = Episode.open(Handle(), "train/1")
    episode.close()
    result = episode.step(ADD)
    assert result.observation.text == "The episode is over (cancelled); this call changed nothing."
    assert episode.failure is None


def test_a_rubric_that_gives_the_secret_instead_of_a_number_does_not_quote_it() -> None:
    environment: Any = Fragile(ValueError())
    environment.place = "nowhere"
    measure: Any = lambda _: CANARY  # noqa: E731
    environment.rubric = Criterion("reached", measure)
    episode = Episode.open(environment, "train/1")
    with pytest.raises(ScoringError, match="str, which is not a finite number") as caught:
        episode.step(ADD)
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_a_snapshot_does_not_show_itself() -> None:
    """It holds the state, so its representation must not end up in a log."""
    snapshot = Episode.open(Counter(), "train/3").snapshot()
    assert "goal" not in repr(snapshot)
    assert '"goal":3' in snapshot.to_json()


@pytest.mark.parametrize(
    "make", [lambda _: Loose({CANARY}), lambda _: Loose(object()), lambda _: {CANARY: {1: 2}}]
)
def test_a_refused_snapshot_does_not_quote_the_state(make: Any) -> None:
    episode = Episode.open(CustomStore(make), "train/store")
    with pytest.raises(SnapshotError) as caught:
        episode.snapshot()
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_a_damaged_snapshot_is_not_quoted() -> None:
    episode = Episode.open(Counter(), "train/3")
    text = episode.snapshot().to_json().replace('"goal":3', f'"goal":"{CANARY}"')
    snapshot = type(episode.snapshot()).from_json(text)
    with pytest.raises(SnapshotError) as caught:
        episode.restore(snapshot)
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_the_representation_of_a_task_leaves_the_secret_out() -> None:
    task = Counter().tasks().get("train/3")
    assert repr(task) == "Task(id='train/3', inputs={'largest': 9}, folder=None)"


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_no_wordle_answer_is_visible_before_the_end(split: str) -> None:
    """Boilerplate holds many words of five letters, so an answer counts as shown only if no other task shows it."""
    environment: Environment[Any] = load_environment("wordle")
    tasks = environment.tasks().split(split)[:40]
    actions: list[Action] = ["?", ToolCall("guess", {"word": "zzzzz"}), ToolCall("guess", {"word": "fuzzy"})]
    seen = {}
    for task in tasks:
        playing = Playing(Episode.open(environment, task))
        for action in actions:
            playing.step(action)
        seen[task.id] = everything_visible(playing).replace(task.id, "ID").lower()
    for task in tasks:
        answer = str(task.secret["answer"])
        if answer != "fuzzy":
            others = [text for other, text in seen.items() if other != task.id]
            assert answer not in seen[task.id] or all(answer in text for text in others)


def test_the_state_of_wordle_does_not_print_its_answer() -> None:
    episode = Episode.open(load_environment("wordle"), "train/0000")
    assert episode.state.answer not in repr(episode.state)


def test_the_miniature_keeps_its_secret_in_the_state() -> None:
    """Otherwise the tests above would look for something that is not there."""
    state: Count = Episode.open(Counter(), "train/3").state
    assert state.goal == 3
    assert CANARY in str(dict(Counter().tasks().get("train/3").secret))
