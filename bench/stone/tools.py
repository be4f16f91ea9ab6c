"""Tools: what becomes of one signature in each framework's own way to declare it, and what of a compiled environment arrives.

Every `bench/baselines/<name>/order.py` declares the tool `order` with the same parameters, as its framework has it. It runs
in the stack, and its `declared` returns the ways that the framework has, with what a policy is shown by each of them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from bench.facts import Fact, Probe
from bench.stacks import ROOT, StackError
from bench.stone.asking import ask
from bench.stone.places import code_of
from bench.stone.play import session_of
from bench.stone.subject import Subject
from canonical.catalogue import load_environment
from canonical.content import JSON

TABLE = "tools"
SIGNATURES = Path(__file__).parent / "signatures" / "environment.py"
BASELINES = ROOT / "bench" / "baselines"
ORDER = "order.py"

KINDS = {
    "described": "descriptions",
    "enumerated": "enum",
    "defaulted": "defaults",
    "optional": "optional",
    "united": "union",
    "bounded": "bounds",
    "listed": "list",
    "mapped": "mapping",
    "nested": "nested objects",
    "empty": "no parameters",
}
"""Tool of the signatures -> what it is there to show."""

NO_SCHEMA = "no schema"
"""What is said of a way that shows a policy no schema that the framework made."""

LOST = "own way: lost of the signature"
"""The row that sums up what each way loses."""


@dataclass(frozen=True, slots=True)
class Way:
    """Hold one way to declare the tool, and what a policy is shown by it.

    Attributes:
        name: What it is called in a cell.
        way: What it is.
        shown: What a policy is shown.
        description: The description of the tool; None without a schema.
        schema: The schema of its parameters; None where the framework makes none.
        postponed: Whether types are found whose annotations are postponed.
        unseen: What the framework knows of the tool, and a policy does not see.
        is_tried: Whether it was tried, and is not only named.
    """

    name: str
    way: str
    shown: str
    description: str | None
    schema: dict[str, Any] | None
    postponed: str = "kept"
    unseen: dict[str, Any] | None = None
    is_tried: bool = True

    def of(self, *names: str) -> dict[str, Any]:
        """Return the schema of a parameter, or of a field of objects in it; empty where there is none."""
        node = self.schema or {}
        for name in names:
            node = next(
                (one["properties"][name] for one in self.options(node) if name in one.get("properties", {})),
                {},
            )
        return self.options(node)[0] if len(self.options(node)) == 1 else node

    def types(self, *names: str) -> list[str]:
        """Return the types that a parameter may have, sorted."""
        return sorted({str(one["type"]) for one in self.options(self.of(*names)) if "type" in one})

    def options(self, node: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the schemas of which one must hold, without references."""
        node = self._resolved(node)
        held = next((node[key] for key in ("anyOf", "oneOf") if key in node), None)
        if held is not None:
            return [option for one in held for option in self.options(one)]
        kinds = node.get("type")
        return [{**node, "type": one} for one in kinds] if isinstance(kinds, list) else [dict(node)]

    def _resolved(self, node: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in node:
            target: Any = self.schema
            for part in str(node["$ref"]).removeprefix("#/").split("/"):
                target = target[part]
            node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
        return node


def _kept(is_kept: object) -> str:
    return "kept" if is_kept else "lost"


def _typed(way: Way, name: str, wanted: Sequence[str]) -> str:
    found = way.types(name)
    return "kept" if found == list(wanted) else f"lost: {' or '.join(found) or 'any type'}"


def _described(way: Way) -> str:
    return _kept((way.description or "").startswith("Order an item."))


def _documented(way: Way) -> str:
    said = "The colour of the item."
    if way.of("colour").get("description") == said:
        return "becomes the parameter's description"
    return "stays in the tool's description" if said in (way.description or "") else "lost"


def _required(way: Way) -> str:
    return _kept(
        set((way.schema or {}).get("required", ())) == {"item", "colour", "parts", "label", "portion"}
    )


def _optional(way: Way) -> str:
    return "lost: required" if "note" in (way.schema or {}).get("required", ()) else _typed(
        way, "note", ["null", "string"]
    )  # fmt: skip


def _bounded(way: Way) -> str:
    portion = way.of("portion")
    return _kept(portion.get("minimum") == 0 and portion.get("exclusiveMaximum") == 1)


def _listed(way: Way) -> str:
    items = way.of("parts").get("items")
    return _kept(isinstance(items, dict) and items.get("type") == "number")


def _nested(way: Way) -> str:
    if way.types("item", "name") != ["string"] or way.types("item", "size", "width") != ["integer"]:
        return f"lost: {' or '.join(way.types('item')) or 'any type'}"
    return "kept, behind `$ref`" if "$ref" in json.dumps(way.schema) else "kept, written out"


def _inside(way: Way) -> str:
    width, height = way.of("item", "size", "width"), way.of("item", "size", "height")
    return _kept(width.get("minimum") == 1 and width.get("description") and height.get("default") == 1)


def _closed(way: Way) -> str:
    return "excluded" if (way.schema or {}).get("additionalProperties") is False else "not excluded"


ASPECTS: dict[str, tuple[str, Callable[[Way], str]]] = {
    "description of the tool": ("", _described),
    "line of the docstring about a parameter": ("colour", _documented),
    "description of a field": (
        "portion", lambda way: _kept(way.of("portion").get("description") == "A part of one.")
    ),
    "which are required": ("", _required),
    "enum": ("colour", lambda way: _kept(way.of("colour").get("enum") == ["red", "green"])),
    "default": ("times", lambda way: _kept(way.of("times").get("default") == 3)),
    "optional": ("note", _optional),
    "union": ("label", lambda way: _typed(way, "label", ["integer", "string"])),
    "bounds": ("portion", _bounded),
    "list": ("parts", _listed),
    "nested objects": ("item", _nested),
    "bounds, description and default in a nested object": ("item", _inside),
    "arguments that the tool does not have": ("", _closed),
    "postponed annotations": ("", lambda way: way.postponed),
}  # fmt: skip
"""What is looked for in a schema -> the parameter that shows it, or nothing where it is the whole, and what became of it."""


async def gather(subject: Subject) -> list[Fact]:
    """Return what the framework's own ways make of one signature, and what arrives of a compiled environment.

    Raises:
        SessionError: The framework refused the session.
        StackError: The framework's own way does not work.
        WorkerError: The worker broke down.
    """
    return [*await asyncio.to_thread(_own, subject), await _compiled(subject)]


def _own(subject: Subject) -> list[Fact]:
    file = BASELINES / subject.name / ORDER
    if not file.is_file():
        return []
    question = f"from bench.baselines.{subject.name}.order import declared\ndeclared()"
    found = ask(subject.stack, expressions=[question]).values[question]
    if not isinstance(found, list):
        raise StackError(f"{subject.stack.label}: {file.relative_to(ROOT)} raises {found}")
    ways = [Way(**one) for one in found]
    place = code_of(file, "declared")

    def probe(way: Way, seen: object) -> Probe:
        return Probe(
            name=f"order, declared by {way.name.replace('`', '')}", sent=f"the tool order: {way.way}",
            seen=_short(seen), file=place.file, line=place.first,
        )  # fmt: skip

    whole = [probe(way, way.schema if way.unseen is None else way.unseen) for way in ways]
    facts = [
        subject.fact(TABLE, "own way: how a tool is declared", _lines(way.way for way in ways), "probed", whole),
        subject.fact(TABLE, "own way: what a policy is shown", _grouped(ways, lambda way: way.shown), "probed", whole),
    ]  # fmt: skip
    tried = [way for way in ways if way.is_tried]
    for aspect, (name, judge) in ASPECTS.items():
        verdicts = {way.name: verdict(way, judge) for way in tried}
        seen = [probe(way, _part(way, name)) for way in tried]
        value = _grouped(tried, lambda way, said=verdicts: said[way.name])  # type: ignore[misc]
        facts.append(subject.fact(TABLE, f"own way: {aspect}", value, "probed", seen, _as_json(verdicts)))
    losses = {way.name: lost_by(way) for way in tried}
    value = _grouped(tried, lambda way: losses[way.name])
    return [*facts, subject.fact(TABLE, LOST, value, "probed", whole, _as_json(losses))]


def verdict(way: Way, judge: Callable[[Way], str]) -> str:
    """Return what became of something, where the way has a schema at all."""
    return NO_SCHEMA if way.schema is None else judge(way)


def lost_by(way: Way) -> str:
    """Return what a way loses, in one line."""
    if way.schema is None:
        return NO_SCHEMA
    lost = [name for name, (_, judge) in ASPECTS.items() if judge(way).startswith(("lost", "refused"))]
    return ", ".join(lost) or "nothing"


def _as_json(said: Mapping[str, str]) -> dict[str, JsonValue]:
    return dict(said)


def _grouped(ways: Sequence[Way], say: Callable[[Way], str]) -> str:
    """Return what is said of all ways: once where it is the same, and by their names where it is not."""
    groups: dict[str, list[str]] = {}
    for way in ways:
        groups.setdefault(say(way), []).append(way.name)
    if len(groups) == 1:
        return next(iter(groups))
    return _lines(f"{', '.join(names)}: {said}" for said, names in groups.items())


def _lines(texts: Iterable[str]) -> str:
    return "\n".join(texts)


def _part(way: Way, name: str) -> object:
    if way.schema is None:
        return way.unseen
    if name:
        return way.schema["properties"].get(name)
    kept = {key: value for key, value in way.schema.items() if key not in {"properties", "$defs"}}
    return {"description": way.description, **kept, "properties": list(way.schema["properties"])}


async def _compiled(subject: Subject) -> Fact:
    environment = load_environment(str(SIGNATURES))
    async with session_of(subject, str(SIGNATURES)) as session:
        opened = await session.open(next(iter(environment.tasks())).id, 0)
    seen: dict[str, JSON] = {tool.name: tool.to_json() for tool in opened.tools}
    order = [tool.name for tool in environment.tools]
    lost: dict[str, JsonValue] = {
        KINDS[tool.name]: list(paths)
        for tool in environment.tools
        if (paths := differences(tool.spec.to_json(), seen.get(tool.name)))
    }
    if list(seen) != order:
        lost["order of the tools"] = list(seen)
    told = [f"{kind} ({', '.join(map(str, paths))})" for kind, paths in _pairs(lost)]
    value = (
        f"lost: {'; '.join(told)}" if told else f"all kept: {', '.join(KINDS.values())}, order of the tools"
    )
    place = code_of(SIGNATURES, "Signatures")
    probe = Probe(
        name="signatures", sent=f"{len(order)} tools: {', '.join(order)}",
        seen=value if told else f"the same {len(seen)}, key by key, in the same order", file=place.file, line=place.first,
        function=place.name,
    )  # fmt: skip
    return subject.fact(TABLE, "compiled: what arrives of every kind", value, "probed", [probe], lost)


def _pairs(lost: Mapping[str, JsonValue]) -> Iterator[tuple[str, list[JsonValue]]]:
    for kind, paths in lost.items():
        yield kind, paths if isinstance(paths, list) else [paths]


def differences(sent: Any, arrived: Any, path: str = "") -> list[str]:
    """Return the paths at which something that was sent did not arrive, or arrived as something else, or was added."""
    if isinstance(sent, dict) and isinstance(arrived, dict):
        return [
            found
            for key in dict.fromkeys([*sent, *arrived])
            for found in (
                differences(sent[key], arrived[key], f"{path}/{key}")
                if key in sent and key in arrived
                else [f"{path}/{key}"]
            )
        ]
    if isinstance(sent, list) and isinstance(arrived, list) and len(sent) == len(arrived):
        return [
            found
            for index, pair in enumerate(zip(sent, arrived, strict=True))
            for found in differences(*pair, f"{path}/{index}")
        ]
    same = type(sent) is type(arrived) and sent == arrived
    return [] if same else [path or "/"]


def _short(value: Any, limit: int = 400) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[:limit]} ..."
