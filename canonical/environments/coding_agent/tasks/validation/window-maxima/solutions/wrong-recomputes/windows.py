"""Moving statistics."""


def maxima(values, width):
    """Return the maximum of every window."""
    if width < 1:
        raise ValueError("width must be positive")
    result = []
    best = None
    for at in range(len(values) - width + 1):
        if best is None or values[at - 1] == best:
            best = max(values[at : at + width])
        else:
            best = max(best, values[at + width - 1])
        result.append(best)
    return result


def medians(values, width):
    """Return the lower median of every window."""
    if width < 1:
        raise ValueError("width must be positive")
    middle = (width - 1) // 2
    return [sorted(values[at : at + width])[middle] for at in range(len(values) - width + 1)]
