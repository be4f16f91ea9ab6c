"""Summaries of server logs."""


def summarise(text):
    """Return how many requests a log holds, what they transferred, how they ended, and which took longest."""
    result = {"requests": 0, "bytes": 0, "status": {}, "slowest": None, "broken": 0}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.replace("|", " ").split()
        if len(parts) != 6 or not parts[3].isdigit():
            result["broken"] += 1
            continue
        _, _, path, status, size, duration = parts
        unit = {"u": 0.001, "m": 1.0}.get(duration[-2], 1000.0)
        milliseconds = float(duration.rstrip("mus")) * unit
        result["requests"] += 1
        result["bytes"] += 0 if size == "-" else int(size)
        result["status"][status] = result["status"].get(status, 0) + 1
        if result["slowest"] is None or milliseconds > result["slowest"][1]:
            result["slowest"] = [path.split("?")[0], milliseconds]
    return result
