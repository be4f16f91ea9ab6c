"""Code that stands in no file does not run in a process that is watched, by whatever way it came there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from canonical.grading.watch import MARK
from canonical.sandbox.program import python_program

PROGRAM = python_program(("canonical.grading.watch",), with_packages=True)[1:]


def watched(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *PROGRAM, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


TEXT = 'TEXT = "print(6 * 7)"\n'

HIDDEN = {
    "exec": "exec(TEXT)",
    "eval": "eval(TEXT)",
    "compile": "compile(TEXT, 'm.py', 'exec')",
    "compile in the name of this file": "exec(compile(TEXT, __file__, 'exec'))",
    "compile in the name of another": "import os\nexec(compile(TEXT.encode(), os.__file__, 'exec'))",
    "compile in the name of what is frozen": "exec(compile(TEXT, '<frozen os>', 'exec'))",
    "a tree": "import ast\nexec(compile(ast.parse(TEXT), __file__, 'exec'))",
    "builtins by a computed name": "getattr(__builtins__, 'get', None)('ex' + 'ec')(TEXT) if isinstance(__builtins__, dict) else 0",
    "annotations": "import typing\ndef f(x: TEXT): pass\ntyping.get_type_hints(f)",
    "fields with odd names": "from dataclasses import dataclass\n"
    "dataclass(eq=False, init=False)(type('A', (), {'__annotations__': {'x!r}{print(6 * 7)}{self.x': int}}))",
    "names read while a class is made": "import collections\ncollections.namedtuple('A', map(exec, [TEXT]))",
    "a function that runs what it is given": "import sys\nsys.modules['importlib._bootstrap' if 'importlib._bootstrap' in sys.modules else "
    "'_frozen_importlib']._call_with_frames_removed(exec, TEXT)",
    "a module that reads sources": "import code\ncode.InteractiveInterpreter().runsource(TEXT)",
    "another process": "import subprocess, sys\nsubprocess.run([sys.executable, '-c', TEXT])",
    "a shell": "import os\nos.system('echo 42')",
    "a fork": "import os\nif os.fork() == 0:\n    print(42)",
    "another code object": "def f(): pass\nf.__code__ = f.__code__.replace(co_consts=(None, 42))",
    "bytes of code": "import marshal\nprint(marshal.loads(marshal.dumps(42)))",
    "machine code": "import ctypes\nprint(ctypes.pythonapi.PyRun_SimpleString(TEXT.encode()))",
    "a file of its own": "open('n.py', 'w').write(TEXT)\nimport n",
    "a file of machine code": "import _imp\nopen('n' + _imp.extension_suffixes()[0], 'w').write('42')\nimport n",
    "a changed file": "open('other.py', 'w').write(TEXT)\nimport other",
    "another interpreter": "import sys\nname = '_interpreters' if sys.version_info >= (3, 13) else '_xxsubinterpreters'\n"
    "inner = __import__(name)\ninner.run_string(inner.create(), TEXT)",
    "a thread": "import threading\nthread = threading.Thread(target=exec, args=[TEXT])\nthread.start()\nthread.join()",
    "an exception that is caught": "try:\n    exec(TEXT)\nexcept BaseException:\n    print(42)",
}  # fmt: skip


@pytest.mark.parametrize("code", HIDDEN.values(), ids=HIDDEN)
def test_code_that_stands_in_no_file_does_not_run(code: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(TEXT + code + "\n", encoding="utf-8")
    (tmp_path / "other.py").write_text("x = 1\n", encoding="utf-8")
    done = watched(tmp_path, "-c", "import m\nprint('never')")
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith(MARK), done.stderr
    assert done.returncode == 1


PLAIN = """\
from __future__ import annotations

import abc, argparse, asyncio, collections, contextlib, copy, csv, dataclasses, datetime, decimal, enum, fractions, functools, inspect
import bisect, heapq, html, json, logging, operator, random, re, statistics, string, sys, tempfile, textwrap, typing

import other

logging.getLogger(__name__).addHandler(logging.NullHandler())

Point = collections.namedtuple("Point", "x y", defaults=[2])


class Pair(typing.NamedTuple):
    one: int
    next: typing.Optional["Pair"] = None


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Part:
    name: str
    parts: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Kept(abc.ABC):
    count: int = 0

    def __post_init__(self):
        self.count += 1


@dataclasses.dataclass(kw_only=True, eq=True, unsafe_hash=True, match_args=False)
class Square(Kept):
    side: "int" = 1

    @functools.cached_property
    def area(self):
        return self.side**2


@functools.total_ordering
class Ordered:
    def __eq__(self, other):
        return True

    def __lt__(self, other):
        return False


class Options(typing.TypedDict, total=False):
    wide: bool


class Shade(enum.Flag):
    DARK = enum.auto()
    LIGHT = enum.auto()


@contextlib.contextmanager
def opened():
    yield json.loads(json.dumps({"a": [1.5, None]}))


@functools.wraps(opened)
def again():
    with opened() as value:
        return textwrap.shorten(html.escape(str(value)), 80), datetime.date(2024, 1, 1).isoformat()


assert (Shade.DARK | Shade.LIGHT) and Options(wide=True) and again()[1] == "2024-01-01" and Square(side=3).area == 9
assert sorted([Part("b"), Part("a")], key=operator.attrgetter("name"))[0] == dataclasses.replace(Part("b"), name="a")
assert statistics.fmean([1, 2]) == fractions.Fraction(3, 2) == decimal.Decimal("1.5")
Colour = enum.Enum("Colour", "red blue")
Named = dataclasses.make_dataclass("Named", ["x"])
print(Point(1), Pair(1), Part("a"), Kept(), Ordered() <= Ordered(), Colour.red.value, Named(1), other.x, re.sub("a+", "b", "aa"))
"""
TOLD = "Point(x=1, y=2) Pair(one=1, next=None) Part(name='a', parts=[]) Kept(count=1) True 1 Named(x=1) 1 b\n"


@pytest.mark.parametrize("arguments", [("-c", "import m, sys\nprint(sys.argv[1:])"), ("m.py",)])
def test_plain_code_runs_as_it_does_elsewhere(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(PLAIN, encoding="utf-8")
    (tmp_path / "other.py").write_text("x = 1\n", encoding="utf-8")
    done = watched(tmp_path, *arguments, "an argument")
    assert done.stdout.removesuffix("['an argument']\n") == TOLD, done.stderr
    assert (done.stderr, done.returncode) == ("", 0)


def test_an_error_is_told_as_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("def f():\n    return 1 / 0\n", encoding="utf-8")
    done = watched(tmp_path, "-c", "import m\nm.f()")
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"
