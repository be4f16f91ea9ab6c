"""Count names, and tell the most frequent ones."""


class _State:
    """Hold what has been counted."""

    def __init__(self):
        self.counts = {}
        self.last = None


_state = _State()


class Counter:
    """Count names, apart from every other counter."""

    def __init__(self, state=None):
        self._state = state or _State()

    def hit(self, name):
        """Count a name once more and return its count; the same name twice in a row counts only once."""
        state = self._state
        if name != state.last:
            state.counts[name] = state.counts.get(name, 0) + 1
            state.last = name
        return state.counts.get(name)

    def top(self, n):
        """Return the n most frequent names; those that came first stand first among equals."""
        return sorted(self._state.counts, key=lambda name: -self._state.counts[name])[:n]

    def reset(self):
        """Forget everything."""
        self._state.counts.clear()
        self._state.last = None


_shared = Counter(_state)
hit = _shared.hit
top = _shared.top
reset = _shared.reset
