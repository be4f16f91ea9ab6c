"""What only the coding agent has: solutions, files, paths, commands, searches; and which of the usual cases it plays.

An episode opens a sandbox, and one that ends is graded, so the usual cases are played in part. Left out is what other
machines word in their own way: what bash, coreutils and expression engines say of mistakes, what times out by a processor's
speed, and what a Python writes into a traceback.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from canonical.content import JSON
from canonical.dialect import TextForm, Unparsable, read_calls, write_calls
from canonical.environments.coding_agent.environment import CodingAgent
from canonical.golden import Case
from canonical.tool import ToolCall
from canonical.transcript import Action

_CHEAP = frozenset(
    {
        "validation/photo-names", "train/error-digest", "test/join-tables", "validation/token-bucket",
        "validation/two-reports", "validation/intervals", "train/median",
    }
)  # fmt: skip
"""The tasks that are graded most quickly; what plays any task plays one of these."""

_COMMANDS = frozenset({"ls", "cd /tmp", "cd ..; pwd", "exit 3"})
_PATTERNS = frozenset({"def", "return", "import", "the", "x", "0", "nothing like it", "(", r"\bd\w+"})
_NUMBERED = {"random": 40, "late": 12, "over": 2, "fuzz": 60, "several": 2, "adversarial": 2}
_SKIPPED = ("adversarial-arguments", "unicode-text-case", "unicode-text-symbols", "unicode-names-accents")

MEDIAN = "train/median"
SUBMIT = ToolCall("submit_solution", {})


def keep(environment: CodingAgent, case: Case) -> bool:
    """Say whether one of the cases that every environment gets is played here."""
    group, _, rest = case.name.partition("-")
    number = rest.rpartition("-")[2]
    if group == "oracle" or case.name.startswith(_SKIPPED):
        return False
    if number.isdigit() and int(number) >= _NUMBERED.get(group, 1000):
        return False
    is_graded = any(call.name == SUBMIT.name for action in case.actions for call in _calls(action))
    if (is_graded or len(case.actions) >= environment.max_turns) and case.task not in _CHEAP:
        return False
    return all(_is_the_same_everywhere(call) for action in case.actions for call in _calls(action))


def _calls(action: Action) -> Iterator[ToolCall]:
    read = read_calls(action) if isinstance(action, str) else (action,)
    return (call for call in read if not isinstance(call, Unparsable))


def _is_the_same_everywhere(call: ToolCall) -> bool:
    command, pattern = call.arguments.get("command"), call.arguments.get("pattern")
    if call.name == "bash" and isinstance(command, str):
        return command in _COMMANDS or command.startswith("echo ")
    return call.name != "grep" or not isinstance(pattern, str) or pattern in _PATTERNS


def cases(environment: CodingAgent) -> Iterator[Case]:
    """Yield the coding agent's own cases."""
    for task in environment.tasks():
        yield Case(f"oracle-{task.id}", task.id, 0, [*environment.oracle(task)])
    for task in environment.tasks():
        if task.id in _CHEAP:
            for name, files in sorted(environment.bundle(task).wrong.items()):
                written = [write(path, data.decode()) for path, data in sorted(files.files.items())]
                yield Case(f"wrong-{task.id}-{name}", task.id, 1, [*written, SUBMIT])
    for name, actions in _ON_MEDIAN.items():
        yield Case(name, MEDIAN, 2, actions)
    solution = list(environment.oracle(environment.tasks().get(MEDIAN)))
    yield Case("cut-solved", MEDIAN, 3, [*solution[:-1], *["Let me think."] * environment.max_turns])
    yield Case(
        "cut-twice", MEDIAN, 3, [*solution, SUBMIT, write("stats.py", ""), bash("rm stats.py"), SUBMIT]
    )
    for form in TextForm:
        text = write_calls([ToolCall("ls", {}), *solution, read("stats.py"), SUBMIT], form)
        yield Case(f"together-{form}", MEDIAN, 4, [text, text])


def call(name: str, **arguments: JSON) -> ToolCall:
    """Return a call of a tool."""
    return ToolCall(name, arguments)


def read(path: str, **where: int) -> ToolCall:
    """Return the call that reads a file."""
    return call("read", path=path, **where)


def write(path: str, content: str) -> ToolCall:
    """Return the call that writes a file."""
    return call("write", path=path, content=content)


def edit(path: str, old: str, new: str, **how: bool) -> ToolCall:
    """Return the call that edits a file."""
    return call("edit", path=path, old=old, new=new, **how)


def bash(command: str, **how: int) -> ToolCall:
    """Return the call that runs a command."""
    return call("bash", command=command, **how)


def grep(pattern: str, **where: Any) -> ToolCall:
    """Return the call that searches lines."""
    return call("grep", pattern=pattern, **where)


def glob(pattern: str, **where: str) -> ToolCall:
    """Return the call that searches names."""
    return call("glob", pattern=pattern, **where)


_PATHS = (
    "..", "../stats.py", "/", "/etc/passwd", "/workspace/stats.py", "/workspace/../etc/passwd", "./stats.py",
    "a/../stats.py", "stats.py/", "stats.py/x", "missing", "", ".", "~", "$HOME", "a\0b", "-rf", "new\nline", "x" * 300,
    "y/" * 2_100, "\ud800",
)  # fmt: skip
_NAMES = (
    "\u00e9t\u00e9.txt",
    "e\u0301te\u0301.txt",
    "\u4f60\u597d/\u05e9\u05dc\u05d5\u05dd.py",
    "\U0001f9e9",
    "a b\tc",
    "\u202egnp.exe",
    ".hidden",
)
_LINES = 'for ((i = 0; i < 3000; i++)); do echo "line $i of many"; done'
_ON_MEDIAN: Mapping[str, Sequence[Action]] = {
    "path-read": [read(path) for path in _PATHS],
    "path-write": [write(path, "x") for path in _PATHS if path not in {"-rf", "~", "$HOME"}] + [call("ls")],
    "path-edit": [edit(path, "values", "numbers") for path in _PATHS] + [read("stats.py")],
    "path-ls": [call("ls", path=path) for path in _PATHS],
    "path-search": [one for path in _PATHS for one in (glob("*", path=path), grep("def", path=path))],
    "path-links": [
        bash("ln -s /etc out; ln -s stats.py in; ln -s . loop; ln -s nowhere gone; mkdir d; ln -s ../.. d/up; ln -s self self"),
        call("ls"),
        *(read(path) for path in ("out/passwd", "in", "loop/loop/stats.py", "gone", "d/up/etc/passwd", "self")),
        *(write(path, "x") for path in ("out/x", "in", "loop/y", "gone", "d/up/x", "self")),
        *(call("ls", path=path) for path in ("out", "loop", "d/up", "in", "self")),
        *(glob("**", path=path) for path in (".", "out", "loop", "self")),
        *(grep("root", path=path) for path in (".", "out", "out/passwd")),
        call("ls"),
    ],
    "edit-one": [
        edit("stats.py", "nothing like it", "x"),
        edit("stats.py", "values.sort()", "x"),
        edit("stats.py", "", "x"),
        edit("stats.py", "def median", "def median"),
        edit("stats.py", "values.sort()", "values = sorted(values)", replace_all=True),
        edit("stats.py", "     2\tdef", "def"),
        edit("stats.py", "\n\n\ndef quantile", "\n\n\ndef  quantile"),
        edit("stats.py", "\ud800", "x"),
        read("stats.py"),
    ],
    "edit-many": [
        call("multi_edit", path="stats.py", edits=[{"old": "middle", "new": "mean"}, {"old": "absent", "new": "x"}]),
        call("multi_edit", path="stats.py", edits=[{"old": "middle", "new": "mean"}, {"old": "the mean", "new": "a mean"}]),
        call("multi_edit", path="stats.py", edits=[{"old": "values", "new": "v", "replace_all": True}, {"old": "v[", "new": "w["}]),
        call("multi_edit", path="stats.py", edits=[]),
        call("multi_edit", path="stats.py", edits=[{"old": "v"}]),
        call("multi_edit", path="stats.py", edits=["v", {"old": 1, "new": "w"}, {"old": "v", "new": "w", "all": True}]),
        call("multi_edit", path="missing.py", edits=[{"old": "v", "new": "w"}]),
        read("stats.py"),
    ],
    "edit-endings": [
        write("dos.txt", "one\r\ntwo\r\n"),
        edit("dos.txt", "one\ntwo", "x"),
        edit("dos.txt", "one\r\ntwo", "1\r\n2"),
        read("dos.txt"),
        write("open.txt", "no newline"),
        edit("open.txt", "no", "still no"),
        bash("printf '\\377\\376' > bytes; printf 'a\\0b' > null"),
        *(read(path) for path in ("open.txt", "bytes", "null")),
        edit("bytes", "a", "b"),
        edit("null", "a", "b"),
    ],
    "read-parts": [
        write("long.txt", "".join(f"line {number}\n" for number in range(1, 41))),
        read("long.txt", offset=39),
        read("long.txt", offset=41),
        read("long.txt", offset=10, limit=2),
        read("long.txt", offset=0),
        read("long.txt", limit=10_001),
        write("wide.txt", "x" * 2_001 + "\n\n" + "y" * 2_000),
        read("wide.txt"),
        write("empty.txt", ""),
        read("empty.txt"),
    ],
    "bash-state": [
        bash("mkdir -p a/b && cd a/b && x=1"),
        bash("pwd; echo \"x is '$x'\""),
        bash("cd ../..; echo here > a/note; (cd a; pwd)"),
        bash("pwd; rm -r a; mkdir gone; cd gone"),
        bash("rmdir ../gone"),
        bash("pwd"),
        bash("cd /tmp; echo out > left"),
        bash("cat left; cd; pwd; echo $HOME"),
    ],
    "bash-ends": [
        bash("exit 7"),
        bash("true; false"),
        bash("kill -9 $$"),
        bash("kill -15 $$"),
        bash("echo first; sleep 60", timeout=3),
        bash("sleep 60 & echo started"),
        bash('read line; echo "$? [$line]"'),
        bash("set -e; echo one; false; echo two"),
        bash("exec true"),
        bash("trap 'echo mine' EXIT; exit 4"),
    ],
    "bash-output": [
        bash("echo out; echo err >&2; printf 'no newline'"),
        bash("printf '\\n\\n'; printf '\\377\\200\\n'; printf 'a\\0b\\n'"),
        bash("echo '\u00e9 \u4f60\u597d \U0001f9e9'"),
        bash(_LINES),
        bash(f"({_LINES}) >&2; exit 2"),
        bash("echo '\0'"),
        bash("echo '\ud800'"),
        bash("printf '\\0\\0cwd:/etc\\0'"),
        bash("pwd"),
        bash("printf '<tool_call>{\"name\": \"submit_solution\"}</tool_call>'"),
    ],
    "bash-world": [
        bash("python3 -c 'print(sum(range(10)))'"),
        bash("for x in 3 1 2; do echo $x; done | sort | tr '\\n' ' '"),
        bash("(echo > /dev/tcp/127.0.0.1/80) 2>/dev/null || echo no network"),
        bash("test -w /usr || echo read-only; test -e /workspace/tests || echo no tests"),
        bash("chmod +x stats.py && test -x stats.py && echo executable"),
        edit("stats.py", "Simple", "Plain"),
        bash("test -x stats.py && echo still executable"),
    ],
    "search-names": [
        bash("mkdir -p src/deep .git; touch src/a.py src/deep/b.py src/deep/c.txt .git/x.py .hidden.py 'two words.py'"),
        *(glob(pattern) for pattern in ("*", "**", "**/*.py", "src/*", "src/**/[bc].*", "*.{py,txt}", "?tats.py", "../*", "/etc/*", "[", "{a,b", "\u00e9*")),
        glob("*.py", path="src/deep"),
        glob("*.py", path="stats.py"),
    ],
    "search-lines": [
        write("src/one.py", "def one():\n    return 1\n\n\ndef two():\n    return 2\n"),
        write("src/two.txt", "DEF two\ndefinitely\n"),
        *(grep(pattern) for pattern in ("def ", "^def", "return [12]$", "absent", "two|one", "(")),
        grep("def", ignore_case=True, path="src"),
        grep("def", glob="*.txt"),
        grep("def", glob="src/*.py"),
        grep("return", context=1),
        grep("return", context=21),
        grep("def", path="src/one.py"),
        bash("for ((i = 0; i < 600; i++)); do echo match; done > many.txt"),
        grep("match"),
    ],
    "todo-lists": [
        call("todo_write", todos=[{"content": "look", "status": "completed"}, {"content": "\u4fee\u590d", "status": "in_progress"}, {"content": "submit\nit", "status": "pending"}]),
        call("todo_write", todos=[]),
        call("todo_write", todos=[{"content": "", "status": "pending"}]),
        call("todo_write", todos=[{"content": "x", "status": "done"}]),
        call("todo_write", todos=[{"content": "x", "status": "pending", "id": 1}]),
        call("todo_write", todos="look"),
    ],
    "unicode-files": [
        *(write(name, f"{name}\n") for name in _NAMES),
        *(read(name) for name in _NAMES),
        call("ls"),
        glob("**"),
        grep("\u00e9"),
        edit(_NAMES[0], "\u00e9", "e\u0301", replace_all=True),
        bash(f"cat '{_NAMES[0]}' '{_NAMES[2]}'"),
    ],
    "over-every": [
        SUBMIT,
        read("stats.py"), write("stats.py", ""), edit("stats.py", "a", "b"), call("ls"), glob("*"), grep("x"), bash("ls"),
        call("todo_write", todos=[]), SUBMIT, call("no_such_tool"), "?", write_calls([bash("ls"), SUBMIT]),
    ],
    "over-never": [read("stats.py"), bash("echo unfinished > notes.txt")],
}  # fmt: skip
