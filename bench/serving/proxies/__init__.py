"""The proxies that can stand before a fleet: one folder each, which nothing else lists."""

from __future__ import annotations

import importlib
from pathlib import Path

from bench.serving.proxies.protocol import Proxy


class ProxyError(RuntimeError):
    """Report a proxy that is unknown or missing, refuses its configuration or does not start, and what to do."""


def proxy_names() -> tuple[str, ...]:
    """Return the names of all proxies, sorted."""
    return tuple(sorted(path.parent.name for path in Path(__file__).parent.glob("*/proxy.py")))


def load_proxy(name: str) -> Proxy:
    """Return the proxy of a folder.

    Raises:
        ProxyError: There is none; the text lists those that exist.
    """
    if name not in proxy_names():
        raise ProxyError(f"there is no proxy {name!r}; there are {', '.join(proxy_names())}")
    proxy: Proxy = importlib.import_module(f"bench.serving.proxies.{name}.proxy").PROXY
    return proxy


def find_binary(proxy: Proxy) -> Path:
    """Return where the program of a proxy is.

    Raises:
        ProxyError: It is not installed; the text says how to get it.
    """
    binary = proxy.find()
    if binary is None:
        raise ProxyError(f"{proxy.title} is not installed; get it with: {proxy.how_to_get}")
    return binary
