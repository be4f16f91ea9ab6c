"""Turns handed over between a rollout that Verifiers takes by itself and a session that plays its model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any

from canonical.adapter import SessionError
from canonical.content import JSON
from canonical.step import Cause
from canonical.transcript import Action

_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class Asked:
    """Hold what a rollout asks its model: the conversation, and the tools."""

    messages: Sequence[Any]
    tools: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Hold what a rollout came to.

    Attributes:
        reward: What its rubric or task pays.
        cause: Why it ended, as far as Verifiers says.
        after: The messages that came after the last of the model.
        shown: What else trainers get of it.
    """

    reward: float
    cause: Cause
    after: Sequence[Any]
    shown: JSON


class Turns:
    """Be where a rollout, on a loop of its own, waits for its model, and a session for the rollout.

    Args:
        loop: The loop that rollouts run on.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._next: Future[Asked | None] = Future()
        self._said: Future[Action | None] | None = None
        self._rollout: Future[Outcome] | None = None

    async def begin(self, rollout: Coroutine[Any, Any, Outcome]) -> Asked | None:
        """Start a rollout, and return what it asks first, or None when it ends without asking."""
        self._rollout = asyncio.run_coroutine_threadsafe(rollout, self._loop)
        self._rollout.add_done_callback(self._has_ended)
        return await asyncio.wrap_future(self._next)

    async def ask(self, asked: Asked) -> Action | None:
        """Return what the model does, or None when nothing more is played; called by the rollout.

        Raises:
            RuntimeError: The rollout asks while it is asking.
        """
        if self._said is not None:
            raise RuntimeError("the rollout asks for two turns at once, and a lifted source plays one by one")
        said = self._said = Future()
        self._next.set_result(asked)
        return await asyncio.wrap_future(said)

    async def say(self, action: Action | None) -> Asked | None:
        """Answer what was asked, and return what is asked next, or None when the rollout has ended.

        Args:
            action: What the model does; None plays nothing more, so that the rollout is scored as it is.

        Raises:
            SessionError: Nothing is asked.
        """
        said = self._said
        if said is None:
            raise SessionError("the rollout asks for nothing")
        self._said, self._next = None, Future()
        if said.set_running_or_notify_cancel():
            said.set_result(action)
        elif not self._next.done():
            self._next.set_result(None)  # the rollout ended while it was asking
        return await asyncio.wrap_future(self._next)

    def outcome(self) -> Outcome:
        """Return what the rollout came to, once it has ended.

        Raises:
            SessionError: It failed.
        """
        if self._rollout is None or not self._rollout.done():
            raise SessionError("the rollout goes on")
        try:
            return self._rollout.result()
        except SessionError:
            raise
        except BaseException as error:
            raise SessionError(f"the rollout failed: {type(error).__name__}: {error}") from error

    async def stop(self) -> None:
        """Give the rollout up, where it goes on, and wait until Verifiers has cleaned up behind it."""
        rollout = self._rollout
        if rollout is not None and not rollout.done():
            rollout.cancel()
            await asyncio.wait({asyncio.wrap_future(self._next)}, timeout=_STOP_S)

    def _has_ended(self, _rollout: Future[Outcome]) -> None:
        said, self._said = self._said, None
        if said is not None:
            said.cancel()  # whoever still waits on behalf of the rollout
        if not self._next.done():
            self._next.set_result(None)


@asynccontextmanager
async def rollout_loop() -> AsyncIterator[asyncio.AbstractEventLoop]:
    """Run an event loop in a thread of its own: what a rollout blocks, it blocks for other rollouts alone."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="rollouts", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        ended = asyncio.run_coroutine_threadsafe(_end_all(), loop)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(ended), _STOP_S)
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join, _STOP_S)
        if not thread.is_alive():
            loop.close()


async def _end_all() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
