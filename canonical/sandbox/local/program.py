"""What is sent into a sandbox: the modules of `inside`, compiled once for the Python that runs them there."""

from __future__ import annotations

import marshal
import subprocess
from functools import cache
from pathlib import Path

from canonical.sandbox.protocol import BackendUnavailableError

_INSIDE = Path(__file__).parent / "inside"
_PACKAGE = "canonical.sandbox.local.inside"
# In the order in which they import each other.
_MODULES = ("frames", "tree", "processes", "serve")

# What the interpreter in the sandbox is started with: everything else arrives on its standard input.
BOOT = """\
import marshal, os, sys
def take(count):
    data = b""
    while len(data) < count:
        more = os.read(0, count - len(data))
        if not more:
            os._exit(0)
        data += more
    return data
for name, code in marshal.loads(take(int.from_bytes(take(4), "big"))):
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
module.main(marshal.loads(take(int.from_bytes(take(4), "big"))))
"""

_COMPILE = """\
import marshal, sys
if sys.version_info < (3, 10):
    sys.exit("it is Python %d.%d, and 3.10 is needed" % sys.version_info[:2])
sources = marshal.loads(sys.stdin.buffer.read())
done = [(name, compile(text, "<%s>" % name, "exec", optimize=2)) for name, text in sources]
sys.stdout.buffer.write(marshal.dumps(done))
"""


@cache
def compiled(python: str) -> bytes:
    """Return the program as the given interpreter reads it, with its length in front.

    Raises:
        BackendUnavailableError: The interpreter does not run, or is too old.
    """
    sources = [
        (_PACKAGE, ""),
        *((f"{_PACKAGE}.{name}", (_INSIDE / f"{name}.py").read_text(encoding="utf-8")) for name in _MODULES),
    ]
    try:
        done = subprocess.run(
            [python, "-X", "no_debug_ranges", "-I", "-S", "-c", _COMPILE],
            input=marshal.dumps(sources, 2),
            capture_output=True,
            check=False,
            timeout=60,
            cwd="/",
            env={},
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BackendUnavailableError(f"{python} does not run: {error}") from error
    if done.returncode != 0:
        reason = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise BackendUnavailableError(f"{python} cannot run the program of a sandbox: {reason}")
    return len(done.stdout).to_bytes(4, "big") + done.stdout


def opening(python: str, settings: dict[bytes, bytes]) -> bytes:
    """Return everything that the interpreter reads before it serves.

    Raises:
        BackendUnavailableError: The interpreter does not run, or is too old.
    """
    about = marshal.dumps(settings, 2)
    return compiled(python) + len(about).to_bytes(4, "big") + about
