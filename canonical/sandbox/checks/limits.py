"""Promises about limits: what is reached stops the command, never the sandbox, the others or the host."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

from canonical.sandbox.checks.place import (
    BrokenPromiseError,
    Check,
    NotApplicableError,
    Place,
    expect,
    expect_alive,
    expect_raises,
    in_words,
    python,
    shell,
    shown,
    succeeded,
)
from canonical.sandbox.protocol import (
    CommandTimeoutError,
    Exec,
    Limit,
    LimitError,
    PathError,
    Sandbox,
    SandboxError,
    Snapshot,
)

_MIB = 1 << 20


async def _cpu(place: Place) -> str:
    box = await place.open(cpu_s=1.0)
    error = await expect_raises(
        LimitError,
        python(box, "while True: pass", timeout_s=40),
        "a loop under a limit of 1 s of processor time",
    )
    expect(error.limit is Limit.CPU, f"the error names the limit {error.limit}")
    await expect_alive(box)
    return "an endless loop ended with LimitError: cpu"


async def _memory(place: Place) -> str:
    box = await place.open(memory_bytes=256 * _MIB)
    done = await _run_or_limit(
        box, "held = bytearray(b'x' * (900 << 20)); print('held', flush=True)", Limit.MEMORY, timeout_s=40
    )
    expect(done is None or b"held" not in done.stdout, "a program held 900 MiB under a limit of 256 MiB")
    await expect_alive(box)
    return "900 MiB under 256 MiB: " + (
        "LimitError: memory" if done is None else f"the program failed by itself ({done.exit_code})"
    )


async def _memory_together(place: Place) -> str:
    box = await place.open(memory_bytes=256 * _MIB)
    code = (
        "import os, sys, time\n"
        "r, w = os.pipe()\n"
        "for _ in range(6):\n"
        " if os.fork() == 0:\n"
        "  held = bytearray(b'x' * (100 << 20)); os.write(w, b'.'); time.sleep(8); os.write(w, b'+'); os._exit(0)\n"
        "os.close(w)\n"
        "print(sum(c == 43 for c in iter(lambda: (os.read(r, 1) or b'!')[0], 33)))\n"
    )
    done = await _run_or_limit(box, code, Limit.MEMORY, timeout_s=50)
    alive = 0 if done is None else int(done.stdout.strip() or b"0")
    expect(alive < 6, "6 processes held 100 MiB each under a limit of 256 MiB")
    await expect_alive(box)
    return "6 x 100 MiB under 256 MiB: " + (
        "LimitError: memory" if done is None else f"{alive} of 6 survived"
    )


async def _processes(place: Place) -> str:
    box = await place.open(processes=32)
    code = (
        "import os, time\n"
        "made = 0\n"
        "try:\n"
        " for _ in range(400):\n"
        "  if os.fork() == 0: time.sleep(20); os._exit(0)\n"
        "  made += 1\n"
        "except OSError: pass\n"
        "print(made, flush=True)\n"
    )
    done = await _run_or_limit(box, code, Limit.PROCESSES, timeout_s=40)
    made = 0 if done is None else int(done.stdout.strip() or b"0")
    expect(made <= 32, f"{made} processes were made under a limit of 32")
    await expect_alive(box)
    return f"of 400 forks {made} succeeded under a limit of 32"


async def _fork_bomb(place: Place) -> str:
    neighbour = await place.open(processes=32)
    box = await place.open(processes=32)
    bomb = "bomb() { bomb | bomb & }; bomb; sleep 5"
    with contextlib.suppress(LimitError, CommandTimeoutError):
        await shell(box, bomb, timeout_s=6)
    await expect_alive(neighbour)
    await expect_alive(box)
    return "after a fork bomb the sandbox and its neighbour are usable"


async def _file_size(place: Place) -> str:
    box = await place.open(file_bytes=4 * _MIB)
    with contextlib.suppress(LimitError):
        await shell(box, "head -c 12M /dev/zero > big; true")
    size = next((entry.size for entry in await box.list() if entry.path == "big"), 0)
    expect(size <= 4 * _MIB, f"a file of {size:,} bytes was made under a limit of {4 * _MIB:,}")
    await expect_alive(box)
    return f"a file that was to have 12 MiB stopped at {size:,} bytes under a limit of 4 MiB"


async def _disk(place: Place) -> str:
    box = await place.open(file_bytes=4 * _MIB, disk_bytes=16 * _MIB)
    await box.write("before.txt", b"before")
    with contextlib.suppress(LimitError):
        await shell(box, "for i in $(seq 16); do head -c 3M /dev/zero > fill.$i || break; done; true")
    held = sum(entry.size for entry in await box.list())
    expect(held <= 17 * _MIB, f"{held:,} bytes lie in the workspace under a limit of {16 * _MIB:,}")
    expect(await box.read("before.txt") == b"before", "a file that was there before has changed")
    succeeded(await shell(box, "rm -f fill.*"))
    await expect_alive(box)
    return f"48 MiB stopped at {held / _MIB:.1f} MiB under a limit of 16 MiB; after removing it all is well"


async def _temporary(place: Place) -> str:
    box = await place.open(file_bytes=4 * _MIB, disk_bytes=16 * _MIB)
    script = (
        'cd "$(mktemp -d)"; for i in $(seq 16); do head -c 3M /dev/zero > fill.$i || break; done 2>/dev/null\n'
        "cat fill.* | wc -c"
    )
    try:
        held = int(succeeded(await shell(box, script)))
    except LimitError:
        return "filling the temporary files ended with LimitError"
    expect(held <= 17 * _MIB, f"{held:,} bytes of temporary files under a limit of {16 * _MIB:,}")
    return f"48 MiB of temporary files stopped at {held / _MIB:.1f} MiB under a limit of 16 MiB"


async def _flood(place: Place) -> str:
    box = await place.open()
    code = (
        "import os\n"
        "made = 0\n"
        "os.mkdir('flood')\n"
        "try:\n"
        " for n in range(100200):\n"
        "  os.close(os.open('flood/%d' % n, os.O_CREAT | os.O_WRONLY)); made += 1\n"
        "except OSError: pass\n"
        "print(made)\n"
    )
    done = await _run_or_limit(box, code, Limit.DISK, timeout_s=60)
    made = 0 if done is None else int(succeeded(done))
    if made > 100_000:
        await expect_raises(LimitError, box.list("flood"), f"a list of {made:,} entries")
        await expect_raises(LimitError, box.list(recursive=True), f"a recursive list of {made:,} entries")
    succeeded(await shell(box, "rm -rf flood", timeout_s=60))
    await expect_alive(box)
    end = "list refuses more than 100,000" if made > 100_000 else "then the system refused"
    return f"{made:,} empty files were made, {end}; afterwards all is well"


async def _open_files(place: Place) -> str:
    box = await place.open(open_files=64)
    code = (
        "held = []\n"
        "try:\n"
        " for _ in range(2000): held.append(open('/dev/null'))\n"
        "except OSError: pass\n"
        "print(len(held))\n"
    )
    count = int(succeeded(await python(box, code)))
    expect(count <= 64, f"a program opened {count} files under a limit of 64")
    return f"a program opened {count} files under a limit of 64"


async def _endless(place: Place) -> str:
    box = await place.open()
    before = _resident_bytes()
    try:
        done = await shell(box, "yes out & yes err >&2 & wait", timeout_s=3)
        raise BrokenPromiseError(f"a command that never ends ended: {shown(done)}")
    except CommandTimeoutError as error:
        partial = error.partial
    except LimitError as error:
        if error.partial is None:
            raise BrokenPromiseError(
                "the error about endless output does not hold what was written"
            ) from error
        partial = error.partial
    for name, kept, dropped in (
        ("stdout", partial.stdout, partial.stdout_dropped),
        ("stderr", partial.stderr, partial.stderr_dropped),
    ):
        expect(0 < len(kept) <= 30_000, f"{len(kept):,} bytes of {name} are kept under a limit of 30,000")
        expect(dropped > 0, f"nothing of {name} is reported as dropped")
    grown = _resident_bytes() - before
    expect(grown < 128 * _MIB, f"this process grew by {grown / _MIB:.0f} MiB")
    await expect_alive(box)
    dropped = partial.stdout_dropped + partial.stderr_dropped
    return f"{dropped / _MIB:.0f} MiB were dropped while this process grew by {max(grown, 0) / _MIB:.0f} MiB"


async def _write_too_large(place: Place) -> str:
    box = await place.open(file_bytes=2 * _MIB)
    await box.write("file.bin", b"before")
    error = await expect_raises(
        LimitError, box.write("file.bin", b"x" * (3 * _MIB)), "writing 3 MiB under a limit of 2 MiB"
    )
    expect(error.limit in {Limit.FILE_SIZE, Limit.DISK}, f"the error names the limit {error.limit}")
    expect(await box.read("file.bin") == b"before", "the refused write changed the file")
    names = [entry.path for entry in await box.list()]
    expect(names == ["file.bin"], f"the refused write left something: {in_words(names)}")
    return "3 MiB under a limit of 2 MiB are refused, and the file is as before"


async def _write_full(place: Place) -> str:
    box = await place.open(file_bytes=4 * _MIB, disk_bytes=8 * _MIB)
    piece = b"p" * (2 * _MIB)
    written = 0
    try:
        for number in range(12):
            await box.write(f"piece.{number}", piece)
            written += 1
    except LimitError as error:
        expect(error.limit is Limit.DISK, f"the error names the limit {error.limit}")
    else:
        raise BrokenPromiseError("24 MiB were written under a limit of 8 MiB")
    names = [entry.path for entry in await box.list()]
    expect(len(names) == written, f"{written} writes succeeded, and there are {in_words(names)}")
    for number in range(written):
        expect(await box.read(f"piece.{number}") == piece, f"piece {number} is not what was written")
    succeeded(await shell(box, "rm -f piece.*"))
    await expect_alive(box)
    return f"{written} files of 2 MiB fit under a limit of 8 MiB; the next was refused and left nothing"


async def _start_too_large(place: Place) -> str:
    files = {f"f{number}": b"x" * (2 * _MIB) for number in range(6)}
    await expect_raises(
        LimitError,
        place.open(Snapshot(files), disk_bytes=8 * _MIB),
        "a start of 12 MiB under a limit of 8 MiB",
    )
    await expect_raises(
        LimitError,
        place.open(Snapshot({"f": b"x" * (3 * _MIB)}), file_bytes=2 * _MIB),
        "a start with a file of 3 MiB under 2 MiB",
    )
    return "a start that does not fit is refused"


async def _sparse(place: Place) -> str:
    box = await place.open()
    await shell(box, "truncate -s 1T sparse 2>/dev/null; true")
    size = next((entry.size for entry in await box.list() if entry.path == "sparse"), 0)
    seen = []
    for name, call in (("read", partial(box.read, "sparse")), ("snapshot", box.snapshot)):
        try:
            await call()
            expect(size <= 16 * _MIB, f"{name} answered although the file says that it has {size:,} bytes")
            seen.append(f"{name} answered")
        except (LimitError, PathError) as error:
            seen.append(f"{name} raised {type(error).__name__}")
    succeeded(await shell(box, "rm -f sparse"))
    await expect_alive(box)
    return f"a file of 1 TiB without content got {size:,} bytes; {in_words(seen)}"


async def _run_or_limit(box: Sandbox, code: str, limit: Limit, *, timeout_s: float) -> Exec | None:
    """Run a program that may be ended by a limit; nothing when it was, which must be the right one."""
    try:
        return await python(box, code, timeout_s=timeout_s)
    except LimitError as error:
        expect(error.limit is limit, f"the error names the limit {error.limit} instead of {limit}")
        return None
    except CommandTimeoutError as error:
        raise BrokenPromiseError(f"the program neither ended nor met a limit: {error}") from error
    except SandboxError as error:
        raise BrokenPromiseError(
            f"the program took the sandbox with it: {type(error).__name__}: {error}"
        ) from error


def _resident_bytes() -> int:
    try:
        words = Path("/proc/self/statm").read_text(encoding="ascii").split()
    except OSError as error:
        raise NotApplicableError("this system does not tell how much memory a process has") from error
    return int(words[1]) * 4096


CHECKS = (
    Check(
        "limit-cpu",
        "A command that has used up its processor time is ended, and the error says so.",
        _cpu,
        "processor time",
    ),
    Check(
        "limit-memory", "A program cannot hold more memory than the limit.", _memory, "memory of one process"
    ),
    Check(
        "limit-memory-together",
        "The processes of a sandbox cannot hold more memory together than the limit.",
        _memory_together,
        "memory of all processes",
        alone=True,
    ),
    Check(
        "limit-processes", "No more processes live at once than the limit.", _processes, "number of processes"
    ),
    Check(
        "fork-bomb",
        "A fork bomb harms neither the sandbox nor its neighbour.",
        _fork_bomb,
        "number of processes",
        alone=True,
    ),
    Check("limit-file-size", "No file grows beyond the limit.", _file_size, "file size"),
    Check(
        "limit-disk",
        "The workspace does not grow beyond the limit, and recovers when it is emptied.",
        _disk,
        "disk",
    ),
    Check("limit-temporary", "Temporary files do not grow beyond the limit.", _temporary, "disk"),
    Check(
        "flood-of-files",
        "A flood of empty files harms nothing, and a list of more than 100,000 entries is refused.",
        _flood,
        "disk",
        alone=True,
    ),
    Check("limit-open-files", "A program cannot open more files than the limit.", _open_files, "open files"),
    Check(
        "endless-output",
        "Endless output on both streams is capped, and costs the host no memory.",
        _endless,
        "output",
        alone=True,
    ),
    Check(
        "write-too-large",
        "A file above the limit is not written, and nothing of it is left.",
        _write_too_large,
        "file size",
    ),
    Check(
        "write-full", "A write that does not fit is refused, and what was there stays.", _write_full, "disk"
    ),
    Check("start-too-large", "A start that does not fit is refused.", _start_too_large, "disk"),
    Check("sparse-file", "A file that only claims to be large costs the host nothing.", _sparse, "file size"),
)
"""The checks of this module."""
