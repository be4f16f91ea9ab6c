"""The official asynchronous client of the installed distribution, made so that it reaches a server of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapters.ors.framework import HAS_OPENREWARD
from canonical.content import JSON

NO_KEY = "none"
"""What is sent as the key. Without any, openreward would send the user's own, as a secret of every session."""


class Client:
    """Hold a client, and one environment of a server: that of a name, or the first.

    Args:
        url: The address of the server: scheme, host and port.
    """

    def __init__(self, url: str, name: str | None = None) -> None:
        # With a slash at the end the keepalive goes to another path, and the session is taken for dead after a while.
        self._url, self._name = url.rstrip("/"), name
        self._environments: Any = None
        self._environment: Any = None
        self._open: list[Any] = []

    async def connect(self) -> None:
        """Ask the server which environment it serves."""
        if HAS_OPENREWARD:
            from openreward import AsyncOpenReward  # noqa: PLC0415 - one of the two is installed

            # The base_url of the client itself is that of the platform: it gets `api.` and `sessions.` before its host.
            environments: Any = AsyncOpenReward(api_key=NO_KEY).environments
        else:
            from ors.client import AsyncORS  # type: ignore[import-not-found] # noqa: PLC0415 - as above

            environments = AsyncORS(base_url=self._url, api_key=NO_KEY).environments
        # Kept: when it goes, ors-sdk closes what it has made.
        self._environments = environments
        unnamed = environments.get("environment", base_url=self._url)
        self._open = [unnamed.client, *filter(None, [getattr(unnamed, "api_client", None)])]
        async with unnamed.client.get("/list_environments") as answer:
            answer.raise_for_status()
            name = self._name or (await answer.json())[0]
        # A variant puts the name into the paths; otherwise the server answers each request by a redirect to it.
        variant = {"variant": name} if HAS_OPENREWARD else {}
        self._environment = environments.get(name, base_url=self._url, **variant)

    def session(self, spec: Mapping[str, JSON]) -> Any:
        """Return a session for a task, not yet entered."""
        name = self._environment.name
        if HAS_OPENREWARD:
            from openreward.api.environments.types import Task  # noqa: PLC0415

            return self._environment.session(
                task=Task(server_name=name, environment_name=name, task_spec=dict(spec), namespace=None)
            )
        from ors.client import Task as OrsTask  # noqa: PLC0415

        return self._environment.session(task=OrsTask(environment_name=name, task_spec=dict(spec)))

    def session_at(self, split: str, index: int) -> Any:
        """Return a session for the task at a place of a split, not yet entered."""
        return self._environment.session(split=split, index=index)

    async def list_tasks(self, split: str) -> list[Any]:
        """Return the tasks of a split, as the client gives them."""
        tasks: list[Any] = await self._environment.list_tasks(split)
        return tasks

    async def list_splits(self) -> list[str]:
        """Return the names of the splits."""
        splits: list[str] = await self._environment.list_splits()
        return splits

    async def num_tasks(self, split: str) -> int:
        """Return the number of tasks of a split, also where they are too many to be listed."""
        return int(await self._environment.num_tasks(split))

    @property
    def environment(self) -> str:
        """The name of the environment."""
        return str(self._environment.name)

    async def list_tools(self) -> list[Any]:
        """Return the tools that the environment lists to those who have no session."""
        tools: list[Any] = await self._environment.list_tools()
        return tools

    async def close(self) -> None:
        """Close the connections."""
        while self._open:
            await self._open.pop().close()
