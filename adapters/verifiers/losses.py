"""What lifting changes in either API of Verifiers."""

from __future__ import annotations

from canonical.adapter import Loss
from canonical.stone import Concern, PieceName

LOSSES = (
    Loss(
        PieceName.INITIAL_STATE,
        "approximated",
        "Verifiers has no seeds: the row or task decides the episode, the seed of an episode changes nothing, and what is "
        "drawn by chance cannot be repeated",
        Concern.SEED,
    ),
    Loss(
        PieceName.EPISODE_END,
        "approximated",
        "a rollout has a stop condition and no cause: budget and timeout are told apart, every other end is submitted; "
        "the condition is in the public state",
        Concern.END_AND_CAUSE,
    ),
    Loss(
        PieceName.EPISODE_END,
        "approximated",
        "an episode that is cut off here is scored as one that Verifiers cuts off: what its last call led to is not part of "
        "the conversation that is scored",
        Concern.TRUNCATION,
    ),
    Loss(
        PieceName.REWARD,
        "approximated",
        "all is paid at the end; rewards of single turns, metrics and the parts of the reward are not paid by themselves",
        Concern.REWARD_AGGREGATION,
    ),
    Loss(
        PieceName.OBSERVATION_FORMAT,
        "approximated",
        "several messages that answer one action are the blocks of one observation; where an environment rewrites the "
        "conversation, the observation is what follows the model's last message",
    ),
    Loss(
        PieceName.OBSERVATION_FORMAT,
        "approximated",
        "Verifiers answers a failed call with text like any other, so no observation is marked as an error",
        Concern.ERRORS,
    ),
    Loss(
        PieceName.EPISODE_CONTROL,
        "approximated",
        "an action is one call or one text: several calls of one message become several turns",
    ),
    Loss(
        PieceName.STATE_BETWEEN_TURNS,
        "approximated",
        "the episode lives in the source's process; Verifiers neither stores nor forks a rollout",
    ),
)
