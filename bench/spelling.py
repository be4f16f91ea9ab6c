"""Spellings: the forms in which a text may lie in bytes, so that a secret is found however it was written down."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

_RUN = re.compile(r"[0-9A-Za-z]+")


def spellings(text: str) -> Iterator[tuple[str, bytes]]:
    """Yield the forms in which a text may lie in bytes: what a form is called, and the bytes.

    Base 64 has three, because what is encoded may begin anywhere in what was.
    """
    plain = text.encode("utf-8", "surrogatepass")
    for name, form in (("as it is", text), ("reversed", text[::-1])):
        for encoding in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
            yield f"{name}, in {encoding}", form.encode(encoding, "surrogatepass")
        yield f"{name}, escaped as JSON", json.dumps(form)[1:-1].encode("ascii")
        yield (
            f"{name}, escaped as JSON in Unicode",
            json.dumps(form, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass"),
        )
        yield f"{name}, escaped as Python", ascii(form)[1:-1].encode("ascii")
        yield f"{name}, escaped as HTML", html.escape(form).encode("utf-8", "surrogatepass")
        yield f"{name}, escaped as an address", quote(form, safe="", errors="surrogatepass").encode("ascii")
        yield f"{name}, escaped as a form", quote_plus(form, errors="surrogatepass").encode("ascii")
    yield "in hexadecimal", plain.hex().encode("ascii")
    for skip in range(3):
        # The first characters and the last ones also depend on what stands beside the text.
        whole = base64.b64encode(b"\0" * skip + plain)
        inner = whole[4 if skip else 0 : len(whole) // 4 * 4 - 4]
        yield "in base 64", inner
        yield "in base 64 for addresses", inner.translate(bytes.maketrans(b"+/", b"-_"))


def find_secret(secret: str, places: Iterable[bytes]) -> str | None:
    """Return how and in what neighbourhood a secret is written in one of some places, or None.

    The longest run of letters and digits of the secret is looked for as well: no way of escaping changes it. Whether
    letters are large or small does not matter, except in base 64.
    """
    run = max(_RUN.findall(secret), key=len, default=secret)
    forms = {form: name for text in (secret, run) for name, form in spellings(text) if form}
    for place in places:
        small = place.lower()
        for form, name in forms.items():
            exact = name.startswith("in base 64")
            at = place.find(form) if exact else small.find(form.lower())
            if at >= 0:
                around = place[max(0, at - 40) : at + len(form) + 20]
                return f"{name}: {around!r}"
    return None
