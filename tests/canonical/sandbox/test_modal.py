"""The modal backend against a stand-in for the part of the SDK that it calls; the service itself cannot be played here."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from types import ModuleType
from typing import Any, ClassVar

import pytest

from canonical.sandbox.modal import APP, LIFE_S, Modal
from canonical.sandbox.protocol import BackendUnavailableError, Limits, SandboxGoneError, Snapshot
from canonical.sandbox.remote.backend import RemoteBackend
from tests.miniatures.docker_engine import bubblewrap
from tests.miniatures.machines import machine

needs_machines = pytest.mark.skipif(bubblewrap() is None, reason="the stand-in makes machines of bubblewrap")


class AuthError(Exception):
    """Be named as the SDK names it."""


class Call:
    """Be callable as the SDK's functions are: `await function.aio(...)`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.aio = function


class Process:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.stdin, self.stdout = self, self
        self.drain = Call(self._drain)

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    async def _drain(self) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.drain()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert self.process.stdout is not None
        while data := await self.process.stdout.read(1 << 15):
            yield data


class Box:
    """Be a sandbox of the SDK."""

    made: ClassVar[list[dict[str, Any]]] = []
    alive: ClassVar[set[Any]] = set()

    def __init__(self) -> None:
        self.exec, self.terminate = Call(self._exec), Call(self._terminate)
        self.processes: list[asyncio.subprocess.Process] = []
        Box.alive.add(self)

    async def _exec(self, *argv: str, text: bool) -> Process:
        assert not text
        assert sum(len(word) for word in argv) < 1 << 16, "Modal takes no longer command"
        process = await asyncio.create_subprocess_exec(
            *machine(list(argv)), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        self.processes.append(process)
        return Process(process)

    async def _terminate(self) -> None:
        Box.alive.discard(self)
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("modal")

    async def look_up(name: str, *, create_if_missing: bool) -> str:
        assert (name, create_if_missing) == (APP, True)
        return "the app"

    async def create(**options: Any) -> Box:
        Box.made.append(options)
        return Box()

    Box.made.clear()
    parts = {
        "App": {"lookup": Call(look_up)},
        "Sandbox": {"create": Call(create)},
        "Image": {"debian_slim": lambda **_: "image"},
    }
    for name, content in parts.items():
        setattr(
            module,
            name,
            type(
                name,
                (),
                {key: staticmethod(value) if callable(value) else value for key, value in content.items()},
            ),
        )
    monkeypatch.setitem(sys.modules, "modal", module)
    return module


@needs_machines
def test_a_sandbox_has_no_network_a_bounded_life_and_memory_and_is_ended(sdk: ModuleType) -> None:
    async def use() -> None:
        limits = Limits(memory_bytes=1 << 30, disk_bytes=64 << 20)
        sandbox = await RemoteBackend(Modal()).open(Snapshot({"a.txt": b"\xff\0x"}), limits=limits)
        assert (await sandbox.exec(["cat", "a.txt"], timeout_s=20)).stdout == b"\xff\0x"
        await sandbox.write("b", bytes(range(256)) * 4096)
        assert await sandbox.read("b") == bytes(range(256)) * 4096
        await sandbox.close()
        with pytest.raises(SandboxGoneError):
            await sandbox.read("a.txt")

    asyncio.run(use())
    (made,) = Box.made
    assert made["block_network"] is True
    assert made["timeout"] == LIFE_S
    assert made["memory"] == (512, 1024 + 128 + 128)
    assert Box.alive == set()


def test_a_missing_token_says_how_to_get_one(sdk: ModuleType) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise AuthError("Token missing.\nSee elsewhere.")

    sdk.App.lookup = Call(refuse)  # type: ignore[attr-defined]
    with pytest.raises(BackendUnavailableError) as raised:
        asyncio.run(RemoteBackend(Modal()).open())
    assert str(raised.value) == (
        "the modal sandbox needs a token of Modal: run `modal token new`, or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET "
        "(Token missing. See elsewhere.)"
    )
