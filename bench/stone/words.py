"""Same concept, six names: what a framework calls a canonical word, and where the adapter maps it."""

from __future__ import annotations

from bench.facts import Fact
from bench.stone.places import find_place
from bench.stone.subject import Subject

TABLE = "words"


def gather(subject: Subject) -> list[Fact]:
    """Return one fact per canonical word that the adapter says where to find.

    Raises:
        NoSuchPlace: The adapter has no such definition.
    """
    said = subject.stone.words
    return [
        subject.fact(
            TABLE,
            word,
            theirs,
            "introspected" if said[word].symbols else "declared",
            [
                *(subject.symbols[name] for name in said[word].symbols),
                find_place(subject.folder, said[word].at),
            ],
            list(said[word].symbols),
        )
        for word, theirs in subject.stack.facts.words.items()
        if word in said
    ]
