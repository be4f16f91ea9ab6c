"""An adapter whose framework prints: from Python, from below Python, and from a child process."""

from __future__ import annotations

import os
import subprocess
import sys

from canonical.reference import ReferenceAdapter

print("loading the framework ...")
sys.__stdout__.write("a banner\n")  # type: ignore[union-attr]
sys.__stdout__.flush()  # type: ignore[union-attr]
os.write(1, b"from below\n")
subprocess.run(["echo", "from a child"], check=True)


class _Chatty(ReferenceAdapter):
    name = "chatty"

    def packages(self) -> dict[str, str]:
        print('{"type":"started","seq":1}')
        return {"chatty": "1.0"}


ADAPTER = _Chatty()
