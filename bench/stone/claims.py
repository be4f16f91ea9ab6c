"""Claims: what has been published about a framework, checked, with what is true now.

A statement holds when its check says so of the default release. It is stale when the check says so of another everyday
release, and not of the default one; otherwise it is wrong, and every release that was tried is named with what it answered.
Where nothing can show it, it stays open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from bench.facts import Evidence, Fact, Source
from bench.stacks import Stack, releases_of
from bench.stone.asking import Release, ask
from bench.stone.checks import Finding, check, is_of_a_release, questions
from bench.stone.places import NoSuchPlace, line_of
from bench.stone.subject import fact_of
from canonical.claims import CLAIMS_FILE, Claim, read_claims

TABLE = "claims"


def gather_claims(stack: Stack, known: Sequence[Fact]) -> list[Fact]:
    """Return one fact per published statement about a framework; the stacks of all its releases must be ready.

    Args:
        stack: The default release.
        known: Facts of the tables, of whatever frameworks; of two about a cell the last one counts.

    Raises:
        NoSuchPlace: A release does not say what is quoted from it.
        StackError: A stack is not ready, or does not answer.
    """
    folder = stack.features_file.parent
    claims = read_claims(folder)
    if not claims:
        return []
    cells = {(fact.table, fact.row): fact for fact in known if fact.framework == stack.adapter}
    release = ask(stack, **questions([claim.check for claim in claims]))
    findings = {claim.says: check(claim.check, release, cells) for claim in claims}
    doubtful = [
        claim for claim in claims if findings[claim.says].holds is False and is_of_a_release(claim.check)
    ]
    others = [one for one in releases_of(stack.adapter) if one.release != stack.release]
    asked = {one.release.label: ask(one, **questions([claim.check for claim in doubtful])) for one in others}
    facts = []
    for claim in claims:
        _require_quoted(claim, {stack.release.label: release, **asked}, stack)
        finding = findings[claim.says]
        tried = [(one, check(claim.check, one, cells)) for one in asked.values()] if claim in doubtful else []
        facts.append(_fact(stack, claim, finding, tried))
    return facts


def _require_quoted(claim: Claim, releases: Mapping[str, Release], stack: Stack) -> None:
    if not claim.quoted:
        return
    release = releases.get(claim.of or stack.release.label)
    if release is None:
        raise NoSuchPlace(f"{CLAIMS_FILE} of {stack.adapter}: there is no supported release {claim.of}")
    published = [text for value in release.metadata.values() for text in _texts(value)]
    if not any(claim.quoted in text for text in published):
        raise NoSuchPlace(f"{release.stack.label} does not say {claim.quoted!r}")


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


def _without_question(now: str, said: str) -> str:
    """Return what is true of a release, without what it was asked where that has just been said of another one."""
    question, colon, _ = said.partition(": ")
    return now.removeprefix(question + colon) if colon else now


def _fact(stack: Stack, claim: Claim, finding: Finding, tried: Sequence[tuple[Release, Finding]]) -> Fact:
    before = next((one for one in tried if one[1].holds), None)
    evidence: list[Evidence] = [
        Source(title=claim.source, date=claim.dated, url=claim.url or None, quoted=claim.quoted or None),
        line_of(stack.features_file.parent / CLAIMS_FILE, claim.says),
        *finding.evidence,
    ]
    now = finding.now
    if before is not None:
        release, found = before
        now = f"{now}; of {release.stack.release.label} it holds: {_without_question(found.now, finding.now)}"
        evidence += [one for one in found.evidence if one not in evidence]
    elif finding.holds is False and is_of_a_release(claim.check):
        labels = [stack.release.label, *(release.stack.release.label for release, _ in tried)]
        now = f"{now}; tried: {', '.join(labels)}"
        evidence += [one for _, found in tried for one in found.evidence if one not in evidence]
    verdict = (
        "open" if finding.holds is None else "holds" if finding.holds else "stale" if before else "wrong"
    )
    data: JsonValue = {
        "source": claim.source,
        "dated": claim.dated.isoformat(),
        "verdict": verdict,
        "now": now,
        "check": claim.check.kind,
    }
    return fact_of(stack, TABLE, claim.says, f"{verdict}: {now}", "probed", evidence, data)
