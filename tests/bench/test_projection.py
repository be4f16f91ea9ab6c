"""A projection leaves out exactly what a framework declares absent."""

from __future__ import annotations

import pytest

from bench.projection import COMPARED, project
from bench.touchstone.environment import Touchstone
from canonical.adapter import Feature
from canonical.content import Image, Text
from canonical.episode import Episode
from canonical.step import Cause
from canonical.tool import ToolCall
from canonical.transcript import Transcript, TranscriptStep, first_difference

CALLS = (
    ToolCall("roll", {}),
    ToolCall("draw", {}),
    ToolCall("nothing", {}),
    ToolCall("roll", {"times": 3}),
    ToolCall("answer", {"code": "no"}),
)


def played(*calls: ToolCall) -> Transcript:
    environment = Touchstone()
    episode = Episode.open(environment, "train/00")
    return Transcript(
        environment="touchstone",
        version="1",
        task="train/00",
        seed=0,
        prompt=episode.prompt,
        tools=tuple(tool.spec for tool in environment.tools),
        steps=tuple(TranscriptStep(call, episode.step(call)) for call in calls),
    )


def test_nothing_is_left_out_when_nothing_is_absent() -> None:
    whole = played(*CALLS)
    assert project(whole, frozenset()) is whole


@pytest.mark.parametrize("feature", COMPARED)
def test_each_absent_feature_leaves_its_own_piece_out(feature: Feature) -> None:
    whole = played(*CALLS)
    projected = project(whole, {feature})
    difference = first_difference(whole, projected)
    expected = {
        Feature.TOOL_SCHEMAS: "tools",
        Feature.ERROR_CODES: "error",
        Feature.STEP_REWARD: "reward",
        Feature.REWARD_COMPONENTS: "components",
        Feature.CAUSE: None,
        Feature.TRUNCATION: None,
        Feature.IMAGES: "prompt",
    }[feature]
    assert (difference.piece if difference else None) == expected


def test_without_step_rewards_the_return_after_the_end_is_still_compared() -> None:
    projected = project(played(*CALLS), {Feature.STEP_REWARD})
    assert [step.result.total for step in projected.steps[:-1]] == [0.0] * 4
    assert projected.total == played(*CALLS).total > 0


def test_without_causes_endings_are_kept_and_without_truncation_only_the_end() -> None:
    budget = played(*[ToolCall("nothing", {})] * 12)
    assert budget.cause is Cause.BUDGET
    assert project(budget, {Feature.CAUSE}).cause is Cause.BUDGET
    assert project(budget, {Feature.CAUSE, Feature.TRUNCATION}).cause is Cause.SUBMITTED


def test_without_images_content_is_its_text_form() -> None:
    drawn = project(played(*CALLS), {Feature.IMAGES}).steps[1].result.observation
    assert [type(block) for block in drawn.blocks] == [Text]
    assert "[image/png, " in drawn.text
    assert any(isinstance(block, Image) for block in played(*CALLS).steps[1].result.observation.blocks)
