"""An adapter whose framework ends the process while it is imported."""

from __future__ import annotations

import os
import sys

sys.stderr.write("broken on purpose\n")
sys.stderr.flush()
os._exit(3)
