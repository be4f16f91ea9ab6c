class OutOfStock(Exception):
    """Report a product of which there is not enough."""
