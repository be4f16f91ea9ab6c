"""Promises about isolation: what a program inside can see and reach is its own sandbox, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import tempfile
from pathlib import Path

from canonical.sandbox.checks.place import (
    Check,
    Place,
    expect,
    expect_alive,
    python,
    shell,
    succeeded,
)
from canonical.sandbox.protocol import (
    CommandTimeoutError,
    LimitError,
    PathError,
    Sandbox,
    SandboxError,
    SandboxGoneError,
)

_CONNECT = """
import json, socket, sys
kind, address = sys.argv[1], json.loads(sys.argv[2])
try:
    if kind == 'abstract':
        s = socket.socket(socket.AF_UNIX); s.settimeout(3); s.connect('\\0' + address)
    elif kind == 'unix':
        s = socket.socket(socket.AF_UNIX); s.settimeout(3); s.connect(address)
    elif kind == 'udp':
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'ROSETTA', tuple(address))
    elif kind == 'dns':
        socket.getaddrinfo(address, 443)
    else:
        s = socket.socket(socket.AF_INET); s.settimeout(3); s.connect(tuple(address))
    print('reached')
except OSError as error:
    print('failed', error)
"""


async def _host_file(place: Place) -> str:
    with tempfile.NamedTemporaryFile(prefix=f"rosetta-{place.token}-") as canary:
        canary.write(b"CANARY")
        canary.flush()
        Path(canary.name).chmod(0o644)
        box = await place.open()
        done = await box.exec(["cat", canary.name], timeout_s=20)
        expect(b"CANARY" not in done.stdout, f"a command read {canary.name} of the host")
        found = succeeded(await shell(box, f"ls -a {Path(canary.name).parent} | grep -c {place.token}; true"))
        expect(found == "0", "a command sees the name of a file of the host")
        done = await shell(
            box, f"cat /proc/*/root{canary.name}; cat /proc/*/cwd/*{place.token}*", timeout_s=20
        )
        expect(b"CANARY" not in done.stdout, "a command read a file of the host by way of /proc")
    return "a readable file of the host cannot be seen or read"


async def _host_processes(place: Place) -> str:
    with subprocess.Popen(["sleep", f"120.{int(place.token, 16)}"]) as canary:
        place.at_the_end(canary.kill)
        try:
            box = await place.open()
            seen = succeeded(await shell(box, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; true"))
            expect(str(int(place.token, 16)) not in seen, "a command sees a process of the host")
            await shell(box, f"kill -9 {canary.pid}; kill -TERM {canary.pid}")
            await asyncio.sleep(0.2)
            expect(canary.poll() is None, "a command killed a process of the host")
        finally:
            canary.kill()
    return "a process of the host can be neither seen nor killed"


async def _host_environment(place: Place) -> str:
    box = await place.open()
    names = succeeded(await shell(box, "env | cut -d= -f1 | sort | tr '\\n' ' '")).split()
    all_of_them = await shell(box, "env; cat /proc/[0-9]*/environ 2>/dev/null; true")
    expect(place.canary.encode() not in all_of_them.stdout, "a variable of the host is visible inside")
    expect(len(names) <= 16, f"the environment holds {len(names)} variables: {' '.join(names)}")
    return f"the environment holds {' '.join(names)}"


async def _tcp(place: Place) -> str:
    box = await place.open()
    reached = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(0.3)
        said = succeeded(await python(box, _CONNECT, "tcp", json.dumps(listener.getsockname())))
        with contextlib.suppress(TimeoutError):
            reached.append(listener.accept()[0])
        for one in reached:
            one.close()
    expect(not reached and "reached" not in said, "a command reached a server of the host")
    return f"127.0.0.1: {said}"


async def _udp(place: Place) -> str:
    box = await place.open()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(0.3)
        said = succeeded(await python(box, _CONNECT, "udp", json.dumps(receiver.getsockname())))
        got = b""
        with contextlib.suppress(TimeoutError):
            got = receiver.recv(100)
    expect(not got, "a datagram from inside reached the host")
    return f"a datagram to 127.0.0.1 did not arrive ({said})"


async def _abstract(place: Place) -> str:
    box = await place.open()
    name = f"rosetta-{place.token}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen()
        said = succeeded(await python(box, _CONNECT, "abstract", json.dumps(name)))
        expect("reached" not in said, "a command reached an abstract socket of the host")
        seen = await shell(box, "cat /proc/net/unix")
        expect(name.encode() not in seen.stdout, "a command sees the sockets of the host")
    return said


async def _unix(place: Place) -> str:
    box = await place.open()
    with (
        tempfile.TemporaryDirectory(prefix=f"rosetta-{place.token}-") as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        Path(folder).chmod(0o755)
        path = f"{folder}/socket"
        listener.bind(path)
        Path(path).chmod(0o777)
        listener.listen()
        said = succeeded(await python(box, _CONNECT, "unix", json.dumps(path)))
    expect("reached" not in said, "a command reached a socket file of the host")
    return said


async def _public(place: Place) -> str:
    box = await place.open()
    said = []
    for kind, address in (("dns", "example.com"), ("tcp", ["1.1.1.1", 443])):
        try:
            answer = succeeded(await python(box, _CONNECT, kind, json.dumps(address), timeout_s=15))
        except CommandTimeoutError:
            answer = "failed: no answer"
        expect("reached" not in answer, f"a command reached {address}")
        said.append(answer)
    return "; ".join(said)


async def _other_files(place: Place) -> str:
    one, other = await place.open(), await place.open()
    secret = f"SECRET{place.token}"
    await one.write("secret.txt", secret.encode())
    outside = succeeded(
        await shell(one, f'd=$(mktemp -d) && echo {secret} > "$d/secret" && chmod -R 755 "$d" && echo "$d"')
    )
    root = succeeded(await one.exec(["pwd"], timeout_s=20))
    paths = f"{root}/secret.txt {outside}/secret /proc/*/root{outside}/secret /proc/*/cwd/secret.txt"
    done = await shell(
        other, f"cat {paths} /tmp/*/* /dev/shm/* 2>/dev/null; ls -R {root} /tmp | grep secret; true"
    )
    expect(
        secret.encode() not in done.stdout and b"secret" not in done.stdout,
        "one sandbox sees files of another",
    )
    return "workspace and temporary files of one are nowhere in the other"


async def _other_processes(place: Place) -> str:
    one, other = await place.open(), await place.open()
    word = f"other{place.token}"
    await one.write(
        "beat.py",
        f"# {word}\nimport os,time\nwhile True:\n open('n','w').write(str(time.time())); os.replace('n','beat'); time.sleep(.05)\n".encode(),
    )
    succeeded(
        await shell(one, f"python3 -I beat.py {word} </dev/null >/dev/null 2>&1 &", keep_background=True)
    )
    done = await shell(
        other, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'beat[.]py'; true"
    )
    expect(done.stdout.strip() == b"0", "one sandbox sees processes of another")
    with contextlib.suppress(SandboxError):
        await shell(other, "kill -9 -1; sleep 0.2")
    first = await _beat(one)
    await asyncio.sleep(0.5)
    expect(first != await _beat(one), "one sandbox killed processes of another")
    return "processes of one are neither seen nor killed by the other"


async def _beat(sandbox: Sandbox) -> bytes:
    for _ in range(100):
        try:
            return await sandbox.read("beat")
        except PathError:
            await asyncio.sleep(0.05)
    return b""


async def _namespaces(place: Place) -> str:
    box = await place.open()
    code = (
        "import ctypes, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "for name, flag in (('user', 0x10000000), ('mount', 0x20000), ('network', 0x40000000)):\n"
        " if os.fork() == 0:\n"
        "  os._exit(7 if libc.unshare(flag) == 0 else 0)\n"
        " if os.waitstatus_to_exitcode(os.wait()[1]): print(name)\n"
    )
    made = succeeded(await python(box, code)).split()
    expect(not made, f"a command can make namespaces of its own: {', '.join(made)}")
    return "no namespace for users, mounts or networks can be made"


async def _capabilities(place: Place) -> str:
    box = await place.open()
    text = succeeded(
        await shell(box, "grep -E '^(CapEff|CapPrm|CapInh|CapAmb|NoNewPrivs)' /proc/self/status")
    )
    facts = dict(line.split(":\t") for line in text.splitlines())
    held = {name: value for name, value in facts.items() if name.startswith("Cap") and int(value, 16)}
    expect(not held, f"commands hold capabilities: {held}")
    expect(facts.get("NoNewPrivs") == "1", "a program with the set-user-id bit can gain rights")
    return "no capability is held, and none can be gained"


async def _helper_memory(place: Place) -> str:
    box = await place.open()
    code = (
        "import ctypes, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "mine, found = os.getpid(), []\n"
        "for name in os.listdir('/proc'):\n"
        " if not name.isdigit() or int(name) == mine: continue\n"
        " pid = int(name)\n"
        " try: os.close(os.open(f'/proc/{pid}/mem', os.O_RDWR)); found.append(f'memory of {pid}')\n"
        " except OSError: pass\n"
        " try: os.listdir(f'/proc/{pid}/fd'); found.append(f'files of {pid}')\n"
        " except OSError: pass\n"
        " if libc.ptrace(16, pid, 0, 0) == 0: libc.ptrace(17, pid, 0, 0); found.append(f'trace of {pid}')\n"
        "print('; '.join(found))\n"
    )
    found = succeeded(await python(box, code))
    expect(not found, f"a command can get at what serves the sandbox: {found}")
    await expect_alive(box)
    return "no other process's memory, descriptors or trace can be had"


async def _system(place: Place) -> str:
    box = await place.open()
    script = (
        "for d in / /usr /usr/bin /usr/lib /etc /bin /lib /proc/sys/kernel /sys /dev /opt /var /home /root; do\n"
        "  [ -d $d ] && (echo x > $d/planted) 2>/dev/null && echo $d\n"
        "done\n"
        "for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /etc/passwd /etc/hosts /bin/true; do\n"
        "  [ -e $f ] && (: >> $f) 2>/dev/null && echo $f\n"
        "done; true\n"
    )
    written = succeeded(await shell(box, script)).split()
    expect(not written, f"a command can write to {' '.join(written)}")
    return "nothing of the system can be written"


async def _mounts(place: Place) -> str:
    box = await place.open()
    code = (
        "import ctypes, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "os.mkdir('m')\n"
        "done = []\n"
        "if libc.mount(b'none', b'm', b'tmpfs', 0, None) == 0: done.append('mounted')\n"
        "if libc.mount(b'proc', b'm', b'proc', 0, None) == 0: done.append('mounted proc')\n"
        "if libc.mount(None, b'/', None, 32 | 4096, None) == 0: done.append('made / writable')\n"
        "if libc.umount2(b'/proc', 2) == 0: done.append('unmounted /proc')\n"
        "try: os.chroot('.'); done.append('changed the root')\n"
        "except OSError: pass\n"
        "print(', '.join(done))\n"
    )
    done = succeeded(await python(box, code))
    expect(not done, f"a command {done}")
    return "nothing can be mounted or unmounted, and the root cannot be changed"


async def _kill_everything(place: Place) -> str:
    neighbour, box = await place.open(), await place.open()
    await box.write("kept.txt", b"kept")
    with contextlib.suppress(LimitError):
        try:
            await shell(box, "kill -9 1; kill -TERM 1; kill -STOP 1; kill -9 -1; sleep 0.3", timeout_s=10)
        except SandboxGoneError:
            await expect_alive(neighbour)
            return "the sandbox is gone, and says so; its neighbour is usable"
    try:
        kept = await box.read("kept.txt")
    except SandboxGoneError:
        await expect_alive(neighbour)
        return "the sandbox is gone, and says so; its neighbour is usable"
    expect(kept == b"kept", "a file has changed")
    await expect_alive(box)
    await expect_alive(neighbour)
    return "the sandbox and its neighbour are usable"


CHECKS = (
    Check("host-files", "Files of the host can be neither seen nor read.", _host_file, "filesystem"),
    Check(
        "host-processes",
        "Processes of the host can be neither seen nor killed.",
        _host_processes,
        "processes",
    ),
    Check(
        "host-environment", "No variable of the host reaches the inside.", _host_environment, "environment"
    ),
    Check("network-tcp", "No server of the host can be reached.", _tcp, "network"),
    Check("network-udp", "No datagram reaches the host.", _udp, "network"),
    Check("network-abstract", "No abstract socket of the host can be reached or seen.", _abstract, "network"),
    Check("network-socket-file", "No socket file of the host can be reached.", _unix, "filesystem"),
    Check("network-outside", "No name is resolved and no address outside is reached.", _public, "network"),
    Check("other-files", "Sandboxes do not see each other's files.", _other_files, "filesystem"),
    Check(
        "other-processes",
        "Sandboxes neither see nor kill each other's processes.",
        _other_processes,
        "processes",
    ),
    Check("namespaces", "Commands make no namespaces of their own.", _namespaces, "namespaces"),
    Check("capabilities", "Commands hold no capabilities and gain none.", _capabilities, "privileges"),
    Check(
        "helper-memory",
        "Commands cannot get at the process that serves the sandbox.",
        _helper_memory,
        "system calls",
    ),
    Check("system-read-only", "Nothing of the system can be written.", _system, "filesystem"),
    Check("mounts", "Nothing can be mounted or unmounted, and the root stays.", _mounts, "filesystem"),
    Check(
        "kill-everything",
        "Killing whatever can be killed leaves a sandbox that is usable or cleanly gone.",
        _kill_everything,
        "processes",
    ),
)
"""The checks of this module."""
