"""Drive: one step per message, for conformance. Latency does not matter here."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

from bench import protocol
from bench.worker.compiled import CompiledEnvironments
from canonical.adapter import (
    Adapter,
    Endpoint,
    Opened,
    PlaceSession,
    RereadSession,
    Session,
    SessionError,
    SnapshotSession,
    TaskListing,
)
from canonical.step import StepResult
from canonical.transcript import action_from_json

SessionRequest: TypeAlias = (
    protocol.Connect
    | protocol.Open
    | protocol.OpenAt
    | protocol.Step
    | protocol.Expose
    | protocol.Report
    | protocol.Close
    | protocol.Abandon
    | protocol.Store
    | protocol.Restore
    | protocol.Fork
    | protocol.Reread
    | protocol.ListTasks
)
"""What is asked of a session, or of what a client sees before it has one."""


class Unsupported(RuntimeError):  # noqa: N818 - named for what it is
    """Report that an adapter does not offer an optional part of the port."""


class Driver:
    """Hold the sessions of one worker by name."""

    def __init__(
        self, adapter: Adapter[Any], compiled: CompiledEnvironments, cleanup: AsyncExitStack
    ) -> None:
        self._adapter = adapter
        self._compiled = compiled
        self._sessions: dict[str, tuple[Session, AsyncExitStack]] = {}
        self._connected: dict[str, protocol.Connect] = {}
        self._snapshots: dict[str, dict[str, object]] = {}
        cleanup.push_async_callback(self._close_all)

    async def answer(self, request: SessionRequest) -> protocol.Reply:
        """Carry out a request about a session.

        Raises:
            SessionError: There is no such session, the action is malformed, or the framework refused or failed.
        """
        seq = request.seq
        match request:
            case protocol.Connect():
                await self.connect(request)
                return protocol.Connected(seq=seq)
            case protocol.Open() | protocol.OpenAt():
                return _written(seq, await self.open(request))
            case protocol.Step():
                return protocol.Stepped(seq=seq, result=(await self.step(request)).to_json())
            case protocol.Expose():
                return protocol.Exposed(seq=seq, value=await self.session(request.session).public_state())
            case protocol.Report():
                return protocol.Reported(seq=seq, value=await self.session(request.session).reported_return())
            case protocol.Close():
                await self.close(request.session)
                return protocol.Closed(seq=seq)
            case protocol.Abandon():
                await self.abandon(request)
                return protocol.Abandoned(seq=seq)
            case protocol.Store():
                await self.store(request)
                return protocol.Stored(seq=seq)
            case protocol.Restore():
                await self.restore(request)
                return protocol.Restored(seq=seq)
            case protocol.Fork():
                await self.fork(request)
                return protocol.Forked(seq=seq)
            case protocol.Reread():
                await self.reread(request.session)
                return protocol.Alike(seq=seq)
            case protocol.ListTasks():
                return protocol.Listed(seq=seq, tasks=await self.list_tasks(request))

    async def connect(self, request: protocol.Connect) -> None:
        """Open a session under a name.

        Raises:
            SessionError: The name is taken, or the framework refused.
        """
        if request.session in self._sessions:
            raise SessionError(f"session {request.session!r} is already connected")
        compiled = None if request.url else self._compiled.get(request.environment, request.workload)
        stack = AsyncExitStack()
        session = await stack.enter_async_context(
            self._adapter.connect(compiled, Endpoint(request.url, lambda: 0))
        )
        self._sessions[request.session] = (session, stack)
        self._connected[request.session] = request

    def session(self, name: str) -> Session:
        """Return the session of a name.

        Raises:
            SessionError: There is none.
        """
        if name not in self._sessions:
            raise SessionError(f"there is no session {name!r}; connect it first")
        return self._sessions[name][0]

    async def step(self, request: protocol.Step) -> StepResult:
        """Carry out an action in a session.

        Raises:
            SessionError: There is no such session, the action is malformed, or the framework failed.
        """
        try:
            action = action_from_json(request.action)
        except ValueError as error:
            raise SessionError(str(error)) from error
        return await self.session(request.session).step(action)

    async def abandon(self, request: protocol.Abandon) -> None:
        """Begin a step, cut it off, and leave the session as a trainer's rollout that is cancelled leaves it.

        What leaving it raises is nobody's business any more: the server may be out of reach.

        Raises:
            SessionError: There is no such session, or the action is malformed.
        """
        session = self.session(request.session)
        try:
            action = action_from_json(request.action)
        except ValueError as error:
            raise SessionError(str(error)) from error
        _, stack = self._sessions.pop(request.session)
        self._connected.pop(request.session, None)
        stepping = asyncio.ensure_future(session.step(action))
        await asyncio.sleep(0)
        stepping.cancel()
        await asyncio.gather(stepping, return_exceptions=True)
        with contextlib.suppress(SessionError, OSError):
            await stack.aclose()

    async def store(self, request: protocol.Store) -> None:
        """Keep the episode of a session under a name.

        Raises:
            Unsupported: The sessions of this adapter cannot be stored.
            SessionError: There is no such session, or the framework failed.
        """
        snapshot = await self._storable(request.session).snapshot()
        self._snapshots.setdefault(request.session, {})[request.snapshot] = snapshot

    async def restore(self, request: protocol.Restore) -> None:
        """Let a session go on from what it has stored.

        Raises:
            Unsupported: The sessions of this adapter cannot be stored.
            SessionError: There is no such session or snapshot, or the framework failed.
        """
        session, kept = self._storable(request.session), self._snapshots.get(request.session, {})
        if request.snapshot not in kept:
            raise SessionError(f"session {request.session!r} has stored no {request.snapshot!r}")
        await session.restore(kept[request.snapshot])

    async def fork(self, request: protocol.Fork) -> None:
        """Make a session that goes on from where another one is.

        Raises:
            Unsupported: The sessions of this adapter cannot be forked.
            SessionError: The name is taken, there is no such session, or the framework failed.
        """
        session = self._storable(request.session)
        if request.fork in self._sessions:
            raise SessionError(f"session {request.fork!r} is already connected")
        self._sessions[request.fork] = (await session.fork(), AsyncExitStack())

    async def open(self, request: protocol.Open | protocol.OpenAt) -> Opened:
        """Start an episode of a task that its id names, or its place in a split.

        Raises:
            Unsupported: This framework names no tasks so.
            SessionError: There is no such session, or the framework refused or failed.
        """
        session = self.session(request.session)
        if isinstance(request, protocol.Open):
            return await session.open(request.task, request.seed)
        if not isinstance(session, PlaceSession) or not (request.index is not None or session.seed_chooses):
            raise Unsupported(f"sessions of {self._adapter.name} open no task at such a place")
        compiled = self._known(request.session)
        return await session.open_at(compiled, request.split, request.index, request.seed)

    def _known(self, name: str) -> Any:
        # Also for a server elsewhere: rows are written where the trainer is.
        asked = self._connected.get(name)
        if asked is None or not asked.environment:
            return None
        return self._compiled.get(asked.environment, asked.workload)

    async def reread(self, name: str) -> None:
        """Make sure that a session's framework shows the same wherever else a model may read of its episode.

        Of a session that is unknown or already freed, nothing can be read.

        Raises:
            SessionError: It shows something else, or the framework failed.
        """
        if name not in self._sessions:
            return
        session = self._sessions[name][0]
        if not isinstance(session, RereadSession):
            return
        await session.reread(self._known(name))

    def _storable(self, name: str) -> SnapshotSession:
        session = self.session(name)
        if not isinstance(session, SnapshotSession):
            raise Unsupported(f"sessions of {self._adapter.name} have no snapshot, restore and fork")
        return session

    async def list_tasks(self, request: protocol.ListTasks) -> list[str]:
        """Return the ids of the tasks of a split, as the framework shows them.

        Raises:
            Unsupported: This adapter reads no tasks from its framework.
            SessionError: There is no such split, or the framework failed.
        """
        if not isinstance(self._adapter, TaskListing):
            raise Unsupported(f"the adapter {self._adapter.name} has no list_tasks")
        compiled = self._compiled.get(request.environment)
        return list(await self._adapter.list_tasks(compiled, Endpoint(request.url, lambda: 0), request.split))

    async def close(self, name: str) -> None:
        """Free a session; an unknown or already freed one is left alone."""
        self._snapshots.pop(name, None)
        self._connected.pop(name, None)
        if name in self._sessions:
            session, stack = self._sessions.pop(name)
            try:
                await session.close()
            finally:
                await stack.aclose()

    async def _close_all(self) -> None:
        for name in list(self._sessions):
            await self.close(name)


def _written(seq: int, opened: Opened) -> protocol.Opened:
    return protocol.Opened(
        seq=seq,
        prompt=[message.to_json() for message in opened.prompt],
        tools=[tool.to_json() for tool in opened.tools],
    )
