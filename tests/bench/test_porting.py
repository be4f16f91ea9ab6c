"""Ports: what is lost is said, what is said to be kept is compared, and a difference is found wherever it is."""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.porting.episodes import (
    EpisodesError,
    PortEpisode,
    asked,
    play_raw,
    read_episodes,
    record_episodes,
    write_episodes,
)
from bench.porting.ledger import BRIDGE, compose_ledger, lost_pieces, status_of, target_losses
from bench.porting.matrix import MatrixRequest, all_frameworks, all_owners
from bench.porting.probes import probe_source
from bench.porting.records import (
    LOSS_FILE,
    LossEntry,
    MatrixSource,
    Mismatch,
    PortError,
    PortMatrix,
    PortRecord,
    ProofRecord,
    RoundTrip,
    SourceRecord,
    TargetRecord,
    Unported,
    read_port,
    write_port,
)
from bench.porting.round_trip import translated
from bench.porting.sources import find_source, is_source
from bench.porting.tried import TriedSourcesError, tried_sources
from bench.stacks import UnknownStackError, adapter_names, find_library, library_names
from canonical.adapter import Feature, Level, Loss, Opened, Support
from canonical.bridge.environment import BridgedEnvironment, bridged_environment
from canonical.bridge.server import lend
from canonical.bridge.source import TEXT_SPEC, TEXT_TOOL, LiftError, SourceFacts, seed_of, seed_tasks
from canonical.content import Message, Observation, Text
from canonical.dialect import write_calls
from canonical.step import Cause, StepResult
from canonical.stone import Concern, PieceName
from canonical.tool import ToolCall
from canonical.transcript import Action
from reports.ports import render_matrix, render_port

FACTS = SourceFacts(
    name="counting",
    version="1",
    source="tests:counting",
    packages={"counting": "1"},
    tasks=seed_tasks(12),
    seeds_are_tasks=True,
    tools=(TEXT_SPEC,),
    text_tool=TEXT_TOOL,
    max_turns=30,
)


@dataclass
class Manners:
    """Say how a source behaves."""

    uses_seed: bool = True
    repeats: bool = True
    pays_after_the_end: bool = False
    tells: bool = False
    tells_at_the_end: bool = False
    ends: bool = True
    raises: type[BaseException] | None = None
    pays: float = 1.0


class _Counting:
    """Be a game that ends after four actions, each of which pays one."""

    calls = 0

    def __init__(self, manners: Manners) -> None:
        self.manners = manners
        self.turn = 0

    async def open(self, task: str, seed: int) -> Opened:
        self.number = seed_of(task) if self.manners.uses_seed else 7
        if not self.manners.repeats:
            _Counting.calls += 1
            self.number += _Counting.calls
        return Opened((Message("user", (Text(f"begin at {self.number}"),)),), (TEXT_SPEC,))

    async def step(self, action: Action) -> StepResult:
        assert isinstance(action, str)
        self.turn += 1
        if self.manners.raises is not None and self.turn == 2:
            raise self.manners.raises("at its second step")
        paid = self.manners.pays if self.turn <= 4 or self.manners.pays_after_the_end else 0.0
        cause = Cause.SUBMITTED if self.turn >= 4 and self.manners.ends else None
        return StepResult(
            Observation.of(f"{self.number + self.turn} {len(action)}"), paid, float(min(self.turn, 4)), cause
        )

    async def public_state(self) -> Any:
        if self.manners.tells_at_the_end and self.turn == 4:
            return {"answer": "it was 7"}
        return {"turn": self.turn, "info": {"answer": str(self.number)}} if self.manners.tells else None

    async def reported_return(self) -> float:
        return float(min(self.turn, 4))

    async def close(self) -> None:
        pass


@dataclass(frozen=True)
class _Source:
    facts: SourceFacts
    manners: Manners

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[_Counting]:
        yield _Counting(self.manners)


@pytest.fixture
def address() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield str(Path(folder) / "s")


@asynccontextmanager
async def lent(manners: Manners, address: str) -> AsyncIterator[BridgedEnvironment]:
    async with lend(_Source(FACTS, manners), address) as bound:
        yield await asyncio.to_thread(bridged_environment, bound)


def probe(manners: Manners, address: str) -> list[Loss]:
    async def run() -> list[Loss]:
        async with lent(manners, address) as environment:
            return await probe_source(environment)

    return asyncio.run(run())


def test_nothing_is_found_where_a_source_keeps_the_contract(address: str) -> None:
    assert probe(Manners(), address) == []


@pytest.mark.parametrize(
    ("manners", "concern", "status", "words"),
    [
        (Manners(repeats=False), Concern.SEED, "lost", "is not reproducible: 6 of 6 episodes"),
        (Manners(uses_seed=False), Concern.SEED, "approximated", "seems to ignore its seed: 8 seeds"),
        (Manners(pays_after_the_end=True), Concern.REWARD_AGGREGATION, "approximated", "after the end"),
        (Manners(tells=True), Concern.SECRETS, "approximated", "info.answer"),
        (Manners(tells=True), Concern.METADATA, "lost", "beside its observations: turn"),
        (Manners(tells_at_the_end=True), Concern.METADATA, "lost", "beside its observations: answer"),
        (
            Manners(raises=RuntimeError),
            Concern.ERRORS,
            "approximated",
            "raised RuntimeError: at its second step",
        ),
        (Manners(raises=SystemExit), Concern.ERRORS, "approximated", "raised SystemExit: at its second step"),
        (Manners(pays=math.nan), Concern.ERRORS, "approximated", "paid nan, and a reward is a finite number"),
    ],
)
def test_a_defect_of_a_source_is_found_and_said(
    manners: Manners, concern: Concern, status: str, words: str, address: str
) -> None:
    found = [loss for loss in probe(manners, address) if loss.concern is concern]
    assert [loss.status for loss in found] == [status]
    assert words in found[0].note


def test_what_is_told_at_the_end_only_is_no_secret(address: str) -> None:
    concerns = {loss.concern for loss in probe(Manners(tells_at_the_end=True), address)}
    assert Concern.SECRETS not in concerns


def test_the_first_episode_goes_on_until_it_is_cut_off(address: str) -> None:
    """Else nothing would show what a source that never ends becomes."""

    async def run() -> list[PortEpisode]:
        async with lent(Manners(ends=False), address) as environment:
            return await record_episodes(environment, 4, seed=0)

    lengths = [len(episode.actions) for episode in asyncio.run(run())]
    assert lengths[0] == FACTS.max_turns + 2
    assert max(lengths[1:]) <= 24


def test_recorded_episodes_are_the_same_each_time_and_survive_their_file(
    address: str, tmp_path: Path
) -> None:
    async def run() -> tuple[list[PortEpisode], list[PortEpisode]]:
        async with lent(Manners(), address) as environment:
            first = await record_episodes(environment, 6, seed=3, scripted=[["a", "b"]], pool=["c"])
            raw = [await play_raw(environment, episode) for episode in first]
            assert {len(one.results) for one in raw[1:]} == {4}
            assert all(one.total == 4.0 for one in raw[1:])
            return first, await record_episodes(environment, 6, seed=3, scripted=[["a", "b"]], pool=["c"])

    first, again = asyncio.run(run())
    assert first == again
    assert [episode.kind for episode in first] == ["scripted"] + ["random"] * 6 + ["adversarial"] * 3
    assert all(len(episode.actions) == 6 for episode in first[1:])  # two of them after the end
    path = tmp_path / "episodes.jsonl"
    write_episodes(first, path)
    assert read_episodes(path) == first
    path.write_text("{}\n")
    with pytest.raises(EpisodesError, match="line 1: not an episode"):
        read_episodes(path)
    path.write_text("")
    with pytest.raises(EpisodesError, match="holds no episode"):
        read_episodes(path)


def test_what_reaches_a_source_is_what_it_can_be_asked() -> None:
    assert asked("text", FACTS) == "text"
    assert asked(ToolCall("guess", {}), FACTS) is None
    assert asked(ToolCall(TEXT_TOOL, {"text": "x"}), FACTS) == "x"
    assert asked(ToolCall(TEXT_TOOL, {"text": 1}), FACTS) is None
    assert asked(ToolCall(TEXT_TOOL, {"text": "x", "more": 1}), FACTS) is None
    tools = replace(FACTS, text_tool=None, tools=(replace(TEXT_SPEC, name="guess"),))
    assert asked(ToolCall("guess", {}), tools) == ToolCall("guess", {})
    assert asked("text", tools) is None


LOSSES = st.builds(
    Loss,
    st.sampled_from(PieceName),
    st.sampled_from(["preserved", "approximated", "lost"]),
    st.text(max_size=5),
    st.sampled_from(Concern) | st.none(),
)


@given(st.lists(LOSSES, max_size=12))
def test_a_ledger_speaks_of_every_piece_and_forgets_nothing(losses: list[Loss]) -> None:
    ledger = compose_ledger(losses)
    assert {loss.piece for loss in ledger} == set(PieceName)
    assert set(losses) <= set(ledger)
    assert lost_pieces(ledger) == [
        p for p in PieceName if any(x.piece is p and x.status == "lost" for x in losses)
    ]
    for piece in PieceName:
        said = [loss.status for loss in losses if loss.piece is piece]
        assert status_of(piece, ledger) == max(
            said or ["preserved"], key=["preserved", "approximated", "lost"].index
        )
    assert [LossEntry.of(loss).loss() for loss in ledger] == ledger
    assert [Loss.from_json(loss.to_json()) for loss in ledger] == ledger


def test_what_a_framework_declares_absent_is_lost_and_what_it_writes_into_text_is_approximated() -> None:
    features = dict.fromkeys(Feature, Support(Level.NATIVE))
    assert target_losses(features) == []
    features[Feature.SNAPSHOT] = Support(Level.ABSENT, "no request")
    features[Feature.TOOL_CALLS] = Support(Level.EMULATED, "text")
    features[Feature.CAUSE] = Support(Level.EMULATED, "a field")
    said = {loss.note.split(",")[0]: loss.status for loss in target_losses(features)}
    assert said == {
        "an episode that is stored": "lost",
        "calls of tools": "approximated",
        "why an episode ended": "preserved",
    }
    # What a source does not have cannot be lost on the way.
    assert [loss.piece for loss in target_losses(features, facts=FACTS)] == [PieceName.EPISODE_END]


_GUESS = replace(TEXT_SPEC, name="guess")
_AGAIN = replace(TEXT_SPEC, name="respond_2")
_TEXT_ALONE = replace(FACTS, tools=(TEXT_SPEC,), text_tool=TEXT_TOOL)
_TOOLS_ALONE = replace(FACTS, tools=(_GUESS,), text_tool=None)
_BOTH = replace(FACTS, tools=(_GUESS, TEXT_SPEC), text_tool=TEXT_TOOL)
_CALL = ToolCall("guess", {"word": "a"})
_WRONG = ToolCall("gues", {"word": "a"})


@pytest.mark.parametrize(
    ("action", "origin", "returned", "expected"),
    [
        # There and back through what takes both, or what the origin takes.
        ("hi", _TEXT_ALONE, _TEXT_ALONE, "hi"),
        (_CALL, _TEXT_ALONE, _TEXT_ALONE, write_calls([_CALL])),
        (_CALL, _BOTH, _BOTH, _CALL),
        (_WRONG, _BOTH, _BOTH, _WRONG),
        # Through what takes text alone.
        (_CALL, _TOOLS_ALONE, _TEXT_ALONE, write_calls([_CALL])),
        ("hi", _TOOLS_ALONE, _TEXT_ALONE, "hi"),
        # Through what takes tools alone: the text has become one.
        (
            "hi",
            _TEXT_ALONE,
            replace(FACTS, tools=(TEXT_SPEC,), text_tool=None),
            ToolCall(TEXT_TOOL, {"text": "hi"}),
        ),
        # Through what has a tool for text of its own beside it.
        (
            "hi",
            _TEXT_ALONE,
            replace(FACTS, tools=(TEXT_SPEC, _AGAIN), text_tool="respond_2"),
            ToolCall(TEXT_TOOL, {"text": "hi"}),
        ),
        (
            _CALL,
            _TEXT_ALONE,
            replace(FACTS, tools=(TEXT_SPEC, _AGAIN), text_tool="respond_2"),
            ToolCall(TEXT_TOOL, {"text": write_calls([_CALL])}),
        ),
        (_WRONG, _BOTH, replace(FACTS, tools=(_GUESS, TEXT_SPEC, _AGAIN), text_tool="respond_2"), _WRONG),
        (_WRONG, _TOOLS_ALONE, _BOTH, _WRONG),
        ("hi", _TOOLS_ALONE, _BOTH, "hi"),
    ],
)
def test_an_action_is_said_as_the_end_of_the_way_takes_it(
    action: Action, origin: SourceFacts, returned: SourceFacts, expected: Action
) -> None:
    assert translated(action, origin, returned) == expected


def test_names_of_sources() -> None:
    assert is_source("gem:game:Sudoku-v0-easy")
    assert not is_source("wordle")
    assert not is_source("bridge:/tmp/x")
    assert not is_source("gem:")
    assert is_source("reasoning_gym:chain_sum")
    with pytest.raises(LiftError, match="names no source; write framework:reference"):
        find_source("wordle")
    with pytest.raises(UnknownStackError, match="there is no framework 'gym'"):
        find_source("gym:CartPole")
    request = find_source("gem:game:X", release="0.0.4")
    assert (request.reference, request.stack.label, request.name) == ("game:X", "gem-llm-0.0.4", "gem:game:X")
    library = find_source("reasoning_gym:chain_sum")
    assert (library.reference, library.stack.module) == ("chain_sum", "libraries.reasoning_gym")


@pytest.mark.parametrize("framework", adapter_names())
def test_the_sources_that_are_tried_can_be_read_and_begin_with_the_hand_written_wordle(
    framework: str,
) -> None:
    found = tried_sources(framework)
    assert sum(one.baseline for one in found) <= 1
    for one in found:
        assert one.request(framework).name == f"{framework}:{one.reference}"


@pytest.mark.parametrize("library", library_names())
def test_the_sources_of_a_library_are_tried_like_those_of_a_framework(library: str) -> None:
    found = tried_sources(library)
    assert found
    assert not any(one.baseline for one in found)
    for one in found:
        assert one.request(library).name == f"{library}:{one.reference}"


def test_the_matrix_has_a_row_for_each_source_of_each_library_and_no_column() -> None:
    request = MatrixRequest(sources=all_owners(), targets=all_frameworks())
    assert all_owners() == [*all_frameworks(), *library_names()]
    for library in library_names():
        assert [one for owner, one in request.rows() if owner == library] == tried_sources(library)
        assert find_library(library).label in {stack.label for stack in request.stacks()}
    assert set(request.targets) == set(adapter_names())


def test_a_wrong_list_of_sources_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("bench.porting.tried.home_folder", lambda name: tmp_path / name)
    (tmp_path / "gem").mkdir()
    assert tried_sources("gem") == []
    (tmp_path / "gem" / "sources.toml").write_text('[[source]]\nreference = 1\nwhat = "x"\n')
    with pytest.raises(TriedSourcesError, match=r"source.0.reference: "):
        tried_sources("gem")


RECORD = PortRecord(
    source=SourceRecord(
        name="gem:x",
        framework="gem",
        stack="gem-llm-0.1.0",
        packages={"gem-llm": "0.1.0"},
        tasks=1,
        tools=["a"],
    ),
    target=TargetRecord(framework="ors", stack="openreward-0.1.167", packages={"openreward": "0.1.167"}),
    ledger=[LossEntry.of(loss) for loss in compose_ledger(BRIDGE)],
)
PROOF = ProofRecord(
    episodes=2,
    steps=3,
    kinds={"random": 2},
    mismatches=[
        Mismatch(
            episode=1,
            task="train/1",
            between="bridge and target",
            step=0,
            piece="reward",
            source="1.0",
            target="2.0",
        )
    ],
    seconds=0.5,
)


def test_the_page_of_a_port_says_what_becomes_of_each_piece_and_what_was_proven(tmp_path: Path) -> None:
    page = render_port(RECORD)
    for piece in PieceName:
        assert f"| {piece.value} |" in page
    for concern in Concern:
        assert f"- {concern.value}: " in page
    assert "Nothing yet" in page
    proven = RECORD.model_copy(update={"proof": PROOF, "accepted": [PieceName.REWARD]})
    page = render_port(proven)
    assert "2 episodes (2 random), 3 actions" in page
    assert "1 differences" not in page
    assert "episode 1 (task train/1): reward differs at step 0" in page
    assert "Losses accepted: reward." in page
    write_port(proven, tmp_path)
    assert read_port(tmp_path) == proven
    (tmp_path / LOSS_FILE).write_text("{}")
    with pytest.raises(PortError, match="is not the record of a port"):
        read_port(tmp_path)
    with pytest.raises(PortError, match="holds no port"):
        read_port(tmp_path / "nothing")


def test_the_page_of_the_matrix_has_a_cell_for_every_port_and_hides_no_difference() -> None:
    good = PROOF.model_copy(update={"mismatches": []})
    matrix = PortMatrix(
        written=datetime(2026, 1, 1, tzinfo=UTC),
        commit="0" * 40,
        dirty=False,
        sources=[
            MatrixSource(name="gem:x", what="a game", framework="gem", baseline=True),
            MatrixSource(name="gem:y", what="another", framework="gem"),
            MatrixSource(name="sums:z", what="tasks", framework="sums", library=True),
        ],
        targets=["ors", "gem"],
        ports=[RECORD.model_copy(update={"proof": good})],
        unported=[Unported(source="gem:y", reason="there is\nnone")],
        round_trips=[
            RoundTrip(
                source="gem:x",
                framework="gem",
                through="ors",
                episodes=2,
                steps=4,
                equal={"prompt": 1},
                differing={"prompt": "task a|b"},
            )
        ],
        seconds=1.0,
    )
    page = render_matrix(matrix)
    assert "| `gem:x`, a game | 2 episodes, 0 differ; 8 kept, 3 approximated, 0 lost | not made |" in page
    assert "| `sums:z`, tasks | not made | not made |" in page.partition("## Libraries of tasks")[2]
    assert "no port differs from its source; 1 could not be made" in page
    assert "- `gem:y`: there is none" in page
    assert "task a\\|b" in page
    assert not matrix.holds
    whole = matrix.model_copy(update={"unported": []})
    assert whole.holds
    assert not whole.model_copy(update={"ports": [RECORD]}).holds
    wrong = whole.model_copy(update={"ports": [RECORD.model_copy(update={"proof": PROOF})]})
    assert not wrong.holds
    assert "2 episodes, 1 differ;" in render_matrix(wrong)
    assert "1 port differs from its source" in render_matrix(wrong)
