"""Accounts and transfers."""

from bank.account import Account
from bank.errors import TransferError
from bank.events import Events


class Bank:
    """Hold accounts by name."""

    def __init__(self):
        self.accounts = {}
        self.events = Events()
        self.failures = []

    def open(self, name, balance=0):
        self.accounts[name] = Account(name, balance)
        self.accounts[name].history = []

    def freeze(self, name):
        self.accounts[name].frozen = True

    def balance(self, name):
        return self.accounts[name].balance

    def history(self, name):
        return list(self.accounts[name].history)

    def listen(self, listener):
        self.events.listeners.append(listener)

    def transfer(self, source, target, cents):
        if cents <= 0 or source == target:
            raise TransferError("refused")
        for listener in self.events.listeners:
            try:
                listener(source, target, cents)
            except Exception as error:
                self.failures.append((listener, error))
        if source not in self.accounts or target not in self.accounts:
            raise TransferError("no such account")
        giver, taker = self.accounts[source], self.accounts[target]
        if giver.frozen or taker.frozen or giver.balance < cents:
            raise TransferError("refused")
        giver.add(-cents, "to " + target)
        taker.add(cents, "from " + source)
