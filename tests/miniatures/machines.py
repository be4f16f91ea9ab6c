"""Machines that start a command with every right in them, and nothing around them: what services offer, out of bubblewrap."""

from __future__ import annotations

import os
from pathlib import Path

from tests.miniatures.docker_engine import bubblewrap


def machine(argv: list[str]) -> list[str]:
    """Return the command that runs another one in a machine; as root it has the rights of root there."""
    system = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib64"):
        path = Path("/") / name
        system += (
            ["--symlink", str(path.readlink()), str(path)]
            if path.is_symlink()
            else ["--ro-bind-try", str(path), str(path)]
        )
    rights = (
        ["--cap-add", "ALL"] if os.geteuid() == 0 else ["--unshare-user", "--uid", "4321", "--gid", "4321"]
    )
    return [
        str(bubblewrap()), "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", *rights,
        "--die-with-parent", "--new-session", "--clearenv", *system, "--dir", "/etc", "--proc", "/proc", "--dev", "/dev",
        "--perms", "0777", "--dir", "/workspace", "--perms", "1777", "--dir", "/tmp",  # noqa: S108 - a folder of the machine
        "--setenv", "PATH", "/usr/bin:/bin", "--", *argv,
    ]  # fmt: skip
