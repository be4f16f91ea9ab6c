"""Count names, and tell the most frequent ones."""


class Counter:
    """Count names, apart from every other counter."""

    def __init__(self):
        self._counts = {}

    def hit(self, name):
        """Count a name once more and return its count."""
        self._counts[name] = self._counts.get(name, 0) + 1
        return self._counts[name]

    def top(self, n):
        """Return the n most frequent names."""
        return sorted(self._counts, key=lambda name: (-self._counts[name], name))[:n]

    def reset(self):
        """Forget everything."""
        self._counts.clear()


_shared = Counter()
hit = _shared.hit
top = _shared.top
reset = _shared.reset
