"""Projection: what remains of a transcript in a framework that cannot carry everything.

Both sides of a comparison are projected alike, so that what a framework declares absent is not compared, and everything
else is, byte for byte.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Set as AbstractSet

from canonical.adapter import Feature
from canonical.content import Block, Message, Observation, Text, project_text
from canonical.step import NO_COMPONENTS, Cause, Ending, StepResult
from canonical.transcript import Transcript, TranscriptStep

COMPARED = (
    Feature.TOOL_SCHEMAS,
    Feature.ERROR_CODES,
    Feature.STEP_REWARD,
    Feature.REWARD_COMPONENTS,
    Feature.TRUNCATION,
    Feature.CAUSE,
    Feature.IMAGES,
)
"""The features whose absence leaves something out of the comparison."""


def project(transcript: Transcript, absent: AbstractSet[Feature]) -> Transcript:
    """Return a transcript without what a framework that lacks some features cannot show.

    Without `step_reward`, only the return after the end is left; without `images`, content is its text form; without
    `cause`, all causes of one ending are one; without `truncation` too, all ends are one.
    """
    if absent.isdisjoint(COMPARED):
        return transcript
    return dataclasses.replace(
        transcript,
        prompt=tuple(Message(m.role, _blocks(m.blocks, absent)) for m in transcript.prompt),
        tools=() if Feature.TOOL_SCHEMAS in absent else transcript.tools,
        steps=tuple(TranscriptStep(step.action, _result(step.result, absent)) for step in transcript.steps),
    )


def _blocks(blocks: tuple[Block, ...], absent: AbstractSet[Feature]) -> tuple[Block, ...]:
    return (Text(project_text(blocks)),) if Feature.IMAGES in absent else blocks


def _result(result: StepResult, absent: AbstractSet[Feature]) -> StepResult:
    seen = result.observation
    observation = Observation(
        _blocks(seen.blocks, absent), None if Feature.ERROR_CODES in absent else seen.error
    )
    has_steps = Feature.STEP_REWARD not in absent
    return StepResult(
        observation,
        result.reward if has_steps else 0.0,
        result.total if has_steps or result.cause is not None else 0.0,
        _cause(result.cause, absent),
        result.components if has_steps and Feature.REWARD_COMPONENTS not in absent else NO_COMPONENTS,
    )


def _cause(cause: Cause | None, absent: AbstractSet[Feature]) -> Cause | None:
    if cause is None or Feature.CAUSE not in absent:
        return cause
    if cause.ending is Ending.TRUNCATED and Feature.TRUNCATION not in absent:
        return Cause.BUDGET
    return Cause.SUBMITTED
