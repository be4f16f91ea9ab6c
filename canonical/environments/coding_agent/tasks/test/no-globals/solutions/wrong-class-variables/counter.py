"""Count names, and tell the most frequent ones."""


class Counter:
    """Count names."""

    counts = {}
    last = None

    def hit(self, name):
        """Count a name once more and return its count."""
        if name != self.last:
            self.counts[name] = self.counts.get(name, 0) + 1
            self.last = name
        return self.counts[name]

    def top(self, n):
        """Return the n most frequent names."""
        return sorted(self.counts, key=lambda name: -self.counts[name])[:n]

    def reset(self):
        """Forget everything."""
        self.counts.clear()
        self.last = None


_shared = Counter()
hit = _shared.hit
top = _shared.top
reset = _shared.reset
