"""Bad input: what a framework does by itself, and what it does with a compiled environment.

By itself is: as the hand-written Wordle shows it, which is written in the style of the framework's documentation, behind
the framework's own server and client. Where that cannot be brought into a situation, the probe of a trouble shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from bench import protocol
from bench.client import Worker, start_worker
from bench.facts import Fact, Probe
from bench.relay import start_relay
from bench.session import WorkerSession, connect_session, serve
from bench.stacks import ROOT
from bench.stone.places import code_of
from bench.stone.subject import Subject
from bench.stone.troubles import show
from canonical.adapter import SessionError
from canonical.catalogue import load_environment
from canonical.dialect import TextForm, write_calls
from canonical.step import StepResult
from canonical.task import Task
from canonical.tool import ToolCall
from canonical.transcript import Action

TABLE = "bad-input"
ALONE, COMPILED = "by itself", "compiled"
"""The two sides of each situation."""

OVERSIZED = 17 << 20
"""Characters of an argument that is larger than what servers of WebSockets take unless they are told otherwise: 16 MiB."""

RAISING = ROOT / "bench" / "canary" / "environment.py"
_ANSWER_S = 30.0
_PATIENCE_S = 2.0
_TTL_S = 0.4
_REST_S = 1.2
_RIGHT = ToolCall("guess", {"word": "slate"})


@dataclass(frozen=True, slots=True)
class Side:
    """Hold one side of a situation.

    Attributes:
        name: What it is called.
        worker: The worker that serves and plays it.
        writes_text: Whether a model writes a call as text.
        url: Where Wordle is served; None in process.
    """

    name: str
    worker: Worker
    writes_text: bool
    url: str | None

    def wrong(self, call: ToolCall) -> Action:
        """Return a wrong call as a model makes it."""
        return write_calls([call], TextForm.HERMES) if self.writes_text else call


@dataclass(frozen=True, slots=True)
class Outcome:
    """Hold what came of a situation: what was sent, and what was seen, in words that stay the same."""

    sent: str
    seen: str


Situation: TypeAlias = Callable[[Side, Task], Awaitable[Outcome]]


async def gather(subject: Subject) -> list[Fact]:
    """Return what is known of both sides of every situation.

    Raises:
        SessionError: The framework refused a session that is right.
        WorkerError: A worker broke down.
    """
    task = next(iter(load_environment("wordle").tasks()))
    theirs: dict[str, Fact] = {}
    if (ROOT / "bench" / "baselines" / subject.name / "baseline.py").is_file():
        module = f"bench.baselines.{subject.name}.baseline"
        async with start_worker(subject.stack.python, module, label=module) as baseline:
            theirs |= await _try_all(subject, await _side(ALONE, baseline), task)
    for name, said in subject.stone.troubles.items():
        if said.situation is not None:
            probe, _ = await show(subject, name)
            # Its answer is to an input of its own, without which it says little.
            theirs[said.situation] = subject.fact(
                TABLE, f"{said.situation}: {ALONE}", f"given {probe.sent}: {probe.seen}", "probed", [probe]
            )
    mine = await _try_all(subject, await _side(COMPILED, subject.worker), task)
    return [side[situation] for situation in SITUATIONS for side in (theirs, mine) if situation in side]


async def _side(name: str, worker: Worker) -> Side:
    features = worker.started.features
    calls = features["tool_calls"]["level"] != "absent"
    return Side(name, worker, not calls, (await serve(worker, "wordle")).url)


async def _try_all(subject: Subject, side: Side, task: Task) -> dict[str, Fact]:
    return {
        situation: _fact(subject, situation, side.name, _probe(situation, side, await attempt(side, task)))
        for situation, attempt in SITUATIONS.items()
        if (side.name, situation) not in _SHOWN_BY_TROUBLES
    }


def _probe(situation: str, side: Side, outcome: Outcome) -> Probe:
    place = code_of(ROOT / "bench" / "stone" / "bad_input.py", SITUATIONS[situation].__name__)
    return Probe(
        name=f"{situation}, {side.name}",
        sent=outcome.sent,
        seen=outcome.seen,
        file=place.file,
        line=place.first,
        function=place.name,
    )


def _fact(subject: Subject, situation: str, side: str, probe: Probe) -> Fact:
    return subject.fact(TABLE, f"{situation}: {side}", probe.seen, "probed", [probe])


async def _answer(session: WorkerSession, action: Action) -> StepResult | str:
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await session.step(action)
    except SessionError as error:
        return f"the session fails: {_short(str(error))}"
    except TimeoutError:
        return f"no answer within {_ANSWER_S:g} s"


def _short(text: str, limit: int = 120) -> str:
    """Return the first line of a text, short enough for a cell, between quotation marks that stand in no answer."""
    first = "".join(
        one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text.partition("\n")[0]
    )
    return f"\N{LEFT DOUBLE QUOTATION MARK}{first[:limit]}{' ...' if len(first) > limit else ''}\N{RIGHT DOUBLE QUOTATION MARK}"


def _told(side: Side, answer: StepResult | str) -> str:
    if isinstance(answer, str):
        return answer
    # By itself a framework has no such codes: whoever drives the hand-written environment reads one out of the answer.
    has_code = side.name == COMPILED and answer.observation.error is not None
    code = f", error {answer.observation.error}" if has_code else ""
    end = ", which ends the episode" if answer.cause is not None else ""
    return f"answered by {_short(answer.observation.text)}{code}, reward {answer.reward:g}{end}"


async def _then(session: WorkerSession) -> str:
    after = await _answer(session, _RIGHT)
    return "the episode goes on" if isinstance(after, StepResult) else "the episode is lost"


async def _wrong(side: Side, task: Task, action: Action) -> str:
    async with connect_session(side.worker, "wordle", url=side.url) as session:
        await session.open(task.id, 1)
        return f"{_told(side, await _answer(session, action))}; {await _then(session)}"


async def unknown_tool(side: Side, task: Task) -> Outcome:
    """Call a tool that there is not."""
    return Outcome(
        "a call of `no_such_tool`",
        await _wrong(side, task, side.wrong(ToolCall("no_such_tool", {"word": "crane"}))),
    )


async def bad_arguments(side: Side, task: Task) -> Outcome:
    """Call a tool with another argument than it has."""
    return Outcome(
        '`guess` with `{"letters": 5}`',
        await _wrong(side, task, side.wrong(ToolCall("guess", {"letters": 5}))),
    )


async def exception_in_a_tool(side: Side, task: Task) -> Outcome:
    """Call a tool that raises, with the secret of its task in the exception."""
    source = str(RAISING)
    environment = load_environment(source)
    task = next(iter(environment.tasks()))
    url = (await serve(side.worker, source)).url
    async with connect_session(side.worker, source, url=url) as session:
        await session.open(task.id, 1)
        answer = await _answer(session, ToolCall("disturb", {"how": "gently"}))
        after = await _answer(session, ToolCall("look", {}))
    then = "goes on" if isinstance(after, StepResult) else "is lost"
    return Outcome("a tool that raises ValueError", f"{_told(side, answer)}; the episode {then}")


async def call_after_the_end(side: Side, task: Task) -> Outcome:
    """Find the word, and guess again."""
    async with connect_session(side.worker, "wordle", url=side.url) as session:
        await session.open(task.id, 1)
        await session.step(ToolCall("guess", {"word": task.secret["answer"]}))
        after = _told(side, await _answer(session, _RIGHT))
        return Outcome("the guess that ends the episode, and another", after)


async def disconnect(side: Side, task: Task) -> Outcome:
    """Break the connection of a session, and come back."""
    sent = "a connection that breaks in an episode, and a call over a new one"
    if side.url is None:
        return Outcome(sent, "there is no connection: the environment is an object of the trainer's process")
    async with start_relay(side.url) as relay:
        session = connect_session(side.worker, "wordle", url=relay.url)
        live = await session.__aenter__()
        try:
            before = await _open_sessions(side.worker)
            await live.open(task.id, 1)
            await live.step(_RIGHT)
            await relay.cut()
            is_freed = await _freed(side.worker, before)
            await relay.listen()
            after = await _answer(live, _RIGHT)
        finally:
            # The session may be lost, and then says so once more.
            await asyncio.gather(session.__aexit__(None, None, None), return_exceptions=True)
    kept = f"freed within {_PATIENCE_S:g} s" if is_freed else f"still held after {_PATIENCE_S:g} s"
    return Outcome(sent, f"the episode is {kept}; a call over a new connection: {_told(side, after)}")


async def _open_sessions(worker: Worker) -> int:
    observed = await worker.request(
        protocol.Observed, lambda seq: protocol.Observe(seq=seq), timeout_s=_ANSWER_S
    )
    return observed.open_sessions


async def _freed(worker: Worker, before: int) -> bool:
    """Say whether no more episodes are open than before, within a time."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            while await _open_sessions(worker) > before:  # noqa: ASYNC110 - another process is asked
                await asyncio.sleep(0.05)
    except TimeoutError:
        return False
    return True


async def oversized_message(side: Side, task: Task) -> Outcome:
    """Guess a word of 17 MiB."""
    sent = f"a guess of {OVERSIZED >> 20} MiB"
    return Outcome(sent, await _wrong(side, task, ToolCall("guess", {"word": "a" * OVERSIZED})))


async def idle_session(side: Side, task: Task) -> Outcome:
    """Let a session rest for longer than it may, where that can be set."""
    sent = f"a session that rests for {_REST_S:g} s, on a server that frees sessions after {_TTL_S:g} s where that can be set"
    if side.url is None:
        return Outcome(
            sent, "there is no server that could free it: the object lives as long as the trainer holds it"
        )
    url = (await serve(side.worker, "wordle", session_ttl_s=_TTL_S)).url
    async with connect_session(side.worker, "wordle", url=url) as session:
        await session.open(task.id, 1)
        await asyncio.sleep(_REST_S)
        # Servers that look after what rests do so when somebody else comes.
        async with connect_session(side.worker, "wordle", url=url) as other:
            await other.open(task.id, 1)
        after = await _answer(session, _RIGHT)
    if isinstance(after, StepResult):
        return Outcome(
            sent,
            f"it is still held after {_REST_S:g} s, and longer was not waited",
        )
    return Outcome(sent, f"it is freed, and {after}")


SITUATIONS: dict[str, Situation] = {
    "unknown tool": unknown_tool,
    "bad arguments": bad_arguments,
    "exception in a tool": exception_in_a_tool,
    "call after the end": call_after_the_end,
    "disconnect": disconnect,
    "oversized message": oversized_message,
    "idle session": idle_session,
}
"""Each situation, and the probe of it, in the order of the rows."""

_SHOWN_BY_TROUBLES = {(ALONE, "exception in a tool")}
"""What no hand-written Wordle can be brought to."""
