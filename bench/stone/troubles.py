"""Troubles: what costs people time in a framework, shown on the installed release, and what the adapter does about it."""

from __future__ import annotations

from pydantic import JsonValue

from bench import protocol
from bench.facts import Evidence, Fact, Probe, Source
from bench.stone.places import code_of, find_place
from bench.stone.subject import Subject
from canonical.stone import Trouble

TABLE = "troubles"
_TIMEOUT_S = 60.0


async def gather(subject: Subject) -> list[Fact]:
    """Return one fact per trouble that the adapter names.

    Raises:
        NoSuchPlace: The adapter has no such probe, or nothing where its answer is said to be.
        WorkerError: The worker broke down, or a probe failed.
    """
    return [await _fact(subject, name, said) for name, said in subject.stone.troubles.items()]


async def show(subject: Subject, name: str) -> tuple[Probe, bool]:
    """Return what the probe of a trouble shows, and whether the release has the trouble.

    Raises:
        NoSuchPlace: The adapter has no such probe.
        WorkerError: The worker broke down, or the probe failed.
    """
    shown = await subject.worker.request(
        protocol.TroubleShown, lambda seq: protocol.ShowTrouble(seq=seq, name=name), timeout_s=_TIMEOUT_S
    )
    place = code_of(subject.folder / "troubles.py", name)
    probe = Probe(
        name=name.replace("_", " "), sent=shown.sent, seen=shown.seen, file=place.file, line=place.first,
        function=place.name,
    )  # fmt: skip
    return probe, shown.is_there


async def _fact(subject: Subject, name: str, said: Trouble) -> Fact:
    probe, is_there = await show(subject, name)
    evidence: list[Evidence] = [probe, find_place(subject.folder, said.at)]
    if said.dated is not None:
        evidence.append(Source(title=said.upstream, date=said.dated, url=said.url))
    what = said.what if is_there else f"Not so in this release: {said.what}"
    data: dict[str, JsonValue] = {"what": what, "answer": said.answer, "is_there": is_there}
    return subject.fact(TABLE, probe.name, f"{what} {said.answer}", "probed", evidence, data)
