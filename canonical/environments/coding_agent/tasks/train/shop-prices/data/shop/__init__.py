"""A small shop."""

from shop.store import Shop

__all__ = ["Shop"]
