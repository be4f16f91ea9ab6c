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
        "# coding: utf-7\n",
        "#!/usr/bin/python3\n# -*- coding: unicode_escape -*-\n",
        '"""It is read as a comment."""\r# coding=latin-1\n',
        "\ufeff# coding: cp1252\n",
        "# coding: utf-8 coding: rot13\n",
        "getattr(*(total, '__globals__'), 'x')",
        "getattr(total, *names)",
        "getattr(total, 'x', default=None)",
        "getattr(total, 'x', *rest)",
        "def getattr(one, name):\n    return one",
        "def eval(text):\n    return text",
        "class exec:\n    pass",
        "try:\n    pass\nexcept Exception as compile:\n    pass",
        "match total:\n    case eval:\n        pass",
        "class A(type):\n    pass",
        "class A(metaclass=B):\n    pass",
        "class A(**words):\n    pass",
        "class A:\n    def __instancecheck__(self, one):\n        return True",
        "class A:\n    def __class_getitem__(cls, name):\n        return name",
        "class A:\n    __match_args__ = ('__globals__',)",
        "match total:\n    case shapes.Shape(found):\n        pass",
        "type('A', (), {'__annotations__': names})",
        "type(*parts)",
        "import dataclasses\ndataclasses.make_dataclass('A', names)",
        "from contextlib import redirect_stdout",
        "import contextlib\ncontextlib.redirect_stderr(None)",
        "reach._old_targets",
        "reference._evaluate({}, {}, frozenset())",
        "import collections\ncollections.eq = other",
        "import operator\noperator.attrgetter('x', *names)(total)",
        "import operator\noperator.attrgetter('__globals__')(total)",
        "import operator\noperator.attrgetter('total.__globals__')(orders)",
        "import operator\nreach = operator.attrgetter\nreach(name)",
        "from operator import attrgetter as reach\nreach('__globals__')(total)",
        "from operator import itemgetter as attrgetter",
        "from operator import methodcaller\nmethodcaller(name)(total)",
        "from operator import methodcaller\nmethodcaller('__subclasses__')(object)",
        "from functools import wraps\nwraps(total, names)(keeper)",
        "from functools import wraps\nwraps(total, assigned=['__globals__'])(keeper)",
        "from functools import wraps\nwrap = wraps",
        "from functools import update_wrapper as wraps\nwraps(total)",
        "keeper.wraps(total)",
        "total.__class__ = other",
        "import enum\nenum.__class__('m')",
        "def f():\n    return __class__",
        "match total:\n    case object(__class__=kind):\n        pass",
        "import sys\nsys.modules",
        "import sys\nsys._getframe()",
        "import sys\nsys.orig_argv",
        "import sys\nsys.stdin.buffer",
        "import sys\nstream = sys.stdin",
        "import sys\ntype(sys.stdout)",
        "import sys\nsave(file=sys.stdout)",
        "import sys\ndef print(file):\n    file.buffer\nprint(file=sys.stdout)",
        "import sys\nfor print in [save]:\n    print(file=sys.stdout)",
        "import json, sys\njson.dumps(sys.stdin, default=save)",
        "import json, sys\njson.dump(sys.stdin, one, default=save)",
        "import sys\nsys.stdout = other",
        "import sys\ngetattr(sys, 'stdin')",
        "from sys import stdout",
        "from sys import orig_argv",
        "import logging\nlogging.FileHandler('bisect.py')",
        "import logging\nlogging.basicConfig(filename='bisect.py')",
        "import logging\nlogging.lastResort.stream",
        "import logging\nlogging.sys",
        "from logging import StreamHandler",
        "import logging.config",
        "import json\njson.codecs.open(path)",
        "from json import decoder",
        "import datetime\ndatetime.sys",
        "from types import FunctionType",
        "import types\ntypes.new_class('A')",
        "from textwrap import re",
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
        "# -*- coding: UTF-8 -*-\nx = 1",
        "#!/usr/bin/python3\n# vim: set fileencoding=utf_8 :\n",
        "x = 1\ny = 2\n# encoding: of what comes in\n",
        "text = 'coding: utf-7'\n",
        "\ufeffx = 1\n",
        "class A:\n    __slots__ = ('_x', '__y')\n    def sum(self, other):\n        return self._x + other._x + self.__y",
        "class A:\n    _limit: int = 3\n    def __mul__(self, other):\n        return self._limit * other._times()\n    __rmul__ = __mul__\n    def _times(self):\n        return 1",
        "class A(abc.ABC, metaclass=abc.ABCMeta):\n    pass",
        "Point = namedtuple('Point', 'x y')\nprint(Point(1, 2)._replace(x=3)._asdict())",
        "class P:\n    x: int\nmatch node:\n    case P(1) | int(y) | [str(z)]:\n        pass",
        "kinds = {type(one) for one in every}\nisinstance(kinds, type)",
        "import copy\ncopy.copy(x)\nf(copy=True)",
        "from __future__ import annotations\n\n__all__ = ['total']\n__author__ = 'Ada'\n__version__: str = '1'",
        "class A:\n    def __repr__(self):\n        return f'{self.__class__.__name__}({type(self).__qualname__}, {self.x!r}, {self.x=})'",
        "class A:\n    def copy(self):\n        return self.__class__(self.x)",
        "try:\n    pass\nexcept ValueError as error:\n    raise KeyError(str(error.__cause__)) from None",
        "import dataclasses\n@dataclasses.dataclass(frozen=True, slots=True)\nclass A:\n    x: list = dataclasses.field(default_factory=list)",
        "from dataclasses import asdict, dataclass, replace\n@dataclass(order=True)\nclass A:\n    x: int\nreplace(A(1), x=2)",
        "from typing import NamedTuple, TypedDict\nclass A(NamedTuple):\n    x: int = 0\nclass B(TypedDict, total=False):\n    y: str",
        "import functools\nclass A:\n    @functools.cached_property\n    def x(self):\n        return 1",
        "class A:\n    @property\n    def x(self):\n        return self._x\n    @x.setter\n    def x(self, value):\n        self._x = value",
        "from enum import Enum, auto\nclass A(Enum):\n    X = auto()\nprint(A['X'].name, A.X.value)",
        "from contextlib import contextmanager\n@contextmanager\ndef f():\n    yield",
        "from functools import wraps\ndef logged(f):\n    @wraps(f)\n    def inner(*a, **k):\n        return f(*a, **k)\n    return inner",
        "import functools\n@functools.wraps(f)\ndef inner():\n    pass",
        "from operator import attrgetter, itemgetter, methodcaller\nkeys = itemgetter(1, 0), attrgetter('a', 'b.c'), methodcaller('f', 1, k=2)",
        "import operator\nsorted(every, key=operator.attrgetter('average'))",
        "import heapq, html, json, statistics, string, textwrap\nfrom datetime import date, timedelta\nfrom decimal import ROUND_HALF_UP, Decimal",
        "import json, sys\njson.dump(json.load(sys.stdin), sys.stdout)\nsys.exit(main(sys.argv[1:]))",
        "import sys\nprint(1, file=sys.stderr)\nsys.stdout.write(sys.stdin.readline())\nlines = [line for line in sys.stdin]",
        "from sys import argv, exit, maxsize",
        "import logging\nlogger = logging.getLogger(__name__)\nlogger.addHandler(logging.NullHandler())\nlogger.setLevel(logging.INFO)",
        "match x:\n    case [a, *rest] if (n := len(rest)) > 1:\n        pass\n    case {'k': v, **more}:\n        pass\n    case None | str():\n        pass",
        "assert __debug__ or x",
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
    assert any(b"solution.readable(" in data for data in bundle.tests.files.values())
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
