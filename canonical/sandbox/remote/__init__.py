"""Sandboxes that live elsewhere: in a container, or on somebody's machines.

The program that serves a local sandbox is carried there and started, and a stream of bytes reaches it. So paths,
links, limits, timeouts and output follow the same code everywhere; what differs is who isolates.
"""

from __future__ import annotations
