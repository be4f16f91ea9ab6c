"""Promises about files: what is written is what is read, in one step, under any name."""

from __future__ import annotations

import asyncio
import contextlib
import random
from functools import partial

from canonical.sandbox.checks.place import (
    Check,
    Place,
    expect,
    expect_alive,
    expect_raises,
    python,
    shell,
    succeeded,
)
from canonical.sandbox.protocol import (
    CommandFailedError,
    LimitError,
    PathError,
    RefusedError,
    SandboxError,
    SandboxGoneError,
)

NAMES = (
    "with space", "-rf", "é", "日本語", "😀.txt", "new\nline", "tab\there", "quote'\"", "back\\slash", "$HOME", "*", "%s",
    "`id`", "a;b", "\x01\x7f", "...", ".hidden", "x" * 255, "é" * 127,
)  # fmt: skip
"""Names that are legal and often mistreated."""


async def _round_trip(place: Place) -> str:
    box = await place.open()
    for data in (b"", b"text\n", bytes(range(256)), b"\r\n\0\xff\xfe", b"no end of line"):
        await box.write("file", data)
        expect(await box.read("file") == data, f"{data[:40]!r} came back as something else")
    expect(succeeded(await shell(box, "cat file")) == "no end of line", "a command sees another content")
    succeeded(await shell(box, "printf 'by a command' > other"))
    expect(await box.read("other") == b"by a command", "what a command wrote is read as something else")
    return "empty, text and binary content come back; commands and calls see the same files"


async def _large(place: Place) -> str:
    box = await place.open()
    data = random.Random(5).randbytes(5 << 20)  # noqa: S311 - content, not a secret
    await box.write("large.bin", data)
    expect(await box.read("large.bin") == data, "5 MiB came back different")
    size = succeeded(await shell(box, "wc -c < large.bin"))
    expect(size == str(len(data)), f"a command counts {size} bytes")
    return "5 MiB of random bytes come back"


async def _window(place: Place) -> str:
    box = await place.open()
    data = bytes(range(256)) * 40
    await box.write("file", data)
    for offset, limit in (
        (0, None),
        (0, 10),
        (100, 1),
        (10_000, 500),
        (10_240, 5),
        (99_999, None),
        (5, 0),
        (0, 10**9),
    ):
        got = await box.read("file", offset=offset, limit=limit)
        expected = data[offset:] if limit is None else data[offset : offset + limit]
        expect(
            got == expected, f"offset {offset}, limit {limit}: {len(got)} bytes instead of {len(expected)}"
        )
    return "8 pairs of offset and limit, also beyond the end"


async def _missing(place: Place) -> str:
    box = await place.open()
    await box.write("folder/file", b"x")
    for path, reason in (("no", "missing"), ("no/such", "missing"), ("folder", "is a directory")):
        error = await expect_raises(PathError, box.read(path), f"reading {path!r}")
        expect(error.reason == reason, f"reading {path!r}: {error.reason!r} instead of {reason!r}")
        expect(error.path == path, f"the error names {error.path!r} instead of {path!r}")
    await expect_raises(PathError, box.read("folder/file/below"), "reading below a file")
    return "missing files and folders are told apart"


async def _write_wrong(place: Place) -> str:
    box = await place.open()
    await box.write("folder/file", b"x")
    error = await expect_raises(PathError, box.write("folder", b""), "writing over a folder")
    expect(error.reason == "is a directory", f"writing over a folder: {error.reason!r}")
    await expect_raises(PathError, box.write("folder/file/below", b""), "writing below a file")
    for path in ("", "."):
        await expect_raises((PathError, RefusedError), box.write(path, b""), f"writing to {path!r}")
    expect(await box.read("folder/file") == b"x", "a refused write changed a file")
    return "a folder is not replaced by a file, and nothing is made below a file"


async def _folders(place: Place) -> str:
    box = await place.open()
    await box.write("a/b/c/d.txt", b"deep")
    await box.write("./a//b/./e.txt", b"same folder")
    expect(await box.read("a/b/e.txt") == b"same folder", "`./a//b/./e.txt` is not `a/b/e.txt`")
    names = succeeded(await shell(box, "find . -type f | sort"))
    expect(names == "./a/b/c/d.txt\n./a/b/e.txt", f"commands see {names!r}")
    return "missing folders are made; dots and doubled slashes mean nothing"


async def _absolute(place: Place) -> str:
    box = await place.open()
    root = succeeded(await box.exec(["pwd"], timeout_s=20))
    await box.write(f"{root}/absolute.txt", b"x")
    expect(await box.read("absolute.txt") == b"x", "an absolute path in the workspace is another file")
    expect(await box.read(f"{root}/absolute.txt") == b"x", "an absolute path in the workspace cannot be read")
    return f"{root}/absolute.txt is absolute.txt"


async def _names(place: Place) -> str:
    box = await place.open()
    for number, name in enumerate(NAMES):
        await box.write(f"names/{name}", b"%d" % number)
    listed = {entry.path for entry in await box.list("names")}
    expect(
        listed == {f"names/{name}" for name in NAMES},
        f"the list differs: {listed ^ {f'names/{n}' for n in NAMES}}",
    )
    for number, name in enumerate(NAMES):
        expect(
            await box.read(f"names/{name}") == b"%d" % number, f"the file {name[:40]!r} holds something else"
        )
    count = succeeded(await python(box, "import os; print(len(os.listdir('names')))"))
    expect(count == str(len(NAMES)), f"a command counts {count} files instead of {len(NAMES)}")
    files = (await box.snapshot()).files
    expect(set(files) == {f"names/{name}" for name in NAMES}, "the snapshot has other names")
    return f"{len(NAMES)} awkward names, of up to 255 bytes"


async def _not_text_names(place: Place) -> str:
    box = await place.open()
    succeeded(await python(box, "open(b'bad\\xff\\xfe', 'wb').write(b'x'); open('good', 'wb').write(b'y')"))
    seen = []
    for name, call in (("list", box.list), ("snapshot", box.snapshot)):
        try:
            await call()
            seen.append(f"{name} answered")
        except SandboxGoneError:
            raise
        except SandboxError as error:
            seen.append(f"{name} raised {type(error).__name__}")
    expect(await box.read("good") == b"y", "another file cannot be read any more")
    await expect_alive(box)
    return f"with a file name that is not UTF-8: {', '.join(seen)}"


async def _impossible_paths(place: Place) -> str:
    box = await place.open()
    kinds = (PathError, RefusedError, LimitError, CommandFailedError)
    for what, path in (
        ("a name of 256 bytes", "x" * 256), ("a path of 5,000 bytes", "d/" * 2_500 + "f"), ("a path of 1 MB", "x" * 1_000_000),
        ("a null byte", "a\0b"), ("half a character", "a\ud800b"),
    ):  # fmt: skip
        await expect_raises(kinds, box.read(path), f"reading {what}")
        await expect_raises(kinds, box.write(path, b"x"), f"writing {what}")
        await expect_raises(kinds, box.list(path), f"listing {what}")
    await expect_alive(box)
    return "too long names and paths, null bytes and halves of characters are refused; the sandbox goes on"


async def _atomic(place: Place) -> str:
    box = await place.open()
    contents = [bytes([letter]) * (1 << 20) for letter in b"ab"]
    await box.write("file", contents[0])
    code = (
        "import time\n"
        "end, bad, reads = time.monotonic() + 3, 0, 0\n"
        "while time.monotonic() < end:\n"
        " data = open('file','rb').read(); reads += 1\n"
        " bad += len(data) != 1 << 20 or len(set(data)) != 1\n"
        "print(bad, reads)\n"
    )
    reader = asyncio.create_task(python(box, code))
    writes = 0
    while not reader.done():
        # A backend may answer without ever waiting, and then nothing else would have its turn.
        await asyncio.sleep(0.001)
        await box.write("file", contents[writes % 2])
        seen = await box.read("file")
        expect(seen in contents, "a call read a mixture of two contents")
        writes += 1
    bad, reads = succeeded(await reader).split()
    expect(bad == "0", f"{bad} of {reads} reads saw a mixture or a part")
    names = [entry.path for entry in await box.list()]
    expect(names == ["file"], f"something was left beside the file: {names}")
    return f"{writes} writes under {reads} reads, each whole"


async def _replacing(place: Place) -> str:
    box = await place.open()
    await box.write("file", b"one")
    await box.write("file", b"two", replacing=b"one")
    error = await expect_raises(
        PathError, box.write("file", b"three", replacing=b"one"), "replacing what is no longer there"
    )
    expect(error.reason == "changed", f"the reason is {error.reason!r} instead of 'changed'")
    expect(await box.read("file") == b"two", "the refused write changed the file")
    await expect_raises(
        PathError, box.write("none", b"x", replacing=b""), "replacing a file that is not there"
    )
    expect([entry.path for entry in await box.list()] == ["file"], "a refused write made a file")
    return "replaced when unchanged, refused when changed or missing"


async def _replacing_race(place: Place) -> str:
    box = await place.open()
    await box.write("count", b"0")

    async def count_up(times: int) -> int:
        tries = 0
        while times:
            tries += 1
            before = await box.read("count")
            with contextlib.suppress(PathError):
                await box.write("count", b"%d" % (int(before) + 1), replacing=before)
                times -= 1
        return tries

    tries = sum(await asyncio.gather(*(count_up(25) for _ in range(4))))
    total = await box.read("count")
    expect(total == b"100", f"100 increments by 4 writers made {total!r}")
    return f"100 increments by 4 writers at the same time count to 100, in {tries} tries"


async def _executable(place: Place) -> str:
    box = await place.open()
    await box.write("run", b'#!/bin/sh\necho ran "$1"\n', executable=True)
    expect((await box.exec(["./run", "it"], timeout_s=20)).stdout == b"ran it\n", "it does not run")
    await box.write("run", b"#!/bin/sh\necho again\n")
    expect(
        (await box.exec(["./run"], timeout_s=20)).stdout == b"again\n", "writing it anew took the right away"
    )
    await box.write("run", b"#!/bin/sh\n", executable=False)
    await expect_raises(
        CommandFailedError, box.exec(["./run"], timeout_s=20), "a file whose right was taken away"
    )
    await box.write("plain", b"#!/bin/sh\n")
    await expect_raises(
        CommandFailedError, box.exec(["./plain"], timeout_s=20), "a new file without the right"
    )
    return "given, kept, taken away, and absent for new files"


async def _unreadable(place: Place) -> str:
    box = await place.open()
    await box.write("closed/file", b"x")
    await box.write("secret", b"y")
    succeeded(await shell(box, "chmod 0 secret closed"))
    seen = []
    for name, call in (
        ("read", partial(box.read, "secret")),
        ("list", partial(box.list, recursive=True)),
        ("snapshot", box.snapshot),
    ):
        try:
            await call()
            seen.append(f"{name} answered")
        except (PathError, RefusedError) as error:
            seen.append(f"{name} raised {type(error).__name__}")
    succeeded(await shell(box, "chmod 700 secret closed"))
    expect(await box.read("secret") == b"y", "the file is lost")
    await expect_alive(box)
    return f"with rights taken away: {', '.join(seen)}"


CHECKS = (
    Check("round-trip", "What is written is what is read, by calls and by commands.", _round_trip),
    Check("large-file", "Five mebibytes come back byte for byte.", _large),
    Check("read-window", "A file is read from an offset, up to a limit.", _window),
    Check("read-missing", "A missing file and a folder are errors that can be told apart.", _missing),
    Check("write-wrong-place", "A file never takes the place of a folder.", _write_wrong),
    Check("write-makes-folders", "Folders above a new file are made.", _folders),
    Check("absolute-path", "An absolute path is one as the sandbox sees it.", _absolute),
    Check("file-names", "Every legal name works: spaces, line breaks, other alphabets, 255 bytes.", _names),
    Check(
        "file-names-not-text", "A name that is not text stops no other file from being used.", _not_text_names
    ),
    Check("impossible-paths", "A path that cannot exist is refused, and harms nothing.", _impossible_paths),
    Check("atomic-write", "A file is replaced in one step: nobody reads half of it.", _atomic, alone=True),
    Check("replacing", "A file that has changed in between is not overwritten.", _replacing),
    Check(
        "replacing-race",
        "Of two writers who replace the same content, one is told that it has changed.",
        _replacing_race,
    ),
    Check("executable", "The right to execute is given, kept and taken away as asked.", _executable),
    Check("unreadable", "Rights taken away inside stop no other call.", _unreadable),
)
"""The checks of this module."""
