"""A session behind a worker: what a framework shows, seen from the harness as a canonical session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from bench import protocol
from bench.client import RequestFailed, Worker
from bench.workloads import Workload
from canonical.adapter import Opened, SessionError
from canonical.content import JSON
from canonical.server_settings import ServerSettings
from canonical.step import StepResult
from canonical.transcript import Action, message_from_json, result_from_json, spec_from_json

REPLY_TIMEOUT_S = 660.0
"""How long a worker may take to answer, in seconds: a little longer than what the clients of the adapters wait.

A step may be a submission that waits until hundreds before it have been graded.
"""
_numbers = count()


class WorkerSession:
    """Be one session of a worker. Create it with `connect_session`."""

    def __init__(self, worker: Worker, name: str) -> None:
        self._worker = worker
        self._name = name

    async def open(self, task: str, seed: int) -> Opened:
        """Start an episode of a task.

        Raises:
            SessionError: The framework refused or failed.
            WorkerError: The worker broke down.
        """
        return _opened(
            await self._request(
                protocol.Opened, lambda seq: protocol.Open(seq=seq, session=self._name, task=task, seed=seed)
            )
        )

    async def open_at(self, split: str, index: int | None, seed: int) -> Opened:
        """Start an episode of the task at a place of a split; without an index, the seed decides the place.

        Raises:
            SessionError: The framework refused or failed.
            RequestFailed: Its kind is `unsupported` where this framework names no tasks so.
            WorkerError: The worker broke down.
        """
        return _opened(
            await self._request(
                protocol.Opened,
                lambda seq: protocol.OpenAt(seq=seq, session=self._name, split=split, index=index, seed=seed),
            )
        )

    async def step(self, action: Action) -> StepResult:
        """Carry out an action.

        Raises:
            SessionError: The framework refused or failed.
            WorkerError: The worker broke down.
        """
        wire = action if isinstance(action, str) else action.to_json()
        stepped = await self._request(
            protocol.Stepped, lambda seq: protocol.Step(seq=seq, session=self._name, action=wire)
        )
        return result_from_json(stepped.result)

    async def public_state(self) -> JSON:
        """Return whatever else the framework lets a client read.

        Raises:
            SessionError: The framework refused or failed.
            WorkerError: The worker broke down.
        """
        exposed = await self._request(
            protocol.Exposed, lambda seq: protocol.Expose(seq=seq, session=self._name)
        )
        value: JSON = exposed.value
        return value

    async def reported_return(self) -> float:
        """Return the return of the finished episode as a trainer of the framework reads it.

        Raises:
            SessionError: The episode is not over, or the framework refused or failed.
            WorkerError: The worker broke down.
        """
        reported = await self._request(
            protocol.Reported, lambda seq: protocol.Report(seq=seq, session=self._name)
        )
        value: float = reported.value
        return value

    async def snapshot(self) -> str:
        """Let the worker keep the episode as it is now, and return the name under which it does, for `restore`.

        Raises:
            RequestFailed: Sessions of this adapter cannot be stored (`kind` is `unsupported`).
            SessionError: The framework refused or failed.
            WorkerError: The worker broke down.
        """
        name = f"snapshot{next(_numbers)}"
        await self._request(
            protocol.Stored, lambda seq: protocol.Store(seq=seq, session=self._name, snapshot=name)
        )
        return name

    async def restore(self, snapshot: str) -> None:
        """Go on from what this session has stored.

        Raises:
            SessionError: The framework refused or failed.
            WorkerError: The worker broke down.
        """
        await self._request(
            protocol.Restored, lambda seq: protocol.Restore(seq=seq, session=self._name, snapshot=snapshot)
        )

    async def fork(self) -> WorkerSession:
        """Return a session that goes on from here by itself; close it when it is no longer wanted.

        Raises:
            SessionError: The framework refused or failed.
            WorkerError: The worker broke down.
        """
        name = f"s{next(_numbers)}"
        await self._request(
            protocol.Forked, lambda seq: protocol.Fork(seq=seq, session=self._name, fork=name)
        )
        return WorkerSession(self._worker, name)

    async def reread(self) -> None:
        """Make sure that the framework shows the same of the episode wherever else a model may read of it.

        Raises:
            SessionError: It shows something else, or failed.
            WorkerError: The worker broke down.
        """
        await self._request(protocol.Alike, lambda seq: protocol.Reread(seq=seq, session=self._name))

    async def close(self) -> None:
        """Free the session. Closing twice is harmless."""
        await self._request(protocol.Closed, lambda seq: protocol.Close(seq=seq, session=self._name))

    async def abandon(self, action: Action) -> None:
        """Leave the session as a client does that is stopped in the middle of an action.

        Raises:
            SessionError: There is no such session.
            WorkerError: The worker broke down.
        """
        wire = action if isinstance(action, str) else action.to_json()
        await self._request(
            protocol.Abandoned, lambda seq: protocol.Abandon(seq=seq, session=self._name, action=wire)
        )

    async def _request(self, reply_type: type[Any], message: Any) -> Any:
        try:
            return await self._worker.request(reply_type, message, timeout_s=REPLY_TIMEOUT_S)
        except RequestFailed as error:
            if error.kind == "session":
                raise SessionError(error.reason) from error
            raise


@asynccontextmanager
async def connect_session(
    worker: Worker, environment: str, *, url: str | None, workload: Workload | None = None
) -> AsyncIterator[WorkerSession]:
    """Open a session of a worker; leaving the context frees it.

    Args:
        worker: The worker that runs the framework's client.
        environment: Name or path of the environment.
        url: Where it is served, or None for a framework that runs in process.
        workload: How long its tools take; the server of a served environment decides that itself.

    Raises:
        SessionError: The framework refused the session.
        WorkerError: The worker broke down.
    """
    session = await open_session(worker, environment, url=url, workload=workload)
    try:
        yield session
    finally:
        await session.close()


def _opened(message: protocol.Opened) -> Opened:
    return Opened(
        tuple(message_from_json(one) for one in message.prompt),
        tuple(spec_from_json(tool) for tool in message.tools),
    )


async def open_session(
    worker: Worker, environment: str, *, url: str | None, workload: Workload | None = None
) -> WorkerSession:
    """Open a session of a worker as `connect_session` does; whoever asks for it frees it.

    Raises:
        SessionError: The framework refused the session.
        WorkerError: The worker broke down.
    """
    name = f"s{next(_numbers)}"
    try:
        await worker.request(
            protocol.Connected,
            lambda seq: protocol.Connect(
                seq=seq, session=name, environment=environment, url=url, workload=workload
            ),
            timeout_s=REPLY_TIMEOUT_S,
        )
    except RequestFailed as error:
        if error.kind == "session":
            raise SessionError(error.reason) from error
        raise
    return WorkerSession(worker, name)


async def serve(
    worker: Worker,
    environment: str,
    *,
    workload: Workload | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    session_ttl_s: float | None = None,
    settings: ServerSettings | None = None,
) -> protocol.Serving:
    """Let a worker serve an environment with its framework's own server, until the worker stops.

    Args:
        worker: The worker.
        environment: Name or path of the environment.
        workload: How long its tools take.
        host: The address.
        port: The port; 0 picks a free one.
        session_ttl_s: After how many idle seconds the server shall free a session, where that can be set.
        settings: What else is to differ from the defaults.

    Raises:
        RequestFailed: The port is in use (`kind` is `os`), or the environment cannot be compiled.
        WorkerError: The worker broke down.
    """
    return await worker.request(
        protocol.Serving,
        lambda seq: protocol.Serve(
            seq=seq,
            environment=environment,
            workload=workload,
            host=host,
            port=port,
            session_ttl_s=session_ttl_s,
            settings=settings,
        ),
        timeout_s=REPLY_TIMEOUT_S,
    )


async def shut(worker: Worker) -> None:
    """Let no new session begin at what a worker serves; those that are open go on.

    Raises:
        WorkerError: The worker broke down.
    """
    await worker.request(protocol.Closing, lambda seq: protocol.Shut(seq=seq), timeout_s=REPLY_TIMEOUT_S)


async def list_tasks(worker: Worker, environment: str, split: str, *, url: str | None) -> list[str]:
    """Return the ids of the tasks of a split, as the framework shows them to its users.

    Raises:
        RequestFailed: The adapter reads no tasks from its framework (`kind` is `unsupported`).
        SessionError: There is no such split, or the framework failed.
        WorkerError: The worker broke down.
    """
    try:
        listed = await worker.request(
            protocol.Listed,
            lambda seq: protocol.ListTasks(seq=seq, environment=environment, url=url, split=split),
            timeout_s=REPLY_TIMEOUT_S,
        )
    except RequestFailed as error:
        if error.kind == "session":
            raise SessionError(error.reason) from error
        raise
    return listed.tasks
