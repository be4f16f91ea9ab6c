"""Right solutions of two tasks that are judged by shape, in the shapes that people give them."""

from __future__ import annotations

_SUMMARY = """
def _summary(rows):
    groups = {}
    for name, subject, mark in rows:
        groups.setdefault(subject, []).append((mark, name))
    lines = []
    for subject, pairs in groups.items():
        marks = [mark for mark, _ in pairs]
        best = max(marks)
        lines.append((sum(marks) / len(marks), subject, sorted(name for mark, name in pairs if mark == best)))
    return sorted(lines, key=lambda line: (-line[0], line[1]))
"""

REPORTS = {
    "a generator": '''
"""Two reports on the marks of a class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator


def text_report(rows: list) -> str:
    """Return lines `subject  average  best`, best average first."""
    return "\\n".join(f"{subject:<12}{average:6.2f}  {', '.join(names)}" for average, subject, names in _groups(rows))


def html_report(rows: list) -> str:
    """Return a table of subject, average and best, best average first."""
    html = "<table>"
    for average, subject, names in _groups(rows):
        html += f"<tr><td>{subject}</td><td>{average:.2f}</td><td>{', '.join(names)}</td></tr>"
    return html + "</table>"


def _groups(rows: list) -> Iterator[tuple[float, str, list[str]]]:
    groups: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, subject, mark in rows:
        groups[subject][mark].append(name)
    averages = {
        subject: sum(mark * len(names) for mark, names in marks.items()) / sum(map(len, marks.values()))
        for subject, marks in groups.items()
    }
    for subject in sorted(groups, key=lambda one: (-averages[one], one)):
        yield averages[subject], subject, sorted(groups[subject][max(groups[subject])])


if __name__ == "__main__":
    print(text_report([["Ada", "art", 1]]))
''',
    "helpers of one report that add, join and take the largest": _SUMMARY
    + """

def _cells(parts):
    return sum((["<td>", part, "</td>"] for part in parts), [])


def _padded(texts, least):
    width = max(least, *sorted(min(len(text), least) for text in texts), 0)
    return [text.ljust(width) for text in texts]


def text_report(rows):
    lines = _summary(rows)
    subjects = _padded([subject for _, subject, _ in lines], 12)
    return "\\n".join(
        "%s%6.2f  %s" % (subject, average, ", ".join(names)) for subject, (average, _, names) in zip(subjects, lines)
    )


def html_report(rows):
    cells = []
    for average, subject, names in _summary(rows):
        cells.append("<tr>" + "".join(_cells([subject, "{:.2f}".format(average), ", ".join(names)])) + "</tr>")
    return "<table>" + "".join(cells) + "</table>"
""",
    "a shared function that is given formats": _SUMMARY
    + """

def render(rows, line, wrap):
    return wrap([line(subject, average, ", ".join(names)) for average, subject, names in _summary(rows)])


def text_report(rows):
    return render(rows, lambda subject, average, names: f"{subject:<12}{average:6.2f}  {names}", "\\n".join)


def html_report(rows):
    return render(
        rows,
        line="<tr><td>{}</td><td>{:.2f}</td><td>{}</td></tr>".format,
        wrap=lambda cells: "<table>" + "".join(cells) + "</table>",
    )
""",
    "partial functions": _SUMMARY
    + """

from functools import partial


def _report(rows, form, start="", between="", end=""):
    return start + between.join(form.format(subject, average, ", ".join(names)) for average, subject, names in _summary(rows)) + end


text_report = partial(_report, form="{:<12}{:6.2f}  {}", between="\\n")
html_report = partial(_report, form="<tr><td>{}</td><td>{:.2f}</td><td>{}</td></tr>", start="<table>", end="</table>")
""",
    "a decorator": """
import functools


def _summarised(form):
    @functools.wraps(form)
    def report(rows):
        groups = {}
        for name, subject, mark in rows:
            groups.setdefault(subject, []).append((mark, name))
        lines = []
        for subject, pairs in groups.items():
            best = max(mark for mark, _ in pairs)
            total = float(sum(mark for mark, _ in pairs))
            names = [name for mark, name in pairs if mark == best]
            names.sort()
            lines.append((total / len(pairs), subject, names))
        lines.sort(key=lambda line: (-line[0], line[1]))
        return form(lines)

    return report


@_summarised
def text_report(lines):
    return "\\n".join(f"{subject:<12}{average:6.2f}  {', '.join(names)}" for average, subject, names in lines)


@_summarised
def html_report(lines):
    cells = [f"<tr><td>{subject}</td><td>{average:.2f}</td><td>{', '.join(names)}</td></tr>" for average, subject, names in lines]
    return f"<table>{''.join(cells)}</table>"
""",
    "a data class with properties": """
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter


@dataclass
class Summary:
    subject: str
    marks: list[tuple[int, str]] = field(default_factory=list)

    @cached_property
    def average(self) -> float:
        return sum(mark for mark, _ in self.marks) / len(self.marks)

    @property
    def best(self) -> int:
        return max(mark for mark, _ in self.marks)

    @property
    def names(self) -> str:
        return ", ".join(sorted(name for mark, name in self.marks if mark == self.best))

    @classmethod
    def of(cls, rows):
        found = {}
        for name, subject, mark in rows:
            if subject not in found:
                found[subject] = cls(subject)
            found[subject].marks.append((mark, name))
        return sorted(sorted(found.values(), key=attrgetter("subject")), key=attrgetter("average"), reverse=True)


def text_report(rows):
    return "\\n".join(f"{one.subject:<12}{one.average:6.2f}  {one.names}" for one in Summary.of(rows))


def html_report(rows):
    cells = (f"<tr><td>{one.subject}</td><td>{one.average:.2f}</td><td>{one.names}</td></tr>" for one in Summary.of(rows))
    return "<table>" + "".join(cells) + "</table>"
""",
    "a class that both reports are made from": """
from abc import ABC, abstractmethod
from typing import NamedTuple


class Line(NamedTuple):
    subject: str
    average: float
    names: list


class Report(ABC):
    def __init__(self, rows):
        self._groups = {}
        for row in rows:
            self._add(*row)

    def _add(self, name, subject, mark):
        count, total, best, names = self._groups.get(subject, (0, 0, mark, []))
        if mark > best:
            best, names = mark, []
        if mark == best:
            names = [*names, name]
        self._groups[subject] = count + 1, total + mark, best, names

    def __iter__(self):
        lines = [Line(subject, total / count, sorted(names)) for subject, (count, total, _, names) in self._groups.items()]
        return iter(sorted(lines, key=lambda line: (-line.average, line.subject)))

    def __str__(self):
        return self.wrap([self.line(*line) for line in self])

    @abstractmethod
    def line(self, subject, average, names): ...

    @abstractmethod
    def wrap(self, lines): ...


class Text(Report):
    def line(self, subject, average, names):
        return f"{subject:<12}{average:6.2f}  {', '.join(names)}"

    def wrap(self, lines):
        return "\\n".join(lines)


class Html(Report):
    def line(self, subject, average, names):
        return f"<tr><td>{subject}</td><td>{average:.2f}</td><td>{', '.join(names)}</td></tr>"

    def wrap(self, lines):
        return f"<table>{''.join(lines)}</table>"


def text_report(rows):
    return str(Text(rows))


def html_report(rows):
    return str(Html(rows))
""",
    "reports that look whether there are rows": _SUMMARY
    + """

def text_report(rows):
    rows = list(rows)
    if not rows:
        return ""
    lines = []
    for average, subject, names in _summary(rows):
        lines.append(f"{subject:<12}{average:6.2f}  {', '.join(names)}")
    return "\\n".join(lines)


def html_report(rows):
    if len(rows) == 0:
        return "<table></table>"
    parts = ["<table>"]
    for average, subject, names in _summary(rows):
        parts.append(f"<tr><td>{subject}</td><td>{average:.2f}</td><td>{', '.join(names)}</td></tr>")
    parts.append("</table>")
    return "".join(parts)
""",
    "thin functions in between, and a dictionary": """
import itertools
import operator
import statistics


def _by_subject(rows):
    rows = sorted(([subject, mark, name] for name, subject, mark in rows), key=operator.itemgetter(0))
    return itertools.groupby(rows, key=operator.itemgetter(0))


def _best(rows):
    best = max(mark for _, mark, _ in rows)
    return sorted(name for _, mark, name in rows if mark == best)


def _summary(rows):
    found = {subject: list(group) for subject, group in _by_subject(rows)}
    means = {subject: statistics.mean(mark for _, mark, _ in group) for subject, group in found.items()}
    order = sorted(found, key=means.get, reverse=True)
    return {subject: {"average": means[subject], "names": _best(found[subject])} for subject in order}


def _for_text(rows):
    return _summary(rows)


def _for_html(rows):
    return _summary(rows=list(rows))


def text_report(rows):
    found = _for_text(rows)
    return "\\n".join(f"{one:<12}{found[one]['average']:6.2f}  {', '.join(found[one]['names'])}" for one in found)


def html_report(rows):
    cells = ""
    for subject, one in _for_html(rows).items():
        cells += f"<tr><td>{subject}</td><td>{one['average']:.2f}</td><td>{', '.join(one['names'])}</td></tr>"
    return "<table>" + cells + "</table>"
""",
    "a mean from the standard library": _SUMMARY.replace(
        "sum(marks) / len(marks)", "average(map(int, marks))"
    )
    + """

from statistics import fmean as average


def text_report(rows):
    return "\\n".join(f"{subject:<12}{mean:6.2f}  {', '.join(names)}" for mean, subject, names in _summary(rows))


def html_report(rows):
    cells = [f"<tr><td>{subject}</td><td>{mean:.2f}</td><td>{', '.join(names)}</td></tr>" for mean, subject, names in _summary(rows)]
    return "<table>" + "".join(cells) + "</table>"
""",
    "a match statement": _SUMMARY.replace(
        "    for name, subject, mark in rows:\n        groups.setdefault(subject, []).append((mark, name))\n",
        "    for row in rows:\n        match row:\n            case [name, subject, mark]:\n                groups.setdefault(subject, []).append((mark, name))\n",
    )
    + """

def _report(rows, kind):
    lines = _summary(rows)
    match kind:
        case "text":
            return "\\n".join(f"{subject:<12}{average:6.2f}  {', '.join(names)}" for average, subject, names in lines)
        case "html":
            cells = [f"<tr><td>{subject}</td><td>{average:.2f}</td><td>{', '.join(names)}</td></tr>" for average, subject, names in lines]
            return "<table>" + "".join(cells) + "</table>"


def text_report(rows):
    return _report(rows, "text")


def html_report(rows):
    return _report(rows, "html")
""",
}
"""Right solutions of `validation/two-reports`, by what is special about them."""

_COUNTERS = {
    "slots whose names are mangled": """
class Counter:
    __slots__ = ("__counts", "__last")

    def __init__(self):
        self.reset()

    def hit(self, name):
        if name != self.__last:
            self.__last = name
            self.__counts[name] = self.__counts.get(name, 0) + 1
        return self.__counts[name]

    def top(self, n):
        return sorted(self.__counts, key=lambda name: -self.__counts[name])[:n]

    def reset(self):
        self.__counts, self.__last = {}, None
""",
    "a data class with slots": """
import dataclasses


@dataclasses.dataclass(slots=True)
class Counter:
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    last: str | None = None

    def hit(self, name):
        if name != self.last:
            self.last = name
            self.counts[name] = self.counts.get(name, 0) + 1
        return self.counts[name]

    def top(self, n):
        return sorted(self.counts, key=lambda name: -self.counts[name])[:n]

    def reset(self):
        self.counts.clear()
        self.last = None
""",
    "a variable of an outer function": """
import collections


class Counter:
    def __init__(self):
        self.reset()

    def hit(self, name):
        if name != self._last:
            self._last = name
            self._counts[name] += 1
        return self._counts[name]

    def top(self, n):
        left = n if n >= 0 else max(0, len(self._counts) + n)

        def is_wanted(_):
            nonlocal left
            left -= 1
            return left >= 0

        return [name for name, _ in self._counts.most_common() if is_wanted(name)]

    def reset(self):
        self._counts, self._last = collections.Counter(), None
""",
    "constants, a logger and names for others": """
from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

__all__ = ["Counter", "hit", "reset", "top"]
__version__ = "1.0"

T = TypeVar("T")
Names = Iterable[str]
START: Final = 0
_STEP, _LIMITS = 1, (Decimal("0.5"), frozenset({"a"}), range(3), MappingProxyType({"most": 3}))
_PATTERN = re.compile("a+")
_find = _PATTERN.search
_NOTHING = object()
_log = logging.getLogger(__name__)


class Kind(Enum):
    NAME = "name"


class _State(NamedTuple):
    counts: dict[str, int]
    last: object = _NOTHING


_KIND = Kind.NAME


class Counter:
    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = _State({})

    def hit(self, name: str) -> int:
        counts, last = self._state
        if name != last:
            counts[name] = counts.get(name, START) + _STEP
        self._state = self._state._replace(last=name)
        _log.debug("%s", name)
        return counts[name]

    def top(self, n: int) -> list[str]:
        return sorted(self._state.counts, key=lambda name: -self._state.counts[name])[:n]

    def reset(self) -> None:
        self._state = _State({})


if __name__ == "__main__":
    print(Counter().hit("a"))
""",
    "options that are frozen, and an empty class": """
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Options:
    step: int = 1
    names: tuple[str, ...] = ()


class Nobody:
    def __repr__(self):
        return f"{self.__class__.__name__}()"


DEFAULT = Options()
NOBODY = Nobody()


@dataclass
class Counter:
    options: Options = DEFAULT
    counts: dict = field(default_factory=dict)
    last: object = NOBODY

    def hit(self, name):
        if name == self.last:
            return self.counts[name]
        self.counts[name] = self.counts.get(name, 0) + self.options.step
        self.last = name
        return self.counts[name]

    def top(self, n):
        return sorted(self.counts, key=self.counts.get, reverse=True)[:n]

    def reset(self):
        self.counts, self.last = {}, NOBODY
""",
}
_SHARED = "\n\n_shared = Counter()\nhit = _shared.hit\ntop = _shared.top\nreset = _shared.reset\n"
_PLAIN = """
class Counter:
    def __init__(self):
        self._counts, self._last = {}, None

    def hit(self, name):
        if name != self._last:
            self._counts[name] = self._counts.get(name, 0) + 1
            self._last = name
        return self._counts.get(name)

    def top(self, n):
        return sorted(self._counts, key=lambda name: -self._counts[name])[:n]

    def reset(self):
        self.__init__()
"""

COUNTERS = {
    **{name: source + _SHARED for name, source in _COUNTERS.items()},
    "functions that call the shared object": _PLAIN
    + """

_counter = Counter()


def hit(name):
    return _counter.hit(name)


def top(n):
    return _counter.top(n)


def reset():
    _counter.reset()
""",
    "an object that is made when it is first needed": _PLAIN
    + """

from functools import cache


@cache
def _shared():
    return Counter()


def hit(name):
    return _shared().hit(name)


def top(n):
    return _shared().top(n)


def reset():
    _shared().reset()
""",
    "methods of an object without a name": _PLAIN
    + """

from functools import partial


def _functions(counter):
    return counter.hit, partial(counter.top), counter.reset


hit, top, reset = _functions(Counter())
""",
}
"""Right solutions of `test/no-globals`, by what is special about them."""
