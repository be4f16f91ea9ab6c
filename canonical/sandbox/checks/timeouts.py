"""Promises about time: when the clock starts, and what is dead when it has run out."""

from __future__ import annotations

import asyncio

from canonical.sandbox.checks.place import (
    BEAT,
    Check,
    Place,
    beats,
    expect,
    expect_alive,
    expect_raises,
    python,
    shell,
    shown,
    succeeded,
)
from canonical.sandbox.protocol import CommandTimeoutError

_DOUBLE_FORK = f"""
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        exec({BEAT!r})
    os._exit(0)
os.wait()
"""
_IGNORING = f"""
import signal
for number in range(1, 32):
    if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD): signal.signal(number, signal.SIG_IGN)
exec({BEAT!r})
"""


async def _timeout(place: Place) -> str:
    box = await place.open()
    error = await expect_raises(
        CommandTimeoutError,
        shell(box, "echo before; echo err >&2; sleep 60", timeout_s=1),
        "a command of 60 s with 1 s",
    )
    expect(error.timeout_s == 1, f"the error speaks of {error.timeout_s} s instead of 1 s")
    partial = error.partial
    expect(
        (partial.exit_code, partial.stdout, partial.stderr) == (-9, b"before\n", b"err\n"),
        f"what the command had written: {shown(partial)}",
    )
    await expect_alive(box)
    return "the command was stopped after 1 s; what it had written is there, with exit code -9"


async def _term_ignored(place: Place) -> str:
    box = await place.open()
    await expect_raises(
        CommandTimeoutError, python(box, _IGNORING, timeout_s=2), "a program that ignores signals"
    )
    expect(not await beats(box), "the program still runs after its time")
    return "a program that ignores every signal it can is dead"


async def _setsid(place: Place) -> str:
    box = await place.open()
    await box.write("beat.py", BEAT.encode())
    await expect_raises(
        CommandTimeoutError,
        shell(box, "setsid python3 -I beat.py </dev/null >/dev/null 2>&1 & sleep 60", timeout_s=2),
        "a command with a daemon",
    )
    expect(not await beats(box), "the daemon still runs after the time of its command")
    return "a daemon in a session of its own is dead"


async def _double_fork(place: Place) -> str:
    box = await place.open()
    await expect_raises(
        CommandTimeoutError,
        python(box, _DOUBLE_FORK + "time.sleep(60)", timeout_s=2),
        "a command with a daemon that forked twice",
    )
    expect(not await beats(box), "the daemon still runs after the time of its command")
    return "a daemon that forked twice is dead"


async def _left_behind(place: Place) -> str:
    box = await place.open()
    done = await python(box, _DOUBLE_FORK + "print('ended')", timeout_s=25)
    expect(
        (done.exit_code, done.stdout) == (0, b"ended\n"), f"the command did not end by itself: {shown(done)}"
    )
    expect(not await beats(box), "a process that holds the command's output still runs")
    return "the command ended although a daemon held its output, and the daemon is dead"


async def _kept(place: Place) -> str:
    box = await place.open()
    await box.write("beat.py", BEAT.encode())
    done = await shell(
        box, "python3 -I beat.py </dev/null >/dev/null 2>&1 & echo started", keep_background=True
    )
    expect(done.stdout == b"started\n", shown(done))
    expect(await beats(box), "the process that was to be kept is dead")
    await shell(box, "true")
    expect(await beats(box), "the process that was to be kept died with a later command")
    return "a process that was to be kept outlives its command and the next"


async def _stop(place: Place) -> str:
    box = await place.open()
    await python(box, _DOUBLE_FORK, keep_background=True, timeout_s=20)
    expect(await beats(box), "the process that was to be kept is dead")
    await box.stop_processes()
    expect(not await beats(box), "it still runs after stop_processes")
    await box.stop_processes()
    await expect_alive(box)
    return "a kept daemon is dead afterwards, and the sandbox goes on"


async def _clock(place: Place) -> str:
    box = await place.open()
    done = await asyncio.gather(*(shell(box, "sleep 0.5; echo done", timeout_s=8) for _ in range(40)))
    expect(all(one.stdout == b"done\n" for one in done), "some of 40 commands did not do their work")
    return "40 commands of 0.5 s at the same time, with 8 s each, all came to their end"


async def _zombies(place: Place) -> str:
    box = await place.open()
    name = f"z{place.token}"
    for _ in range(4):
        await shell(
            box, f"cp /bin/sleep {name}; for i in 1 2 3 4 5 6 7 8; do (setsid ./{name} 0.01 &) ; done; true"
        )
    text = succeeded(
        await shell(box, f"sleep 0.5; cat /proc/[0-9]*/stat 2>/dev/null | grep {name} | grep -c ' Z '; true")
    )
    zombies = int(text)
    expect(zombies == 0, f"{zombies} dead processes were never collected")
    return "of 32 orphans none is left uncollected"


CHECKS = (
    Check(
        "timeout", "A command that runs out of time is stopped, and what it had written is kept.", _timeout
    ),
    Check("timeout-ignoring", "A program cannot outlive its time by ignoring signals.", _term_ignored),
    Check("timeout-setsid", "A program cannot outlive its time in a session of its own.", _setsid),
    Check("timeout-double-fork", "A program cannot outlive its time as a daemon.", _double_fork),
    Check(
        "background-ended",
        "Processes left behind are killed when their command ends, and do not delay it.",
        _left_behind,
    ),
    Check("background-kept", "Processes left behind live on when that was asked for.", _kept),
    Check("stop-processes", "Processes that were kept are killed on demand.", _stop),
    Check(
        "clock",
        "The clock of a command starts when it starts, not while it waits for its turn.",
        _clock,
        alone=True,
    ),
    Check("orphans", "Dead orphans are collected.", _zombies),
)
"""The checks of this module."""
