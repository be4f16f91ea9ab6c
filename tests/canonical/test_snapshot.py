"""Contract 9: an episode stored as JSON text goes on as if nothing had happened, or is refused with the reason."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, PrivateAttr

from canonical.catalogue import load_environment
from canonical.environment import Environment
from canonical.episode import Episode, Snapshot, SnapshotError
from canonical.state import _changes
from canonical.step import Cause, StepResult
from canonical.task import Task
from canonical.tool import ToolCall
from canonical.transcript import Action
from tests.canonical.miniatures import (
    STORES,
    Climb,
    Counter,
    CustomStore,
    DataclassStore,
    DenseClimb,
    Dice,
    ForgivingCounter,
    Gallery,
    Hand,
    LatestClimb,
    Loose,
    Outer,
)
from tests.canonical.strategies import (
    any_text,
    climb_calls,
    counter_calls,
    dice_calls,
    draw_calls,
    gallery_calls,
    json_values,
    messy,
)

if TYPE_CHECKING:
    from decimal import Decimal

GUESSES = st.sampled_from([ToolCall("guess", {"word": word}) for word in ("crane", "slate", "fuzzy", "zz")])
CASES: list[tuple[Environment[Any], st.SearchStrategy[ToolCall]]] = [
    (Counter(), counter_calls),
    (ForgivingCounter(), counter_calls),
    (Dice(), dice_calls),
    (Climb(), climb_calls),
    (DenseClimb(), climb_calls),
    (LatestClimb(), climb_calls),
    (Gallery(), gallery_calls),
    (load_environment("wordle"), GUESSES),
    *((store(), draw_calls) for store in STORES),
]


Half = tuple[str, int, list[Action], list[Action]]
every_environment = pytest.mark.parametrize(
    ("environment", "calls"), CASES, ids=[environment.name for environment, _ in CASES]
)
few = settings(max_examples=max(settings().max_examples // 4, 5))


def halves(environment: Environment[Any], calls: st.SearchStrategy[ToolCall]) -> st.SearchStrategy[Half]:
    """Return plans in two parts: what happens before a snapshot, and what happens after it."""
    tasks = [task.id for task in environment.tasks()][:10]
    actions = st.lists(messy(calls), max_size=6)
    return st.tuples(st.sampled_from(tasks), st.integers(0, 9), actions, actions)


def run(episode: Episode[Any], actions: list[Action]) -> list[StepResult]:
    return [episode.step(action) for action in actions]


def differences(one: Episode[Any], other: Episode[Any]) -> list[object]:
    """Return in what two episodes differ; sets may differ in their order."""
    books = [
        (episode.turn, episode.total, episode.payments, episode.cause, episode.snapshot().value["errors"])
        for episode in (one, other)
    ]
    return [*_changes(one.state, other.state, "it", {}), *(books if books[0] != books[1] else ())]


@every_environment
@few
@given(data=st.data())
def test_a_restored_episode_goes_on_like_the_original(
    environment: Environment[Any], calls: st.SearchStrategy[ToolCall], data: st.DataObject
) -> None:
    task, seed, before, after = data.draw(halves(environment, calls))
    original = Episode.open(environment, task, seed=seed)
    run(original, before)
    text = original.snapshot().to_json()
    assert "\n" not in text
    restored = Episode.open(environment, task, seed=seed)
    restored.restore(Snapshot.from_json(text))
    assert differences(original, restored) == []
    assert run(restored, after) == run(original, after)
    assert differences(original, restored) == []


@every_environment
@few
@given(data=st.data())
def test_taking_a_snapshot_changes_nothing(
    environment: Environment[Any], calls: st.SearchStrategy[ToolCall], data: st.DataObject
) -> None:
    task, seed, before, after = data.draw(halves(environment, calls))
    watched, plain = (Episode.open(environment, task, seed=seed) for _ in range(2))
    for action in before + after:
        watched.snapshot()
        watched.fork(1)
        assert watched.step(action) == plain.step(action)


@every_environment
@few
@given(data=st.data())
def test_one_snapshot_can_be_restored_again_and_again(
    environment: Environment[Any], calls: st.SearchStrategy[ToolCall], data: st.DataObject
) -> None:
    task, seed, before, after = data.draw(halves(environment, calls))
    episode = Episode.open(environment, task, seed=seed)
    run(episode, before)
    snapshot = episode.snapshot()
    text = snapshot.to_json()
    first = run(episode, after)
    for _ in range(2):
        episode.restore(snapshot)
        assert run(episode, after) == first
    assert snapshot.to_json() == text


@every_environment
@few
@given(data=st.data(), count=st.integers(1, 4), order=st.randoms(use_true_random=False))
def test_forks_are_equal_and_independent(
    environment: Environment[Any],
    calls: st.SearchStrategy[ToolCall],
    data: st.DataObject,
    count: int,
    order: random.Random,
) -> None:
    task, seed, before, after = data.draw(halves(environment, calls))
    original = Episode.open(environment, task, seed=seed)
    run(original, before)
    forks = original.fork(count)
    assert len(forks) == count
    untouched = original.snapshot().to_json()
    turns = [index for index in range(count) for _ in after]
    order.shuffle(turns)
    results: list[list[StepResult]] = [[] for _ in range(count)]
    for index in turns:
        results[index].append(forks[index].step(after[len(results[index])]))
    assert original.snapshot().to_json() == untouched
    expected = run(original, after)
    assert all(result == expected for result in results)


def test_forks_that_act_differently_go_different_ways() -> None:
    left, right = Episode.open(Dice(), "train/0").fork(2)
    left.step(ToolCall("roll"))
    assert len(left.state.rolls) == 2
    assert len(right.state.rolls) == 1
    assert left.payments != right.payments


def test_each_fork_is_closed_by_itself() -> None:
    original = Episode.open(Counter(), "train/5")
    (fork,) = original.fork(1)
    fork.close()
    assert (fork.cause, original.cause) == (Cause.CANCELLED, None)


class TestRefusal:
    def snapshot(self) -> Snapshot:
        return Episode.open(Counter(), "train/3", seed=4).snapshot()

    @pytest.mark.parametrize("other", ["environment", "version", "task", "seed"])
    def test_a_snapshot_of_something_else_is_refused(self, other: str) -> None:
        class NextCounter(Counter):
            name = "next_counter" if other == "environment" else "counter"
            version = "2" if other == "version" else "1"

        task = "train/4" if other == "task" else "train/3"
        episode = Episode.open(NextCounter(), task, seed=5 if other == "seed" else 4)
        before = episode.snapshot().to_json()
        with pytest.raises(SnapshotError, match=rf"the snapshot is of another {other}:"):
            episode.restore(self.snapshot())
        assert episode.snapshot().to_json() == before

    def test_a_closed_episode_is_neither_stored_nor_restored(self) -> None:
        episode = Episode.open(Counter(), "train/3", seed=4)
        snapshot = episode.snapshot()
        episode.close()
        with pytest.raises(SnapshotError, match="a closed episode has no state to store"):
            episode.snapshot()
        with pytest.raises(SnapshotError, match="a closed episode has no state to store"):
            episode.fork(2)
        with pytest.raises(SnapshotError, match="a closed episode cannot be restored"):
            episode.restore(snapshot)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            "[]",
            "null",
            "7",
            '"state"',
            "{}",
            '{"turn": 1}',
            "[" * 100_000,
            "1" * 5000,
            '{"state": NaN}',
            "\ud800",
        ],
        ids=lambda text: repr(text[:12]),
    )
    def test_text_that_is_no_snapshot_is_refused(self, text: str) -> None:
        with pytest.raises(SnapshotError, match="this is not a snapshot"):
            Snapshot.from_json(text)

    @given(st.data())
    def test_a_cut_text_is_refused(self, data: st.DataObject) -> None:
        text = self.snapshot().to_json()
        with pytest.raises(SnapshotError):
            Snapshot.from_json(text[: data.draw(st.integers(0, len(text) - 1))])

    @given(st.data())
    def test_a_missing_piece_is_refused_and_named(self, data: st.DataObject) -> None:
        value: dict[str, Any] = dict(self.snapshot().value)
        key = data.draw(st.sampled_from(sorted(value.keys() - {"state"})))
        del value[key]
        episode = Episode.open(Counter(), "train/3", seed=4)
        with pytest.raises(SnapshotError, match=key):
            episode.restore(Snapshot(value))

    @given(st.sampled_from(["turn", "errors", "total", "payments", "cause", "state"]), json_values)
    def test_a_piece_of_another_kind_is_refused_and_changes_nothing(self, key: str, wrong: Any) -> None:
        value: dict[str, Any] = copy.deepcopy(dict(self.snapshot().value))
        assume(not _may_be(key, wrong))
        value[key] = wrong
        episode = Episode.open(Counter(), "train/3", seed=4)
        before = episode.snapshot().to_json()
        with pytest.raises(SnapshotError, match=f"the snapshot is damaged: {key}"):
            episode.restore(Snapshot(value))
        assert episode.snapshot().to_json() == before

    @pytest.mark.parametrize(
        ("key", "wrong"),
        [
            ("total", float("nan")),
            ("total", float("inf")),
            ("payments", [float("nan")]),
            ("turn", -1),
            ("errors", -1),
        ],
    )
    def test_numbers_that_no_episode_has_are_refused(self, key: str, wrong: object) -> None:
        value: dict[str, Any] = {**self.snapshot().value, key: wrong}
        with pytest.raises(SnapshotError, match=f"the snapshot is damaged: {key}"):
            Episode.open(Counter(), "train/3", seed=4).restore(Snapshot(value))

    @given(any_text.filter(lambda text: text not in {cause.value for cause in Cause}))
    def test_a_cause_that_does_not_exist_is_refused(self, text: str) -> None:
        value: dict[str, Any] = {**self.snapshot().value, "cause": text}
        with pytest.raises(SnapshotError, match="the snapshot is damaged: cause"):
            Episode.open(Counter(), "train/3", seed=4).restore(Snapshot(value))

    @pytest.mark.parametrize(
        "wrong", [None, {"a": 1}, 7, [["x"]], [[{"name": 1}, {}]], [["?", {"blocks": [{"type": "sound"}]}]]]
    )
    def test_a_damaged_trajectory_is_refused(self, wrong: Any) -> None:
        episode = Episode.open(Gallery(), "train/hall")
        episode.step(ToolCall("look"))
        value: dict[str, Any] = {**episode.snapshot().value, "exchanges": wrong}
        with pytest.raises(SnapshotError, match="the snapshot is damaged: exchanges"):
            episode.restore(Snapshot(value))

    @pytest.mark.parametrize(
        "generator",
        [
            None,
            [],
            [3, [], None],
            [3, [0] * 625, None, 1],
            [4, [1] * 625, None],
            [3, [1e99] * 625, None],
            "x",
        ],
    )
    def test_a_damaged_generator_is_refused(self, generator: Any) -> None:
        episode = Episode.open(Dice(), "train/0")
        value: dict[str, Any] = copy.deepcopy(dict(episode.snapshot().value))
        value["state"]["rng"] = generator
        with pytest.raises(SnapshotError, match="the snapshot is damaged: state"):
            episode.restore(Snapshot(value))

    @given(st.integers(0, 624), st.integers(-(2**70), 2**70))
    def test_damaged_words_of_a_generator_are_refused_or_give_a_working_one(
        self, place: int, word: int
    ) -> None:
        episode = Episode.open(Dice(), "train/0")
        value: dict[str, Any] = copy.deepcopy(dict(episode.snapshot().value))
        value["state"]["rng"][1][place] = word
        try:
            episode.restore(Snapshot(value))
        except SnapshotError as error:
            assert "the snapshot is damaged: state" in str(error)  # noqa: PT017 - both ways are right
        assert episode.step(ToolCall("roll")).observation.error is None


def _may_be(key: str, value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match key:
        case "turn" | "errors":
            return isinstance(value, int) and not isinstance(value, bool) and value >= 0
        case "total":
            return is_number
        case "payments":
            return isinstance(value, list) and all(isinstance(x, int | float) for x in value)
        case "cause":
            return value is None
        case _:
            return False


@dataclass
class Public:
    """Hold one field, and perhaps more than its class says."""

    value: int = 0


@dataclass
class Private(Public):
    """Hold one more field than its base."""

    hidden: int = 1


@dataclass
class Holder:
    """Hold a value whose class is wider than its annotation."""

    part: Public


@dataclass
class Uninitialised:
    """Hold a field that the constructor does not take."""

    value: int = 0
    extra: list[int] = field(default_factory=list, init=False)


@dataclass
class Twice:
    """Hold one list in two fields."""

    one: list[int]
    two: list[int]


class WithPrivate(BaseModel):
    """Hold a private attribute."""

    value: int = 0
    _private: int = PrivateAttr(default=0)


def _loose_attribute(_: random.Random) -> Public:
    state = Public()
    state.more = 1  # type: ignore[attr-defined]
    return state


def _private_attribute(_: random.Random) -> WithPrivate:
    state = WithPrivate()
    state._private = 5
    return state


def _uninitialised(_: random.Random) -> Uninitialised:
    state = Uninitialised()
    state.extra.append(1)
    return state


def _circular(_: random.Random) -> dict[str, Any]:
    state: dict[str, Any] = {}
    state["self"] = state
    return state


def _twice(_: random.Random) -> Twice:
    shared = [1]
    return Twice(shared, shared)


REFUSED: dict[str, Any] = {
    "an object": lambda _: object(),
    "a function": lambda _: {"f": len},
    "a generator": lambda _: {"g": (n for n in range(3))},
    "an open file": lambda _: Loose(value=iter([1])),
    "a set in a loose field": lambda _: Loose({1, 2}),
    "a tuple in a loose field": lambda _: Loose((1, 2)),
    "a set in a mapping": lambda _: {"seen": {1}},
    "a tuple in a mapping": lambda _: {"at": (1, 2)},
    "number keys in a mapping": lambda _: {"scores": {1: 2}},
    "a generator in a mapping": lambda rng: {"rng": rng},
    "a dataclass in a mapping": lambda _: {"part": Public()},
    "a subclass of the annotation": lambda _: Holder(Private()),
    "an attribute beside the fields": _loose_attribute,
    "a private attribute": _private_attribute,
    "a field outside the constructor": _uninitialised,
    "a circle": _circular,
    "a shared generator": lambda rng: Outer(rng, rng),
    "a shared list": _twice,
    "a value of another type": lambda _: Public("three"),  # type: ignore[arg-type]
    "bytes that are not text": lambda _: Hand([], set(), (), {}, data=b"\xff\xfe"),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_a_state_that_would_not_come_back_the_same_is_refused_with_the_reason(make: Any) -> None:
    episode = Episode.open(CustomStore(make), "train/store")
    with pytest.raises(SnapshotError, match=r"^the state of custom_store is not plain data: .{10,}"):
        episode.snapshot()
    with pytest.raises(SnapshotError):
        episode.fork(2)
    assert episode.step(ToolCall("draw", {"rank": 1})).observation.error is None


KEPT: dict[str, Any] = {
    "a list": lambda _: [1, "two", None, 0.5],
    "a mapping": lambda _: {"a": [1, {"b": None}]},
    "a number": lambda _: 7,
    "a text": lambda _: "text \u00e9 \U0001f600",
    "a generator alone in a field": lambda rng: Outer(rng, random.Random(1)),
    "numbers that JSON lacks": lambda _: Hand([], set(), (), {1: float("nan"), 2: float("inf")}),
    "equal but separate lists": lambda _: Twice([1], [1]),
    "the same small constants twice": lambda _: {"a": "x", "b": "x", "c": 1, "d": 1, "e": None, "f": None},
    "empty containers": lambda _: {"a": [], "b": {}},
}


@pytest.mark.parametrize("make", KEPT.values(), ids=KEPT)
def test_plain_data_of_any_shape_is_stored(make: Any) -> None:
    episode = Episode.open(CustomStore(make), "train/store")
    text = episode.snapshot().to_json()
    (fork,) = episode.fork(1)
    assert fork.snapshot().to_json() == text
    assert type(fork.state) is type(episode.state)


class HiddenAnnotation(DataclassStore):
    """Name, in the signature of start, a type that exists for the type checker only."""

    name = "hidden_annotation"

    def start(self, task: Task, rng: random.Random, _price: Decimal | None = None) -> Hand:
        return super().start(task, rng)


class MappingAnnotation(DataclassStore):
    """Annotate less than the state is."""

    name = "mapping_annotation"

    def start(self, task: Task, rng: random.Random) -> Any:
        return super().start(task, rng)


class LooseMapping(CustomStore):
    """Annotate a mapping where a dict is made."""

    name = "loose_mapping"

    def start(self, task: Task, rng: random.Random) -> Mapping[str, Any]:
        return {"a": [1]}


@pytest.mark.parametrize("kind", [HiddenAnnotation, MappingAnnotation])
def test_an_annotation_that_helps_nobody_does_no_harm(kind: type[DataclassStore]) -> None:
    episode = Episode.open(kind(), "train/store")
    (fork,) = episode.fork(1)
    actions: list[Action] = [ToolCall("draw", {"rank": 3}), ToolCall("draw", {"rank": 4})]
    assert run(fork, actions) == run(episode, actions)


def test_a_mapping_may_be_annotated_more_widely() -> None:
    episode = Episode.open(LooseMapping(lambda _: None), "train/store")
    (fork,) = episode.fork(1)
    assert fork.state == {"a": [1]}


def test_images_of_a_trajectory_survive() -> None:
    episode = Episode.open(Gallery(), "train/hall")
    episode.step(ToolCall("look", {"angle": 200}))
    text = episode.snapshot().to_json()
    restored = Episode.open(Gallery(), "train/hall")
    restored.restore(Snapshot.from_json(text))
    assert restored.step(ToolCall("leave")).total == episode.step(ToolCall("leave")).total == 0.1


def test_a_snapshot_says_where_it_comes_from() -> None:
    value = json.loads(Episode.open(Counter(), "train/3", seed=4).snapshot().to_json())
    assert {key: value[key] for key in ("environment", "version", "task", "seed")} == {
        "environment": "counter",
        "version": "1",
        "task": "train/3",
        "seed": 4,
    }
