"""Which framework fits: four questions, and an answer for every way through them, computed from facts.

An answer is never typed: each question names the facts that it reads and how, and a framework of which no such fact is known
is listed as not known. Nothing is ranked; frameworks stand in the order of the columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from bench.facts import Fact, Facts, Probe, Subject, Symbol
from reports.stone.table import Cell, Row, Table

LARGE_CATALOGUE = 20
"""From how many ready-made environments on a catalogue counts as large; what is offered outside of a package does not count."""

_FIVE = re.compile(r"->\s*(?:typing\.)?[Tt]uple\[(?P<parts>.+)\]\s*$")


@dataclass(frozen=True, slots=True)
class Reading:
    """Say where an answer is read.

    Attributes:
        table: Name of the table.
        row: Name of the row.
        read: From a fact to the key of what holds; None where the fact does not say.
    """

    table: str
    row: str
    read: Callable[[Fact], str | None]


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to answer a question.

    Attributes:
        key: What it is called in the path.
        text: What a reader chooses.
        holds: What a framework may be, by the keys of a reading; none where everything will do.
        missing: What is said of a framework that is not so.
    """

    key: str
    text: str
    holds: tuple[str, ...] = ()
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A question to who looks for a framework.

    Attributes:
        key: What it is called.
        text: How it is asked.
        why: What hangs on it.
        readings: Where the answer for a framework is read; the first that says anything counts.
        choices: The ways on.
        words: Key of a reading -> how it is said.
    """

    key: str
    text: str
    why: str
    readings: tuple[Reading, ...]
    choices: tuple[Choice, ...]
    words: dict[str, str]


@dataclass(frozen=True, slots=True)
class Known:
    """Hold what is known of a framework for a question.

    Attributes:
        key: What holds; None where no fact says.
        fact: The fact that says it; None where there is none.
    """

    key: str | None = None
    fact: Fact | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Say of one framework whether it fits, and why not.

    Attributes:
        subject: The framework.
        against: What rules it out, one sentence each.
        unknown: The questions that no fact answers for it.
    """

    subject: Subject
    against: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """The end of a path.

    Attributes:
        path: The choice for each question.
        verdicts: One for each framework, in the order of the columns.
    """

    path: tuple[Choice, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def key(self) -> str:
        """The path in one word."""
        return "-".join(choice.key for choice in self.path)

    @property
    def fits(self) -> tuple[Verdict, ...]:
        """The frameworks that are known to be all that is asked for."""
        return tuple(one for one in self.verdicts if not one.against and not one.unknown)

    @property
    def open(self) -> tuple[Verdict, ...]:
        """The frameworks that nothing speaks against, and of which something is not known."""
        return tuple(one for one in self.verdicts if not one.against and one.unknown)

    @property
    def ruled_out(self) -> tuple[Verdict, ...]:
        """The frameworks that something speaks against."""
        return tuple(one for one in self.verdicts if one.against)

    @property
    def nearest(self) -> tuple[Verdict, ...]:
        """Where nothing fits, the frameworks that the fewest conditions speak against."""
        if self.fits or self.open:
            return ()
        fewest = min(len(one.against) for one in self.verdicts)
        return tuple(one for one in self.verdicts if len(one.against) == fewest)


@dataclass(frozen=True, slots=True)
class Tree:
    """The questions, what is known of every framework, and the end of every path."""

    questions: tuple[Question, ...]
    known: dict[tuple[str, str], Known]
    leaves: tuple[Leaf, ...]


def _place(fact: Fact) -> str | None:
    places = fact.data.get("places") if isinstance(fact.data, dict) else None
    if not isinstance(places, list):
        return None
    known = [name for name in ("server", "in_process") if name in places]
    return "both" if len(known) == 2 else next(iter(known), None)


def _trainer(fact: Fact) -> str | None:
    level = fact.data.get("level") if isinstance(fact.data, dict) else None
    return {"covered": "yes", "in part": "yes", "left to others": "no"}.get(str(level))


def _large(fact: Fact) -> str | None:
    """Read what was counted in the package; what else the fact tells of is offered elsewhere, and how much may not be known."""
    counted = [one.seen for one in fact.evidence if isinstance(one, Probe) and one.name == "catalogue"]
    if not counted or not counted[0].isdecimal():
        return None
    return "yes" if int(counted[0]) >= LARGE_CATALOGUE else "no"


def _five_values(fact: Fact) -> str | None:
    """Read from the signature of what a step returns whether it is Gymnasium's tuple of five."""
    return (
        "yes"
        if any(isinstance(one, Symbol) and returns_five_values(one.signature) for one in fact.evidence)
        else "no"
    )


def returns_five_values(signature: str) -> bool:
    """Say whether a signature returns observation, reward, terminated, truncated and info, by its types."""
    found = _FIVE.search(signature)
    if found is None:
        return False
    parts = _at_commas(found["parts"])
    return (
        len(parts) == 5
        and parts[1] in {"float", "SupportsFloat", "typing.SupportsFloat"}
        and parts[2:4] == ["bool", "bool"]
        and parts[4].partition("[")[0].lower().rpartition(".")[2] in {"dict", "mapping"}
    )


def _at_commas(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, sign in enumerate(text):
        depth += (sign in "[({") - (sign in "])}")
        if sign == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    return [*parts, text[start:].strip()]


ANY = Choice("any", "It does not matter")

QUESTIONS: tuple[Question, ...] = (
    Question(
        "place",
        "Where shall the environment run?",
        "Behind a transport it has its own dependencies and its own machine; in the trainer's process a step is a function call.",
        (Reading("transport", "where it runs", _place),),
        (
            Choice(
                "server",
                "In a process of its own, behind a transport of the framework",
                ("server", "both"),
                "runs in the trainer's process",
            ),
            Choice(
                "in_process",
                "In the trainer's process",
                ("in_process", "both"),
                "runs behind a transport",
            ),
            ANY,
        ),
        {
            "server": "behind a transport",
            "in_process": "in the trainer's process",
            "both": "either",
        },
    ),
    Question(
        "trainer",
        "Shall a trainer come in the same package?",
        "Otherwise you bring a trainer, and the loop between it and the environment.",
        (Reading("stages", "trainer", _trainer),),
        (Choice("yes", "Yes", ("yes",), "has no trainer in the package"), ANY),
        {"yes": "with a trainer", "no": "no trainer in the package"},
    ),
    Question(
        "catalogue",
        f"Do you need a large catalogue in the package, of {LARGE_CATALOGUE} ready-made environments or more?",
        "Ready-made environments save work only where they are what you want to train on.",
        (Reading("ecosystem", "catalogue", _large),),
        (Choice("yes", "Yes", ("yes",), f"has fewer than {LARGE_CATALOGUE} in the package"), ANY),
        {"yes": f"{LARGE_CATALOGUE} or more", "no": f"fewer than {LARGE_CATALOGUE}"},
    ),
    Question(
        "gymnasium",
        "Must `step` return Gymnasium's five values?",
        "Observation, reward, terminated, truncated and info, as loops written for Gymnasium expect them.",
        (Reading("words", "step result", _five_values),),
        (Choice("yes", "Yes", ("yes",), "does not return the five values"), ANY),
        {"yes": "yes", "no": "no"},
    ),
)
"""The four questions."""


def grow(facts: Facts) -> Tree:
    """Answer every path from facts."""
    by_cell = {fact.cell: fact for fact in facts.facts}
    known = {
        (question.key, subject.framework): _known(question, subject, by_cell)
        for question in QUESTIONS
        for subject in facts.subjects
    }
    return Tree(
        QUESTIONS,
        known,
        tuple(
            Leaf(path, tuple(_verdict(path, subject, known) for subject in facts.subjects))
            for path in product(*(question.choices for question in QUESTIONS))
        ),
    )


def _known(question: Question, subject: Subject, by_cell: dict[tuple[str, str, str], Fact]) -> Known:
    for reading in question.readings:
        fact = by_cell.get((reading.table, reading.row, subject.framework))
        if fact is not None and (key := reading.read(fact)) is not None:
            return Known(key, fact)
    return Known()


def _verdict(path: tuple[Choice, ...], subject: Subject, known: dict[tuple[str, str], Known]) -> Verdict:
    against, unknown = [], []
    for question, choice in zip(QUESTIONS, path, strict=True):
        if not choice.holds:
            continue
        found = known[question.key, subject.framework]
        if found.key is None:
            unknown.append(question.text)
        elif found.key not in choice.holds:
            against.append(choice.missing)
    return Verdict(subject, tuple(against), tuple(unknown))


def grounds(facts: Facts, tree: Tree) -> Table:
    """Return what the answers rest on, as a table of its own."""
    return Table(
        "choose",
        "What the answers rest on",
        "",
        tuple(subject.title for subject in facts.subjects),
        tuple(subject.release for subject in facts.subjects),
        tuple(
            Row(
                question.text,
                tuple(
                    _cell(question, tree.known[question.key, subject.framework]) for subject in facts.subjects
                ),
            )
            for question in tree.questions
        ),
    )


def _cell(question: Question, known: Known) -> Cell:
    if known.fact is None or known.key is None:
        return Cell()
    return Cell(f"{question.words[known.key]}: {known.fact.value}", known.fact.kind, known.fact.evidence)
