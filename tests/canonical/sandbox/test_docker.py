"""The docker backend through the real SDK, against as much of an engine as bubblewrap can be made into."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from canonical.sandbox import docker as backend_module
from canonical.sandbox.check import Outcome, check_backend, select_checks
from canonical.sandbox.docker import Docker
from canonical.sandbox.protocol import BackendUnavailableError, Limits, SandboxGoneError, Snapshot
from canonical.sandbox.remote.backend import RemoteBackend
from tests.miniatures.docker_engine import Engine, bubblewrap

pytest.importorskip("docker")
needs_containers = pytest.mark.skipif(
    bubblewrap() is None or not Path("/usr/bin/python3").exists(),
    reason="the miniature makes containers of bubblewrap",
)
# The SDK leaves its pooled connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    path = tmp_path / "docker.sock"
    served = Engine(str(path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    monkeypatch.delenv(backend_module.VARIABLE, raising=False)
    yield served
    served.close()
    gc.collect()


@needs_containers
def test_a_container_has_no_network_no_rights_a_read_only_system_and_every_limit(engine: Engine) -> None:
    limits = Limits(memory_bytes=256 << 20, processes=40, disk_bytes=8 << 20, file_bytes=4 << 20)

    async def use() -> None:
        sandbox = await RemoteBackend(Docker()).open(Snapshot({"a.txt": b"x"}), limits=limits)
        done = await sandbox.exec(["cat", "a.txt"], timeout_s=20)
        assert (done.exit_code, done.stdout) == (0, b"x")
        await sandbox.close()
        with pytest.raises(SandboxGoneError):
            await sandbox.read("a.txt")

    asyncio.run(use())
    (config,) = engine.created
    host = config["HostConfig"]
    assert (host["NetworkMode"], host["ReadonlyRootfs"], host["CapDrop"], host["AutoRemove"]) == (
        "none",
        True,
        ["ALL"],
        True,
    )
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["LogConfig"]["Type"] == "none"
    assert host["PidsLimit"] == 44
    assert host["Memory"] == host["MemorySwap"] == (256 + 2 * 8 + 64) << 20
    assert set(host["Tmpfs"]) == {backend_module.ROOT, backend_module.TEMPORARY}
    assert all(f"size={8 << 20}" in options for options in host["Tmpfs"].values())
    assert config["User"].partition(":")[0] not in {"", "0", "root"}
    assert (config["OpenStdin"], config["StdinOnce"], config.get("Env") or []) == (True, True, [])
    assert engine.containers == {}


@needs_containers
def test_a_container_ends_when_nobody_is_attached_any_more(engine: Engine) -> None:
    """So nothing lives on when the host is killed: the kernel closes the stream, and the engine removes the container."""

    async def use() -> None:
        backend = RemoteBackend(Docker())
        sandbox = await backend.open()
        (container,) = engine.containers.values()
        assert container.stream is not None
        container.stream.shutdown(2)
        with pytest.raises(SandboxGoneError):
            await sandbox.exec(["sleep", "30"], timeout_s=60)
        for _ in range(100):
            if not engine.containers:
                break
            await asyncio.sleep(0.05)
        assert engine.containers == {}
        await backend.aclose()

    asyncio.run(use())


@needs_containers
@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        ("exit-code", "output-cap", "stdin", "argv", "missing-program", "timeout", "timeout-setsid", "background-kept"),
        ("limit-cpu", "limit-disk", "limit-processes", "limit-open-files", "endless-output", "write-full", "start-too-large"),
        ("round-trip", "large-file", "file-names", "atomic-write", "replacing-race", "link-race", "link-write", "not-files"),
        ("snapshot-equal", "snapshot-reopened", "snapshot-moment", "list-recursive", "kill-everything", "other-files"),
        ("host-files", "host-environment", "network-tcp", "network-abstract", "helper-memory", "system-read-only"),
        ("close-twice", "use-after-close", "close-during-command", "many-at-once", "nothing-left", "backend-closed"),
    ],
    ids=lambda names: names[0],
)  # fmt: skip
def test_the_suite_passes_in_containers(engine: Engine, names: tuple[str, ...]) -> None:
    report = asyncio.run(check_backend(RemoteBackend(Docker()), select_checks(names)))
    assert [one for one in report.results if one.outcome is not Outcome.PASSED] == []
    assert engine.containers == {}


def unavailable() -> str:
    async def use() -> str:
        with pytest.raises(BackendUnavailableError) as raised:
            await RemoteBackend(Docker()).open()
        return str(raised.value)

    return asyncio.run(use())


def test_a_missing_daemon_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    text = unavailable()
    assert text.startswith(
        "the docker sandbox needs a Docker Engine that runs and that this user may use (DOCKER_HOST names"
    )
    assert "\n" not in text


def test_a_missing_image_says_how_to_get_it(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(backend_module.VARIABLE, "no/such:image")
    assert unavailable() == "the docker sandbox needs the image no/such:image: docker pull no/such:image"
    assert engine.containers == {}


def test_a_missing_sdk_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    assert (
        unavailable() == 'the docker sandbox needs the Docker SDK: pip install "rosetta-environments[docker]"'
    )
