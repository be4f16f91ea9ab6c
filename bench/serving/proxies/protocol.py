"""What a proxy can do here, as a protocol, and what all of them use to do it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import jinja2

from bench.serving.plan import (
    BUSY,
    CONNECT_TIMEOUT_S,
    HEALTH_EVERY_S,
    HEALTH_FAILURES,
    HEALTH_TIMEOUT_S,
    LOST,
    MARK,
    RETRIES,
    UPSTREAM_IDLE_S,
    FleetPlan,
)
from canonical.listening import DRAINING

Variant = Literal["derived", "default"]
"""Whether every limit follows from the target, or nothing is set but what makes the proxy forward at all."""

_ANSWER_TIMEOUT_S = 5.0


class Proxy(Protocol):
    """Be a proxy.

    Its process works in a folder of its own, which holds what `render` wrote, and the sockets and logs that it makes there.

    Attributes:
        name: The name of its folder here, and of its option.
        title: Its name as its makers write it.
        how_to_get: The command that installs it.
        image_commands: What to run while an image is built from Debian's, so that the program is there.
        image_extra: Extra of this project that the image needs for it, or nothing.
        version_option: With which its program tells its version.
        shares_port: Whether several processes of it serve one port; otherwise one process has workers, each with
            descriptors of its own.
    """

    name: str
    title: str
    how_to_get: str
    image_commands: tuple[str, ...]
    image_extra: str
    version_option: str
    shares_port: bool

    def find(self) -> Path | None:
        """Return where its program is, or None."""

    def render(self, plan: FleetPlan, folder: Path, variant: Variant) -> Mapping[str, str]:
        """Return its configuration: file names and what the files hold.

        Args:
            plan: What stands behind it.
            folder: Where it will find these files, and make its sockets.
            variant: The derived limits, or its own defaults.
        """

    def check(self, binary: Path, folder: Path) -> list[str]:
        """Return the command with which it validates the configuration in a folder."""

    def run(self, binary: Path, folder: Path, plan: FleetPlan, variant: Variant) -> list[str]:
        """Return the command that runs it in the foreground."""

    async def drain(self, plan: FleetPlan, binary: Path, folder: Path) -> None:
        """Let it refuse new sessions from now on, and go on with those that it has.

        Raises:
            OSError: It does not listen to this any more.
        """

    async def rest(self, plan: FleetPlan, binary: Path, folder: Path, names: frozenset[str]) -> None:
        """Let it give new sessions to no replica that is named, and go on with those that they have.

        Never asked for where a header binds sessions: there the hash decides.

        Raises:
            OSError: It does not listen to this.
        """

    async def counters(self, folder: Path) -> dict[str, int]:
        """Return its own statistics that tell of sessions and of what it refused.

        Raises:
            OSError: It does not answer.
        """


def render_template(template: Path, plan: FleetPlan, folder: Path, **more: Any) -> str:
    """Return a configuration made from a template, which is told the plan and the constants beside it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - the result is no HTML; what goes in is checked by the plan
    )
    return environment.get_template(template.name).render(
        plan=plan,
        folder=folder,
        mark=MARK,
        lost=LOST,
        busy=BUSY,
        draining=DRAINING,
        connect_timeout_s=CONNECT_TIMEOUT_S,
        health_every_s=HEALTH_EVERY_S,
        health_timeout_s=HEALTH_TIMEOUT_S,
        health_failures=HEALTH_FAILURES,
        retries=RETRIES,
        upstream_idle_s=UPSTREAM_IDLE_S,
        **more,
    )


async def ask(path_of_socket: Path, request: bytes) -> str:
    """Send something to a proxy's own Unix socket, and return all that it answers before it hangs up.

    Raises:
        OSError: Nobody answers there.
    """
    try:
        async with asyncio.timeout(_ANSWER_TIMEOUT_S):
            reader, writer = await asyncio.open_unix_connection(str(path_of_socket))
            try:
                writer.write(request)
                await writer.drain()
                return (await reader.read()).decode(errors="replace")
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except TimeoutError as error:
        raise OSError(
            f"the proxy did not answer on {path_of_socket.name} within {_ANSWER_TIMEOUT_S:g} s"
        ) from error


async def ask_http(path_of_socket: Path, method: str, path: str) -> str:
    """Make an HTTP request on a proxy's own Unix socket, and return the body of the answer.

    Raises:
        OSError: Nobody answers there, or the answer is not 200.
    """
    return await asyncio.to_thread(_ask_http, path_of_socket, method, path)


def _ask_http(path_of_socket: Path, method: str, path: str) -> str:
    connection = http.client.HTTPConnection("proxy", timeout=_ANSWER_TIMEOUT_S)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(_ANSWER_TIMEOUT_S)
    try:
        connection.sock.connect(str(path_of_socket))
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read().decode(errors="replace")
    except http.client.HTTPException as error:
        raise OSError(f"the proxy's answer to {method} {path} is none: {error!r}") from error
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise OSError(f"the proxy answered {method} {path} with status {answer.status}")
    return body
