"""Rollout: a policy drives a session to its end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

from canonical.adapter import Session
from canonical.policy import Policy
from canonical.transcript import Transcript, TranscriptStep


async def roll_out(
    session: Session,
    policy: Policy,
    *,
    task: str,
    seed: int,
    environment: str = "",
    version: str = "",
    watch: Callable[[TranscriptStep], None] | None = None,
) -> Transcript:
    """Play one episode of a task and return what happened. The session is closed, however it ends.

    The rollout ends with the episode, or earlier when the policy stops.

    Args:
        session: The session, not yet open.
        policy: What decides the actions.
        task: The task to play.
        seed: The seed of the episode.
        environment: The name of the environment, for the transcript.
        version: The version of the environment, for the transcript.
        watch: Called with each step as it happens.

    Raises:
        SessionError: The framework refused or failed.
        ChatError: The policy asks a model, which gave no usable answer.
    """
    steps: list[TranscriptStep] = []
    try:
        opened = await session.open(task, seed)
        async with aclosing(policy.play(opened, task=task, seed=seed)) as actions:
            action = await anext(actions, None)
            while action is not None:
                step = TranscriptStep(action, await session.step(action))
                steps.append(step)
                if watch is not None:
                    watch(step)
                if step.result.cause is not None:
                    break
                try:
                    action = await actions.asend(step.result)
                except StopAsyncIteration:
                    break
    finally:
        await session.close()
    return Transcript(
        environment=environment,
        version=version,
        task=task,
        seed=seed,
        prompt=opened.prompt,
        tools=opened.tools,
        steps=tuple(steps),
    )
