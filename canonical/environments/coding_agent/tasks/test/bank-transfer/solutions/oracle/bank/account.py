class Account:
    """Hold a balance in cents, and what changed it."""

    def __init__(self, name, balance=0):
        self.name = name
        self.balance = balance
        self.frozen = False
        self.history = []

    def add(self, cents, text):
        self.balance += cents
        self.history.append((text, cents))
