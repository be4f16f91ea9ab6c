"""The order in which plugins start."""

import heapq

from plugins.errors import CircleError, UnknownPluginError


def order(needs):
    """Return names so that each stands after everything that it needs. `needs` maps a name to a list of names."""
    left = {name: set(wanted) for name, wanted in needs.items()}
    needed_by = {name: [] for name in needs}
    for name in sorted(left):
        for other in sorted(left[name]):
            if other not in needs:
                raise UnknownPluginError(other)
            needed_by[other].append(name)
    ready = [name for name, wanted in left.items() if not wanted]
    heapq.heapify(ready)
    result = []
    while ready:
        name = heapq.heappop(ready)
        result.append(name)
        for other in needed_by[name]:
            left[other].discard(name)
            if not left[other]:
                heapq.heappush(ready, other)
        del left[name]
    if left:
        raise CircleError(_circle(left))
    return result


def _circle(left):
    name = min(left)
    path = []
    while name not in path:
        path.append(name)
        name = min(left[name])
    circle = path[path.index(name) :]
    at = circle.index(min(circle))
    circle = circle[at:] + circle[:at]
    return [*circle, circle[0]]
