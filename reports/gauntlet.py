"""The table of the gauntlet: attacks in rows, the reference and the frameworks in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def write_gauntlet(gauntlet: Mapping[str, Any]) -> str:
    """Return a page: one Markdown table for all verdicts, and below it every finding in words.

    Args:
        gauntlet: As `bench.gauntlet.Gauntlet.to_json` gives it.
    """
    verdicts: Sequence[Mapping[str, Any]] = gauntlet["verdicts"]
    columns = list(dict.fromkeys(verdict["through"] for verdict in verdicts))
    rows: dict[str, dict[str, Mapping[str, Any]]] = {}
    for verdict in verdicts:
        rows.setdefault(verdict["attack"], {})[verdict["through"]] = verdict
    lines = [
        *_head(gauntlet),
        _row(["Attack", "Aim", *columns]),
        _row(["---", "---", *("---" for _ in columns)]),
    ]
    for name, row in rows.items():
        aim = next(iter(row.values()))["aim"]
        lines.append(_row([name, aim, *(_cell(row.get(column)) for column in columns)]))
    held = sum(verdict["held"] for verdict in verdicts)
    lines += [
        "",
        f"{len(rows)} attacks, {len(verdicts)} runs, {held} held, {len(verdicts) - held} did not.",
        "A cell is the return and the cause of the end; ESCAPED, PAID or WRONG marks an attack that achieved something.",
    ]
    findings = [
        f"- {verdict['attack']} through {verdict['through']}: {'; '.join(verdict['findings'])}"
        for verdict in verdicts
        if not verdict["held"]
    ]
    return "\n".join([*lines, *(["", *findings] if findings else [])]) + "\n"


def _head(gauntlet: Mapping[str, Any]) -> list[str]:
    commit = gauntlet["commit"]
    where = "outside of a checkout" if commit is None else f"at commit {commit[:12]}"
    if gauntlet["dirty"]:
        where += " with changes that are not committed"
    return [
        f"# Gauntlet: {gauntlet['environment']}",
        "",
        (
            f"Begun {gauntlet['started']} {where}, on {gauntlet['kernel']}; the files that define the environment have the hash "
            f"{gauntlet['definition_sha256'][:12]}. What each attack tries stands in the attacks.py beside the environment."
        ),
        "",
    ]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _cell(verdict: Mapping[str, Any] | None) -> str:
    if verdict is None:
        return ""
    score = "failed" if verdict["score"] is None else f"{verdict['score']:g}"
    told = f"{score}, {verdict['cause'] or 'not over'}"
    if verdict["held"]:
        return told
    if verdict["escapes"]:
        return f"ESCAPED {told}"
    paid = verdict["score"] is not None and verdict["score"] > verdict["honest"]
    return f"{'PAID' if paid else 'WRONG'} {told}"
