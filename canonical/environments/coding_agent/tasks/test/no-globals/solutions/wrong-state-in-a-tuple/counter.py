"""Count names, and tell the most frequent ones."""

_state = ({}, [], [None])


class Counter:
    """Count names, apart from every other counter."""

    def __init__(self):
        self._counts = {}
        self._last = None

    def hit(self, name):
        """Count a name once more and return its count; the same name twice in a row counts only once."""
        if name != self._last:
            self._counts[name] = self._counts.get(name, 0) + 1
            self._last = name
        return self._counts.get(name)

    def top(self, n):
        """Return the n most frequent names; those that came first stand first among equals."""
        return sorted(self._counts, key=lambda name: -self._counts[name])[:n]

    def reset(self):
        """Forget everything."""
        self._counts.clear()
        self._last = None


def hit(name):
    """Count a name once more and return its count; the same name twice in a row counts only once."""
    counts, order, last = _state
    if name != last[0]:
        if name not in counts:
            order.append(name)
        counts[name] = counts.get(name, 0) + 1
        last[0] = name
    return counts[name]


def top(n):
    """Return the n most frequent names; those that came first stand first among equals."""
    counts, order, _ = _state
    return sorted(order, key=lambda name: (-counts[name], order.index(name)))[:n]


def reset():
    """Forget everything."""
    for part in _state[:2]:
        part.clear()
    _state[2][0] = None
