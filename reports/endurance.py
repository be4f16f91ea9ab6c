"""The table of endurance: what interleaving, giving sessions up and a search for secrets have shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_MIB = 1 << 20
_HEAD = (
    "Framework", "Isolation", "Given up", "Process", "Sessions", "Descriptors", "Threads", "Memory (MiB)", "Bytes each",
    "Secrets",
)  # fmt: skip


def write_endurance(results: Sequence[Mapping[str, Any]]) -> str:
    """Return one Markdown table for all results, above it what was done, and below it what was found and what it means.

    Args:
        results: Each as `bench.endurance_records.Endurance.to_json` gives it.
    """
    lines = [_done(result) for result in results[:1]]
    lines += ["", _row(_HEAD), _row(["---"] * len(_HEAD))]
    for result in results:
        lines += map(_row, _rows(result))
    limits = results[0]["limits"] if results else {}
    if limits:
        lines += ["", _explanation(limits)]
    for result in results:
        lines += ["", *(f"- {result['stack']}: {note}" for note in _notes(result))]
    return "\n".join(lines).rstrip() + "\n"


def _done(result: Mapping[str, Any]) -> str:
    played, canary = result["environment"], result["secrecy"]["environment"]
    given_up = {one["way"]: one["cycles"] for one in result["cycles"]}
    ways = ", ".join(f"{number:,} {way}" for way, number in given_up.items())
    return (
        f"Sessions of {played} were interleaved, and {sum(given_up.values()):,} of them opened and given up ({ways}). Secrets "
        f"were searched in episodes of the built-in environment `{canary}`, which has some to tell; nothing is said of "
        f"secrets of {played}."
    )


def _explanation(limits: Mapping[str, Any]) -> str:
    return (
        f"Before and after the cycles, of the named process. Allowed: {limits['sessions']} sessions left, "
        f"{limits['descriptors']} more descriptors, {limits['threads']} more threads, and "
        f"{limits['bytes_per_cycle']:,} bytes of memory for each cycle, or {limits['bytes'] / _MIB:g} MiB where that is more. "
        "Memory is what the process shares with nobody, after a collection. Closed: the client says goodbye. Dropped: "
        "its connections break without a word, or, in process, its call is cut off. Killed: its process is."
    )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rows(result: Mapping[str, Any]) -> list[list[str]]:
    isolation, secrecy = result["isolation"], result["secrecy"]
    apart = (
        f"{isolation['sessions']} sessions, {isolation['tasks']} tasks, {isolation['steps']:,} steps, "
        f"{len(isolation['findings'])} differences"
    )
    searched = (
        f"{len(secrecy['findings'])} found in {secrecy['bytes']:,} bytes "
        f"({'wire and logs' if secrecy['searched'] == 'wire' else 'values and logs'}, {secrecy['episodes']} episodes)"
    )
    rows = []
    for number, cycles in enumerate(result["cycles"]):
        before, after = cycles["before"], cycles["after"]
        each = (after["bytes"] - before["bytes"]) / cycles["cycles"]
        rows.append(
            [
                result["stack"] if number == 0 else "",
                apart if number == 0 else "",
                f"{cycles['cycles']:,} {cycles['way']}",
                cycles["process"],
                str(after["sessions"]),
                f"{before['descriptors']} → {after['descriptors']}",
                f"{before['threads']} → {after['threads']}",
                f"{before['bytes'] / _MIB:.1f} → {after['bytes'] / _MIB:.1f}",
                f"{each:,.0f}",
                searched if number == 0 else "",
            ]
        )
    return rows


def _notes(result: Mapping[str, Any]) -> list[str]:
    cycles = result["cycles"]
    found = [
        *result["isolation"]["findings"],
        *(finding for one in cycles for finding in one["findings"]),
        *result["secrecy"]["findings"],
    ]
    notes = [f"FOUND: {finding}" for finding in found] or ["passed"]
    notes += [one["waiting"] for one in cycles if one["waiting"]]
    if result["session_ttl_s"] is not None:
        notes.append(
            f"the server hears nothing of clients that are gone; it frees what nobody uses for {result['session_ttl_s']:g} s"
        )
    notes += [
        f"{one['cycles']:,} sessions {one['way']}: {one['settled_s']:g} s until everything was free"
        for one in cycles
        if one["process"] == "server" and one["way"] != "closed" and not one["waiting"]
    ]
    return notes
