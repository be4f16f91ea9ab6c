"""The order in which plugins start."""


def order(needs):
    """Return names so that each stands after everything that it needs."""
    result = []
    for _ in needs:
        for name in sorted(needs):
            if name not in result and all(other in result for other in needs[name]):
                result.append(name)
                break
    return result
