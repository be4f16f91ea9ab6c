"""The parity certificate as Markdown: a pure function of the certificate's data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bench.certificate import Certificate, DivergenceRow, FeatureRow, Proof, Section
from reports import notation

_LONGEST = 300
_HOW = (
    "Every episode is played through the framework's own server and client. Compared are prompt, tools, every "
    "observation byte for byte, every reward, ending and cause, and the return as a trainer of the framework reads it. "
    "The digest is of the transcripts that the framework showed. Seconds say how long the replay took here, with eight "
    "episodes at a time; they measure nothing."
)
_HASHES = (
    "Hashes are SHA-256. *Specification* is of what a player can notice: name, version, turns, reward, tools, and the number and "
    "the hash of the tasks, as JSON with sorted keys, without spaces, in ASCII. *Tasks* is of all tasks with their secrets. "
    "*Definition* is of the Python files that define the environment: of each, in the order of their names, the name, a zero byte, "
    "and the bytes of the file; a comment changes it. *Transcripts* is of the digests of the golden episodes, one after the other. "
    'The first three are shown again by `python -c "from canonical.catalogue import *; from bench.certificate import *; '
    "e = load_environment('{name}'); print(specify(e, definition_sha256=definition_sha256(e)).model_dump_json(indent=1))\"`."
)


def render_certificate(certificate: Certificate) -> str:
    """Return a certificate as a Markdown document."""
    parts = [
        [f"# Parity certificate: {certificate.environment.name} {certificate.environment.version}"],
        [verdict(certificate)],
        _facts(certificate),
        _frameworks(certificate),
        _divergences(certificate),
        _returns(certificate),
        _golden(certificate),
        _features(certificate),
        *(_section(section) for section in certificate.sections),
        _versions(certificate),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def verdict(certificate: Certificate) -> str:
    """Say in one paragraph whether the certificate holds, and of what."""
    proofs = certificate.frameworks
    names = notation.plural(len({proof.title for proof in proofs}), "framework")
    # A release that makes two things of an environment is one release.
    releases = notation.plural(
        len({(proof.title, *sorted(proof.packages.items())) for proof in proofs}), "release"
    )
    episodes = notation.plural(certificate.golden.episodes, "golden episode")
    steps = notation.plural(certificate.golden.steps, "step")
    if certificate.passed:
        digest = certificate.digest
        same = (
            f"All transcripts have the digest `{digest}`."
            if digest is not None
            else "What a framework declares absent is left out of the comparison, so digests differ."
        )
        return f"**Certified.** {names} at {releases} showed {episodes} with {steps} as the reference does: 0 divergences. {same}"
    wrong = [proof for proof in (certificate.reference, *proofs) if not proof.passed]
    reasons = [f"{_name(proof)}: {_result(proof)}" for proof in wrong]
    reasons += [f"{section.title}: does not hold" for section in certificate.sections if not section.passed]
    if not reasons:
        reasons = [
            "no framework was asked for"
            if not proofs
            else "the reference shows other transcripts than the file holds"
        ]
    return (
        f"**Not certified.** {'; '.join(reasons)}. Played: {episodes} with {steps} in {releases} of {names}."
    )


def render_divergence(proof: Proof, row: DivergenceRow) -> str:
    """Return one divergence as text for a person."""
    place = "before the first step" if row.step is None else f"at step {row.step}"
    reference, framework = _aligned(row.reference, row.framework)
    lines = [
        f"{_name(proof)}, episode {row.scenario} ({row.session}): {row.piece} differs {place}",
        *([f"    action:    {_cut(row.action)}"] if row.action else []),
        f"    reference: {reference}",
        f"    framework: {framework}",
    ]
    return "\n".join(lines)


def render_summary(certificate: Certificate) -> str:
    """Return verdict, table and divergences as plain text for a terminal."""
    rows = [
        (
            proof.release,
            notation.plural(proof.episodes, "episode"),
            notation.plural(proof.steps, "step"),
            notation.plural(proof.divergences, "divergence"),
            proof.digest[:16],
            f"{proof.seconds:.1f} s",
        )
        for proof in (certificate.reference, *certificate.frameworks)
    ]
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    found = [
        *(f"{_name(proof)}: {proof.failure}" for proof in _all(certificate) if proof.failure),
        *(render_divergence(proof, row) for proof in _all(certificate) for row in proof.shown),
    ]
    return "\n\n".join(["\n".join(table), *found, verdict(certificate).replace("**", "").replace("`", "")])


def _all(certificate: Certificate) -> list[Proof]:
    return [certificate.reference, *certificate.frameworks]


def _name(proof: Proof) -> str:
    return proof.title if proof.release == "reference" else f"{proof.title} ({proof.release})"


def _result(proof: Proof) -> str:
    if proof.failure is not None:
        return "broke off"
    return notation.plural(proof.divergences, "divergence")


def _facts(certificate: Certificate) -> list[str]:
    about = certificate.environment
    reward = about.reward
    tasks = ", ".join(f"{split} {notation.count(number)}" for split, number in about.tasks.items())
    commit = "outside a working tree" if certificate.commit is None else f"`{certificate.commit[:12]}`"
    if certificate.dirty:
        commit += " with uncommitted changes"
    table = _table(
        ("", ""),
        [
            ("Specification", f"`{about.sha256}`"),
            ("Tasks", f"{tasks}; `{about.tasks_sha256}`"),
            ("Definition", f"`{about.definition_sha256}`"),
            ("Tools", ", ".join(f"`{tool['name']}`" for tool in about.tools)),
            ("Turns", f"{about.max_turns}, and {notation.plural(about.free_errors, 'free error')}"),
            ("Reward", f"{reward['aggregation']}, from {reward['low']:g} to {reward['high']:g}"),
            ("Transcripts", f"`{certificate.golden.digest}`"),
            ("Certified", f"{certificate.started}, by version {certificate.project}, commit {commit}"),
        ],
    )
    return [*table, "", _HASHES.format(name=about.name)]


def _frameworks(certificate: Certificate) -> list[str]:
    golden = certificate.golden.digest
    rows = [
        (
            proof.title,
            "" if proof.release == "reference" else proof.release,
            proof.python,
            notation.count(proof.episodes),
            notation.count(proof.steps),
            notation.count(proof.returns),
            notation.count(proof.divergences) if proof.passed else f"**{_result(proof)}**",
            f"`{proof.digest[:16]}`" if proof.digest == golden else f"**`{proof.digest[:16]}`**",
            f"{proof.seconds:.1f}",
        )
        for proof in _all(certificate)
    ]
    heads = (
        "Framework",
        "Release",
        "Python",
        "Episodes",
        "Steps",
        "Returns",
        "Divergences",
        "Digest",
        "Seconds",
    )
    return [
        "## What each framework showed",
        "",
        _HOW,
        "",
        *_table(heads, rows, numbers=range(3, 7)),
    ]


def _divergences(certificate: Certificate) -> list[str]:
    lines: list[str] = []
    for proof in _all(certificate):
        if proof.failure is not None:
            lines += ["", "~~~text", f"{_name(proof)}: {proof.failure}", "~~~"]
        for row in proof.shown:
            lines += ["", "~~~text", render_divergence(proof, row), "~~~"]
        if proof.divergences > len(proof.shown):
            more = notation.plural(proof.divergences - len(proof.shown), "further divergence")
            lines += ["", f"{_name(proof)} has {more}, not shown."]
    return ["## Divergences", *lines] if lines else []


def _returns(certificate: Certificate) -> list[str]:
    readings = {proof.title: proof.reading for proof in certificate.frameworks}
    if not any(readings.values()):
        return []
    rows = [(title, reading or "not described") for title, reading in readings.items()]
    return ["## How a trainer reads the return", "", *_table(("Framework", "Return of an episode"), rows)]


def _golden(certificate: Certificate) -> list[str]:
    golden = certificate.golden
    return [
        "## What was replayed",
        "",
        f"{notation.plural(golden.episodes, 'episode')} with {notation.plural(golden.steps, 'step')}: "
        + ", ".join(f"{group} {notation.count(number)}" for group, number in golden.groups.items())
        + ". They end: "
        + ", ".join(f"{cause} {notation.count(number)}" for cause, number in golden.ends.items())
        + ".",
    ]


def _features(certificate: Certificate) -> list[str]:
    by_title: dict[str, list[Proof]] = {}
    for proof in certificate.frameworks:
        by_title.setdefault(proof.title, []).append(proof)
    names = list(dict.fromkeys(name for proof in certificate.frameworks for name in proof.features))
    if not names:
        return []
    rows = [
        (name.replace("_", " "), *(_levels(name, proofs) for proofs in by_title.values())) for name in names
    ]
    lines = ["## Features", "", *_table(("", *by_title), rows)]
    for title, proofs in by_title.items():
        notes = [f"- *{name.replace('_', ' ')}*: {note}" for name in names if (note := _notes(name, proofs))]
        if notes:
            lines += ["", f"**{title}**", "", *notes]
    return lines


def _levels(name: str, proofs: Sequence[Proof]) -> str:
    return " / ".join(dict.fromkeys(_feature(proof, name).level for proof in proofs))


def _notes(name: str, proofs: Sequence[Proof]) -> str:
    releases: dict[tuple[str, str], list[str]] = {}
    for proof in proofs:
        feature = _feature(proof, name)
        releases.setdefault((feature.level, feature.note), []).append(proof.release)
    alone = len(releases) == 1
    told = []
    for (level, note), where in releases.items():
        if note or not alone:
            place = "" if alone else f" ({', '.join(where)})"
            told.append(f"{level}{place}{f': {note}' if note else ''}")
    return "; ".join(told)


def _feature(proof: Proof, name: str) -> FeatureRow:
    return proof.features.get(name, FeatureRow(level="not declared", note=""))


def _section(section: Section) -> list[str]:
    state = "" if section.passed else " **Does not hold.**"
    text = f"{section.text}{state}".strip()
    return [f"## {section.title}", "", *([text, ""] if text else []), *_table(section.columns, section.rows)]


def _versions(certificate: Certificate) -> list[str]:
    rows = [
        (
            proof.release,
            _packages(proof.packages),
            proof.python,
            notation.count(len(proof.dependencies)),
            f"`{proof.dependencies_sha256[:16]}`",
        )
        for proof in _all(certificate)
    ]
    return [
        "## Versions",
        "",
        "The JSON beside this page names every distribution in every stack; here stands the hash of that list.",
        "",
        *_table(("Stack", "Packages", "Python", "Distributions", "Hash"), rows, numbers=(3,)),
    ]


def _packages(packages: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(packages.items()))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = ()) -> list[str]:
    right = set(numbers)
    rule = ["---:" if index in right else "---" for index in range(len(heads))]
    return [_row(heads), f"| {' | '.join(rule)} |", *(_row(row) for row in rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def _aligned(left: str, right: str) -> tuple[str, str]:
    """Return two texts, cut to the part around the first character in which they differ."""
    same = next((i for i, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), 0)
    start = max(0, same - _LONGEST // 3)
    head = "... " if start else ""
    return f"{head}{_cut(left[start:])}", f"{head}{_cut(right[start:])}"
