"""Promises about commands: what they get, what comes back, and what happens when they cannot start."""

from __future__ import annotations

import asyncio

from canonical.sandbox.checks.place import (
    Check,
    Place,
    expect,
    expect_alive,
    expect_raises,
    python,
    shell,
    shown,
    succeeded,
)
from canonical.sandbox.protocol import CommandFailedError, PathError, RefusedError


async def _exit_code(place: Place) -> str:
    box = await place.open()
    codes = [(await shell(box, f"exit {code}")).exit_code for code in (0, 1, 7, 127, 255)]
    expect(codes == [0, 1, 7, 127, 255], f"0, 1, 7, 127, 255 came back as {codes}")
    return "0, 1, 7, 127 and 255 come back"


async def _streams(place: Place) -> str:
    box = await place.open()
    done = await shell(box, "echo out; echo err >&2; exit 3")
    expect((done.exit_code, done.stdout, done.stderr) == (3, b"out\n", b"err\n"), shown(done))
    return "both streams came back whole, each in its place"


async def _stdin(place: Place) -> str:
    box = await place.open()
    data = bytes(range(256)) * 512
    done = await python(
        box, "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[-20000:])", stdin=data
    )
    expect(done.stdout == data[-20000:], f"128 kB of input did not arrive: {shown(done)}")
    done = await box.exec(["cat"], timeout_s=20)
    expect((done.exit_code, done.stdout) == (0, b""), f"a command without input: {shown(done)}")
    return "128 kB arrive; without input there is an end of file"


async def _stdin_unread(place: Place) -> str:
    box = await place.open()
    done = await box.exec(["true"], timeout_s=20, stdin=b"x" * (1 << 20))
    expect(done.exit_code == 0, f"`true` with 1 MiB of input: {shown(done)}")
    await expect_alive(box)
    return "`true` ends with 0 although 1 MiB waits for it"


async def _cwd(place: Place) -> str:
    box = await place.open()
    await box.write("deep/er/file.txt", b"x")
    root = succeeded(await box.exec(["pwd"], timeout_s=20))
    below = succeeded(await box.exec(["pwd"], timeout_s=20, cwd="deep/er"))
    expect(below == f"{root.rstrip('/')}/deep/er", f"`pwd` says {root!r}, and {below!r} in deep/er")
    names = succeeded(await box.exec(["ls", "-a"], timeout_s=20, cwd="deep/er")).split()
    expect(names == [".", "..", "file.txt"], f"in deep/er `ls` shows {names}")
    return f"the workspace is {root}, and deep/er lies in it"


async def _env(place: Place) -> str:
    box = await place.open()
    done = await box.exec(["printenv", "GIVEN"], timeout_s=20, env={"GIVEN": "a b\n$c 'é'"})
    expect(done.stdout == "a b\n$c 'é'\n".encode(), f"a variable arrived as {done.stdout!r}")
    later = await box.exec(["printenv", "GIVEN"], timeout_s=20)
    expect(later.exit_code == 1, f"the variable was still there in the next command: {shown(later)}")
    return "a variable arrives unchanged, and is gone in the next command"


async def _argv(place: Place) -> str:
    box = await place.open()
    arguments = ["", " ", "a b", "$HOME", "*", "`id`", "'\"", "\\", "new\nline", "é😀", "-n", ";exit 9", "%s"]
    done = await python(
        box, "import os,sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))", *arguments
    )
    got = done.stdout.decode("utf-8", "replace").split("\0")
    expect(got == arguments, f"{arguments} arrived as {got}")
    return f"{len(arguments)} awkward arguments arrive as they were given"


async def _missing_program(place: Place) -> str:
    box = await place.open()
    for argv in (["no-such-program-here"], ["/no/such/program"], ["./missing"]):
        await expect_raises(CommandFailedError, box.exec(argv, timeout_s=20), f"{argv[0]!r}")
    await box.write("data.txt", b"not a program")
    await expect_raises(
        CommandFailedError, box.exec(["./data.txt"], timeout_s=20), "a file that may not be executed"
    )
    await expect_alive(box)
    return "a missing program, a missing path and a file without the right are told from an exit code"


async def _missing_folder(place: Place) -> str:
    box = await place.open()
    await box.write("file.txt", b"")
    for folder in ("nowhere", "file.txt"):
        await expect_raises(
            CommandFailedError, box.exec(["true"], timeout_s=20, cwd=folder), f"a command in {folder!r}"
        )
    await expect_alive(box)
    return "a missing folder and a file as folder are reported"


async def _impossible(place: Place) -> str:
    box = await place.open()
    kinds = (CommandFailedError, RefusedError, PathError)
    await expect_raises(kinds, box.exec([], timeout_s=20), "a command without a program")
    await expect_raises(kinds, box.exec(["echo", "a\0b"], timeout_s=20), "an argument with a null byte")
    await expect_raises(kinds, box.exec(["true"], timeout_s=20, cwd="a\0b"), "a folder with a null byte")
    await expect_raises(
        kinds, box.exec(["true"], timeout_s=20, env={"A": "\0"}), "a variable with a null byte"
    )
    await expect_raises(kinds, box.exec(["true", "x" * (4 << 20)], timeout_s=20), "an argument of 4 MiB")
    await expect_alive(box)
    return "no program, null bytes and an argument of 4 MiB are refused; the sandbox goes on"


async def _binary(place: Place) -> str:
    box = await place.open()
    done = await python(box, "import sys; sys.stdout.buffer.write(bytes(range(256)) * 8)")
    expect(done.stdout == bytes(range(256)) * 8, f"2,048 bytes of all values came back as {len(done.stdout)}")
    return "all 256 byte values come back"


async def _output_cap(place: Place) -> str:
    limit = 10_001
    box = await place.open(output_bytes=limit)
    whole = b"".join(b"%07d\n" % number for number in range(50_000))
    code = (
        "import sys\n"
        "for number in range(50000):\n"
        " sys.stdout.write('%07d\\n' % number); sys.stderr.write('%07d\\n' % number)\n"
    )
    done = await python(box, code)
    for name, kept, dropped in (
        ("stdout", done.stdout, done.stdout_dropped),
        ("stderr", done.stderr, done.stderr_dropped),
    ):
        expect(len(kept) <= limit, f"{name}: {len(kept)} bytes are kept, the limit is {limit}")
        expect(len(kept) >= limit // 2, f"{name}: only {len(kept)} bytes are kept, the limit is {limit}")
        expect(
            len(kept) + dropped == len(whole),
            f"{name}: {len(kept)} kept + {dropped} dropped are not {len(whole)}",
        )
        halves = {len(kept) // 2, len(kept) - len(kept) // 2}
        fits = any(whole.startswith(kept[:half]) and whole.endswith(kept[half:]) for half in halves)
        expect(fits, f"{name}: what is kept is not the head and the tail, in two halves")
    return f"of {len(whole):,} bytes on each stream, {len(done.stdout):,} are kept: head and tail"


async def _output_exact(place: Place) -> str:
    box = await place.open(output_bytes=10_000)
    for size, dropped in ((9_999, 0), (10_000, 0), (10_001, 1)):
        done = await python(box, f"import sys; sys.stdout.write('x' * {size})")
        expect(
            (len(done.stdout), done.stdout_dropped) == (size - dropped, dropped),
            f"of {size} bytes under a limit of 10000, {len(done.stdout)} are kept and {done.stdout_dropped} dropped",
        )
    return "exactly as much as the limit is kept whole; one byte more drops one"


async def _signals(place: Place) -> str:
    box = await place.open()
    codes = {name: (await shell(box, f"kill -{name} $$")).exit_code for name in ("KILL", "SEGV", "TERM")}
    expect(codes == {"KILL": -9, "SEGV": -11, "TERM": -15}, f"{codes}")
    return "SIGKILL -9, SIGSEGV -11, SIGTERM -15"


async def _at_once(place: Place) -> str:
    box = await place.open()
    slow = [asyncio.create_task(shell(box, f"sleep 0.7; echo {n}; echo {n} >&2; exit {n}")) for n in range(6)]
    await box.write("between.txt", b"x")
    read = await box.read("between.txt")
    expect(read == b"x", "a file call during commands answered wrongly")
    for number, done in enumerate(await asyncio.gather(*slow)):
        text = b"%d\n" % number
        expect(
            (done.exit_code, done.stdout, done.stderr) == (number, text, text),
            f"command {number}: {shown(done)}",
        )
    return "6 commands and file calls at the same time, each with its own answer"


async def _one_ends(place: Place) -> str:
    box = await place.open()
    longer = asyncio.create_task(shell(box, "sleep 2; echo whole"))
    await asyncio.sleep(0.3)
    await shell(box, "sleep 30 & exit 0")
    done = await longer
    expect(done.stdout == b"whole\n", f"the end of another command changed it: {shown(done)}")
    return "a command that ends takes only its own processes with it"


async def _cancelled(place: Place) -> str:
    box = await place.open()
    name = f"c{place.token}"
    task = asyncio.create_task(shell(box, f"cp /bin/sleep {name}; ./{name} 40", timeout_s=60))
    await asyncio.sleep(0.7)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await expect_alive(box)
    left = succeeded(await shell(box, f"sleep 0.5; cat /proc/[0-9]*/comm 2>/dev/null | grep -c {name}; true"))
    expect(left == "0", "the command whose call was cancelled still runs")
    return "the command of a cancelled call is dead, and the sandbox goes on"


CHECKS = (
    Check("exit-code", "The exit code of a command comes back.", _exit_code),
    Check("streams", "Standard output and standard error come back apart.", _streams),
    Check("stdin", "A command reads the input that it is given, and an end of file after it.", _stdin),
    Check("stdin-unread", "A command that does not read its input ends as it would.", _stdin_unread),
    Check("cwd", "A command starts in the workspace, or in the folder below it that was named.", _cwd),
    Check("env-given", "Variables that are given reach that command only.", _env),
    Check("argv", "Arguments reach the program byte for byte; no shell reads them.", _argv),
    Check("missing-program", "A program that cannot be started is an error of its own.", _missing_program),
    Check("missing-folder", "A folder that is not there is an error of its own.", _missing_folder),
    Check(
        "impossible-command", "A command that no system can start is refused, and harms nothing.", _impossible
    ),
    Check("binary-output", "Output is bytes, not text.", _binary),
    Check(
        "output-cap",
        "Of long output the head and the tail are kept, and what was dropped is counted.",
        _output_cap,
    ),
    Check("output-exact", "Output up to the limit is kept whole.", _output_exact),
    Check("signals", "A command that a signal ended has minus the signal's number as exit code.", _signals),
    Check("calls-at-once", "Calls at the same time do not disturb each other.", _at_once),
    Check("one-command-ends", "The end of one command leaves others alone.", _one_ends),
    Check("cancelled-call", "Cancelling a call kills its command, and nothing else.", _cancelled),
)
"""The checks of this module."""
