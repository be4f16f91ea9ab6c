"""Contract 5: the ledger with its three aggregations, the declared range, and rubrics with their combinators."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical.content import ErrorCode
from canonical.episode import Episode
from canonical.reward import (
    Aggregation,
    Criterion,
    Exchanges,
    Gate,
    Ledger,
    RewardSpec,
    Rubric,
    Score,
    ScoringError,
    Sequential,
    TrajectoryCriterion,
    WeightedSum,
)
from canonical.step import Cause, StepResult
from canonical.tool import ToolCall
from canonical.transcript import Action
from tests.canonical.miniatures import (
    CANARY,
    Climb,
    DenseClimb,
    Fragile,
    Gallery,
    LatestClimb,
    Place,
    Scoring,
    TwoPartClimb,
)
from tests.canonical.strategies import climb_calls, messy

STOP = ToolCall("stop")
NOT_FINITE = [math.nan, math.inf, -math.inf]


def move(height: float) -> ToolCall:
    return ToolCall("move", {"height": height})


def played(environment: Climb, actions: list[Action]) -> tuple[Episode[Place], list[StepResult]]:
    episode = Episode.open(environment, "train/hill")
    return episode, [episode.step(action) for action in actions]


class TestAggregations:
    @given(
        st.lists(messy(climb_calls), min_size=1, max_size=12),
        st.sampled_from([Climb, DenseClimb, LatestClimb]),
    )
    def test_payments_sum_to_the_return_and_the_last_total_is_the_return(
        self, actions: list[Action], kind: type[Climb]
    ) -> None:
        episode, results = played(kind(), actions)
        assert math.fsum(result.reward for result in results) == pytest.approx(episode.total, abs=1e-9)
        assert math.fsum(episode.payments) == pytest.approx(episode.total, abs=1e-9)
        assert results[-1].total == episode.total
        assert all(math.isfinite(result.reward) for result in results)

    @given(st.lists(st.floats(-50, 50), min_size=1, max_size=8))
    def test_a_trainer_that_adds_dense_rewards_gets_the_return_exactly(self, heights: list[float]) -> None:
        episode, results = played(DenseClimb(), [move(height) for height in heights])
        added = 0.0
        for result, height in zip(results, heights, strict=True):
            added += result.reward
            assert result.reward == height
            assert result.total == added
        assert episode.total == added

    @given(st.lists(messy(climb_calls), min_size=1, max_size=12))
    def test_a_terminal_rubric_pays_only_at_the_end(self, actions: list[Action]) -> None:
        episode, results = played(Climb(), actions)
        ends = [index for index, result in enumerate(results) if result.cause is not None]
        for index, result in enumerate(results):
            assert result.reward == 0.0 or index == ends[0]
        assert episode.total == (episode.state.height if ends else 0.0)

    @given(st.lists(climb_calls, min_size=1, max_size=8))
    def test_the_latest_reading_equals_the_return(self, calls: list[ToolCall]) -> None:
        episode, results = played(LatestClimb(), list(calls))
        for result in results:
            if result.observation.error is None:
                assert result.total == result.components["height"]
        assert results[-1].total == episode.total

    def test_dense_rewards_pay_good_actions_and_no_others(self) -> None:
        _, results = played(DenseClimb(), [move(2), "?", move(3), ToolCall("fly"), STOP])
        assert [result.reward for result in results] == [2.0, 0.0, 3.0, 0.0, 3.0]
        assert [result.total for result in results] == [2.0, 2.0, 5.0, 5.0, 8.0]

    def test_the_latest_reading_pays_differences(self) -> None:
        _, results = played(LatestClimb(), [move(2), "?", move(-3), STOP])
        assert [result.reward for result in results] == [2.0, 0.0, -5.0, 0.0]
        assert [result.total for result in results] == [2.0, 2.0, -3.0, -3.0]

    @pytest.mark.parametrize(
        ("aggregation", "total"),
        [(Aggregation.TERMINAL, 0.5), (Aggregation.LAST, 0.5), (Aggregation.SUM, 0.0)],
    )
    def test_an_episode_of_nothing_but_errors_is_scored_unless_actions_are_what_pays(
        self, aggregation: Aggregation, total: float
    ) -> None:
        episode, results = played(Scoring(RewardSpec(aggregation), lambda _: 0.5), ["?"] * 8)
        assert results[-1].cause is Cause.BUDGET
        assert [result.reward for result in results] == [0.0] * 7 + [total]
        assert episode.total == total

    def test_the_terminal_score_is_paid_once(self) -> None:
        _, results = played(Climb(), [move(2), move(5), STOP, STOP])
        assert [result.reward for result in results] == [0.0, 0.0, 5.0, 0.0]

    @pytest.mark.parametrize(("kind", "total"), [(Climb, 4.0), (DenseClimb, 4.0), (LatestClimb, 4.0)])
    def test_an_episode_that_ends_with_an_error_is_still_scored(
        self, kind: type[Climb], total: float
    ) -> None:
        episode, results = played(kind(), [move(4), *["?"] * 7])
        assert results[-1].cause is Cause.BUDGET
        assert results[-1].observation.error is ErrorCode.UNPARSABLE
        assert episode.total == total

    def test_components_name_the_parts_of_a_score(self) -> None:
        _, results = played(TwoPartClimb(), [move(4)])
        assert results[0].components == {"near": 3.0, "far": 1.0}

    @pytest.mark.parametrize("kind", [Climb, DenseClimb, LatestClimb])
    def test_a_cancelled_episode_pays_nothing_more(self, kind: type[Climb]) -> None:
        episode, _ = played(kind(), [move(1)])
        before = episode.total
        episode.close()
        assert episode.step(STOP).reward == 0.0
        assert episode.total == before


class TestRange:
    def spec(self, aggregation: Aggregation) -> RewardSpec:
        return RewardSpec(aggregation, -1.0, 1.0)

    @pytest.mark.parametrize("aggregation", Aggregation)
    @pytest.mark.parametrize("value", [*NOT_FINITE, "0.5", None, 1j, [1]], ids=repr)
    def test_what_is_not_a_finite_number_is_an_error_and_never_a_reward(
        self, aggregation: Aggregation, value: object
    ) -> None:
        episode = Episode.open(Scoring(self.spec(aggregation), lambda _: value), "train/hill")
        with pytest.raises(
            ScoringError, match=r"component 'height' of the rubric gave .* not a finite number"
        ):
            episode.step(STOP)
        self.has_failed(episode)

    @pytest.mark.parametrize("aggregation", Aggregation)
    @pytest.mark.parametrize("value", [1.1, -1.001, 1e308])
    def test_a_return_outside_the_declared_range_is_an_error(
        self, aggregation: Aggregation, value: float
    ) -> None:
        episode = Episode.open(Scoring(self.spec(aggregation), lambda _: value), "train/hill")
        with pytest.raises(
            ScoringError, match=r"the return .* lies outside the declared range \[-1.0, 1.0\]"
        ):
            episode.step(STOP)
        self.has_failed(episode)

    @pytest.mark.parametrize("aggregation", Aggregation)
    @pytest.mark.parametrize("value", [-1.0, 1.0, 0.0])
    def test_the_ends_of_the_range_belong_to_it(self, aggregation: Aggregation, value: float) -> None:
        episode = Episode.open(Scoring(self.spec(aggregation), lambda _: value), "train/hill")
        assert episode.step(STOP).total == value

    def test_rounding_at_the_end_of_the_range_is_forgiven(self) -> None:
        episode = Episode.open(
            Scoring(self.spec(Aggregation.TERMINAL), lambda _: math.fsum([0.1] * 10) + 1e-12), "train/hill"
        )
        assert episode.step(STOP).total == pytest.approx(1.0)

    def test_a_dense_return_may_leave_the_range_on_the_way(self) -> None:
        episode = Episode.open(Scoring(self.spec(Aggregation.SUM), lambda state: state.height), "train/hill")
        assert episode.step(move(5)).total == 5.0
        assert episode.step(move(-4.5)).total == 0.5
        episode.state.height = 0.0
        assert episode.step(STOP).total == 0.5

    @pytest.mark.parametrize("aggregation", [Aggregation.SUM, Aggregation.LAST])
    def test_scores_whose_sum_or_difference_overflows_are_an_error(self, aggregation: Aggregation) -> None:
        huge = 1.7e308
        environment = Scoring(RewardSpec(aggregation, -huge, huge), lambda state: state.height)
        episode = Episode.open(environment, "train/hill")
        episode.step(move(huge))
        with pytest.raises(ScoringError, match="finite"):
            episode.step(move(huge if aggregation is Aggregation.SUM else -huge))
        assert episode.cause is Cause.ERROR
        assert math.isfinite(episode.total)
        assert all(map(math.isfinite, episode.payments))

    def has_failed(self, episode: Episode[Any]) -> None:
        assert episode.cause is Cause.ERROR
        assert episode.step(STOP).cause is Cause.ERROR
        assert episode.step(STOP).reward == 0.0
        episode.close()
        assert episode.cause is Cause.ERROR

    @pytest.mark.parametrize(
        ("low", "high"), [(1.0, 0.0), (0.0, 0.0), (math.nan, 1.0), (0.0, math.inf), (-math.inf, 0.0)]
    )
    def test_a_range_must_be_finite_and_not_empty(self, low: float, high: float) -> None:
        with pytest.raises(ValueError, match="must be finite and not empty"):
            RewardSpec(low=low, high=high)

    def test_a_rubric_that_raises_is_a_scoring_error_that_names_the_kind_only(self) -> None:
        episode = Episode.open(Fragile(KeyError(CANARY), "rubric"), "train/1")
        with pytest.raises(ScoringError, match=r"^the rubric of fragile failed with KeyError$"):
            episode.step(ToolCall("add"))
        assert episode.cause is Cause.ERROR
        assert isinstance(episode.failure, KeyError)

    def test_a_bool_is_a_number_as_everywhere_in_python(self) -> None:
        episode = Episode.open(Scoring(self.spec(Aggregation.TERMINAL), lambda _: True), "train/hill")
        assert repr(episode.step(STOP).reward) == "1.0"


class TestLedger:
    @given(st.lists(st.floats(-1e6, 1e6), max_size=20), st.sampled_from(Aggregation))
    def test_a_ledger_adds_up(self, values: list[float], aggregation: Aggregation) -> None:
        ledger = Ledger(RewardSpec(aggregation, -1e8, 1e8))
        paid = [ledger.enter(Score({"x": value})) for value in values]
        assert ledger.payments == paid
        if aggregation is Aggregation.SUM:
            total = 0.0
            for value in values:
                total += value
            assert ledger.total == total
            assert paid == values
        elif values:
            assert ledger.total == values[-1]
        assert math.fsum(paid) == pytest.approx(ledger.total, abs=1e-6)

    def test_a_refused_score_leaves_no_trace(self) -> None:
        ledger = Ledger(RewardSpec(Aggregation.LAST))
        ledger.enter(Score({"x": 0.5}))
        for value in NOT_FINITE:
            with pytest.raises(ScoringError, match="is not finite"):
                ledger.enter(Score({"x": value}))
        with pytest.raises(ScoringError, match="outside the declared range"):
            ledger.enter(Score({"x": 2.0}))
        assert (ledger.total, ledger.payments) == (0.5, [0.5])


def constant(name: str, value: float) -> Rubric[Place]:
    return Criterion(name, lambda _: value)


class Recorded(Criterion[Place]):
    """Remember whether it was evaluated."""

    def __init__(self, value: float) -> None:
        super().__init__("recorded", lambda _: value)
        self.count = 0

    async def evaluate(self, state: Place, exchanges: Exchanges) -> Score:
        self.count += 1
        return await super().evaluate(state, exchanges)


class TestRubrics:
    @given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=1, max_size=5))
    def test_a_weighted_sum_is_the_correctly_rounded_sum_of_its_weighted_parts(
        self, pairs: list[tuple[float, float]]
    ) -> None:
        rubric = WeightedSum(*((weight, constant(f"c{i}", value)) for i, (weight, value) in enumerate(pairs)))
        score = rubric.score(Place())
        assert score.parts == {f"c{i}": weight * value for i, (weight, value) in enumerate(pairs)}
        assert score.total == math.fsum(weight * value for weight, value in pairs)

    def test_weighted_sums_nest(self) -> None:
        inner = WeightedSum((0.5, constant("a", 1.0)), (0.5, constant("b", 3.0)))
        assert WeightedSum((2.0, inner), (1.0, constant("c", 1.0))).score(Place()).parts == {
            "a": 1.0,
            "b": 3.0,
            "c": 1.0,
        }

    def test_two_components_of_one_name_are_refused(self) -> None:
        with pytest.raises(ScoringError, match="two components of the rubric are called 'a'"):
            WeightedSum((1.0, constant("a", 1.0)), (1.0, constant("a", 1.0))).score(Place())

    @pytest.mark.parametrize("weight", NOT_FINITE)
    def test_a_weight_must_be_finite(self, weight: float) -> None:
        with pytest.raises(ValueError, match="is not finite"):
            WeightedSum((weight, constant("a", 1.0)))

    @pytest.mark.parametrize("kind", [WeightedSum, Sequential])
    def test_a_combination_of_nothing_is_refused(self, kind: type[WeightedSum[Place]]) -> None:
        with pytest.raises(ValueError, match=f"{kind.__name__} needs at least one rubric"):
            kind()

    @given(st.floats(-2, 2), st.floats(-2, 2))
    def test_a_gate_lets_a_rubric_count_from_the_threshold_on(self, value: float, threshold: float) -> None:
        gate = Gate(constant("condition", value), constant("prize", 7.0), threshold=threshold)
        assert gate.score(Place()).parts == ({"prize": 7.0} if value >= threshold else {"condition": 0.0})

    def test_a_closed_gate_does_not_evaluate_its_rubric(self) -> None:
        costly = Recorded(1.0)
        Gate(constant("condition", 0.5), costly).score(Place())
        assert costly.count == 0

    def test_a_sequence_stops_at_the_first_rubric_below_the_threshold(self) -> None:
        costly = Recorded(0.7)
        stopped = Sequential(constant("a", 1.0), constant("b", 0.5), costly, constant("c", 1.0))
        assert stopped.score(Place()).parts == {"b": 0.0}
        assert costly.count == 0
        passing = Sequential(constant("a", 1.0), constant("b", 1.0), costly)
        assert passing.score(Place()).parts == {"recorded": 0.7}

    def test_a_sequence_of_one_is_that_one(self) -> None:
        assert Sequential(constant("a", 0.3)).score(Place()).parts == {"a": 0.3}

    @pytest.mark.parametrize(
        "wrap", [lambda r: WeightedSum((1.0, r)), lambda r: Gate(constant("x", 1), r), Sequential]
    )
    def test_a_combination_asks_for_the_trajectory_when_a_part_does(self, wrap: Any) -> None:
        assert wrap(TrajectoryCriterion("t", lambda _, exchanges: len(exchanges))).uses_exchanges
        assert not wrap(constant("a", 1.0)).uses_exchanges
        assert not wrap(constant("a", 1.0)).is_async

    def test_a_trajectory_rubric_sees_every_action_with_its_observation(self) -> None:
        seen: list[Any] = []

        class Watched(Gallery):
            name = "watched"

            def __init__(self) -> None:
                self.rubric = TrajectoryCriterion("seen", self._watch)

            def _watch(self, _: Place, exchanges: Exchanges) -> float:
                seen.extend(exchanges)
                return 0.0

        episode = Episode.open(Watched(), "train/hall")
        actions: list[Action] = [ToolCall("look", {"angle": 3}), "?", ToolCall("fly"), ToolCall("leave")]
        results = [episode.step(action) for action in actions]
        assert [exchange.action for exchange in seen] == actions
        assert [exchange.observation for exchange in seen] == [result.observation for result in results]

    def test_without_a_trajectory_rubric_an_episode_keeps_no_trajectory(self) -> None:
        seen: list[int] = []

        class Blind(Criterion[Place]):
            async def evaluate(self, state: Place, exchanges: Exchanges) -> Score:
                seen.append(len(exchanges))
                return Score({"x": 0.0})

        environment = Scoring(RewardSpec(), lambda _: 0.0)
        environment.rubric = Blind("x", lambda _: 0.0)
        episode = Episode.open(environment, "train/hall".replace("hall", "hill"))
        episode.step(move(1))
        episode.step(STOP)
        assert seen == [0]

    def test_a_score_that_is_not_finite_is_refused_in_a_gate_too(self) -> None:
        with pytest.raises(ScoringError):
            Gate(constant("nan", math.nan), constant("b", 1.0)).score(Place())

    def test_a_rubric_that_waits_says_so(self) -> None:
        class Patient(Criterion[Place]):
            async def evaluate(self, state: Place, exchanges: Exchanges) -> Score:
                import asyncio

                await asyncio.sleep(0)
                return Score({"x": 0.0})

        with pytest.raises(RuntimeError, match="await the async variant"):
            Patient("x", lambda _: 0.0).score(Place())
