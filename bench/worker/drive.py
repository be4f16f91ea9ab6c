"""Drive: one step per message, for conformance. Latency does not matter here."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from bench import protocol
from bench.worker.compiled import CompiledEnvironments
from canonical.adapter import Adapter, Endpoint, Session, SessionError
from canonical.step import StepResult
from canonical.transcript import action_from_json


class Driver:
    """Hold the sessions of one worker by name."""

    def __init__(
        self, adapter: Adapter[Any], compiled: CompiledEnvironments, cleanup: AsyncExitStack
    ) -> None:
        self._adapter = adapter
        self._compiled = compiled
        self._sessions: dict[str, tuple[Session, AsyncExitStack]] = {}
        cleanup.push_async_callback(self._close_all)

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

    async def close(self, name: str) -> None:
        """Free a session; an unknown or already freed one is left alone."""
        if name in self._sessions:
            session, stack = self._sessions.pop(name)
            try:
                await session.close()
            finally:
                await stack.aclose()

    async def _close_all(self) -> None:
        for name in list(self._sessions):
            await self.close(name)
