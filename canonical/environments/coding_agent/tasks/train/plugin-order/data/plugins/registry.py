"""Plugins by name."""

from plugins.ordering import order


class Registry:
    """Hold plugins and start them."""

    def __init__(self):
        self._needs = {}
        self._starters = {}

    def register(self, name, start, needs=()):
        """Add a plugin: what starts it, and the names of the plugins that it needs."""
        self._needs[name] = list(needs)
        self._starters[name] = start

    def order(self):
        """Return the names in the order in which `start_all` starts them."""
        return order(self._needs)

    def start_all(self):
        """Start every plugin once, each after those that it needs."""
        for name in self.order():
            self._starters[name]()
