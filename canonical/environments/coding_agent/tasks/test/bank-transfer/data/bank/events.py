class Events:
    """Tell listeners."""

    def __init__(self):
        self.listeners = []

    def emit(self, *details):
        for listener in self.listeners:
            listener(*details)
