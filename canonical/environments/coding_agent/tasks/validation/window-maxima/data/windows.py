"""Moving statistics."""


def maxima(values, width):
    """Return the maximum of every window of `width` neighbouring values; no window fits: an empty list.

    Raises:
        ValueError: `width` is not positive.
    """
    if width < 1:
        raise ValueError("width must be positive")
    return [max(values[at : at + width]) for at in range(len(values) - width + 1)]


def medians(values, width):
    """Return the lower median of every window of `width` neighbouring values.

    Raises:
        ValueError: `width` is not positive.
    """
    if width < 1:
        raise ValueError("width must be positive")
    return [sorted(values[at : at + width])[(width - 1) // 2] for at in range(len(values) - width + 1)]
