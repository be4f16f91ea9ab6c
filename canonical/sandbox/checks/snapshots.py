"""Promises about lists and snapshots: they show what is there, all of it, and nothing else."""

from __future__ import annotations

from canonical.sandbox.checks.place import (
    BEAT,
    Check,
    Place,
    beats,
    expect,
    expect_raises,
    python,
    same_files,
    shell,
    succeeded,
)
from canonical.sandbox.protocol import Entry, PathError, RefusedError, Snapshot

_FILES = {
    "empty": b"",
    "a/b/c.txt": b"deep",
    "a.txt": b"a",
    "a-b": b"between",
    "bin": bytes(range(256)),
    "é/new\nline": b"name",
    "run.sh": b"#!/bin/sh\necho ran\n",
}
_PAIR = """
import os
def put(name, number):
    with open(name + '.new', 'w') as file: file.write(str(number))
    os.replace(name + '.new', name)
number = 0
while True:
    number += 1
    put('first', number); put('second', number)
"""


async def _sorted(place: Place) -> str:
    box = await place.open()
    for name in ("b", "a/x", "a.b", "a-b", "Z", "é", "10", "9"):
        await box.write(name, name.encode())
    entries = await box.list()
    paths = [entry.path for entry in entries]
    expect(paths == sorted(["b", "a", "a.b", "a-b", "Z", "é", "10", "9"]), f"the order is {paths}")
    sizes = {entry.path: (entry.kind, entry.size) for entry in entries}
    expect(sizes["é"] == ("file", 2) and sizes["a"] == ("directory", 0), f"kinds and sizes are {sizes}")
    return "8 entries in order, with kinds and sizes"


async def _recursive(place: Place) -> str:
    box = await place.open(Snapshot(_FILES))
    expected = sorted([*_FILES, "a", "a/b", "é"])
    paths = [entry.path for entry in await box.list(recursive=True)]
    expect(paths == expected, f"the whole tree is {paths}, not {expected}")
    below = await box.list("a", recursive=True)
    expect(below == (Entry("a/b", "directory"), Entry("a/b/c.txt", "file", 4)), f"below a lies {below}")
    return f"{len(expected)} entries, with paths relative to the workspace"


async def _list_wrong(place: Place) -> str:
    box = await place.open()
    await box.write("file", b"")
    for path, reason in (("nowhere", "missing"), ("file", "not a directory")):
        error = await expect_raises(PathError, box.list(path), f"listing {path!r}")
        expect(error.reason == reason, f"listing {path!r}: {error.reason!r} instead of {reason!r}")
    succeeded(await shell(box, "mkdir nothing"))
    expect(await box.list("nothing") == (), "an empty folder is not empty")
    return "missing, not a folder, and empty are told apart"


async def _equal(place: Place) -> str:
    box = await place.open()
    for path, data in _FILES.items():
        await box.write(path, data, executable=path == "run.sh")
    succeeded(await shell(box, "printf more > by-command; chmod 755 by-command; mkdir -p hollow"))
    snapshot = await box.snapshot()
    difference = same_files({**_FILES, "by-command": b"more"}, snapshot.files)
    expect(not difference, f"the snapshot differs: {difference}")
    expect(snapshot.executable == {"run.sh", "by-command"}, f"executable are {set(snapshot.executable)}")
    return f"{len(snapshot.files)} files, 2 of them executable"


async def _plain(place: Place) -> str:
    box = await place.open()
    await box.write("file", b"x")
    succeeded(
        await python(
            box,
            "import os,socket; os.mkfifo('pipe'); socket.socket(socket.AF_UNIX).bind('socket');"
            "os.symlink('/etc/passwd','out'); os.symlink('file','near'); os.symlink('/','root'); os.link('file','second')",
        )
    )
    snapshot = await box.snapshot()
    difference = same_files({"file": b"x", "second": b"x"}, snapshot.files)
    expect(not difference, f"the snapshot differs: {difference}")
    return "links, pipes and sockets are left out; nothing behind a link is in it"


async def _reopened(place: Place) -> str:
    start = Snapshot(_FILES, frozenset({"run.sh"}))
    first = await place.open(start)
    taken = await first.snapshot()
    second = await place.open(taken)
    again = await second.snapshot()
    difference = same_files(_FILES, again.files)
    expect(not difference, f"after the second opening the files differ: {difference}")
    expect(again.executable == {"run.sh"}, f"executable are {set(again.executable)}")
    ran = await second.exec(["./run.sh"], timeout_s=20)
    expect(ran.stdout == b"ran\n", "the executable file does not run")
    succeeded(await shell(second, "echo changed > a.txt; rm -r a; echo new > new"))
    difference = same_files(_FILES, (await first.snapshot()).files)
    expect(not difference, f"changes in the second reached the first: {difference}")
    third = await place.open(taken)
    difference = same_files(_FILES, (await third.snapshot()).files)
    expect(not difference, f"changes in the second reached a third: {difference}")
    return "a sandbox opened from it holds the same files, and changes stay in it"


async def _moment(place: Place) -> str:
    box = await place.open()
    await box.write("pair.py", _PAIR.encode())
    await box.write("beat.py", BEAT.encode())
    succeeded(
        await shell(
            box,
            "for one in pair beat; do python3 -I $one.py </dev/null >/dev/null 2>&1 & done; sleep 0.7",
            keep_background=True,
        )
    )
    for _ in range(15):
        files = (await box.snapshot()).files
        first, second = int(files["first"]), int(files["second"])
        expect(first - second in {0, 1}, f"`first` was {first} and `second` {second} in one snapshot")
    expect(await beats(box), "the processes did not go on after the snapshot")
    return "15 snapshots while two files are written in turn: never out of step, and the writer goes on"


async def _start_outside(place: Place) -> str:
    for path in ("../escape", "/etc/escape", "a/../../escape", "", "a\0b", ".."):
        await expect_raises(
            (RefusedError, PathError), place.open(Snapshot({path: b"x"})), f"opening with a file at {path!r}"
        )
    await expect_raises(
        (RefusedError, PathError),
        place.open(Snapshot({"a": b"x", "a/b": b"y"})),
        "opening with a file that is a folder too",
    )
    return "a start with paths that lead out, or that cannot be, is refused"


CHECKS = (
    Check("list-sorted", "A list is sorted by path, with kinds and sizes.", _sorted),
    Check("list-recursive", "A recursive list shows the whole tree below a folder.", _recursive),
    Check("list-wrong", "A missing folder and a file are errors that can be told apart.", _list_wrong),
    Check(
        "snapshot-equal", "A snapshot holds every file of the workspace, and which may be executed.", _equal
    ),
    Check(
        "snapshot-plain",
        "A snapshot holds no links and nothing behind them, no pipes and no devices.",
        _plain,
    ),
    Check(
        "snapshot-reopened",
        "A sandbox opened from a snapshot holds the same files, and shares nothing.",
        _reopened,
    ),
    Check("snapshot-moment", "A snapshot is of one moment, even while processes write.", _moment, alone=True),
    Check("start-outside", "No start reaches out of the workspace.", _start_outside),
)
"""The checks of this module."""
