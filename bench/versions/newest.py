"""The newest release that the index offers of each package, beside the newest that is supported: what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name
from packaging.version import Version

from bench.index import released_versions
from bench.stacks import Stack
from bench.versions.cells import Cell
from bench.versions.drift import changes, frame_changes

_LONGEST = 100


@dataclass(frozen=True, slots=True)
class Offer:
    """Hold what the index offers of a package.

    Attributes:
        supported: The newest supported release.
        version: The newest that the index offers.
    """

    supported: Stack
    version: str

    @property
    def package(self) -> str:
        """The distribution."""
        return self.supported.release.package

    @property
    def is_newer(self) -> bool:
        """Whether it is newer than everything supported."""
        return Version(self.version) > Version(self.supported.release.version)


def newest_offers(
    stacks: Iterable[Stack], released: Callable[[str], Sequence[Version]] = released_versions
) -> list[Offer]:
    """Return what the index offers of the package of each framework, in the order of the packages.

    Args:
        stacks: Supported releases.
        released: Says which releases of a package there are, oldest first.

    Raises:
        bench.stacks.StackError: The index does not answer.
    """
    newest: dict[str, Stack] = {}
    for one in sorted(stacks, key=lambda stack: Version(stack.release.version)):
        newest[canonicalize_name(one.release.package)] = one
    return [Offer(stack, str(released(package)[-1])) for package, stack in sorted(newest.items())]


def differences(before: Cell, after: Cell) -> list[str]:
    """Return in words what one release shows otherwise than another: promises, features, symbols, messages on the wire."""
    found = []
    if after.outcome is not before.outcome:
        found.append(f"outcome: {before.outcome} in {before.version}, {after.outcome} in {after.version}")
    if after.reason:
        return [*found, _short(after.reason.strip().splitlines()[-1].strip())]
    known = {one.promise for one in before.findings}
    found += [f"promise broken: {one.difference}" for one in after.findings if one.promise not in known]
    for name in dict.fromkeys([*before.features, *after.features]):
        earlier, later = (one.features.get(name, "not as declared") for one in (before, after))
        if earlier != later:
            found.append(f"feature {name}: {earlier} before, {later} now")
    for symbol in changes(before.symbols, after.symbols):
        told = [
            f"{word} {_short(part)}" for word, part in (("was", symbol.before), ("is", symbol.after)) if part
        ]
        found.append(f"symbol {symbol.name} {symbol.shift}: {', '.join(told)}")
    for frame in frame_changes(before.frames, after.frames):
        place = f"{frame.frame}, field {frame.field}" if frame.field else frame.frame
        told = [
            f"{word} {_short(part)}" for word, part in (("was", frame.before), ("is", frame.after)) if part
        ]
        found.append(f"wire: {place} {frame.shift}{': ' if told else ''}{', '.join(told)} (in {frame.times})")
    return found


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
