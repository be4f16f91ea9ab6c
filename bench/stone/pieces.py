"""The eleven pieces: whether a framework has an interface for each, a convention, or nothing, and what shows it."""

from __future__ import annotations

import json

from bench.facts import Code, Evidence, Fact, Probe
from bench.scenarios import GENERAL
from bench.stacks import ROOT, Stack
from bench.stone.places import NoSuchPlace, code_of, line_of, probe_of
from bench.stone.subject import Subject
from canonical.adapter import Feature
from canonical.stone import PieceName

TABLE = "pieces"

LEVELS = {"native": "native", "convention": "convention", "own": "bring your own"}
"""What is written in `adapter.toml`, and what a reader sees."""


def gather(subject: Subject) -> list[Fact]:
    """Return one fact per piece that the adapter says something of.

    Raises:
        NoSuchPlace: What is said to show it does not exist.
    """
    found = []
    for name in PieceName:
        piece = subject.stone.pieces.get(name)
        if piece is None:
            continue
        found.append(
            subject.fact(
                TABLE,
                name,
                f"{LEVELS[piece.level]}: {piece.how}",
                "introspected" if piece.symbols else "declared",
                [*(subject.symbols[one] for one in piece.symbols), _shown(subject, piece.shown_by)],
                {"level": piece.level, "symbols": list(piece.symbols)},
            )
        )
    return found


def _shown(subject: Subject, shown_by: str) -> Evidence:
    kind, _, name = shown_by.partition(":")
    if kind == "feature":
        return proof_of(subject, Feature(name))
    return shown_in_source(kind, name)


def shown_in_source(kind: str, name: str) -> Code:
    """Return where a scenario or a test stands.

    Raises:
        NoSuchPlace: There is none of that name.
    """
    if kind == "scenario":
        for file in (GENERAL, ROOT / "bench" / "touchstone" / "scenarios.yaml"):
            try:
                return line_of(file, f"- name: {name}").model_copy(update={"name": f"scenario {name}"})
            except NoSuchPlace:
                continue
        raise NoSuchPlace(f"there is no scenario {name!r}")
    path, _, function = name.partition("::")
    return code_of(ROOT / path, function)


def proof_of(subject: Subject, feature: Feature) -> Probe:
    """Return what conformance has proven and kept of a feature of the release."""
    return proof_of_stack(subject.stack, feature)


def proof_of_stack(stack: Stack, feature: Feature) -> Probe:
    """Return what conformance has proven and kept of a feature of the release of a stack, which need not be ready."""
    kept = json.loads(stack.features_file.read_text(encoding="utf-8"))
    proven = kept[stack.release.label][feature]
    probe = probe_of(feature)
    seen = f"{proven['level']}: {proven['note']}" if proven["note"] else proven["level"]
    return Probe(
        name=f"feature {feature}", sent="the touchstone, through conformance", seen=seen, file=probe.file,
        line=probe.first, function=probe.name,
    )  # fmt: skip
