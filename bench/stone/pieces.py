"""The eleven pieces: whether a framework has an interface for each, a convention, or nothing, and what shows it."""

from __future__ import annotations

import json
from collections.abc import Sequence

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
                [*(subject.symbols[one] for one in piece.symbols), *_shown(subject, piece.shown_by)],
                {"level": piece.level, "symbols": list(piece.symbols)},
            )
        )
    return found


def _shown(subject: Subject, shown_by: str) -> Sequence[Evidence]:
    kind, _, name = shown_by.partition(":")
    return shown_of(subject.stack, Feature(name)) if kind == "feature" else [shown_in_source(kind, name)]


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


def declared_of(stack: Stack, feature: Feature) -> str:
    """Return what the adapter says of a feature of the release: how it comes about, and by what."""
    kept = _kept(stack, feature)
    return f"{kept['level']}: {kept['note']}" if kept["note"] else kept["level"]


def shown_of(stack: Stack, feature: Feature) -> tuple[Probe, Code]:
    """Return what conformance has seen of a feature of the release, and where the adapter says how it comes about.

    The stack need not be ready.

    Raises:
        NoSuchPlace: Conformance has kept nothing that it has seen, or the adapter does not declare the feature.
    """
    kept = _kept(stack, feature)
    if "evidence" not in kept:
        raise NoSuchPlace(
            f"{stack.adapter}/features.json keeps nothing that was seen of {feature} in "
            f"{stack.release.label}; renew it with 'rosetta conformance {stack.adapter} --keep-features'"
        )
    probe = probe_of(feature)
    seen = Probe(
        name=f"feature {feature}", sent="the touchstone, through conformance", seen=kept["evidence"], file=probe.file,
        line=probe.first, function=probe.name,
    )  # fmt: skip
    declared = line_of(stack.home / "adapter.py", f"Feature.{feature.name}:")
    return seen, declared.model_copy(update={"name": f"{declared_of(stack, feature)}"})


def _kept(stack: Stack, feature: Feature) -> dict[str, str]:
    kept: dict[str, dict[str, dict[str, str]]] = json.loads(stack.features_file.read_text(encoding="utf-8"))
    return kept[stack.release.label][feature]
