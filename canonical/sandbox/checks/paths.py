"""Promises about ways out of the workspace: paths, links, races, and things that are no files."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from canonical.sandbox.checks.place import (
    Check,
    Place,
    expect,
    expect_alive,
    expect_raises,
    expect_refused,
    python,
    shell,
    succeeded,
)
from canonical.sandbox.protocol import Entry, LimitError, PathError, RefusedError, Sandbox, SandboxError

_SWAP = """
import ctypes, os, sys
os.mkdir('d'); open('d/file', 'w').write('INSIDE')
os.symlink(sys.argv[1], 'link')
exchange = ctypes.CDLL(None).renameat2
while exchange(-100, b'd', -100, b'link', 2) == 0: pass
"""


async def _outside(box: Sandbox) -> str:
    """Make a folder outside of the workspace, with a file in it, and return its path."""
    return succeeded(
        await shell(box, 'd=$(mktemp -d) && chmod 755 "$d" && printf OUTSIDE > "$d/file" && echo "$d"')
    )


async def _dots(place: Place) -> str:
    box = await place.open()
    await box.write("folder/deeper/file", b"x")
    for path in ("..", "../x", "../../etc/passwd", "folder/../../x", "./../x", "folder/deeper/../../../x"):
        await expect_raises(RefusedError, box.read(path), f"reading {path!r}")
        await expect_raises(RefusedError, box.write(path, b"x"), f"writing {path!r}")
        await expect_raises(RefusedError, box.list(path), f"listing {path!r}")
    expect(await box.read("folder/../folder/deeper/file") == b"x", "a path that comes back leads nowhere")
    await expect_raises(PathError, box.write("new/../file", b"x"), "writing 'new/../file'")
    names = [entry.path for entry in await box.list(".")]
    expect(names == ["folder"], f"afterwards there are {names}")
    return "6 paths with dots, each refused for reading, writing and listing; what a path only passes is not made"


async def _absolute(place: Place) -> str:
    box = await place.open()
    outside = await _outside(box)
    for path in (
        "/",
        "/etc/passwd",
        "/etc",
        "//etc/passwd",
        "/proc/self/environ",
        f"{outside}/file",
        "/dev/zero",
    ):
        await expect_raises(RefusedError, box.read(path), f"reading {path!r}")
        await expect_raises(RefusedError, box.list(path), f"listing {path!r}")
    for path in ("/planted", f"{outside}/planted", "/etc/planted"):
        await expect_raises(RefusedError, box.write(path, b"x"), f"writing {path!r}")
    left = succeeded(await shell(box, f"ls {outside}"))
    expect(left == "file", f"outside now lies {left!r}")
    return "absolute paths out of the workspace are refused"


async def _link_read(place: Place) -> str:
    box = await place.open()
    outside = await _outside(box)
    succeeded(
        await shell(
            box,
            f"ln -s {outside}/file a; ln -s {outside} b; ln -s a c; ln -s ../../../../../etc/passwd d; ln -s /proc/self/environ e",
        )
    )
    for path in ("a", "b/file", "c", "d", "e"):
        await expect_raises(RefusedError, box.read(path), f"reading through the link {path!r}")
    return "links to files and folders outside, direct and by another link, are refused"


async def _link_write(place: Place) -> str:
    box = await place.open()
    outside = await _outside(box)
    succeeded(await shell(box, f"ln -s {outside}/file a; ln -s {outside} b; ln -s {outside}/new c"))
    for path in ("a", "b/file", "b/planted", "b/sub/planted", "c"):
        with contextlib.suppress(RefusedError, PathError):
            await box.write(path, b"PLANTED")
    left = succeeded(await shell(box, f"cd {outside}; find . -type f | sort; cat file"))
    expect(left == "./file\nOUTSIDE", f"a write through a link changed what lies outside: {left!r}")
    await expect_raises(RefusedError, box.write("b/planted", b"x"), "writing through a linked folder")
    return "no write through a link reaches what lies outside"


async def _link_list(place: Place) -> str:
    box = await place.open()
    outside = await _outside(box)
    succeeded(await shell(box, f"ln -s {outside} b; ln -s / root; mkdir inner; ln -s .. inner/up"))
    await expect_raises(RefusedError, box.list("b"), "listing a linked folder outside")
    await expect_raises(RefusedError, box.list("root", recursive=True), "listing a link to /")
    entries = await box.list(recursive=True)
    links = {entry.path for entry in entries if entry.kind == "link"}
    expect(links == {"b", "root", "inner/up"}, f"the links are listed as {links}")
    expect(len(entries) == 4, f"a list followed a link: {[entry.path for entry in entries][:10]}")
    return "links are listed as links and never followed"


async def _link_inside(place: Place) -> str:
    box = await place.open()
    await box.write("folder/file", b"x")
    succeeded(await shell(box, "ln -s folder/file near; ln -s folder way"))
    expect(await box.read("near") == b"x", "a link to a file of the workspace is not read")
    expect(await box.read("way/file") == b"x", "a link to a folder of the workspace is not followed")
    return "links that stay in the workspace are read through"


async def _link_loop(place: Place) -> str:
    box = await place.open()
    succeeded(await shell(box, "ln -s b a; ln -s a b; ln -s nowhere c; mkdir d; ln -s ../d d/d"))
    for path in ("a", "b", "a/x", "c"):
        await expect_refused(box.read(path), f"reading {path!r}")
    kinds = {entry.path: entry.kind for entry in await box.list(recursive=True)}
    expected = {"a": "link", "b": "link", "c": "link", "d": "directory", "d/d": "link"}
    expect(kinds == expected, f"the list is {dict(list(kinds.items())[:10])}")
    await box.snapshot()
    return "loops and links to nowhere are errors; list and snapshot end"


async def _race(place: Place) -> str:
    box = await place.open()
    outside = await _outside(box)
    await box.write("swap.py", _SWAP.encode())
    succeeded(
        await shell(box, f"python3 -I swap.py {outside} </dev/null >/dev/null 2>&1 &", keep_background=True)
    )
    for _ in range(200):
        # A write before the folder is there would make it, and nothing would ever change places.
        with contextlib.suppress(PathError, RefusedError):
            if await box.read("d/file") == b"INSIDE":
                break
        await asyncio.sleep(0.05)
    seen: dict[str, int] = {}
    for _ in range(300):
        try:
            content = (await box.read("d/file")).decode("latin-1")
        except (PathError, RefusedError) as error:
            content = type(error).__name__
        seen[content] = seen.get(content, 0) + 1
        with contextlib.suppress(PathError, RefusedError):
            await box.write("d/planted", b"x")
        with contextlib.suppress(PathError, RefusedError):
            entries: tuple[Entry, ...] = await box.list("d")
            expect({entry.path for entry in entries} <= {"d/file", "d/planted"}, f"{entries}")
    await box.stop_processes()
    left = succeeded(await shell(box, f"ls {outside}"))
    expect(
        "INSIDE" in seen and len(seen) > 1,
        f"folder and link never changed places, so nothing was tried: {seen}",
    )
    expect("OUTSIDE" not in seen, f"{seen.get('OUTSIDE', 0)} reads saw the file outside")
    expect(left == "file", f"a write reached the folder outside: {left!r}")
    return f"300 reads and writes while a folder and a link change places: {seen}"


async def _no_files(place: Place) -> str:
    box = await place.open()
    succeeded(
        await python(box, "import os,socket; os.mkfifo('pipe'); socket.socket(socket.AF_UNIX).bind('socket')")
    )
    for path in ("pipe", "socket"):
        error = await expect_raises(PathError, box.read(path), f"reading {path!r}")
        expect(error.reason == "not a file", f"reading {path!r}: {error.reason!r}")
        with contextlib.suppress(PathError, RefusedError):
            await box.write(path, b"x", replacing=b"y")
    kinds = {entry.path: entry.kind for entry in await box.list()}
    expect(kinds == {"pipe": "other", "socket": "other"}, f"they are listed as {kinds}")
    await expect_alive(box)
    return "a pipe and a socket are listed, never opened, and block nothing"


async def _devices(place: Place) -> str:
    box = await place.open()
    succeeded(await shell(box, "ln -s /dev/zero zero; ln -s /dev/stdin stdin; ln -s /proc/kmsg kmsg; true"))
    for path in ("zero", "stdin", "kmsg"):
        await expect_refused(box.read(path), f"reading a link to a device, {path!r}")
    done = await shell(box, "mknod disk b 8 0 || mknod mem c 1 1")
    if done.exit_code == 0:
        opened = await shell(box, "head -c 1 disk || head -c 1 mem")
        expect(opened.exit_code != 0, "a device of the machine can be made and read")
    await expect_alive(box)
    return "links to devices are refused, and no device of the machine can be made and read"


async def _hard_links(place: Place) -> str:
    box = await place.open()
    outside = await _outside(box)
    done = await shell(box, f"ln {outside}/file hard && echo linked; ln /etc/passwd hard2 && echo linked")
    expect(b"linked" not in done.stdout, "a file outside of the workspace can be linked into it")
    return "a file outside cannot be linked into the workspace"


async def _deep(place: Place) -> str:
    box = await place.open()
    code = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')\nopen('bottom','w').write('x')\n"
    succeeded(await python(box, code))
    seen = []
    for name, call in (("list", partial(box.list, recursive=True)), ("snapshot", box.snapshot)):
        try:
            await call()
            seen.append(f"{name} answered")
        except (PathError, LimitError, RefusedError) as error:
            seen.append(f"{name} raised {type(error).__name__}")
        except SandboxError as error:
            expect(False, f"{name} of a deep tree raised {type(error).__name__}: {error}")
    await expect_alive(box)
    return f"with 3,000 folders in each other: {', '.join(seen)}"


CHECKS = (
    Check("path-dots", "No path with dots leads out of the workspace.", _dots),
    Check("path-absolute", "No absolute path leads out of the workspace.", _absolute),
    Check("link-read", "No link leads a read out of the workspace.", _link_read),
    Check("link-write", "No link leads a write out of the workspace.", _link_write),
    Check("link-list", "No link leads a list out of the workspace.", _link_list),
    Check("link-inside", "Links that stay in the workspace are read through.", _link_inside),
    Check("link-loop", "Links in circles end.", _link_loop),
    Check(
        "link-race",
        "A link that takes a folder's place at the last moment leads nobody out.",
        _race,
        alone=True,
    ),
    Check("not-files", "Pipes and sockets are never opened, so they block nothing.", _no_files),
    Check("devices", "Devices are never read.", _devices),
    Check("hard-links", "Files outside cannot be linked into the workspace.", _hard_links),
    Check("deep-tree", "A tree of any depth ends in an answer or in an error.", _deep),
)
"""The checks of this module."""
