class CircleError(Exception):
    """Report plugins that need each other."""


class UnknownPluginError(Exception):
    """Report a need for a plugin that nobody registered."""
