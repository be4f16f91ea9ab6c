"""The ledger of a port: for each piece of an environment, whether it is preserved, approximated or lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from canonical.adapter import Feature, Level, Loss, Support
from canonical.bridge.source import SourceFacts
from canonical.stone import Concern, PieceName

STATUSES = ("preserved", "approximated", "lost")
"""From best to worst."""

_FEATURES: Mapping[Feature, tuple[PieceName, Concern | None, str]] = {
    Feature.SEEDED_RESET: (PieceName.INITIAL_STATE, Concern.SEED, "the seed of an episode"),
    Feature.TASK_SELECTION: (PieceName.TASKS, None, "the choice of a task"),
    Feature.SPLITS: (PieceName.TASKS, None, "the splits"),
    Feature.TOOL_CALLS: (PieceName.TOOLS, None, "calls of tools"),
    Feature.TEXT_ACTIONS: (PieceName.TOOLS, None, "actions that are text"),
    Feature.TOOL_SCHEMAS: (PieceName.TOOLS, Concern.TOOL_SCHEMA, "the schemas of the tools"),
    Feature.ERROR_CODES: (PieceName.OBSERVATION_FORMAT, Concern.ERRORS, "why an action failed"),
    Feature.STEP_REWARD: (PieceName.REWARD, Concern.REWARD_AGGREGATION, "the reward of each step"),
    Feature.REWARD_COMPONENTS: (PieceName.REWARD, Concern.METADATA, "the parts of a reward"),
    Feature.TRUNCATION: (PieceName.EPISODE_END, Concern.TRUNCATION, "that an episode was cut off"),
    Feature.CAUSE: (PieceName.EPISODE_END, Concern.END_AND_CAUSE, "why an episode ended"),
    Feature.IMAGES: (PieceName.OBSERVATION_FORMAT, Concern.IMAGES, "images"),
    Feature.CONCURRENT_SESSIONS: (PieceName.EPISODE_CONTROL, Concern.CONCURRENCY, "sessions side by side"),
    Feature.REMOTE: (PieceName.TRANSPORT, None, "play over a network"),
    Feature.SNAPSHOT: (PieceName.STATE_BETWEEN_TURNS, None, "an episode that is stored, restored or forked"),
}
_WRITTEN_INTO_TEXT = {Feature.TOOL_CALLS, Feature.TOOL_SCHEMAS}
"""What a model sees otherwise where it is emulated; everything else reaches trainers through fields of its own."""


def target_losses(features: Mapping[Feature, Support], *, facts: SourceFacts | None = None) -> list[Loss]:
    """Return what a framework changes of what is brought to it.

    Args:
        features: What its adapter declares, and conformance proves.
        facts: The source; None for an environment of our own, which has everything.
    """
    losses = []
    for feature, support in features.items():
        piece, concern, what = _FEATURES[feature]
        if support.level is Level.NATIVE or not _has(feature, facts):
            continue
        note = f": {support.note}" if support.note else ""
        if support.level is Level.ABSENT:
            losses.append(Loss(piece, "lost", f"{what}{note}", concern))
        else:
            carried = f"{what}, carried by the framework's own means{note}"
            is_seen = feature in _WRITTEN_INTO_TEXT
            losses.append(Loss(piece, "approximated" if is_seen else "preserved", carried, concern))
    return losses


def _has(feature: Feature, facts: SourceFacts | None) -> bool:
    if facts is None:
        return feature is not Feature.REMOTE  # a definition has no transport that could be lost
    has_calls = any(tool.name != facts.text_tool for tool in facts.tools)
    match feature:
        case Feature.SNAPSHOT | Feature.REMOTE:
            return False  # what the bridge itself decides
        case Feature.TOOL_CALLS | Feature.TOOL_SCHEMAS:
            return has_calls
        case Feature.TEXT_ACTIONS:
            return facts.text_tool is not None
        case Feature.SEEDED_RESET:
            return not facts.seeds_are_tasks
        case _:
            return True


BRIDGE = (
    Loss(
        PieceName.WHERE_ACTIONS_EXECUTE,
        "preserved",
        "actions execute where they did, in a process of the source's own stack",
    ),
    Loss(
        PieceName.TRANSPORT,
        "approximated",
        "every call crosses the bridge to the source's process, which has to run wherever the port runs",
    ),
    Loss(
        PieceName.EPISODE_CONTROL,
        "approximated",
        "an action that names no tool of the source is answered before it reaches the source, and after the end nothing "
        "reaches it",
        Concern.ERRORS,
    ),
    Loss(
        PieceName.REWARD,
        "approximated",
        "the source declares no range of its return, so the port declares one that any number fits in",
    ),
)
"""What every port over the bridge changes, whatever its source and target."""


def text_losses(facts: SourceFacts, features: Mapping[Feature, Support]) -> list[Loss]:
    """Return what becomes of a source that takes text, in a framework whose models call tools."""
    calls = features.get(Feature.TOOL_CALLS)
    if facts.text_tool is None or calls is None or calls.level is not Level.NATIVE:
        return []
    note = f"the model may call the tool {facts.text_tool} with its text, or just write it"
    return [Loss(PieceName.TOOLS, "approximated", note)]


def compose_ledger(losses: Iterable[Loss]) -> list[Loss]:
    """Return losses in the order of the pieces, with an entry for each piece that nothing is said of: it is preserved."""
    said = list(dict.fromkeys(losses))
    ledger = []
    for piece in PieceName:
        of_piece = [loss for loss in said if loss.piece is piece]
        ledger += of_piece or [Loss(piece, "preserved")]
    return ledger


def status_of(piece: PieceName, ledger: Iterable[Loss]) -> str:
    """Return the worst that the ledger says of a piece."""
    return max((loss.status for loss in ledger if loss.piece is piece), key=STATUSES.index)


def concerned(concern: Concern, ledger: Iterable[Loss]) -> str:
    """Return the worst that the ledger says of something that trainers notice first."""
    said = (loss.status for loss in ledger if loss.concern is concern)
    return max(said, key=STATUSES.index, default=STATUSES[0])


def lost_pieces(ledger: Iterable[Loss]) -> list[PieceName]:
    """Return the pieces of which something is lost."""
    losses = list(ledger)
    return [piece for piece in PieceName if status_of(piece, losses) == "lost"]
