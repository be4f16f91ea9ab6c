"""Promises about beginning and end: many at once, closed at any time, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from canonical.sandbox.checks.place import (
    Check,
    NotApplicableError,
    Place,
    are_gone,
    expect,
    expect_alive,
    expect_raises,
    in_words,
    processes_with,
    python,
    shell,
    succeeded,
)
from canonical.sandbox.protocol import BackendUnavailableError, Sandbox, SandboxGoneError, Snapshot

_HOST = """
import asyncio, sys
from canonical.sandbox.backends import load_backend
async def main(name, word):
    box = await load_backend(name).open()
    script = "setsid bash -c 'exec -a $0 sleep 300' $0 </dev/null >/dev/null 2>&1 & sleep 0.3"
    await box.exec(['bash', '-c', script, word], timeout_s=20, keep_background=True)
    print('ready', flush=True)
    await box.exec(['bash', '-c', 'exec -a ' + word + ' sleep 300'], timeout_s=250)
asyncio.run(main(*sys.argv[1:]))
"""


async def _close_twice(place: Place) -> str:
    box = await place.open()
    await box.close()
    await box.close()
    await asyncio.gather(box.close(), box.close())
    return "closing again, and twice at the same time, is harmless"


async def _after_close(place: Place) -> str:
    box = await place.open()
    await box.write("file", b"x")
    await box.close()
    calls: tuple[tuple[str, Callable[[], Awaitable[object]]], ...] = (
        ("exec", lambda: box.exec(["true"], timeout_s=5)),
        ("read", lambda: box.read("file")),
        ("write", lambda: box.write("file", b"x")),
        ("list", box.list),
        ("snapshot", box.snapshot),
        ("stop_processes", box.stop_processes),
    )
    for name, call in calls:
        await expect_raises(SandboxGoneError, call(), f"{name} after close")
    return f"{in_words(name for name, _ in calls)} say that the sandbox is gone"


async def _close_during(place: Place) -> str:
    box = await place.open()
    task = asyncio.create_task(shell(box, "sleep 40", timeout_s=50))
    await asyncio.sleep(0.5)
    await box.close()
    async with asyncio.timeout(20):
        await expect_raises(SandboxGoneError, task, "a command during which the sandbox was closed")
    return "the command that was running ends with SandboxGoneError"


async def _many(place: Place) -> str:
    boxes = await asyncio.gather(*(place.open(Snapshot({"number": b"%d" % n})) for n in range(32)))

    async def use(number: int, box: Sandbox) -> bool:
        await box.write("own", b"%d" % number)
        done = await shell(box, "cat number own; echo; ls | wc -l", timeout_s=60)
        return done.stdout.split() == [b"%d%d" % (number, number), b"2"]

    right = await asyncio.gather(*(use(number, box) for number, box in enumerate(boxes)))
    expect(all(right), f"{right.count(False)} of 32 sandboxes show something else than their own files")
    return "32 sandboxes at the same time, each with its own files"


async def _nothing_left(place: Place) -> str:
    word = f"rosettaleft{place.token}"
    before = _mounts()
    box = await place.open()
    await box.write(word, b"x")
    script = (
        f"setsid bash -c 'exec -a {word} sleep 300' </dev/null >/dev/null 2>&1 & "
        f'touch "$(mktemp -d)/{word}"; sleep 0.3'
    )
    succeeded(await shell(box, script, keep_background=True))
    seen = len(processes_with(word))
    await box.close()
    expect(await are_gone(word), f"processes are left: {processes_with(word)}")
    left = _files_named(word)
    expect(not left, f"files are left: {in_words(left)}")
    mounts = _mounts() - before
    expect(not mounts, f"mounts are left: {in_words(sorted(mounts))}")
    return f"processes (of {seen} seen from here), files and mounts are gone"


async def _host_killed(place: Place) -> str:
    from canonical.sandbox.backends import load_backend  # noqa: PLC0415 - which loads this backend by its name

    try:
        same = load_backend(place.backend.name) is place.backend
    except Exception:  # noqa: BLE001 - whatever keeps it from being loaded by name
        same = False
    if not same:
        raise NotApplicableError("the backend cannot be loaded by its name in another process")
    word = f"rosettahost{place.token}"
    folder = Path(__file__).parents[3]
    program = f"import sys; sys.path.insert(0, {str(folder)!r})\n{_HOST}"
    try:
        started = subprocess.Popen(
            [sys.executable, "-P", "-c", program, place.backend.name, word], stdout=subprocess.PIPE
        )
    except OSError as error:
        # Which says nothing about the backend, and whoever runs the check can change it.
        raise BackendUnavailableError(
            f"the check host-killed starts another process of {sys.executable}, which this user cannot: "
            f"{error.strerror or error}; give the user an interpreter that it may execute"
        ) from error
    with started as host:
        place.at_the_end(host.kill)
        assert host.stdout is not None  # noqa: S101 - a pipe was asked for
        line = await asyncio.to_thread(host.stdout.readline)
        expect(line == b"ready\n", f"the other process did not get as far as a sandbox: {line!r}")
        await asyncio.sleep(0.5)
        seen = len(set(processes_with(word)) - {host.pid})
        host.kill()
        await asyncio.to_thread(host.wait)
    expect(await are_gone(word), f"processes are left: {processes_with(word)}")
    return f"after SIGKILL of the host, {seen} processes that were seen from here are gone"


async def _died(place: Place) -> str:
    box, neighbour = await place.open(), await place.open()
    await box.close()
    await expect_alive(neighbour)
    fresh = await place.open()
    await expect_alive(fresh)
    return "the others, and new ones, are not touched by the end of one"


async def _fresh(place: Place) -> str:
    first = await place.open()
    succeeded(await shell(first, 'echo x > file; echo y > "$(mktemp -d)/left"; mkdir folder'))
    await first.close()
    second = await place.open()
    expect(await second.list() == (), f"a new sandbox is not empty: {await second.list()}")
    left = succeeded(await python(second, "import os,tempfile; print(os.listdir(tempfile.gettempdir()))"))
    expect(left == "[]", f"the temporary files of a new sandbox are {left}")
    return "workspace and temporary files are empty"


async def _open_and_close(place: Place) -> str:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(12):
        box = await place.open()
        await box.exec(["true"], timeout_s=20)
        await box.close()
    after = len(list(Path("/proc/self/fd").iterdir()))
    expect(
        after - before < 12, f"this process had {before} open files before 12 sandboxes, and {after} after"
    )
    return f"after 12 sandboxes this process has {after - before} more open files than before"


async def _all_closed(place: Place) -> str:
    boxes = [await place.open() for _ in range(3)]
    word = f"rosettaall{place.token}"
    for box in boxes:
        succeeded(
            await shell(
                box, f"exec -a {word} sleep 300 </dev/null >/dev/null 2>&1 & sleep 0.2", keep_background=True
            )
        )
    await place.backend.aclose()
    for box in boxes:
        await expect_raises(
            SandboxGoneError, box.exec(["true"], timeout_s=5), "a command after the backend was closed"
        )
    expect(await are_gone(word), f"processes are left: {processes_with(word)}")
    await place.backend.aclose()
    return "3 open sandboxes are gone with their processes; closing again is harmless"


def _mounts() -> set[str]:
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return {line.split()[4] for line in lines}
    return set()


def _files_named(word: str) -> list[str]:
    found = []
    for folder in {tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm", f"/run/user/{os.getuid()}"}:  # noqa: S108
        for path, folders, files in os.walk(folder):
            # Trees of others are no business of this check, and may be large.
            if path.count("/") - folder.count("/") >= 4:
                folders.clear()
            found += [f"{path}/{name}" for name in (*folders, *files) if word in name]
    return found


CHECKS = (
    Check("close-twice", "Closing twice is harmless.", _close_twice),
    Check("use-after-close", "Every method of a closed sandbox says that it is gone.", _after_close),
    Check(
        "close-during-command",
        "Closing ends a command that is running, and its caller hears of it.",
        _close_during,
    ),
    Check("many-at-once", "Thirty-two sandboxes live at the same time.", _many, alone=True),
    Check("others-live-on", "The end of one sandbox touches no other.", _died),
    Check("fresh", "A new sandbox holds nothing of an old one.", _fresh),
    Check(
        "descriptors",
        "Opening and closing does not use up the host's open files.",
        _open_and_close,
        alone=True,
    ),
    Check(
        "nothing-left", "A closed sandbox leaves no processes, files or mounts.", _nothing_left, alone=True
    ),
    Check(
        "host-killed",
        "When the host is killed, nothing lives on.",
        _host_killed,
        "end with the host",
        alone=True,
    ),
    Check(
        "backend-closed",
        "Closing the backend closes every sandbox that is still open.",
        _all_closed,
        alone=True,
    ),
)
"""The checks of this module."""
