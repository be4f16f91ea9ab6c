"""Tools: what a model is told of them, after signatures of every kind went through a framework."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.facts import Fact, Probe
from bench.stone.places import code_of
from bench.stone.play import session_of
from bench.stone.subject import Subject
from canonical.catalogue import load_environment
from canonical.content import JSON

TABLE = "tools"
SIGNATURES = Path(__file__).parent / "signatures" / "environment.py"

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


async def gather(subject: Subject) -> list[Fact]:
    """Return one fact per kind of parameter: whether its description arrives at the model as it was sent.

    Raises:
        SessionError: The framework refused the session.
        WorkerError: The worker broke down.
    """
    environment = load_environment(str(SIGNATURES))
    async with session_of(subject, str(SIGNATURES)) as session:
        opened = await session.open(next(iter(environment.tasks())).id, 0)
    seen: dict[str, JSON] = {tool.name: tool.to_json() for tool in opened.tools}
    facts = []
    for tool in environment.tools:
        sent, arrived = tool.spec.to_json(), seen.get(tool.name)
        lost = differences(sent, arrived)
        place = code_of(SIGNATURES, f"Signatures.{tool.name}")
        probe = Probe(
            name="signatures", sent=_short(sent), seen="the same" if not lost else _short(arrived),
            file=place.file, line=place.first, function=place.name,
        )  # fmt: skip
        value = "kept" if not lost else f"lost: {', '.join(lost)}"
        facts.append(subject.fact(TABLE, KINDS[tool.name], value, "probed", [probe], list(lost)))
    order = [tool.name for tool in environment.tools]
    value = "kept" if list(seen) == order else f"as {', '.join(seen)}"
    place = code_of(SIGNATURES, "Signatures")
    probe = Probe(
        name="signatures", sent=", ".join(order), seen=", ".join(seen), file=place.file, line=place.first,
        function=place.name,
    )  # fmt: skip
    return [*facts, subject.fact(TABLE, "order of the tools", value, "probed", [probe])]


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
