"""What hides which code runs is named wherever a test judges a source by its shape, and plain code is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from canonical.environments.coding_agent.environment import CodingAgent
from canonical.grading.readable import PLAIN_MODULES, hidden_code

AGENT = CodingAgent()
SHAPED = (
    "train/order-total",
    "validation/two-reports",
    "test/no-globals",
    "test/expression",
    "train/hanging-indent",
)
TESTS = sorted((Path(__file__).parents[2] / "canonical/environments/coding_agent/tasks").rglob("tests/*.py"))


@pytest.mark.parametrize(
    "source",
    [
        "exec(text)",
        "run = eval",
        "compile(text, '', 'exec')",
        "__import__('os')",
        "globals()['total']",
        "__builtins__['eval']",
        "import builtins\nbuiltins.eval(text)",
        "import importlib",
        "import runpy as re",
        "import os.path",
        "from os import system",
        "from . import orders",
        "from enum import bltns",
        "from re import *",
        "import enum\nenum.bltns.eval(text)",
        "import enum\nenum.bltns",
        "import collections\ncollections._sys.modules",
        "import collections.abc\ncollections.abc.sys",
        "from collections import abc",
        "import enum\nmodule = enum",
        "import re\nre = other\nre.compile(text)",
        "import enum\ngetattr(enum, 'blt' + 'ns')",
        "getattr(module, 'eval')(text)",
        "list(map(getattr, modules, names))",
        "match module:\n    case object(eval=run):\n        run(text)",
        "total.__globals__",
        "total.__code__",
        "[].__class__.__base__.__subclasses__()",
        "print.__self__",
        "(x for x in y).gi_frame.f_builtins",
        "import operator\noperator.attrgetter(name)(module)",
        "import string\nstring.Formatter().get_field(path, [total], {})",
        "import functools\nfunctools.update_wrapper(keeper, total, ['__globals__'])",
        "import typing\ntyping.get_type_hints(total)",
        "import functools\nfunctools.singledispatch(total)",
        "open('bisect.py', 'w')",
        "def f(eval):\n    return eval(text)",
    ],
)  # fmt: skip
def test_every_way_to_code_that_cannot_be_read_is_named(source: str) -> None:
    assert hidden_code(source)


@pytest.mark.parametrize(
    "source",
    [
        "import re\n_TOKEN = re.compile('x')",
        "import collections\ncollections.Counter()",
        "from collections.abc import Mapping",
        "from functools import lru_cache, partial",
        "class A:\n    def __init__(self, x):\n        super().__init__()\n        self.x = getattr(x, 'value', None)",
        "match node:\n    case Point(x=0):\n        pass",
        "if __name__ == '__main__':\n    print(f'{total!r:>{width}}')",
        "import math as m\nm.floor(2.5)",
    ],
)
def test_plain_code_is_left_alone(source: str) -> None:
    assert hidden_code(source) == []


def test_a_place_is_named_by_its_line() -> None:
    assert hidden_code("x = 1\n\nexec(x)\n") == ["line 3: exec"]


def test_plain_modules_are_there() -> None:
    for name in PLAIN_MODULES:
        __import__(name)


@pytest.mark.parametrize("task", SHAPED)
def test_known_solutions_of_tasks_that_are_judged_by_shape_can_be_read(task: str) -> None:
    for data in AGENT.bundle(AGENT.tasks().get(task)).oracle.files.values():
        assert hidden_code(data.decode()) == []


@pytest.mark.parametrize("task", SHAPED)
def test_every_task_that_is_judged_by_shape_refuses_hidden_code(task: str) -> None:
    bundle = AGENT.bundle(AGENT.tasks().get(task))
    assert any(b"hidden_code(" in data for data in bundle.tests.files.values())
    assert "is refused" in bundle.prompt


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.parts[-3])
def test_no_hidden_test_runs_what_a_submission_says(path: Path) -> None:
    """No code of an agent runs where the tests do; a text to evaluate is one that the test made."""
    named = [
        one for one in hidden_code(path.read_text(encoding="utf-8")) if one.endswith((": eval", ": exec"))
    ]
    assert not named or path.parts[-3] == "expression"


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.parts[-3])
def test_what_is_bounded_in_speed_comes_in_by_the_standard_input(path: Path) -> None:
    """A program that holds its numbers tells who is asked what is expected."""
    text = path.read_text(encoding="utf-8")
    assert ("cpu_s=" in text) <= ("json.load(sys.stdin)" in text and "stdin=json.dumps(" in text)
    assert "range(" not in "".join(line for line in text.splitlines() if "json.load(sys.stdin)" in line)
