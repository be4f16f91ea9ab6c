"""What the suite knows of the framework that it runs under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from canonical.adapter import Adapter, AdapterFacts
from canonical.transcript import Action

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Framework:
    """Hold an adapter of this project, found by the name of its folder.

    Attributes:
        name: The folder's name.
        facts: What its `adapter.toml` says.
        adapter: The adapter that commands use.
        adapters: The adapter in every way that the installed release can be driven, by name.
    """

    name: str
    facts: AdapterFacts
    adapter: Adapter[Any]
    adapters: Mapping[str, Adapter[Any]]

    @classmethod
    def of(cls, name: str) -> Framework:
        """Return the framework of a folder."""
        module = import_module(f"adapters.{name}.adapter")
        return cls(
            name,
            AdapterFacts.read(ROOT / "adapters" / name / "adapter.toml"),
            module.ADAPTER,
            getattr(module, "ADAPTERS", {"default": module.ADAPTER}),
        )

    @property
    def is_server(self) -> bool:
        """Whether environments are behind a server."""
        return self.facts.kind == "server"

    def module(self, name: str) -> Any:
        """Return a module of the adapter, such as `wire`."""
        return import_module(f"adapters.{self.name}.{name}")


@dataclass(frozen=True)
class Manner:
    """Hold in which way a framework keeps a promise, where there is more than one; a folder's `conftest.py` gives its own.

    Attributes:
        actions: Calls and texts that mean something to this framework, and nothing to the episode.
        unopened: What a step says before an episode was opened.
        unstartable: What is said of a task that cannot start.
        closed: What a step says after the session was closed.
        abandoned: What a step says after one that was given up; None where the session goes on.
        stopped: What a step says once the server has stopped; None where that takes the client long.
        lingers: Whether clients whose server has stopped try for long to end their sessions.
        keeps_episode: Whether an episode goes on when a request for another one is refused.
        inline: The ways of driving in which everything runs where the caller is, so that a tool that blocks blocks all.
        writes_json: Whether calls are written as strict JSON, which cannot carry numbers that are not finite.
        fails_again: Whether a call after a reward that could not be computed fails as well, where others are told that
            the episode is over.
        replaces_lone: Whether prompts have the replacement character where a text has half of a surrogate pair.
        rewords: Whether the hand-written Wordle says of wrong words what its framework says of tools that fail.
        impatient: An adapter whose client waits for 0.3 s; None where clients have no such limit.
        spare_descriptors: How many descriptors a server may open in its own time, once and not for each session.
        is_lean: Whether sessions leave not one object in this process; others are held to `kept_mib` alone.
        kept_alive_s: Seconds for which connections may outlive their sessions.
        kept_mib: How much memory may grow over two thousand sessions, in MiB.
    """

    actions: tuple[Action, ...] = ()
    unopened: str = "open an episode"
    unstartable: str = "the start of .* failed with ValueError"
    closed: str = "cannot be used any more"
    abandoned: str | None = None
    stopped: str | None = "cannot be used any more"
    lingers: bool = False
    keeps_episode: bool = False
    inline: tuple[str, ...] = ()
    writes_json: bool = False
    fails_again: bool = False
    replaces_lone: bool = False
    rewords: bool = False
    impatient: Adapter[Any] | None = None
    spare_descriptors: int = 0
    is_lean: bool = True
    kept_alive_s: float = 15.0
    kept_mib: int = 16
