"""The tools of the coding environment, in a real sandbox: what agents know from elsewhere, and every refusal in words."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from canonical.content import ErrorCode
from canonical.environments.coding_agent.environment import MAX_LINE, MAX_SHOWN
from canonical.episode import Episode, SnapshotError
from canonical.sandbox.protocol import SandboxGoneError
from canonical.step import Cause, StepResult
from canonical.tool import ToolCall
from tests.canonical.coding import SUBMIT, OneTask, bash, call, played, results, texts, write

FILES: dict[str, str | bytes] = {
    "sums.py": "def add(a, b):\n    return a + b\n",
    "text/poem.txt": "one fish\nTwo fish\nred fish\n\nblue fish\n",
    "text/deep/last.txt": "fish\n",
    "empty": "",
    "binary": b"\x00\x01fish",
    ".hidden/x.py": "fish = 1\n",
    "no newline": "a\nb",
    "crlf.txt": "a\r\nb\r\n",
}
TASK = OneTask(FILES, solution=["**"])


def answers(*calls: ToolCall) -> list[str]:
    return texts(TASK, *calls)


def is_refusal(result: StepResult) -> bool:
    return result.observation.error is ErrorCode.TOOL_ERROR and result.cause is None and not result.reward


class TestRead:
    def test_lines_are_numbered_and_a_window_says_how_to_go_on(self) -> None:
        whole, window, empty, past, bare = results(
            TASK,
            call("read", path="text/poem.txt"),
            call("read", path="text/poem.txt", offset=2, limit=2),
            call("read", path="empty"),
            call("read", path="text/poem.txt", offset=6),
            call("read", path="no newline"),
        )
        assert whole.observation.text == (
            "     1\tone fish\n     2\tTwo fish\n     3\tred fish\n     4\t\n     5\tblue fish"
        )
        assert window.observation.text == (
            "     2\tTwo fish\n     3\tred fish\n[lines 2 to 3 of 5; go on with offset 4]"
        )
        assert empty.observation.text == "(The file is empty.)"
        assert is_refusal(past)
        assert past.observation.text == '"text/poem.txt" has 5 lines; there is no line 6.'
        assert bare.observation.text == "     1\ta\n     2\tb"

    @pytest.mark.slow
    def test_long_lines_and_long_files_are_cut_aloud(self) -> None:
        line = "x" * (MAX_LINE + 1)
        many = "y" * 1_000 + "\n"
        _, cut, _, part = answers(
            write("long", line), call("read", path="long"), write("many", many * 300), call("read", path="many")
        )  # fmt: skip
        assert cut == f"     1\t{'x' * MAX_LINE}... [{MAX_LINE + 1} characters]"
        assert len(part) < MAX_SHOWN + 2_000
        assert part.endswith("[lines 1 to 100 of 300; go on with offset 101]")

    def test_what_is_no_text_is_refused(self) -> None:
        for result in results(
            TASK, call("read", path="binary"), call("read", path="text"), call("read", path="no")
        ):
            assert is_refusal(result)


@pytest.mark.slow
class TestPaths:
    @pytest.mark.parametrize("path", ["../x", "/etc/passwd", "text/../../x", "link/passwd", "chain/passwd", "", "a\0b", "x" * 5_000, "\ud800"])  # fmt: skip
    def test_no_tool_leaves_the_workspace(self, path: str) -> None:
        tools: list[ToolCall] = [
            call("read", path=path),
            call("write", path=path, content=""),
            call("edit", path=path, old="a", new="b"),
            call("multi_edit", path=path, edits=[{"old": "a", "new": "b"}]),
            call("ls", path=path),
            call("glob", pattern="*", path=path),
            call("grep", pattern="root", path=path),
        ]
        _, *refusals = results(TASK, bash("ln -s /etc link; ln -s link chain"), *tools)
        for result in refusals:
            assert is_refusal(result)
            assert "root:" not in result.observation.text

    def test_links_are_seen_and_not_followed(self) -> None:
        _, listed, found, matched, inside = answers(
            bash("ln -s /etc/passwd text/out; ln -s poem.txt text/in"),
            call("ls", path="text"),
            call("grep", pattern="root|fish", path="text", glob="*"),
            call("glob", pattern="*", path="text"),
            call("read", path="text/in"),
        )
        assert listed == "deep/\nin (link)\nout (link)\npoem.txt (38)"
        assert "root" not in found
        assert "text/in" not in found
        assert matched == "text/in\ntext/out\ntext/poem.txt"
        assert inside.startswith("     1\tone fish")


class TestEdit:
    def test_edits_fail_in_words_and_change_nothing(self) -> None:
        absent, twice, same, empty, binary, whole = results(
            TASK,
            call("edit", path="text/poem.txt", old="cat", new="dog"),
            call("edit", path="text/poem.txt", old="fish", new="cat"),
            call("edit", path="text/poem.txt", old="red", new="red"),
            call("edit", path="text/poem.txt", old="", new="x"),
            call("edit", path="binary", old="fish", new="x"),
            call("read", path="text/poem.txt"),
        )
        assert all(map(is_refusal, [absent, twice, same, empty, binary]))
        assert (
            absent.observation.text
            == '"text/poem.txt" was not changed: the old text does not occur in the file.'
        )
        assert "occurs 4 times" in twice.observation.text
        assert "one fish" in whole.observation.text

    def test_one_place_every_place_and_line_ends(self) -> None:
        said = answers(
            call("edit", path="text/poem.txt", old="red", new="green"),
            call("edit", path="text/poem.txt", old="fish", new="cat", replace_all=True),
            call("edit", path="crlf.txt", old="a\r\n", new="c\r\n"),
            bash("cat text/poem.txt; od -c crlf.txt | head -1"),
        )
        assert said[0] == "Edited text/poem.txt: 1 replacement."
        assert said[1] == "Edited text/poem.txt: 4 replacements."
        assert "one cat\nTwo cat\ngreen cat\n\nblue cat" in said[3]
        assert re.search(r"c +\\r +\\n +b +\\r +\\n", said[3])

    def test_several_edits_are_all_or_nothing(self) -> None:
        failed, unchanged, done, changed = answers(
            call("multi_edit", path="sums.py", edits=[{"old": "add", "new": "sum"}, {"old": "add", "new": "x"}]),
            call("read", path="sums.py"),
            call("multi_edit", path="sums.py", edits=[{"old": "add", "new": "sum"}, {"old": "sum(a", "new": "total(a"}]),
            call("read", path="sums.py"),
        )  # fmt: skip
        assert failed == '"sums.py" was not changed: edit 2 of 2: the old text does not occur in the file.'
        assert "def add" in unchanged
        assert done == "Edited sums.py: 2 replacements by 2 edits."
        assert "def total(a, b)" in changed


@pytest.mark.slow
class TestSearch:
    def test_glob_is_sorted_and_knows_folders(self) -> None:
        top, everywhere, below, none, bad = results(
            TASK,
            call("glob", pattern="*"),
            call("glob", pattern="**/*.{py,txt}"),
            call("glob", pattern="**/*.txt", path="text/deep"),
            call("glob", pattern="*.c"),
            call("glob", pattern="*", path="sums.py"),
        )
        assert top.observation.text.split("\n") == ["binary", "crlf.txt", "empty", "no newline", "sums.py"]
        assert everywhere.observation.text.split("\n") == [
            ".hidden/x.py", "crlf.txt", "sums.py", "text/deep/last.txt", "text/poem.txt",
        ]  # fmt: skip
        assert below.observation.text == "text/deep/last.txt"
        assert none.observation.text == "No files match."
        assert is_refusal(bad)

    def test_a_search_that_cannot_find_anything_says_why(self) -> None:
        up, root, bracket, brace, name, looped, through, expression = answers(
            call("glob", pattern="../*"),
            call("glob", pattern="/etc/*"),
            call("glob", pattern="["),
            call("glob", pattern="*.{py,txt"),
            call("grep", pattern="whale", glob="["),
            bash("ln -s self self"),
            call("read", path="self"),
            call("grep", pattern="("),
        )
        assert (
            up
            == "No files match: the pattern leads out of the folder that is searched, which nothing below it matches."
        )
        assert root.startswith("No files match: the pattern begins with a slash")
        assert bracket == "No files match: a [ in the pattern is never closed, so it stands for itself."
        assert brace == "No files match: a { in the pattern is never closed, so it stands for itself."
        assert name == "No lines match: a [ in the pattern is never closed, so it stands for itself."
        assert looped == "exit code 0"
        assert through == '"self" leads through too many links, or through one that leads back to itself.'
        assert expression == (
            "The pattern is no valid regular expression: missing ), unterminated subpattern at position 0."
        )

    def test_grep_shows_path_number_and_line_with_context(self) -> None:
        plain, context, filtered, any_case, file, none, bad = results(
            TASK,
            call("grep", pattern="^[a-z]+ fish$"),
            call("grep", pattern="red", context=1),
            call("grep", pattern="fish", glob="*.py"),
            call("grep", pattern="two", ignore_case=True, glob="text/*.txt"),
            call("grep", pattern="return", path="sums.py"),
            call("grep", pattern="whale"),
            call("grep", pattern="("),
        )
        assert plain.observation.text.split("\n") == [
            "text/poem.txt:1:one fish", "text/poem.txt:3:red fish", "text/poem.txt:5:blue fish",
        ]  # fmt: skip
        assert (
            context.observation.text == "text/poem.txt-2-Two fish\ntext/poem.txt:3:red fish\ntext/poem.txt-4-"
        )
        assert filtered.observation.text == ".hidden/x.py:1:fish = 1"
        assert any_case.observation.text == "text/poem.txt:2:Two fish"
        assert file.observation.text == "sums.py:2:    return a + b"
        assert none.observation.text == "No lines match."
        assert is_refusal(bad)

    @pytest.mark.slow
    def test_results_are_bounded_aloud(self) -> None:
        _, many, wide = answers(
            bash("seq 2000 > many; head -c 5000 /dev/zero | tr '\\0' x > wide"),
            call("grep", pattern="0|1|2|3|4|5|6|7|8|9", path="many"),
            call("grep", pattern="x", path="wide"),
        )
        assert many.count("\n") == 500
        assert many.endswith("[There are more; narrow the search.]")
        assert wide.endswith("... [5007 characters]")


@pytest.mark.slow
class TestBash:
    def test_exit_code_and_both_streams(self) -> None:
        both, silent, syntax = answers(bash("echo out; echo err >&2; exit 3"), bash("true"), bash(")"))
        assert both == "exit code 3\n--- stdout\nout\n--- stderr\nerr"
        assert silent == "exit code 0"
        assert syntax.startswith("exit code 2\n--- stderr\nbash: eval: line 1: syntax error")

    def test_the_folder_is_kept_and_a_lost_one_is_told(self) -> None:
        said = answers(
            bash("cd text; X=1"),
            bash("pwd; echo [$X]"),
            bash("(cd deep); cd deep && exec >/dev/null"),
            bash("basename $PWD; rm -r ../deep"),
            bash("basename $PWD"),
            bash("cd text; exit 2"),
            bash("basename $PWD; kill -9 $$"),
            bash("basename $PWD"),
        )
        assert said[1].endswith("/text\n[]")
        assert said[3] == "exit code 0\n--- stdout\ndeep"
        assert said[4].startswith(
            "(The working directory is gone; the command ran in the workspace.)\nexit code 0"
        )
        assert said[6].startswith("exit code -9")
        assert said[7].endswith("\ntext")

    def test_a_folder_may_have_any_name(self) -> None:
        names = "$'\\xff'", "$'a\\nb\\n'", "'\\0101%s $x'", "-P", "\u00e9"
        for name in names:
            _, kept, found, listed, above = answers(
                bash(f"mkdir -- {name} && cd -- {name} && echo fish > in"),
                bash("cat in"),
                call("grep", pattern="fish", glob="in"),
                call("ls"),
                bash("cd .. && ls sums.py"),
            )
            assert kept == "exit code 0\n--- stdout\nfish", name
            assert found.endswith(":1:fish")
            assert "sums.py" in listed
            assert above == "exit code 0\n--- stdout\nsums.py", name

    def test_a_folder_that_nobody_can_go_to_is_told(self) -> None:
        _, told, here = answers(
            bash("printf '\\0\\0cwd:/%030000d\\0' 0; exec >/dev/null 199>&-"), bash("true"), bash("pwd | grep -c workspace")
        )  # fmt: skip
        assert told.startswith("(The working directory is gone; the command ran in the workspace.)")
        assert here.startswith("exit code 0")

    def test_a_command_out_of_time_is_killed_with_what_it_started(self) -> None:
        late, left = answers(bash("sleep 77 & echo begun; sleep 77", timeout=1), bash("pgrep -c sleep; true"))
        assert late == "killed: it did not end within 1 s\n--- stdout\nbegun"
        assert left.endswith("\n0")

    def test_the_task_caps_the_time(self) -> None:
        (late,) = texts(OneTask(command_s=0.5), bash("sleep 77", timeout=300))
        assert late == "killed: it did not end within 0.5 s"

    def test_output_loses_its_middle_aloud(self) -> None:
        (long,) = answers(bash("seq 20000"))
        assert re.search(r"\n\[\.\.\. \d+ bytes left out \.\.\.\]\n", long)
        assert long.startswith("exit code 0\n--- stdout\n1\n2\n")
        assert long.endswith("\n20000")
        assert len(long) < 31_000

    def test_no_variables_of_the_host_and_nothing_of_ours_in_the_answer(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CANARY", "sings")
        (said,) = answers(bash("env; echo $# $@"))
        assert "sings" not in said
        assert "cwd:" not in said
        assert said.endswith("\n0")


def test_a_list_of_things_to_do_is_read_back() -> None:
    todos = [{"content": "a", "status": "completed"}, {"content": "b", "status": "in_progress"}, {"content": "c", "status": "pending"}]  # fmt: skip
    listed, none, bad = results(
        TASK,
        call("todo_write", todos=todos),
        call("todo_write", todos=[]),
        call("todo_write", todos=[{"content": "a", "status": "later"}]),
    )
    assert listed.observation.text == "[x] a\n[>] b\n[ ] c"
    assert none.observation.text == "(The list is empty.)"
    assert bad.observation.error is ErrorCode.INVALID_ARGUMENTS


class TestEndings:
    def test_submitting_pays_the_share_and_ends(self) -> None:
        fixed, half = (
            results(OneTask({"sums.py": text}), SUBMIT, call("ls"))
            for text in ("def add(a, b):\n    return a + b\n", "def add(a, b):\n    return a\n")
        )
        assert (fixed[0].total, fixed[0].cause, fixed[0].components) == (1.0, Cause.SUBMITTED, {"tests": 1.0})
        assert fixed[0].observation.text == (
            "Submitted: 2 of 2 hidden tests passed, score 1.\npassed  test_add\npassed  test_zero"
        )
        assert half[0].total == 0.25
        assert half[1].observation.error is ErrorCode.EPISODE_OVER

    @pytest.mark.slow
    def test_an_episode_cut_off_is_graded_as_it_is(self) -> None:
        last = results(OneTask(max_turns=1), write("sums.py", "def add(a, b):\n    return a + b\n"))[-1]
        assert (last.cause, last.total) == (Cause.BUDGET, 1.0)

    @pytest.mark.slow
    def test_an_episode_ended_from_outside_is_graded_as_it_is(self) -> None:
        async def play() -> StepResult:
            episode = await Episode.open_async(OneTask(), "test/one")
            try:
                await episode.step_async(write("sums.py", "def add(a, b):\n    return a + b\n"))
                return await episode.truncate(Cause.TIMEOUT)
            finally:
                await episode.close_async()

        assert asyncio.run(play()).total == 1.0

    def test_a_sandbox_that_died_ends_the_episode_with_an_error(self) -> None:
        async def play() -> list[StepResult]:
            episode = await Episode.open_async(TASK, "test/one")
            await episode.state.sandbox.close()
            with pytest.raises(SandboxGoneError):
                await episode.state.sandbox.read("sums.py")
            steps = [await episode.step_async(bash("true")), await episode.step_async(call("ls"))]
            await episode.close_async()
            return steps

        died, after = asyncio.run(play())
        assert died.observation.text == "The sandbox has died, and everything in it is lost."
        assert (died.cause, died.total) == (Cause.ERROR, 0.0)
        assert after.observation.error is ErrorCode.EPISODE_OVER

    @pytest.mark.slow
    def test_a_solution_too_large_can_still_be_mended(self) -> None:
        refused, _, done = results(
            OneTask({"sums.py": "def add(a, b):\n    return a + b\n", "big.py": "#" * (5 << 20)}),
            SUBMIT, bash("rm big.py"), SUBMIT,
        )  # fmt: skip
        assert is_refusal(refused)
        assert "big.py has 5242880 bytes" in refused.observation.text
        assert done.total == 1.0

    def test_why_an_episode_cannot_be_stored(self) -> None:
        async def play() -> None:
            episode = await Episode.open_async(TASK, "test/one")
            try:
                with pytest.raises(SnapshotError):
                    episode.snapshot()
            finally:
                await episode.close_async()

        asyncio.run(play())


@pytest.mark.slow
def test_episodes_at_the_same_time_are_what_they_are_alone() -> None:
    calls: list[Any] = [
        write("sums.py", "x"),
        bash("cd text; cat poem.txt"),
        call("grep", pattern="fish"),
        bash("ls"),
    ]

    async def together() -> list[list[str]]:
        plays = await asyncio.gather(*(played(TASK, *calls) for _ in range(24)))
        return [[result.observation.text for result in steps] for steps, _ in plays]

    assert all(said == answers(*calls) for said in asyncio.run(together()))
