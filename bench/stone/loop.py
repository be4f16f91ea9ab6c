"""Loop: what says that an episode is over, when it says so, and who may own the loop that listens."""

from __future__ import annotations

from collections.abc import Sequence

from bench import protocol
from bench.client import Worker
from bench.facts import Evidence, Fact, Kind, Probe
from bench.recording import expect
from bench.stacks import ROOT
from bench.stone.pieces import declared_of, shown_in_source, shown_of
from bench.stone.places import code_of, find_place
from bench.stone.play import session_of
from bench.stone.subject import Subject
from bench.stone.transport import SOURCE, script
from canonical.adapter import Feature
from canonical.catalogue import load_environment
from canonical.step import StepResult
from canonical.stone import Loop, LoopOwner
from canonical.tool import ToolCall

TABLE = "loop"
_ROLLOUT_S = 120.0
_WRONG = ToolCall("guess", {"word": "zzzzz"})
"""A guess that uses a turn and no guess, so that the budget of turns ends the episode."""


async def gather(subject: Subject) -> list[Fact]:
    """Return what ends an episode, when it is heard, and what was tried of every owner of the loop.

    Raises:
        NoSuchPlace: What is said to show an owner does not exist.
        SessionError: The framework refused a session.
        WorkerError: The worker broke down.
    """
    task, calls = script()
    played = await _play(subject, task, calls)
    facts = [*_signal(subject), *await _granularity(subject, task, played)]
    for owner in LoopOwner:
        said = subject.stone.loops.get(owner)
        if said is not None:
            facts.append(await _owner(subject, owner, said, calls, played))
    return facts


async def _play(subject: Subject, task: str, calls: Sequence[ToolCall]) -> list[StepResult]:
    async with session_of(subject, SOURCE) as session:
        await session.open(task, 1)
        return [await session.step(call) for call in calls]


def _signal(subject: Subject) -> list[Fact]:
    said, theirs = subject.stone.words.get("ending"), subject.stack.facts.words.get("ending")
    if said is None or theirs is None:
        return []
    evidence: list[Evidence] = [
        *(subject.symbols[name] for name in said.symbols), find_place(subject.folder, said.at)
    ]  # fmt: skip
    kind: Kind = "introspected" if said.symbols else "declared"
    return [subject.fact(TABLE, "signal of the end", theirs, kind, evidence)]


async def _granularity(subject: Subject, task: str, played: Sequence[StepResult]) -> list[Fact]:
    budget = load_environment(SOURCE).max_turns
    cut = await _play(subject, task, [_WRONG] * budget)
    solved = _probe(f"{len(played)} guesses, the last of which is right", _heard(played), "_granularity")
    truncated = _probe(
        f"{budget} guesses that are no words, which is the budget of turns", _heard(cut), "_granularity"
    )
    rows: list[tuple[str, str, Sequence[Evidence]]] = [
        ("heard of the end", solved.seen, [solved]),
        ("heard when the turns are used up", truncated.seen, [truncated]),
    ]
    for row, feature in (
        ("truncated, or terminated", Feature.TRUNCATION),
        ("why it has ended", Feature.CAUSE),
    ):
        rows.append((row, declared_of(subject.stack, feature), shown_of(subject.stack, feature)))
    return [subject.fact(TABLE, row, value, "probed", evidence) for row, value, evidence in rows]


def _heard(played: Sequence[StepResult]) -> str:
    """Say with which answer the end is heard, and as what."""
    for number, result in enumerate(played, start=1):
        if result.cause is not None:
            last = f"with the answer to call {number} of {len(played)}"
            # The words are the compiled environment's, whatever the framework has for them.
            return f"{last}, as what the compiled environment calls {result.cause.ending.value}: {result.cause.value}"
    return f"not within {len(played)} calls"


def _probe(sent: str, seen: str, definition: str) -> Probe:
    place = code_of(ROOT / "bench" / "stone" / "loop.py", definition)
    return Probe(name="loop", sent=sent, seen=seen, file=place.file, line=place.first, function=place.name)


async def _owner(
    subject: Subject, owner: LoopOwner, said: Loop, calls: Sequence[ToolCall], played: Sequence[StepResult]
) -> Fact:
    symbols: list[Evidence] = [subject.symbols[name] for name in said.symbols]
    row = f"loop of the {owner}"
    kind, _, name = said.shown_by.partition(":")
    match kind:
        case "test":
            shown: Evidence = shown_in_source(kind, name)
            return subject.fact(TABLE, row, f"{said.how}; tried by a test", "introspected", [*symbols, shown])
        case "rollout":
            tried = await _roll_out(subject.worker, name, calls, played)
        case _ if symbols:
            tried = _probe(f"{len(calls)} calls, one by one", f"the end is heard {_heard(played)}", "_play")
        case _:
            tried = await _ways(subject.worker)
            return subject.fact(TABLE, row, said.how, "declared", [tried])
    return subject.fact(TABLE, row, f"{said.how}; tried: {tried.seen}", "probed", [*symbols, tried])


async def _roll_out(
    worker: Worker, path: str, calls: Sequence[ToolCall], played: Sequence[StepResult]
) -> Probe:
    task, _ = script()
    one = protocol.Script(
        task=task,
        seed=1,
        calls=[call.to_json() for call in calls],
        expected=[expect(result) for result in played],
    )
    rolled = await worker.request(
        protocol.RolledOut,
        lambda seq: protocol.RollOut(seq=seq, environment=SOURCE, path=path, rollouts=1, scripts=[one]),
        timeout_s=_ROLLOUT_S,
    )
    seen = f"{rolled.succeeded} of 1 rollout shows what {len(calls)} calls one by one show"
    return _probe(f"a whole rollout by the path `{path}`, with a scripted model", seen, "_roll_out")


async def _ways(worker: Worker) -> Probe:
    ways = await worker.request(protocol.Ways, lambda seq: protocol.ListWays(seq=seq), timeout_s=_ROLLOUT_S)
    seen = ", ".join(ways.rollouts) or "none"
    return _probe("the ways in which the framework takes whole rollouts itself", seen, "_ways")
