"""Play: sessions through a framework for probes, served first where the framework has a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.session import WorkerSession, connect_session, serve
from bench.stone.subject import Subject


@asynccontextmanager
async def standing(subject: Subject, source: str) -> AsyncIterator[str | None]:
    """Yield where an environment is served, by the worker itself; None for a framework that runs in process.

    Raises:
        WorkerError: The worker broke down, or cannot serve it.
    """
    yield (await serve(subject.worker, source)).url


@asynccontextmanager
async def session_of(subject: Subject, source: str) -> AsyncIterator[WorkerSession]:
    """Yield a session with an environment, through the framework.

    Raises:
        SessionError: The framework refused the session.
        WorkerError: The worker broke down.
    """
    async with (
        standing(subject, source) as url,
        connect_session(subject.worker, source, url=url) as session,
    ):
        yield session
