"""Addresses of what others have published: in each file of sources, `[urls]` says where the titles can be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, TypeAlias

from pydantic import StringConstraints

Url: TypeAlias = Annotated[str, StringConstraints(pattern=r"^https://[^\s/]+/\S*$")]
Urls: TypeAlias = dict[str, Url]
"""Title of a source -> its address."""


def require_used(urls: Mapping[str, str], titles: Iterable[str]) -> None:
    """Refuse addresses of titles that no source of the file has, which are misspelt or left behind.

    Raises:
        ValueError: There is one; the text names it.
    """
    if unused := sorted(set(urls) - set(titles)):
        raise ValueError(f"an address of {unused[0]!r}, which no source of the file is called")
