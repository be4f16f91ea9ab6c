"""The golden set of the coding agent holds what can happen to an agent, and nothing that an agent may not see."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from canonical.content import ErrorCode
from canonical.environments.coding_agent.environment import CodingAgent
from canonical.environments.coding_agent.golden.cases import keep
from canonical.golden import EPISODES, Case, GoldenSet, golden_folder
from canonical.step import Cause
from canonical.tool import ToolCall
from canonical.transcript import Transcript

CODING = CodingAgent()
FILE = golden_folder(CODING) / EPISODES
GOLDEN = GoldenSet.read(FILE)
LONG = 20
"""From how many characters on a line is taken for one that nobody writes twice by chance."""


def transcripts(group: str = "") -> Iterator[Transcript]:
    return (
        episode.transcript
        for episode in GOLDEN.episodes
        if not group or episode.name.startswith(f"{group}-")
    )  # fmt: skip


def test_every_task_is_solved_and_some_are_not() -> None:
    solved = {transcript.task for transcript in transcripts("oracle") if transcript.total == 1.0}
    assert solved == {task.id for task in CODING.tasks()}
    assert (
        sum(transcript.total < 1.0 for transcript in transcripts("wrong"))
        == len([*transcripts("wrong")])
        >= 10
    )
    assert any(0.0 < transcript.total < 1.0 for transcript in transcripts("wrong"))


def test_it_holds_what_can_happen() -> None:
    steps = [step for transcript in transcripts() for step in transcript.steps]
    assert 100 <= len(GOLDEN.episodes) <= 150
    assert FILE.stat().st_size < 1_000_000
    assert {transcript.cause for transcript in transcripts()} == {None, Cause.SUBMITTED, Cause.BUDGET}
    assert {step.result.observation.error for step in steps} == {None, *ErrorCode} - {
        ErrorCode.INTERNAL_ERROR
    }
    succeeded = {
        step.action.name
        for step in steps
        if isinstance(step.action, ToolCall) and step.result.observation.error is None
    }
    assert succeeded == {tool.name for tool in CODING.tools}
    cut_off = [transcript for transcript in transcripts("cut") if transcript.cause is Cause.BUDGET]
    assert [transcript.total for transcript in cut_off] == [1.0], (
        "what was not submitted is graded as it lies"
    )
    endings = [step.result.observation.text.splitlines()[0] for step in steps if step.result.observation.text]
    assert any(text.startswith("killed: it did not end within") for text in endings)


def test_no_line_of_a_hidden_test_and_no_name_of_one_stands_before_the_end() -> None:
    for name, transcript in GOLDEN.episodes:
        bundle = CODING.bundle(CODING.tasks().get(transcript.task))
        known = [*bundle.given.files.values(), *bundle.oracle.files.values()]
        lines = _long_lines(bundle.tests.files.values(), known)
        names = {test.name for test in bundle.names}
        shown = json.dumps([message.to_json() for message in transcript.prompt], ensure_ascii=False)
        for number, step in enumerate(transcript.steps):
            shown += step.result.observation.text
            assert not [line for line in lines if line in shown], (name, number)
            if step.result.cause is None:
                assert not [test for test in names if test in shown], (name, number)


def test_no_line_of_a_solution_is_shown_to_who_has_not_written_it() -> None:
    for name, transcript in GOLDEN.episodes:
        if name.startswith(("oracle-", "wrong-", "late-", "several-", "over-", "cut-", "together-", "fuzz-")):
            continue
        bundle = CODING.bundle(CODING.tasks().get(transcript.task))
        lines = _long_lines(bundle.oracle.files.values(), bundle.given.files.values())
        shown = "".join(step.result.observation.text for step in transcript.steps)
        assert not [line for line in lines if line in shown], name


def test_what_machines_word_in_their_own_way_is_left_out() -> None:
    def is_kept(call: ToolCall | str) -> bool:
        return keep(CODING, Case("random-1", "train/median", 0, [call]))

    assert is_kept(ToolCall("bash", {"command": "ls"}))
    assert is_kept(ToolCall("grep", {"pattern": "def"}))
    assert is_kept(ToolCall("bash", {"command": 7}))
    assert not is_kept(ToolCall("bash", {"command": "cat *.txt"}))
    assert not is_kept(ToolCall("grep", {"pattern": "a{,2}"}))
    assert not is_kept('<tool_call>{"name": "bash", "arguments": {"command": "("}}</tool_call>')
    assert not keep(CODING, Case("random-2", "test/prefix-index", 0, [ToolCall("submit_solution", {})]))


def _long_lines(files: Iterable[bytes], known: Iterable[bytes]) -> set[str]:
    """Return the long lines of files that stand in no file that an agent may know."""
    lines = {line.strip() for data in files for line in data.decode("utf-8", "replace").splitlines()}
    text = "\n".join(data.decode("utf-8", "replace") for data in known)
    return {line for line in lines if len(line) >= LONG and line not in text}
