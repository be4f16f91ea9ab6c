"""Count names, and tell the most frequent ones."""

_counts = {}
_order = []
_last = None


def hit(name):
    """Count a name once more and return its count; the same name twice in a row counts only once."""
    global _last
    if name == _last:
        return _counts[name]
    _last = name
    if name not in _counts:
        _order.append(name)
        _counts[name] = 0
    _counts[name] += 1
    return _counts[name]


def top(n):
    """Return the n most frequent names; those that came first stand first among equals."""
    return sorted(_order, key=lambda name: (-_counts[name], _order.index(name)))[:n]


def reset():
    """Forget everything."""
    global _last
    _counts.clear()
    _order.clear()
    _last = None
