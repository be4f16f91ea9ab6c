class CircleError(Exception):
    """Report plugins that need each other."""

    def __init__(self, names):
        super().__init__(names)
        self.names = names


class UnknownPluginError(Exception):
    """Report a need for a plugin that nobody registered."""

    def __init__(self, name):
        super().__init__(name)
        self.name = name
