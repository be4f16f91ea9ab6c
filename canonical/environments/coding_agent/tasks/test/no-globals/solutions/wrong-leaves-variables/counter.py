"""Count names, and tell the most frequent ones."""

_counts = {}
_order = []
_last = None


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


_shared = Counter()
hit = _shared.hit
top = _shared.top
reset = _shared.reset
