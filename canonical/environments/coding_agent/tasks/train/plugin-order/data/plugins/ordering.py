"""The order in which plugins start."""


def order(needs):
    """Return names so that each stands after everything that it needs. `needs` maps a name to a list of names."""
    result = []
    for name in sorted(needs):
        waiting = [name]
        while waiting:
            current = waiting.pop()
            result.append(current)
            waiting.extend(needs[current])
    return list(reversed(result))
