"""Deliberate faults as files hold them: one file per adapter, and one for the core that all of them share."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from canonical.malformed import first_problem

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent
CORE = "core"
"""The file of faults in `canonical`, which show alike under every adapter."""

EVERYWHERE = (
    "reward doubled after the end",
    "seed dropped",
    "answer in state",
    "off-by-one turn budget",
    "error text swallowed",
    "sessions sharing a generator",
    "truncated reported as terminated",
    "default argument lost",
    "close leaking a session",
    "unicode damaged",
    "model's own text searched for the win",
    "win line echoed by the environment",
    "setter offered as a tool",
    "agent resets its episode",
    "win after a loss",
    "final reward repeated",
    "prose played as a call",
    "pay after the budget",
    "answer in info",
)
"""The names of faults that every file has: mistakes that environments written by hand for these frameworks have made."""


class FaultError(ValueError):
    """Report a list of faults that cannot be used: the file, the fault, the reason."""


class Fault(BaseModel):
    """Replace one piece of source by another.

    Attributes:
        name: What goes wrong; equal names are one kind of fault under several adapters.
        file: The file, from the root of the project.
        old: What stands there, exactly once.
        new: What takes its place.
        release: The release whose stack is played; the default one when left out.
        tests: What is run when conformance does not notice; all tests of the stack when left out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    file: str
    old: str = Field(min_length=1)
    new: str
    release: str | None = None
    tests: tuple[str, ...] = ()

    def put_into(self, text: str) -> str:
        """Return the text of the file with the fault in it.

        Raises:
            FaultError: The old text does not stand there exactly once, or nothing would change.
        """
        count = text.count(self.old)
        if count != 1:
            raise FaultError(
                f"{self.name}: the old text stands {count} times in {self.file}, not once; "
                "choose a piece that stands there once"
            )
        if self.new == self.old:
            raise FaultError(f"{self.name}: the new text is the old one")
        return text.replace(self.old, self.new)


def fault_files() -> list[Path]:
    """Return the files of faults, the core first."""
    return sorted(FOLDER.glob("*.yaml"), key=lambda path: (path.stem != CORE, path.stem))


def read_faults(path: Path, root: Path = ROOT) -> list[Fault]:
    """Read the faults of a file, and make sure that each of them fits its source.

    Raises:
        FaultError: The file is malformed, a name is given twice, or a fault does not fit.
    """
    try:
        faults = [Fault.model_validate(row) for row in yaml.safe_load(path.read_text(encoding="utf-8"))]
    except (OSError, yaml.YAMLError, TypeError) as error:
        raise FaultError(f"{path.name}: {error}") from error
    except ValidationError as error:
        raise FaultError(f"{path.name}: {first_problem(error)}") from error
    names = [fault.name for fault in faults]
    for fault in faults:
        if names.count(fault.name) > 1:
            raise FaultError(f"{path.name}: {fault.name}: this name is given twice")
        try:
            fault.put_into((root / fault.file).read_text(encoding="utf-8"))
        except (OSError, FaultError) as error:
            raise FaultError(f"{path.name}: {error}") from error
    return faults
