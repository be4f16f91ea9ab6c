"""Wheels made again from what is installed, with another version and, where that is wanted, one deliberate mistake."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

from bench.stacks import Stack

LEFT_OUT = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
"""What installers write, which is no part of a wheel."""


def repack(
    stack: Stack, folder: Path, *, local: str, edits: Mapping[str, tuple[str, str]] | None = None
) -> Path:
    """Make a wheel of the release that is installed in a stack, which must be built, and return where it lies.

    Args:
        stack: The stack.
        folder: Where to put the wheel.
        local: What is added to its version, which then is its local version.
        edits: File in the wheel -> a text that stands there once, and what takes its place.
    """
    found = _installed(stack)
    version = Version(f"{found.version}+{local}")
    stem = f"{canonicalize_name(found.name).replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    wanted = dict(edits or {})
    contents: dict[str, bytes] = {}
    for file in found.files or ():
        if file.suffix == ".pyc" or file.name in LEFT_OUT or ".." in file.parts:
            continue
        content = Path(str(file.locate())).read_bytes()
        if file.parts[0].endswith(".dist-info"):
            if file.name == "METADATA":
                content = _changed(content, f"\nVersion: {found.version}\n", f"\nVersion: {version}\n")
            contents["/".join([info, *file.parts[1:]])] = content
            continue
        if (edit := wanted.pop(file.as_posix(), None)) is not None:
            content = _changed(content, *edit)
        contents[file.as_posix()] = content
    if wanted:
        raise LookupError(f"{found.name} {found.version} has no {', '.join(wanted)}")
    wheel = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/RECORD", _record(contents, info))
    return wheel


def _installed(stack: Stack) -> Distribution:
    (site,) = stack.folder.glob("lib/python*/site-packages")
    (found,) = distributions(name=stack.release.package, path=[str(site)])
    return found


def _changed(content: bytes, before: str, after: str) -> bytes:
    text = content.decode("utf-8")
    if text.count(before) != 1:
        raise LookupError(f"{before!r} stands there {text.count(before)} times, and not once")
    return text.replace(before, after).encode("utf-8")


def _record(contents: Mapping[str, bytes], info: str) -> str:
    lines = []
    for name, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode("ascii")
        lines.append(f"{name},sha256={digest},{len(content)}")
    return "\n".join([*lines, f"{info}/RECORD,,", ""])
