"""The conformance suite of sandboxes finds every lie, says what it saw, and believes nobody."""

from __future__ import annotations

import asyncio
import os
import shutil

import pytest

from canonical.sandbox.check import (
    CANARY,
    CHECKS,
    CheckResult,
    Outcome,
    UnknownCheckError,
    check_backend,
    select_checks,
)
from canonical.sandbox.protocol import BackendUnavailableError, Isolation
from tests.canonical.sandbox.hosted import Hosted, HostedSandbox
from tests.canonical.sandbox.liars import EXPOSED, LIARS, SHARED, ReadsFoldersAsMissing, backend_of

FAST = {"read-missing", "read-window", "list-sorted", "list-wrong", "close-twice"}


def result_of(sandbox: type[HostedSandbox], name: str) -> CheckResult:
    backend = backend_of(sandbox)
    try:
        report = asyncio.run(check_backend(backend, select_checks([name]), deadline_s=60))
    finally:
        # Liars may leave things behind; the tests do not.
        for opened in backend.opened:
            HostedSandbox.kill(opened)
            shutil.rmtree(opened.root, ignore_errors=True)
    (result,) = report.results
    return result


def test_there_are_at_least_45_checks_and_every_one_says_what_it_promises() -> None:
    assert len(CHECKS) >= 45
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert [check.name for check in CHECKS if not check.promise.endswith(".") or " " in check.name] == []


@pytest.mark.parametrize(
    ("liar", "name"),
    [
        pytest.param(liar, name, id=liar.__name__, marks=() if name in FAST else pytest.mark.slow)
        for liar, name in LIARS
    ],
)
def test_each_lie_is_found_by_its_check_and_by_no_accident(liar: type[HostedSandbox], name: str) -> None:
    """The honest backend passes the same check, so it is the lie that was found."""
    try:
        lied = result_of(liar, name)
    finally:
        shutil.rmtree(SHARED, ignore_errors=True)
    assert lied.outcome is Outcome.FAILED, lied.evidence
    assert lied.evidence
    honest = result_of(HostedSandbox, name)
    assert honest.outcome is Outcome.PASSED, honest.evidence


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPOSED)
def test_a_backend_that_isolates_nothing_and_does_not_say_so_is_found(name: str) -> None:
    assert result_of(HostedSandbox, name).outcome is Outcome.FAILED


class Frank(Hosted):
    """Say openly that nothing is isolated."""

    async def isolation(self) -> Isolation:
        return Isolation(self.name, "none", (), {"everything": "it is a folder"})


def test_what_a_backend_does_not_claim_is_not_held_against_it() -> None:
    report = asyncio.run(check_backend(Frank(), select_checks(["host-files", "close-twice"])))
    assert [result.outcome for result in report.results] == [Outcome.PASSED, Outcome.NOT_APPLICABLE][::-1]
    assert report.passed
    assert "it is a folder" in report.results[0].evidence


class Missing(Hosted):
    """Be unavailable."""

    async def isolation(self) -> Isolation:
        raise BackendUnavailableError("there is no such thing here")


def test_a_backend_that_is_not_there_is_no_result() -> None:
    with pytest.raises(BackendUnavailableError, match="no such thing"):
        asyncio.run(check_backend(Missing()))
    assert CANARY not in os.environ


class Silent(HostedSandbox):
    """Never answer."""

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        await asyncio.Event().wait()
        return b""


def test_a_check_that_never_ends_has_failed() -> None:
    report = asyncio.run(check_backend(backend_of(Silent), select_checks(["read-window"]), deadline_s=0.2))
    assert report.results[0].evidence == "no end within 0.2 s"
    assert not report.passed


def test_results_come_in_the_order_of_the_suite_and_are_heard_one_by_one() -> None:
    heard: list[str] = []
    checks = select_checks(["close-twice", "read-missing", "list-sorted"])
    report = asyncio.run(
        check_backend(
            backend_of(ReadsFoldersAsMissing), checks, on_result=lambda result: heard.append(result.name)
        )
    )
    assert [result.name for result in report.results] == ["read-missing", "list-sorted", "close-twice"]
    assert sorted(heard) == sorted(result.name for result in report.results)
    assert report.count(Outcome.FAILED) == 1


def test_an_unknown_check_is_named_with_those_that_there_are() -> None:
    with pytest.raises(UnknownCheckError, match="there is no check 'none'; there are absolute-path, argv"):
        select_checks(["none"])
