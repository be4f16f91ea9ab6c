class Events:
    """Tell listeners."""

    def __init__(self):
        self.listeners = []

    def emit(self, *details):
        """Call every listener and return those that failed, with their errors."""
        failures = []
        for listener in self.listeners:
            try:
                listener(*details)
            except Exception as error:
                failures.append((listener, error))
        return failures
