"""The conformance suite of sandboxes: which promises a backend keeps, and what was seen.

For authors of backends, and for whoever wants to know what a backend is worth on this machine.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from canonical.sandbox.checks import commands, files, isolation, lifecycle, limits, paths, snapshots, timeouts
from canonical.sandbox.checks.place import BrokenPromiseError, Check, NotApplicableError, Place
from canonical.sandbox.protocol import Backend, BackendUnavailableError, Isolation, SandboxError

CHECKS: tuple[Check, ...] = (
    *commands.CHECKS,
    *timeouts.CHECKS,
    *limits.CHECKS,
    *files.CHECKS,
    *paths.CHECKS,
    *snapshots.CHECKS,
    *isolation.CHECKS,
    *lifecycle.CHECKS,
)
"""Every check, in the order in which results are shown."""

CANARY = "ROSETTA_CANARY"
"""The variable that lies in the environment of this process while checks run; no sandbox may show it."""

EVERYTHING = "everything"
"""The name in `Isolation.missing` of a backend that isolates nothing at all."""


class Outcome(StrEnum):
    """Say whether a promise is kept, broken, or does not apply to this backend here."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Hold what was found about one promise.

    Attributes:
        name: The name of the check.
        promise: What is promised.
        outcome: Whether it is kept.
        evidence: What was seen, or why it does not apply.
        seconds: How long it took.
    """

    name: str
    promise: str
    outcome: Outcome
    evidence: str
    seconds: float


@dataclass(frozen=True, slots=True)
class BackendReport:
    """Hold what `check_backend` found: one result for each check.

    Attributes:
        isolation: What the backend says that it enforces.
        results: The results, in the order of `CHECKS`.
    """

    isolation: Isolation
    results: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        """Whether no promise is broken."""
        return all(result.outcome is not Outcome.FAILED for result in self.results)

    def count(self, outcome: Outcome) -> int:
        """Return how many checks ended so."""
        return sum(result.outcome is outcome for result in self.results)


class UnknownCheckError(SandboxError):
    """Report a check that there is not."""


def select_checks(names: Sequence[str]) -> tuple[Check, ...]:
    """Return the checks of these names in their order; all of them when there are no names.

    Raises:
        UnknownCheckError: There is no check of such a name.
    """
    known = {check.name for check in CHECKS}
    for name in names:
        if name not in known:
            raise UnknownCheckError(f"there is no check {name!r}; there are {', '.join(sorted(known))}")
    return tuple(check for check in CHECKS if not names or check.name in names)


async def check_backend(
    backend: Backend,
    checks: Sequence[Check] = CHECKS,
    *,
    at_once: int = 4,
    deadline_s: float = 120.0,
    on_result: Callable[[CheckResult], None] = lambda _: None,
) -> BackendReport:
    """Try the promises of a backend. At the end the backend is closed.

    Args:
        backend: The backend.
        checks: What to try.
        at_once: How many of the checks that do not disturb each other run at the same time.
        deadline_s: Seconds after which a check that does not end has failed.
        on_result: Hears every result, as soon as it is there.

    Raises:
        BackendUnavailableError: The backend cannot be used here.
    """
    canary = secrets.token_hex(16)
    # Set before the backend starts anything, so that whatever it hands on would hand on this, too.
    os.environ[CANARY] = canary
    try:
        isolation_report = await backend.isolation()
        slots = asyncio.Semaphore(at_once)

        async def run(check: Check) -> CheckResult:
            async with slots:
                place = Place(backend, isolation_report, secrets.token_hex(6), canary)
                result = await _run(check, place, deadline_s)
            on_result(result)
            return result

        results = await asyncio.gather(*(run(check) for check in checks if not check.alone))
        for check in checks:
            if check.alone:
                results.append(await run(check))
    finally:
        os.environ.pop(CANARY, None)
        await backend.aclose()
    order = {check.name: index for index, check in enumerate(checks)}
    return BackendReport(isolation_report, tuple(sorted(results, key=lambda result: order[result.name])))


async def _run(check: Check, place: Place, deadline_s: float) -> CheckResult:
    started = time.monotonic()

    def result(outcome: Outcome, evidence: str) -> CheckResult:
        return CheckResult(check.name, check.promise, outcome, evidence, time.monotonic() - started)

    for name in (check.about, EVERYTHING) if check.about else ():
        if (reason := place.isolation.missing.get(name)) is not None:
            return result(Outcome.NOT_APPLICABLE, f"the backend says: {name} not enforced: {reason}")
    try:
        async with asyncio.timeout(deadline_s):
            try:
                evidence = await check.run(place)
            finally:
                await place.leave()
    except BrokenPromiseError as broken:
        return result(Outcome.FAILED, str(broken))
    except NotApplicableError as reason:
        return result(Outcome.NOT_APPLICABLE, str(reason))
    except BackendUnavailableError:
        raise
    except TimeoutError:
        return result(Outcome.FAILED, f"no end within {deadline_s:g} s")
    except Exception as raised:  # noqa: BLE001 - whatever a backend raises is evidence against it
        return result(Outcome.FAILED, f"{type(raised).__name__}: {raised}")
    return result(Outcome.PASSED, evidence)
