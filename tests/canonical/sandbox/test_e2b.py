"""The e2b backend through the real SDK, against the server classes that the SDK brings along. Needs the extra `e2b`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

pytest.importorskip("e2b", reason="needs the extra e2b")
pytest.importorskip("uvicorn", reason="the miniature is served by uvicorn")

from canonical.sandbox.check import Outcome, check_backend, select_checks
from canonical.sandbox.e2b import LIFE_S, E2b
from canonical.sandbox.protocol import SandboxGoneError, Snapshot
from canonical.sandbox.remote.backend import RemoteBackend
from tests.miniatures.docker_engine import bubblewrap
from tests.miniatures.e2b_service import Service

pytestmark = [
    pytest.mark.skipif(bubblewrap() is None, reason="the miniature makes machines of bubblewrap"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    served = Service()
    for name, value in (
        ("E2B_API_URL", served.url), ("E2B_SANDBOX_URL", served.url), ("E2B_API_KEY", "e2b_" + "0" * 40),
        ("E2B_HTTP_VERSION", "1.1"),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    yield served
    served.close()


def test_a_machine_has_no_internet_and_a_bounded_life_and_is_ended(service: Service) -> None:
    async def use() -> None:
        sandbox = await RemoteBackend(E2b()).open(Snapshot({"a.txt": b"\xff\0x"}))
        assert await sandbox.read("a.txt") == b"\xff\0x"
        assert (await sandbox.exec(["cat", "a.txt"], timeout_s=20)).stdout == b"\xff\0x"
        assert len(service.alive) == 1
        await sandbox.close()
        with pytest.raises(SandboxGoneError):
            await sandbox.read("a.txt")

    asyncio.run(use())
    assert service.alive == set()
    (created,) = service.created
    assert created["allow_internet_access"] is False
    assert (created["timeout"], created["autoPause"]) == (LIFE_S, False)


def test_a_machine_that_dies_is_gone(service: Service) -> None:
    async def use() -> None:
        sandbox = await RemoteBackend(E2b()).open()
        (process,) = service.envd.running.values()
        process.kill()
        with pytest.raises(SandboxGoneError):
            await sandbox.exec(["sleep", "30"], timeout_s=40)
        await sandbox.close()

    asyncio.run(use())
    assert service.alive == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        ("exit-code", "output-cap", "stdin", "argv", "missing-program", "timeout", "timeout-setsid", "background-kept"),
        ("limit-cpu", "limit-open-files", "write-full", "round-trip", "large-file", "file-names", "atomic-write"),
        ("link-write", "snapshot-equal", "snapshot-reopened", "list-recursive", "use-after-close", "close-during-command", "nothing-left"),
    ],
    ids=lambda names: names[0],
)  # fmt: skip
def test_the_suite_passes_in_machines(service: Service, names: tuple[str, ...]) -> None:
    report = asyncio.run(check_backend(RemoteBackend(E2b()), select_checks(names), at_once=2))
    assert [one for one in report.results if one.outcome is not Outcome.PASSED] == []
    assert service.alive == set()
