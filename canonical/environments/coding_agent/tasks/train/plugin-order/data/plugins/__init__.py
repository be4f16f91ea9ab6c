from plugins.registry import Registry

__all__ = ["Registry"]
