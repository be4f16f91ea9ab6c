from bank.core import Bank
from bank.errors import TransferError

__all__ = ["Bank", "TransferError"]
