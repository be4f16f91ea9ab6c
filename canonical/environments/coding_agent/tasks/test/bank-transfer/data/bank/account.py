class Account:
    """Hold a balance in cents, and what changed it."""

    history = []

    def __init__(self, name, balance=0):
        self.name = name
        self.balance = balance
        self.frozen = False

    def add(self, cents, text):
        self.balance += cents
        self.history.append((text, cents))
