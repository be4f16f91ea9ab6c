"""Spellings: the forms in which a text may lie in bytes, so that a secret is found however it was written down."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

_RUN = re.compile(r"[0-9A-Za-z]+")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_SEPARATORS = (",", ".", "'", "_", " ", "\u00a0", "\u202f")
_SIZE = 4
_LONGEST_NUMBER = 100


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


def number_spellings(number: float | str) -> Iterator[str]:
    """Yield the ways in which people and programs write a number, without its sign: its digits with and without marks.

    Args:
        number: The number, or its decimal digits as a text.
    """
    text = str(number).lstrip("-")
    whole, _, fraction = text.partition(".")
    fraction = fraction if fraction.strip("0") else ""
    if not whole.isdecimal() or (fraction and not fraction.isdecimal()):
        yield text  # such as 1e-09: written by programs alone
        return
    grouped = [f"{int(whole):,}".replace(",", mark) for mark in _SEPARATORS]
    for form in dict.fromkeys((whole, *grouped)):
        yield form
        if fraction:
            yield f"{form}.{fraction}"
            yield f"{form},{fraction}"
    if not fraction:
        yield hex(int(whole))
    scientific = f"{whole}{fraction}".rstrip("0")
    yield f"{scientific[:1]}.{scientific[1:]}e"


class Secret:
    """Be a text or a number that nobody may show, in every form in which it can be recognised.

    Args:
        value: The text or the number. What is shorter than four characters, or has fewer digits, stands everywhere by
            chance.

    Attributes:
        value: The text or the number.
        is_telling: Whether finding it says anything.
    """

    def __init__(self, value: str | float) -> None:
        self.value = value
        text = str(value)
        self.is_telling = len(text.strip()) >= _SIZE
        small = {
            form.lower()
            for one in (text, text.casefold())
            for name, form in spellings(one)
            if _is_loose(name)
        }
        # Encoded together with what stands beside it, a short text leaves hardly anything that is its own.
        self._exact = {form for name, form in spellings(text) if not _is_loose(name) and len(form) >= _SIZE}
        self._pattern: re.Pattern[bytes] | None = None
        if len(text) <= _LONGEST_NUMBER and (not isinstance(value, str) or _NUMBER.fullmatch(text)):
            numbers = [form for form in number_spellings(value) if sum(map(str.isdigit, form)) >= _SIZE]
            self.is_telling = bool(numbers)
            digits = {form.encode().lower() for form in numbers}
            # Among other digits, digits say nothing; backwards they are those of another number.
            digits |= {form for form in small if form.isdigit() and form != text[::-1].encode()}
            small = {form for form in small if not form.isdigit() and form not in digits}
            forms = b"|".join(map(re.escape, sorted(digits, key=len, reverse=True)))
            self._pattern = re.compile(b"(?<![0-9])(?:" + forms + b")(?![0-9])") if digits else None
        self._small = {form for form in small if form.strip(b"\0")}

    def count(self, text: str) -> int:
        """Return how often the secret stands in a text, in whatever form."""
        exact = text.encode("utf-8", "surrogatepass")
        places = {text.casefold().encode("utf-8", "surrogatepass"), exact.lower()}
        found = sum(exact.count(form) for form in self._exact)
        return found + max(
            sum(place.count(form) for form in self._small)
            + (0 if self._pattern is None else len(self._pattern.findall(place)))
            for place in places
        )


def _is_loose(name: str) -> bool:
    return not name.startswith("in base 64")


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
