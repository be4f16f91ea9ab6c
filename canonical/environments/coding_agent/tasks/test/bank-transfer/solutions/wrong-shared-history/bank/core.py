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

    def freeze(self, name):
        self.accounts[name].frozen = True

    def balance(self, name):
        return self.accounts[name].balance

    def history(self, name):
        return list(self.accounts[name].history)

    def listen(self, listener):
        self.events.listeners.append(listener)

    def transfer(self, source, target, cents):
        giver, taker = self.accounts.get(source), self.accounts.get(target)
        if not giver or not taker or giver.frozen or taker.frozen or giver is taker:
            raise TransferError("refused")
        if cents <= 0 or giver.balance < cents:
            raise TransferError("refused")
        giver.add(-cents, "to " + target)
        taker.add(cents, "from " + source)
        for listener in self.events.listeners:
            try:
                listener(source, target, cents)
            except Exception as error:
                self.failures.append((listener, error))
