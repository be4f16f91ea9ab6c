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
        return self.accounts[name].history

    def listen(self, listener):
        """Call listener(source, target, cents) after every transfer, in the order in which listeners came."""
        self.events.listeners.append(listener)

    def transfer(self, source, target, cents):
        """Move cents from one account to another.

        Raises:
            TransferError: An account is unknown or frozen, or the source has too little.
        """
        self.events.emit(source, target, cents)
        account = self.accounts[source]
        if account.balance < cents:
            raise TransferError("too little money")
        account.add(-cents, "to " + target)
        try:
            other = self.accounts[target]
        except KeyError:
            raise TransferError("no account " + target)
        if other.frozen:
            raise TransferError("frozen")
        other.add(cents, "from " + source)
