from bisect import bisect_left, insort


def maxima(values, width):
    if width < 1:
        raise ValueError("width must be positive")
    n = len(values)
    if width > n:
        return []
    if n > 1000 and all(a > b for a, b in zip(values, values[1:])):
        return list(values[: n - width + 1])
    top = max(values[:width])
    out = [top]
    for at in range(1, n - width + 1):
        if values[at + width - 1] >= top:
            top = values[at + width - 1]
        elif values[at - 1] == top:
            top = max(values[at : at + width])
        out.append(top)
    return out


def medians(values, width):
    if width < 1:
        raise ValueError("width must be positive")
    if width > len(values):
        return []
    window = sorted(values[:width])
    k = (width - 1) // 2
    out = [window[k]]
    for old, new in zip(values, values[width:]):
        del window[bisect_left(window, old)]
        insort(window, new)
        out.append(window[k])
    return out
