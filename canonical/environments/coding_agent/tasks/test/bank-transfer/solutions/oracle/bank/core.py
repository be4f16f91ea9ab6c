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
        """Open an account with a first balance."""
        self.accounts[name] = Account(name, balance)

    def freeze(self, name):
        """Let an account neither send nor receive."""
        self.accounts[name].frozen = True

    def balance(self, name):
        """Return the balance of an account in cents."""
        return self.accounts[name].balance

    def history(self, name):
        """Return the changes of an account as a list of pairs (text, cents), oldest first."""
        return list(self.accounts[name].history)

    def listen(self, listener):
        """Call listener(source, target, cents) after every transfer, in the order in which listeners came."""
        self.events.listeners.append(listener)

    def transfer(self, source, target, cents):
        """Move cents from one account to another."""
        if cents <= 0:
            raise TransferError("an amount must be positive")
        if source == target:
            raise TransferError("source and target are the same account")
        giver, taker = self._usable(source), self._usable(target)
        if giver.balance < cents:
            raise TransferError("too little money")
        giver.add(-cents, "to " + target)
        taker.add(cents, "from " + source)
        self.failures.extend(self.events.emit(source, target, cents))

    def _usable(self, name):
        account = self.accounts.get(name)
        if account is None:
            raise TransferError("no account " + name)
        if account.frozen:
            raise TransferError("frozen")
        return account
