"""Cells of the matrix of versions: what one release of one framework showed."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field


class Outcome(StrEnum):
    """Name what came of a release."""

    PASSES = "passes"
    FAILS = "fails"
    KNOWN = "fails as known"
    NOT_INSTALLABLE = "not installable"
    NO_INTERPRETER = "no interpreter"

    @property
    def good(self) -> bool:
        """Whether there is nothing to be done: what cannot be tried here is no finding."""
        return self is not Outcome.FAILS

    @property
    def tried(self) -> bool:
        """Whether something was played, so that it says anything of the release."""
        return self not in {Outcome.NOT_INSTALLABLE, Outcome.NO_INTERPRETER}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Finding(_Part):
    """Hold one promise that a release breaks.

    Attributes:
        promise: The scenario or the feature, and what it promises.
        difference: The first step that differs, both sides in words.
    """

    promise: str
    difference: str


class SymbolState(_Part):
    """Hold what a name is in a release.

    Attributes:
        name: Module and qualified name.
        there: Whether it resolves.
        what: Class, function, property, field, module or value.
        signature: Its parameters, or its type, as far as the release tells.
    """

    name: str
    there: bool
    what: str = ""
    signature: str = ""


class Frame(_Part):
    """Hold one message of an episode as it went over the wire.

    Attributes:
        name: Who sent it, and what it is.
        fields: Place in it -> the value there as JSON, shortened where it is long; names of sessions, ports and times are not
            told, nor is what differs from one playing of the episode to the next.
    """

    name: str
    fields: dict[str, str]


class Cell(_Part):
    """Hold what came of one release.

    Attributes:
        framework: Folder name of the adapter.
        title: The framework's name as its makers write it.
        stack: Label of the release, with its target where it has several.
        package: The distribution.
        version: Its version.
        python: The Python of the stack, as asked for.
        environment: What was played.
        key: The hash of everything that decides the outcome.
        outcome: What came of it.
        reason: Why nothing could be played; empty where something was.
        findings: The promises that it breaks, each once, in the order of the suite.
        episodes: How many episodes were played.
        steps: How many actions they took.
        digest: Of the transcripts that it showed; equal for two releases that showed the same.
        features: Feature -> how the adapter has it in this release, as proven.
        symbols: What this project uses or names of the framework, and what that is in this release.
        frames: The messages of one episode on the wire, in their order; none where the framework runs in process.
        unrecorded: Why there are none although it has a server; empty where there are.
        seconds: How long it took, with the installation.
        played: When it was played.
        commit: The commit that played it; None outside of a checkout.
    """

    framework: str
    title: str
    stack: str
    package: str
    version: str
    python: str
    environment: str
    key: str
    outcome: Outcome
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    episodes: int = Field(default=0, ge=0)
    steps: int = Field(default=0, ge=0)
    digest: str = ""
    features: dict[str, str] = {}
    symbols: tuple[SymbolState, ...] = ()
    frames: tuple[Frame, ...] = ()
    unrecorded: str = ""
    seconds: float = Field(default=0.0, ge=0)
    played: AwareDatetime
    commit: str | None = None
