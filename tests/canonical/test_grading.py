"""Grading: who passes, that no code of an agent can pass otherwise, and that a failure of ours is no score."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import pytest

from canonical.episode import Episode
from canonical.grading.grade import GradingError, HiddenTest, Report, Verdict, grade
from canonical.reward import ScoringError
from canonical.sandbox.backends import load_backend
from canonical.sandbox.protocol import (
    BackendUnavailableError,
    Exec,
    Isolation,
    Limits,
    Sandbox,
    Snapshot,
)
from canonical.step import Cause
from tests.canonical.coding import BROKEN, FIXED, SUBMIT, TESTS, OneTask, bash, call, results, write


def graded(solution: str | Mapping[str, str], tests: str, **options: Any) -> dict[str, bool]:
    return {result.name: result.passed for result in report(solution, tests, **options).results}


def report(solution: str | Mapping[str, str], tests: str, **options: Any) -> Report:
    files = {"m.py": solution} if isinstance(solution, str) else solution
    names = [
        line.split("(")[0].removeprefix("def ") for line in tests.splitlines() if line.startswith("def test")
    ]
    return asyncio.run(
        grade(
            load_backend("local"),
            Snapshot({path: text.encode() for path, text in files.items()}),
            Snapshot({"tests/test_m.py": tests.encode(), "tests/words.txt": b"one two"}),
            [HiddenTest(name, "tests/test_m.py", 1.0) for name in names],
            **options,
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken", ["raise ValueError\n", "# \0\n", "def f(:\n", "import sys\nsys.exit('ValueError')\n"]
)
def test_a_module_that_cannot_be_imported_has_refused_nothing(broken: str) -> None:
    tests = """
from grading import SolutionError
def test_refuses(solution):
    try:
        solution.call("m:f", -1)
    except SolutionError as error:
        assert error.type in ("ValueError", "SyntaxError", "SystemExit")
    else:
        raise AssertionError
"""
    assert graded(broken, tests) == {"test_refuses": False}


@pytest.mark.slow
def test_a_submission_is_driven_by_value() -> None:
    solution = """
import sys
print("noise")
total = 0
def add(a, b=1): return a + b
def kinds(): return [None, True, 1, 2.5, "\\udc80", b"x", (1,), {1}, {"a": [float("nan")]}]
def count():
    global total
    total += 1
    return total
def change(values): values.append(1)
def odd(): return iter([])
def big(): return 10 ** 5000
class Stack:
    def __init__(self, *items): self.items = list(items)
    def push(self, item): self.items.append(item)
    def pop(self): return self.items.pop()
    @property
    def size(self): return len(self.items)
class Deep:
    @staticmethod
    def name(): return "deep"
"""
    tests = """
from pathlib import Path
from grading import same, SolutionError, SolutionTimeout

def test_values(solution):
    assert same(solution.call("m:add", 2, b=3), 5)
    assert same(solution.call("m:kinds"), [None, True, 1, 2.5, "\\udc80", b"x", (1,), {1}, {"a": [float("nan")]}])
    assert solution.call("m:big") == 10 ** 5000
    assert solution.call("m:Deep.name") == "deep"

def test_processes_are_fresh_and_calls_share_one(solution):
    assert solution.call("m:count") == solution.call("m:count") == 1
    assert solution.calls("m:count", [[], [], []]) == [1, 2, 3]

def test_arguments_are_copies(solution):
    mine = [0]
    assert solution.call("m:change", mine) is None
    assert mine == [0]

def test_errors(solution):
    for target, kind in (("m:odd", "NotPlain"), ("m:missing", "Unreachable"), ("n:f", "Unreachable")):
        try:
            solution.call(target)
        except SolutionError as error:
            assert error.type == kind, error.type
        else:
            raise AssertionError(target)
    first, second = solution.calls("m:add", [["a"], [1]])
    assert isinstance(first, SolutionError) and first.type == "TypeError" and second == 2

def test_objects(solution):
    results = solution.script("m:Stack", [1], [("push", [2]), ("size", []), ("pop", []), ("pop", []), ("pop", [])])
    assert results[:4] == [None, 2, 2, 1] and results[4].type == "IndexError"

def test_commands(solution):
    done = solution.run(["python3", "-c", "import m, sys; print(sys.stdin.read()); open('out', 'w').write('x'); sys.exit(3)"],
                        stdin="in", files={"data/new": "1"}, collect=["out", "none"])
    assert (done.exit_code, done.stdout, done.stderr, done.files) == (3, "noise\\nin\\n", "", {"out": "x"})
    assert solution.run(["ls"]).stdout == "m.py\\n"
    try:
        solution.run(["no-such-program"])
    except SolutionError as error:
        assert error.type == "CommandFailed"

def test_files(solution):
    assert list(solution.files()) == ["m.py"] and "class Stack" in solution.read("m.py")
    assert (Path(__file__).parent / "words.txt").read_text() == "one two"
"""
    outcome = report(solution, tests)
    assert [(result.name, result.reason) for result in outcome.results if not result.passed] == []
    assert outcome.share == 1.0


@pytest.mark.slow
def test_one_test_that_fails_stops_no_other() -> None:
    tests = """
import os, sys
from grading import SolutionError, SolutionTimeout
def test_asserts(solution): assert solution.call("m:f") == 2
def test_exits(solution): sys.exit(0)
def test_dies(solution): os._exit(0)
def test_hangs(solution):
    while True: pass
def test_waits(solution):
    try: solution.call("m:slow", timeout_s=0.5)
    except SolutionTimeout: return
def test_spins(solution):
    try: solution.run(["python3", "-c", "while True: pass"], cpu_s=0.5, timeout_s=3.5)
    except SolutionError as error: assert error.type == "Limit", error
def test_passes(solution): assert solution.call("m:f") == 1
"""
    passed = graded("import time\ndef f(): return 1\ndef slow(): time.sleep(99)\n", tests, test_s=4.0)
    assert [name for name, is_passed in passed.items() if is_passed] == [
        "test_waits",
        "test_spins",
        "test_passes",
    ]


@pytest.mark.slow
def test_a_test_of_which_nothing_has_run_is_not_passed() -> None:
    tests = """
def started(function):
    return lambda solution: function(solution)

@started
def test_yields(solution):
    assert False
    yield

@started
async def test_waits(solution):
    assert False

@started
async def test_does_both(solution):
    assert False
    yield

@started
def test_runs(solution):
    assert solution.call("m:f") == 1
"""
    names = ("test_yields", "test_does_both", "test_runs")
    outcome = asyncio.run(
        grade(
            load_backend("local"),
            Snapshot({"m.py": b"def f(): return 1\n"}),
            Snapshot({"tests/test_m.py": tests.encode()}),
            [HiddenTest(name, "tests/test_m.py", 1.0) for name in (*names, "test_waits")],
        )
    )
    assert [result.name for result in outcome.results if result.passed] == ["test_runs"]
    assert "it returned a generator, of which nothing has run" in outcome.results[0].reason


# Each returns, prints or forges something else than 5, and would pass a grader that trusts the process it grades.
CHEATS = {
    "exits in silence": "import sys\nsys.exit(0)",
    "dies in silence": "import os\nos._exit(0)",
    "dies in the call": "import os\ndef add(a, b): os._exit(0)",
    "exits in the call": "import sys\ndef add(a, b): sys.exit(0)",
    "is equal to everything": "class E(int):\n    __eq__ = lambda s, o: True\n    __hash__ = int.__hash__\ndef add(a, b): return E(0)",
    "is equal to everything and no number": "class E:\n    def __eq__(s, o): return True\ndef add(a, b): return E()",
    "patches the encoder": "import json, sys\nfor m in list(sys.modules.values()):\n    for n in ('dump', '_encode', 'same'):\n        if hasattr(m, n): setattr(m, n, lambda *a: '[]')\ndef add(a, b): return 0",
    "writes to every descriptor": "import os\nfor fd in range(1, 64):\n    try: os.write(fd, b'{\"op\": \"verdict\", \"passed\": true}\\n')\n    except OSError: pass\nos._exit(0)",
    "writes a frame of the host": "import os\nfor fd in range(1, 64):\n    try: os.write(fd, b'{\"status\": \"ok\"}\\ntrue')\n    except OSError: pass\nos._exit(0)",
    "looks for the expected value in its callers": "import sys, gc\ndef add(a, b):\n    f = sys._getframe()\n    while f:\n        for v in list(f.f_locals.values()):\n            if type(v) is dict and 'expected' in v: return v['expected']\n        f = f.f_back\n    return [o for o in gc.get_objects() if type(o) is int][:1] and 0",
    "patches the standard library": "import builtins, unittest, json, time\nbuiltins.AssertionError = Exception\nunittest.TestCase.assertEqual = lambda *a: None\njson.loads = json.dumps = lambda *a, **k: '{}'\ntime.time = lambda: 0\ndef add(a, b): return 0",
    "returns what is no number": "def add(a, b): return float('nan')",
    "returns a deep list": "def add(a, b):\n    x = []\n    for _ in range(100000): x = [x]\n    return x",
    "returns a value of a gigabyte": "def add(a, b): return 'x' * (1 << 27)",
    "raises what cannot be shown": "class E(BaseException):\n    def __str__(self): raise self\ndef add(a, b): raise E",
    "raises an assertion": "def add(a, b): raise AssertionError('passed')",
    "leaves a process behind": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\ndef add(a, b): return 0",
    "kills everything": "import os, signal\ndef add(a, b):\n    os.kill(-1, signal.SIGKILL)",
    "replaces the standard library": None,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_scores_nothing(name: str) -> None:
    source = CHEATS[name]
    forged = "def loads(*a): return {'kind': 'calls'}\ndef dumps(*a): return '5'\n"
    files = (
        {"m.py": source}
        if source
        else {"m.py": "def add(a, b): return 0", "json.py": forged, "base64.py": forged}
    )
    tests = "from grading import same\ndef test_add(solution):\n    expected = 5\n    assert same(solution.call('m:add', 2, 3), expected)\n"
    assert graded(files, tests, limits=Limits(processes=32)) == {"test_add": False}


@pytest.mark.slow
def test_what_an_agent_plants_in_its_workspace_does_not_reach_the_tests() -> None:
    planted = "import os\nos._exit(0)\n"
    steps = results(
        OneTask(solution=["**"]),
        *(write(path, planted) for path in ("conftest.py", "sitecustomize.py", "usercustomize.py", "tests/test_it.py", "grading.py")),
        write("pytest.ini", "[pytest]\naddopts = --collect-only\n"),
        bash("ln -s /etc/passwd link.py; ln sums.py hard.py; mkfifo pipe.py; mkdir -p __pycache__; cp sums.py __pycache__/sums.cpython-311.pyc"),
        SUBMIT,
    )  # fmt: skip
    # What subtracts is right where nothing is to be added.
    assert (steps[-1].total, steps[-1].cause) == (0.25, Cause.SUBMITTED)


@pytest.mark.slow
def test_the_hidden_tests_are_in_no_file_of_the_agents_sandbox() -> None:
    canary = "kestrel_" + "marker"
    looked, last = results(
        OneTask(tests=TESTS + f"\n# {canary}\n", given={"sums.py": FIXED}),
        bash("grep -rl kestrel_[m]arker / --include=* --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr 2>/dev/null; "
             "cat /proc/*/cmdline /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c kestrel_[m]arker"),
        SUBMIT,
    )  # fmt: skip
    assert looked.observation.text.endswith("--- stdout\n0")
    assert last.total == 1.0


@pytest.mark.slow
def test_a_process_left_behind_changes_nothing_after_submission() -> None:
    steps = results(
        OneTask(),
        bash(f"nohup setsid bash -c 'while true; do printf %s {FIXED!r} > sums.py; done' >/dev/null 2>&1 &"),
        write("sums.py", BROKEN),
        SUBMIT,
    )
    assert steps[-1].total == 0.25


def test_a_share_is_one_only_when_all_pass() -> None:
    tiny = Report((Verdict("a", 1.0, passed=True), Verdict("b", 1e-30, passed=False)))
    assert tiny.share < 1.0
    assert Report((Verdict("a", 0.1, passed=True), Verdict("b", 0.2, passed=True))).share == 1.0


class DownForGrading:
    """Open sandboxes for agents, and none any more once it is told to stop."""

    name = "down"

    def __init__(self) -> None:
        self.is_down = False

    async def isolation(self) -> Isolation:
        return Isolation("down", "none", ())

    async def open(self, start: Snapshot | None = None, *, limits: Limits | None = None) -> Sandbox:
        if self.is_down:
            raise BackendUnavailableError("nobody is there")
        return await load_backend("local").open(start, limits=limits)

    async def aclose(self) -> None: ...


def test_grading_that_cannot_run_is_an_error_and_no_score() -> None:
    async def play(*, submits: bool) -> tuple[Cause | None, float]:
        backend = DownForGrading()
        episode = await Episode.open_async(
            OneTask({"sums.py": FIXED}, backend=backend, max_turns=2), "test/one"
        )
        await episode.step_async(call("ls"))
        backend.is_down = True
        with pytest.raises(ScoringError):
            await episode.step_async(SUBMIT if submits else call("ls"))
        await episode.close_async()
        return episode.cause, episode.total

    assert asyncio.run(play(submits=True)) == (Cause.ERROR, 0.0)
    assert asyncio.run(play(submits=False)) == (Cause.ERROR, 0.0)


class DyingExaminer(DownForGrading):
    """Let the sandbox of the tests, which is opened first, die once."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0

    async def open(self, start: Snapshot | None = None, *, limits: Limits | None = None) -> Sandbox:
        self.opened += 1
        sandbox = await super().open(start, limits=limits)
        if self.opened == 1:
            await sandbox.close()
        return sandbox


@pytest.mark.slow
def test_a_sandbox_that_dies_once_while_grading_costs_nobody_a_test() -> None:
    backend = DyingExaminer()
    outcome = asyncio.run(
        grade(
            backend,
            Snapshot({"sums.py": FIXED.encode()}),
            Snapshot({"tests/test_it.py": TESTS.encode()}),
            [HiddenTest("test_add", "tests/test_it.py", 1.0)],
        )
    )
    assert outcome.share == 1.0


def test_a_sandbox_that_cannot_be_opened_is_a_failure_of_ours() -> None:
    backend = DownForGrading()
    backend.is_down = True
    with pytest.raises(GradingError, match="nobody is there"):
        asyncio.run(grade(backend, Snapshot({}), Snapshot({}), [HiddenTest("test_a", "tests/a.py", 1.0)]))


class Queueing(DownForGrading):
    """Let every command wait for its turn, as on a busy machine."""

    async def open(self, start: Snapshot | None = None, *, limits: Limits | None = None) -> Sandbox:
        sandbox = await super().open(start, limits=limits)
        command = sandbox.exec

        async def wait_and_exec(argv: Sequence[str], **options: Any) -> Exec:
            await asyncio.sleep(0.5)
            return await command(argv, **options)

        return cast("Sandbox", Proxy(sandbox, wait_and_exec))


class Proxy:
    def __init__(self, sandbox: Sandbox, command: Callable[..., Awaitable[Exec]]) -> None:
        self._sandbox, self.exec = sandbox, command

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)


@pytest.mark.slow
def test_waiting_for_a_turn_is_not_the_tests_time_and_a_slow_submission_is() -> None:
    tests = "def test_many(solution):\n    for _ in range(12): assert solution.call('m:f') == 1\n"

    def passed(backend: Any, body: str) -> bool:
        asked = [HiddenTest("test_many", "tests/test_m.py", 1.0)]
        snapshots = Snapshot({"m.py": body.encode()}), Snapshot({"tests/test_m.py": tests.encode()})
        return asyncio.run(grade(backend, *snapshots, asked, test_s=8.0)).share == 1.0

    assert passed(Queueing(), "def f(): return 1\n")
    assert not passed(load_backend("local"), "import time\ndef f():\n    time.sleep(3)\n    return 1\n")


@pytest.mark.slow
def test_code_that_cannot_be_read_ends_what_runs_it_once_a_test_has_asked_to_read_it() -> None:
    solution = """
from dataclasses import dataclass
from typing import TypedDict
found = {}
@dataclass(init=False, repr=False)
class Kind(TypedDict("Base", {"x, exec('def f(): return 42', found)": int})):
    "No text in it is code by sight."
class Pair:
    x = 0
def f():
    Kind.__eq__(Pair(), Pair())
    return found["f"]()
"""
    tests = """
from grading import SolutionError, same
def test_unwatched(solution):
    assert same(solution.call("m:f"), 42)
def test_call(solution):
    solution.readable("m.py")
    assert same(solution.call("m:f"), 42)
def test_caught(solution):
    solution.readable("m.py")
    try:
        solution.call("m:f")
    except SolutionError as error:
        assert error.type == "HiddenCode" and "dataclasses.py" in error.text, error
    else:
        raise AssertionError
def test_run(solution):
    solution.readable("m.py")
    try:
        solution.run(["python3", "-c", "import m"])
    except SolutionError as error:
        assert error.type == "HiddenCode", error
    else:
        raise AssertionError
def test_other_commands_are_refused(solution):
    solution.readable("m.py")
    try:
        solution.run(["sh", "-c", "python3 m.py"])
    except ValueError as error:
        assert "python3 FILE" in str(error)
    else:
        raise AssertionError
"""
    assert graded(solution, tests) == {
        "test_unwatched": True,
        "test_call": False,
        "test_caught": True,
        "test_run": True,
        "test_other_commands_are_refused": True,
    }


@pytest.mark.slow
def test_what_can_be_read_runs_as_before() -> None:
    solution = "import sys\ndef f(x): return x + 1\nif __name__ == '__main__':\n    print(sys.argv[1:], sys.stdin.read())\n"
    tests = """
from grading import SolutionError, same
def test_reads(solution):
    try:
        solution.readable("m.py")
    except SolutionError as error:
        assert (error.type, error.text) == ("HiddenCode", "line 1: import sys"), error
    assert same(solution.calls("m:f", [[1], [2]]), [2, 3])
    assert same(solution.run(["python3", "m.py", "a"], stdin="b").stdout, "['a'] b\\n")
    assert same(solution.run(["python3", "-c", "import m, sys; print(m.f(2), sys.argv)", "a"]).stdout, "3 ['-c', 'a']\\n")
    assert solution.run(["python3", "m.py"], files={"m.py": "raise SystemExit(3)"}).exit_code == 3
"""
    assert graded(solution, tests) == {"test_reads": True}
