"""The bridge: an episode in another process is the episode that it would be here, whatever happens to the other end."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from canonical.adapter import Loss, Opened, SessionError
from canonical.bridge.client import SourceGoneError, dial_source, read_facts
from canonical.bridge.environment import BridgedEnvironment, bridged_environment, source_seed
from canonical.bridge.generators import OwnGenerators
from canonical.bridge.imports import import_named, read_rows
from canonical.bridge.server import lend
from canonical.bridge.source import (
    TEXT_SPEC,
    TEXT_TOOL,
    LiftError,
    SourceFacts,
    facts_from_json,
    identifier,
    seed_tasks,
    text_spec_beside,
)
from canonical.bridge.wire import split_address
from canonical.catalogue import UnknownEnvironmentError, load_environment
from canonical.content import ErrorCode, Message, Observation, Text
from canonical.episode import Episode, episode_rng
from canonical.reference import ReferenceSession
from canonical.reward import Aggregation
from canonical.step import Cause, StepResult
from canonical.stone import Concern, PieceName
from canonical.task import Task
from canonical.tool import ToolCall
from canonical.transcript import Action

WORDLE = load_environment("wordle")
TASKS = tuple(Task(id=task.id) for task in WORDLE.tasks())[:40]


@dataclass(frozen=True)
class ReferenceSource:
    """Lend an environment of our own, as a lifter lends one of a framework."""

    environment: Any
    facts: SourceFacts

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[ReferenceSession]:
        session = ReferenceSession(self.environment)
        try:
            yield session
        finally:
            await session.close()


FACTS = SourceFacts(
    name="lent_wordle",
    version="1",
    source="reference:wordle",
    packages={"wordle": "1"},
    tasks=TASKS,
    tools=tuple(tool.spec for tool in WORDLE.tools),
    max_turns=WORDLE.max_turns + 1,
    losses=(Loss(PieceName.REWARD, "lost", "nothing", Concern.SEED),),
)


@pytest.fixture
def address() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield str(Path(folder) / "s")


@asynccontextmanager
async def lent(source: Any, address: str) -> AsyncIterator[BridgedEnvironment]:
    async with lend(source, address) as bound:
        # Facts are read without an event loop, and this one serves them.
        yield await asyncio.to_thread(bridged_environment, bound)


def actions_of(draw_seed: int) -> list[Action]:
    rng = random.Random(draw_seed)
    words = ["crane", "sloth", "zzzzz", "abc", "pious", ""]
    actions: list[Action] = [ToolCall("guess", {"word": rng.choice(words)}) for _ in range(rng.randint(1, 9))]
    if rng.random() < 0.3:
        actions.insert(0, ToolCall("guess", {"wrong": 1}))
    return actions


async def play(environment: Any, task: str, seed: int, actions: list[Action]) -> list[StepResult]:
    episode = await Episode.open_async(environment, task, seed=seed)
    try:
        return [await episode.step_async(action) for action in actions]
    finally:
        await episode.close_async()


@given(st.integers(0, len(TASKS) - 1), st.integers(0, 2**40))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_episode_over_the_bridge_is_the_episode_of_the_source(address: str, index: int, seed: int) -> None:
    """What the source shows and pays reaches whoever plays, byte for byte, and so does its end."""

    async def both() -> None:
        async with lent(ReferenceSource(WORDLE, FACTS), address) as environment:
            task, actions = TASKS[index].id, actions_of(seed)
            far = await play(environment, task, seed, actions)
            near = await play(WORDLE, task, 0, actions)
        for a, b in zip(far, near, strict=True):
            assert (a.observation.text, a.reward, a.total, a.cause) == (
                b.observation.text,
                b.reward,
                b.total,
                b.cause,
            )

    Path(address).unlink(missing_ok=True)
    asyncio.run(both())


def test_facts_survive_the_wire(address: str) -> None:
    assert facts_from_json(FACTS.to_json()) == FACTS

    async def ask() -> SourceFacts:
        async with lend(ReferenceSource(WORDLE, FACTS), address) as bound:
            return await asyncio.to_thread(read_facts, bound)

    assert asyncio.run(ask()) == FACTS


def test_sessions_over_one_bridge_do_not_mix(address: str) -> None:
    """Interleaved sessions show what they show one after the other."""

    async def run() -> tuple[list[Any], list[Any]]:
        async with lent(ReferenceSource(WORDLE, FACTS), address) as environment:
            rows = [(TASKS[i % len(TASKS)].id, i, actions_of(i)) for i in range(64)]
            together = await asyncio.gather(*(play(environment, *row) for row in rows))
            return list(together), [await play(environment, *row) for row in rows]

    together, apart = asyncio.run(run())
    assert together == apart


class _Text:
    """Be a session that takes text, pays for failures too, and ends after three actions."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    async def open(self, task: str, seed: int) -> Opened:
        self.seed = seed
        return Opened((Message("system", (Text(f"{task} {seed}"),)),), (TEXT_SPEC,))

    async def step(self, action: Action) -> StepResult:
        self.said.append(action)
        if action == "fail":
            raise SessionError("the oven is cold")
        cause = Cause.SUBMITTED if len(self.said) == 3 else None
        error = ErrorCode.TOOL_ERROR if action == "bad" else None
        return StepResult(Observation.of(f"heard {action!r}", error), -0.1, -0.1 * len(self.said), cause)

    async def public_state(self) -> Any:
        return {"said": self.said}

    async def reported_return(self) -> float:
        return -0.1 * len(self.said)

    async def close(self) -> None:
        pass


@dataclass(frozen=True)
class _TextSource:
    facts: SourceFacts

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[_Text]:
        yield _Text()


TEXT_FACTS = replace(
    FACTS, tasks=seed_tasks(3), seeds_are_tasks=True, tools=(TEXT_SPEC,), text_tool=TEXT_TOOL, max_turns=9
)


def test_text_goes_to_the_source_as_it_is_whether_it_is_said_or_passed_to_the_tool(address: str) -> None:
    async def run() -> list[StepResult]:
        async with lent(_TextSource(TEXT_FACTS), address) as environment:
            said: list[Action] = [
                '<tool_call>{"name": "guess", "arguments": {}}</tool_call>',
                ToolCall(TEXT_TOOL, {"text": "bad"}),
                '{"name": "respond", "arguments": {"text": "by call"}}',
            ]
            return await play(environment, "train/1", 0, said)

    first, second, third = asyncio.run(run())
    assert first.observation.text == repr('<tool_call>{"name": "guess", "arguments": {}}</tool_call>').join(
        ["heard ", ""]
    )
    # It paid, so under the contract it has not failed.
    assert (second.observation, second.reward) == (Observation.of("heard 'bad'"), -0.1)
    assert (third.observation.text, third.cause) == ("heard 'by call'", Cause.SUBMITTED)
    assert third.total == pytest.approx(-0.3)


def test_the_seed_of_the_source_is_drawn_from_the_generator_of_the_episode(address: str) -> None:
    async def run() -> str:
        async with lent(_TextSource(TEXT_FACTS), address) as environment:
            episode = await Episode.open_async(environment, "train/2", seed=-7)
            await episode.close_async()
            expected = source_seed(episode_rng(environment, environment.tasks().get("train/2"), -7))
            assert episode.prompt[0].text == f"train/2 {expected}"
            return environment.name

    assert asyncio.run(run()) == "lent_wordle"


def test_a_source_that_fails_or_is_gone_ends_the_episode_and_says_so(address: str) -> None:
    """Nobody waits, nobody is paid, and the cause is an error."""

    async def run() -> tuple[StepResult, StepResult]:
        async with lend(_TextSource(TEXT_FACTS), address) as bound:
            environment = await asyncio.to_thread(bridged_environment, bound)
            (failed,) = await play(environment, "train/0", 0, ["fail"])
            episode = await Episode.open_async(environment, "train/0", seed=0)
        gone = await episode.step_async("hello")
        await episode.close_async()
        return failed, gone

    failed, gone = asyncio.run(run())
    for result in (failed, gone):
        assert (result.reward, result.cause) == (0.0, Cause.ERROR)
        assert result.observation.text.endswith("This episode cannot go on.")
    assert "the oven is cold" in failed.observation.text
    assert gone.observation.text.startswith("The source reference:wordle is gone: ")
    assert address not in gone.observation.text


def test_what_scores_at_the_end_is_asked_for_its_return_whoever_ends_the_episode(address: str) -> None:
    facts = replace(TEXT_FACTS, aggregation=Aggregation.TERMINAL, max_turns=2)

    async def run() -> list[StepResult]:
        async with lent(_TextSource(facts), address) as environment:
            return await play(environment, "train/0", 0, ["a", "b"])

    first, last = asyncio.run(run())
    assert (first.reward, last.reward, last.cause) == (0.0, -0.2, Cause.BUDGET)


def test_nothing_at_the_other_end_is_said_in_words() -> None:
    with pytest.raises(UnknownEnvironmentError, match="there is no source at /nowhere/at/all"):
        load_environment("bridge:/nowhere/at/all")
    with pytest.raises(UnknownEnvironmentError, match="neither the path of a socket nor host:port"):
        load_environment("bridge:nonsense")
    with pytest.raises(SourceGoneError):
        asyncio.run(dial_source("127.0.0.1:1"))


@given(st.text(max_size=40))
def test_any_name_becomes_an_identifier(text: str) -> None:
    assert identifier(text).isidentifier()
    assert identifier(text) == identifier(text).lower()


def test_addresses() -> None:
    assert split_address("127.0.0.1:80") == ("127.0.0.1", 80)
    assert split_address("/a/../b") == "/b"


def test_each_session_has_global_generators_of_its_own() -> None:
    """What one session draws changes nothing for another, nor for the process."""
    one, other = OwnGenerators(), OwnGenerators()
    before = random.getstate()
    one.run(lambda: random.seed(1))
    other.run(lambda: random.seed(1))
    interleaved = [g.run(random.random) for g in (one, other, one, one, other, other)]
    assert interleaved[0] == interleaved[1]
    assert [interleaved[i] for i in (0, 2, 3)] == [interleaved[i] for i in (1, 4, 5)]
    assert random.getstate() == before


def test_what_is_drawn_without_a_seed_is_another_thing_in_each_session() -> None:
    """As it is at home: else a source that never seeds itself would seem to be one fixed game."""
    assert len({OwnGenerators().run(random.random) for _ in range(8)}) == 8
    assert len({OwnGenerators(7).run(random.random) for _ in range(8)}) == 1


def test_rows_are_read_from_files_and_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}\n\n{"a": 2, "split": "test"}\n')
    assert read_rows(str(file)) == [("train", {"a": 1}), ("test", {"a": 2, "split": "test"})]
    file.write_text('{"a": 1}\n[]\n')
    with pytest.raises(LiftError, match="line 2: a row is an object"):
        read_rows(str(file))
    module = tmp_path / "rowsource.py"
    module.write_text("ROWS = [{'a': 1}]\ndef rows(split):\n    return {'train': ROWS}[split]\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert read_rows("rowsource:ROWS") == [("train", {"a": 1})]
    assert read_rows(f"{module}:rows") == [("train", {"a": 1})]
    with pytest.raises(LiftError, match="has no missing"):
        read_rows("rowsource:missing")
    with pytest.raises(LiftError, match="there is no file"):
        import_named(str(tmp_path / "none.py"))
    with pytest.raises(LiftError, match="there is no module 'no_such_module_at_all'"):
        import_named("no_such_module_at_all")


def test_the_tool_for_text_never_takes_the_name_of_another() -> None:
    own = [replace(TEXT_SPEC, name=name) for name in ("guess", "respond", "respond_2")]
    assert text_spec_beside(own[:1]).name == TEXT_TOOL
    assert text_spec_beside(own).name == "respond_3"
    assert text_spec_beside(own).parameters == TEXT_SPEC.parameters
