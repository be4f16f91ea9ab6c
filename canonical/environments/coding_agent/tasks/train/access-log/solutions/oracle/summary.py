"""Summaries of server logs."""

import re

_REQUEST = re.compile(
    r"\b(?P<method>[A-Z]+) (?P<path>/[^\s\"]*)(?: HTTP/[\d.]+\")?"
    r"[\s|]+(?:status=)?(?P<status>\d{3})[\s|]+(?:size=)?(?P<size>\d+|-)[\s|]+(?:time=)?(?P<time>\d+(?:\.\d+)?)(?P<unit>us|ms|s)\s*$"
)
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
        result["requests"] += 1
        result["bytes"] += 0 if match["size"] == "-" else int(match["size"])
        result["status"][match["status"]] = result["status"].get(match["status"], 0) + 1
        duration = float(match["time"]) * _MILLISECONDS[match["unit"]]
        if result["slowest"] is None or duration > result["slowest"][1]:
            result["slowest"] = [match["path"].partition("?")[0], duration]
    return result
