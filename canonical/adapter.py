"""The one port between the core and the frameworks: what an adapter offers and what a session does."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from canonical.content import JSON, Message
from canonical.environment import Environment
from canonical.malformed import first_problem
from canonical.step import StepResult
from canonical.stone import Concern, PieceName, Stone
from canonical.tool import ToolSpec
from canonical.transcript import Action


class Feature(StrEnum):
    """Name what a framework may or may not be able to carry."""

    SEEDED_RESET = "seeded_reset"
    TASK_SELECTION = "task_selection"
    SPLITS = "splits"
    TOOL_CALLS = "tool_calls"
    TEXT_ACTIONS = "text_actions"
    TOOL_SCHEMAS = "tool_schemas"
    ERROR_CODES = "error_codes"
    STEP_REWARD = "step_reward"
    REWARD_COMPONENTS = "reward_components"
    TRUNCATION = "truncation"
    CAUSE = "cause"
    IMAGES = "images"
    CONCURRENT_SESSIONS = "concurrent_sessions"
    REMOTE = "remote"
    SNAPSHOT = "snapshot"


class Level(StrEnum):
    """Say how a feature is supported: by the framework itself, through a rewrite, or not at all."""

    NATIVE = "native"
    EMULATED = "emulated"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Support:
    """Hold the support for one feature; the note names the rewrite, or why it is absent."""

    level: Level
    note: str = ""


@dataclass(frozen=True, slots=True)
class Loss:
    """Hold what a port changes.

    Attributes:
        piece: Which piece of the environment.
        status: Whether the piece is preserved, approximated or lost.
        note: What a trainer will notice.
        concern: Which of the things that trainers notice first it is about, if it is about one.
    """

    piece: PieceName
    status: Literal["preserved", "approximated", "lost"]
    note: str = ""
    concern: Concern | None = None

    def to_json(self) -> dict[str, JSON]:
        """Return it as JSON."""
        concern = None if self.concern is None else self.concern.value
        return {"piece": self.piece.value, "status": self.status, "note": self.note, "concern": concern}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Loss:
        """Read what `to_json` wrote.

        Raises:
            ValueError, KeyError: The value is no such thing.
        """
        concern = None if value["concern"] is None else Concern(value["concern"])
        return cls(PieceName(value["piece"]), value["status"], value["note"], concern)


@dataclass(frozen=True, slots=True)
class Opened:
    """Hold what a new episode shows: the prompt and the tools."""

    prompt: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]


class SessionError(RuntimeError):
    """Report that a session failed outside the episode's rules: refused, disconnected, crashed or timed out."""


@runtime_checkable
class Session(Protocol):
    """Be one live episode behind a framework's own client or loop."""

    async def open(self, task: str, seed: int) -> Opened:
        """Start an episode of a task; the seed is any integer, and no framework cuts it down.

        Raises:
            SessionError: The framework refused or failed.
        """

    async def step(self, action: Action) -> StepResult:
        """Carry out an action.

        Raises:
            SessionError: The framework refused or failed.
        """

    async def public_state(self) -> JSON:
        """Return whatever else the framework lets a client read about the episode: state, metadata, info.

        Nothing of the canonical contract depends on it; it is searched for secrets.

        Raises:
            SessionError: The framework refused or failed.
        """

    async def reported_return(self) -> float:
        """Return the return of the finished episode as a trainer of this framework reads it.

        It is taken from what the framework itself carries for that purpose (a sum of its rewards, the reward that it
        verifies, the score of its rubric), never computed from the results of `step`, so that the two can be compared.
        Where reading it ends the episode for good, no step follows.

        Raises:
            SessionError: The episode is not over, or the framework refused or failed.
        """

    async def close(self) -> None:
        """End the episode and free it. Closing twice is harmless."""


@runtime_checkable
class SnapshotSession(Session, Protocol):
    """Be a session whose episode can be stored, gone on with from there, and forked.

    Offered where the framework can carry it; what such a session says of `Feature.SNAPSHOT` is not absent.
    """

    async def snapshot(self) -> object:
        """Return the episode as it is now, in the framework's own form; it may hold secrets, so it is not for a model.

        Raises:
            SessionError: There is no episode, or its state is not plain data.
        """

    async def restore(self, snapshot: Any) -> None:
        """Go on from what `snapshot` returned, in this session or in another of the same environment.

        A snapshot can be restored more than once.

        Raises:
            SessionError: The framework refused or failed.
        """

    async def fork(self) -> Session:
        """Return another session that goes on from here by itself; whoever asked for it closes it.

        Raises:
            SessionError: There is no episode, or its state is not plain data.
        """


@runtime_checkable
class RereadSession(Session, Protocol):
    """Be a session of a framework that shows an episode in more places than `open` and `step` read.

    Such are the rows of a data set, a list of tools that may be asked for again, an answer in the form that agents of the
    framework get, and the messages of earlier turns. A model reads there, too, so conformance asks for them.
    """

    async def reread(self, compiled: Any, /) -> None:
        """Read what a model is shown in those places, and make sure that it is what `open` and `step` returned.

        Asked for after the last step and before the return is read, and never where time is measured. Where no episode is
        open, there is nothing to read.

        Args:
            compiled: What `compile` returned; None when the server runs elsewhere.

        Raises:
            SessionError: It is something else, as the text says, or the framework failed.
        """


@runtime_checkable
class PlaceSession(Session, Protocol):
    """Be a session of a framework that names tasks by their place in a split too: a keyword of `reset`, a row of a data set.

    Attributes:
        seed_chooses: Whether a split and a seed are enough: the task is at the place that is the seed modulo the size.
    """

    seed_chooses: ClassVar[bool]

    async def open_at(self, compiled: Any, split: str, index: int | None, seed: int, /) -> Opened:
        """Start an episode of the task at a place, named as the framework names places and in no other way.

        Args:
            compiled: What `compile` returned; None when the server runs elsewhere.
            split: The split.
            index: The place, counted from 0; None only where `seed_chooses`.
            seed: The seed of the episode.

        Raises:
            SessionError: The framework refused or failed.
        """


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Hold where compiled sessions are served.

    Attributes:
        url: The address, or None when the framework runs in process.
        open_sessions: Counts the sessions that hold a live episode right now, on the server's side.
        settings: The server settings in force, as they go into a record.
        shut: Lets no new session begin from now on; those that are open go on.
    """

    url: str | None
    open_sessions: Callable[[], int]
    settings: Mapping[str, JSON] = field(default_factory=dict)
    shut: Callable[[], None] = lambda: None


CompiledT = TypeVar("CompiledT")


class Adapter(Protocol[CompiledT]):
    """Compile an environment for one framework, serve it, and connect to it.

    Each `adapters/<name>/adapter.py` holds one instance called `ADAPTER`.
    """

    name: str

    def packages(self) -> Mapping[str, str]:
        """Return the installed framework packages and their exact versions."""

    def features(self) -> Mapping[Feature, Support]:
        """Return what the installed version supports, for every feature."""

    def compile(self, environment: Environment[Any], /) -> CompiledT:
        """Turn an environment into the framework's own class, app or configuration."""

    def serve(
        self, compiled: CompiledT, /, *, host: str = "127.0.0.1", port: int = 0
    ) -> AbstractAsyncContextManager[Endpoint]:
        """Serve the compiled environment with the framework's own server; port 0 picks a free one.

        Frameworks that run in process yield an endpoint without an address.

        Raises:
            OSError: The port is in use or not allowed.
        """

    def connect(
        self, compiled: CompiledT | None, endpoint: Endpoint, /
    ) -> AbstractAsyncContextManager[Session]:
        """Open a session with the framework's own client or loop; leaving the context frees it.

        Args:
            compiled: What `compile` returned; None when the server runs elsewhere.
            endpoint: What `serve` yielded, or an address of a running server.

        Raises:
            SessionError: The server cannot be reached or refused the session.
        """


@runtime_checkable
class SessionTtl(Protocol):
    """Be an adapter whose server hears nothing of clients that are gone, and whose patience with them can be set."""

    def with_session_ttl(self, seconds: float, /) -> Adapter[Any]:
        """Return this adapter with servers that free a session after so many seconds in which nobody used it."""


@runtime_checkable
class TaskListing(Protocol):
    """Be an adapter that reads the tasks of a split where users of the framework read them.

    What such an adapter says of `Feature.SPLITS` is not absent.
    """

    async def list_tasks(self, compiled: Any, endpoint: Endpoint, split: str, /) -> Sequence[str]:
        """Return the ids of the tasks of a split, in order, as the framework shows them.

        Args:
            compiled: What `compile` returned; None when the server runs elsewhere.
            endpoint: What `serve` yielded, or the address of a running server.
            split: The name of the split.

        Raises:
            SessionError: There is no such split, or the framework failed.
        """


class AdapterFactsError(ValueError):
    """Report an `adapter.toml` that is missing or malformed: the file, the key, the reason."""


class Release(BaseModel):
    """Describe one supported release of a framework.

    Attributes:
        package: The distribution that holds the release.
        version: The exact version; `constraints/<package>-<version>.txt` pins everything else.
        extra: The extra of this project that installs it.
        python: The Python that the stack uses, such as `3.11`, or `3.13.14` where a release asks for as much.
        matrix_only: Whether only the matrix of versions plays it. A release without this is an everyday one: it is tested with
            every change.
        default: Whether this is the release that commands use when none is named.
        targets: What an environment can become in this release, where that is more than one thing; keys of the adapter's
            `ADAPTERS`, the default first.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    package: str
    version: str
    extra: str
    python: str
    default: bool = False
    matrix_only: bool = False
    targets: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name of the release in commands, folders and reports."""
        return f"{self.package}-{self.version}"


class StackFacts(BaseModel):
    """Hold what is said of anything that has stacks: a framework, or a library of tasks.

    Attributes:
        title: Its name as its makers write it.
        imports: The top-level modules that its folder may import besides `canonical`.
        extras: Extra of this project -> requirements.
        releases: The supported releases.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    imports: list[str]
    extras: dict[str, list[str]]
    releases: list[Release] = Field(min_length=1)

    @property
    def default_release(self) -> Release:
        """The release that commands use when none is named."""
        return next(release for release in self.releases if release.default)

    def release(self, label: str) -> Release:
        """Return the release with a label, version, or package name.

        Raises:
            LookupError: No release matches; the text lists those that exist.
        """
        for release in self.releases:
            if label in {release.label, release.version, f"{release.package}=={release.version}"}:
                return release
        known = ", ".join(release.label for release in self.releases)
        raise LookupError(f"{self.title} has no supported release {label!r}; there are {known}")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file that says it, an `adapter.toml` or a `library.toml`.

        Raises:
            AdapterFactsError: The file is missing or malformed.
        """
        try:
            facts = cls.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise AdapterFactsError(f"{path}: {error}") from error
        except ValidationError as error:
            raise AdapterFactsError(f"{path}: {first_problem(error)}") from error
        if sum(release.default for release in facts.releases) != 1:
            raise AdapterFactsError(f"{path}: releases: exactly one release must be the default")
        for release in facts.releases:
            if release.extra not in facts.extras:
                raise AdapterFactsError(f"{path}: releases: {release.label} names an unknown extra")
        return facts


class AdapterFacts(StackFacts):
    """Hold what `adapter.toml` says: facts that can be read without the framework.

    Attributes:
        kind: Whether the framework serves environments or runs them in process.
        concurrency: How the framework runs many sessions, in one sentence.
        words: Canonical word -> the framework's word.
        affinity: What binds the requests of one session together, so that a proxy can bring all of them to the same server
            process: `none` where a session is one connection, `header:<name>` where a header holds its id, which any
            process accepts that has not heard of it, `cookie` where clients send back the cookies of the last answer.
            Absent for frameworks that run in process.
        health: The path that a server answers with 200 when it works; absent where it has none.
        stone: What is said of the framework beside the others, and where it can be checked.
    """

    kind: Literal["server", "in_process"]
    concurrency: str
    words: dict[str, str]
    affinity: str | None = Field(default=None, pattern=r"^(none|cookie|header:[a-z0-9-]+)$")
    health: str | None = Field(default=None, pattern=r"^/[a-z0-9/_.-]*$")
    stone: Stone = Stone()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read an `adapter.toml`.

        Raises:
            AdapterFactsError: The file is missing or malformed.
        """
        facts = super().read(path)
        if unknown := facts.stone.words.keys() - facts.words.keys():
            raise AdapterFactsError(
                f"{path}: stone.words: {', '.join(sorted(unknown))} is no word of [words]"
            )
        return facts


class LibraryFacts(StackFacts):
    """Hold what `library.toml` says of a library of tasks: its environments can be lifted, and nothing is compiled to it.

    Attributes:
        what: What its tasks are, in one sentence.
    """

    what: str
