"""Summaries of server logs."""

import re

_REQUEST = re.compile(r"([A-Z]+) (/[^\s\"]*).*?(\d{3})\D+?(\d+|-)[\s|]+(?:time=)?([\d.]+)(us|ms|s)")
_MILLISECONDS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


def summarise(text):
    """Return how many requests a log holds, what they transferred, how they ended, and which took longest."""
    result = {"requests": 0, "bytes": 0, "status": {}, "slowest": None, "broken": 0}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match = _REQUEST.search(line)
        if match is None:
            result["broken"] += 1
            continue
        _, path, status, size, number, unit = match.groups()
        result["requests"] += 1
        result["bytes"] += 0 if size == "-" else int(size)
        result["status"][status] = result["status"].get(status, 0) + 1
        duration = float(number) * _MILLISECONDS[unit]
        if result["slowest"] is None or duration >= result["slowest"][1]:
            result["slowest"] = [path, duration]
    return result
