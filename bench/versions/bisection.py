"""Bisection: find the release that changed something, by trying as few as possible."""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from packaging.version import InvalidVersion, Version

from bench import protocol
from bench.client import RequestFailed, WorkerError, start_worker
from bench.stacks import Stack, StackError, build_stack, find_python
from bench.versions.candidates import UnresolvedError, candidate_stack
from bench.versions.cells import Cell, Outcome
from bench.versions.play import play_cell

_TROUBLE_TIMEOUT_S = 60.0
_GRACE_S = 0.05


class BisectionError(ValueError):
    """Report ends between which nothing can be searched, and why."""


class UntriedEndError(RuntimeError):
    """Report an end that could not be tried, and why."""


class Seen(NamedTuple):
    """Hold what a piece is in a release.

    Attributes:
        state: In words that are the same for two releases in which it is the same; where it was not seen, what prevented that.
        detail: What was seen of it there, which may be worded otherwise each time.
        tried: Whether it was seen at all.
    """

    state: str
    detail: str = ""
    tried: bool = True


State: TypeAlias = Callable[[str], Awaitable[Seen]]
"""Says what a piece is in a release, which is named by its version."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Hold what one release was seen to be.

    Attributes:
        version: The release.
        state: What the piece is in it, in words.
        detail: What was seen of it there.
        tried: Whether it was seen at all.
    """

    version: str
    state: str
    detail: str = ""
    tried: bool = True

    @property
    def reason(self) -> str:
        """Why it could not be tried, in one line."""
        return ": ".join(part for part in (self.state, self.detail.strip().partition("\n")[0]) if part)


@dataclass(frozen=True, slots=True)
class Turn:
    """Hold where a piece changed.

    Attributes:
        last: The last release that is as the good one.
        first: The first that is not.
        trials: Every release that was asked, in the order of the trials.
        untried: The releases between both, none of which could be tried, from the good side to the bad one.
    """

    last: Trial
    first: Trial
    trials: tuple[Trial, ...]
    untried: tuple[Trial, ...] = ()


async def bisect(
    versions: Sequence[str],
    state: State,
    on_trial: Callable[[Trial], None] = lambda _trial: None,
) -> Turn:
    """Find the first release whose state is not that of the first of all.

    Between two neighbours that are tried the state is taken to change once. A release that changed something and was
    changed back is not found. A release that could not be tried says nothing: its neighbours are tried in its place.

    Args:
        versions: The releases from the good to the bad one, in their order.
        state: Says what the piece is in a release.
        on_trial: Called with every release as it was tried.

    Raises:
        BisectionError: The ends do not differ, or are one.
        UntriedEndError: One of them could not be tried.
    """
    if len(versions) < 2:
        raise BisectionError(f"the good and the bad release are the same, {versions[0]}")
    trials: list[Trial] = []

    async def trial(version: str) -> Trial:
        one = Trial(version, *await state(version))
        if not one.tried:
            # What ended a process of ours may be about to end this one, too; that is no property of the release.
            await asyncio.sleep(_GRACE_S)
        trials.append(one)
        on_trial(one)
        return one

    ends = []
    for version in (versions[0], versions[-1]):
        ends.append(await trial(version))
        if not ends[-1].tried:
            raise UntriedEndError(f"{version} is an end, and could not be tried ({ends[-1].reason})")
    good, bad = ends
    if good.state == bad.state:
        raise BisectionError(f"{good.version} and {bad.version} do not differ: {good.state}")
    low, high = 0, len(versions) - 1
    untried: dict[int, Trial] = {}
    while open_ones := [number for number in range(low + 1, high) if number not in untried]:
        middle = min(open_ones, key=lambda number: abs(2 * number - low - high))
        tried = await trial(versions[middle])
        if not tried.tried:
            untried[middle] = tried
        elif tried.state == good.state:
            low, good = middle, tried
        else:
            high, bad = middle, tried
    return Turn(good, bad, tuple(trials), tuple(untried[number] for number in range(low + 1, high)))


def between(versions: Sequence[Version], good: str, bad: str) -> list[str]:
    """Return the releases from the good to the bad one, both among them; backwards when the bad one is older.

    Raises:
        BisectionError: One of them is no release; the text lists those that there are.
    """
    known = [str(one) for one in versions]
    first, last = (_place(versions, wanted) for wanted in (good, bad))
    if first == last:
        raise BisectionError(f"the good and the bad release are the same, {known[first]}; name two")
    return known[first : last + 1] if first < last else known[last : first + 1][::-1]


def _place(versions: Sequence[Version], wanted: str) -> int:
    # What is no version at all is no release either.
    with suppress(InvalidVersion, ValueError):
        return versions.index(Version(wanted))
    raise BisectionError(f"there is no release {wanted}; there are {', '.join(map(str, versions))}")


def state_of_symbol(package: str, symbol: str, folder: Path) -> State:
    """Return what says what a name is in a release of a package: its signature, its kind, or that it is not there."""

    async def state(version: str) -> Seen:
        try:
            stack = await _installed(package, version, folder)
        except StackError as error:
            return _not_installable(error)
        try:
            return Seen(await asyncio.to_thread(_inspect, stack, symbol))
        except StackError as error:
            return Seen("it does not answer", _last_line(error), tried=False)

    return state


def _inspect(stack: Stack, symbol: str) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        answers = Path(scratch) / "answers.json"
        questions = {
            "package": stack.release.package,
            "names": [symbol],
            "expressions": [],
            "definitions": [],
        }
        done = subprocess.run(
            [str(stack.python), "-P", "-m", "bench.worker.answers", str(answers)],
            input=json.dumps(questions), capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise StackError(f"{stack.label} does not answer: {done.stderr.strip()[-500:]}")
        (found,) = json.loads(answers.read_text(encoding="utf-8"))["symbols"]
    return "not there" if found["missing"] else found["signature"] or found["what"]


def state_of_trouble(package: str, trouble: str, folder: Path) -> State:
    """Return what says whether a release has a trouble, which a probe of the adapter shows by that name."""

    async def state(version: str) -> Seen:
        try:
            stack = await _installed(package, version, folder)
        except StackError as error:
            return _not_installable(error)
        try:
            # What environments become in a release changes none of its troubles.
            async with start_worker(stack.python, stack.per_target()[0].worker, label=stack.label) as worker:
                shown = await worker.request(
                    protocol.TroubleShown,
                    lambda seq: protocol.ShowTrouble(seq=seq, name=trouble),
                    timeout_s=_TROUBLE_TIMEOUT_S,
                )
        except RequestFailed as error:
            if error.kind == "unsupported":
                raise BisectionError(error.reason) from error
            return Seen("its probe fails", _last_line(error.reason), tried=False)
        except WorkerError as error:
            return Seen("its probe fails", _last_line(error), tried=False)
        return Seen("it has the trouble" if shown.is_there else "it does not have it", shown.seen)

    return state


def state_of_promise(
    package: str, promise: str, folder: Path, *, environment: str, episodes: int, seed: int
) -> State:
    """Return what says whether a release keeps a promise of the suite.

    Args:
        package: The distribution.
        promise: A text that the promise has in it, or `feature:<name>`; everything when empty.
        folder: Where pins are kept.
        environment: What is played.
        episodes: At least how many episodes each release plays.
        seed: Seed of the fuzzer.
    """

    async def state(version: str) -> Seen:
        try:
            stack = await asyncio.to_thread(candidate_stack, f"{package}=={version}", folder)
        except UnresolvedError as error:
            return _not_installable(error)
        cell = await play_cell(stack.per_target()[0], environment=environment, episodes=episodes, seed=seed)
        return _kept(cell, promise)

    return state


async def _installed(package: str, version: str, folder: Path) -> Stack:
    stack = await asyncio.to_thread(candidate_stack, f"{package}=={version}", folder)
    if find_python(stack.release.python) is None:
        raise _NoInterpreterError(
            f"it needs Python {stack.release.python}, which is not here; "
            f"get it with 'uv python install {stack.release.python}'"
        )
    await asyncio.to_thread(build_stack, stack, imports=False)
    return stack


class _NoInterpreterError(StackError):
    """Report a release that asks for a Python that is not here."""


def _kept(cell: Cell, promise: str) -> Seen:
    if not cell.outcome.tried:
        return Seen(str(cell.outcome), _last_line(cell.reason), tried=False)
    kind, _, name = promise.partition(":")
    if not cell.episodes and (promise or not cell.findings):
        # Something is broken there; of the piece nothing was seen.
        seen = _last_line(cell.findings[0].difference) if cell.findings else ""
        return Seen("no episode could be played", seen, tried=False)
    if kind == "feature" and name:
        return Seen(cell.features.get(name, "not as declared"))
    broken = [one for one in cell.findings if promise in one.promise]
    return Seen(f"broken: {broken[0].promise}", broken[0].difference) if broken else Seen("kept")


def _not_installable(error: StackError) -> Seen:
    outcome = Outcome.NO_INTERPRETER if isinstance(error, _NoInterpreterError) else Outcome.NOT_INSTALLABLE
    return Seen(str(outcome), _last_line(error), tried=False)


def _last_line(said: object) -> str:
    return (str(said).strip().splitlines() or ["without a word"])[-1].strip()
