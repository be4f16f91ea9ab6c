class TransferError(Exception):
    """Report a transfer that was refused."""
