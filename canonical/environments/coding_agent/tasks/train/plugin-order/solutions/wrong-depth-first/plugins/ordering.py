"""The order in which plugins start."""

from plugins.errors import CircleError, UnknownPluginError


def order(needs):
    """Return names so that each stands after everything that it needs."""
    result = []

    def visit(name, path):
        if name not in needs:
            raise UnknownPluginError(name)
        if name in path:
            raise CircleError([*path[path.index(name) :], name])
        if name not in result:
            for other in sorted(needs[name]):
                visit(other, [*path, name])
            result.append(name)

    for name in sorted(needs):
        visit(name, [])
    return result
