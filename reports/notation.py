"""How numbers are written for people: three significant digits, a unit, and words where there is no number.

Nothing here prints NaN, an infinity or a null: an infinite latency is `∞`, and what is absent is said in words by
whoever knows why it is absent.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from bench.stats import ratio_texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DIGITS = 3
"""Significant digits of a measured number."""
MOST_DIGITS = 5
"""Significant digits where fewer cannot tell the two ends of an interval apart."""
INFINITE = "∞"
"""A latency whose rank falls among failed operations."""
RANGE = "\N{EN DASH}"
"""What stands between the two ends of an interval."""

_DURATIONS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_SIZES = ((float(2**30), "GiB"), (float(2**20), "MiB"), (float(2**10), "KiB"), (1.0, "bytes"))
_IN_NANOSECONDS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}


def significant(number: float, digits: int = DIGITS) -> str:
    """Write a number with so many significant digits, without an exponent, thousands separated.

    Digits before the decimal point are never rounded away: 12,345 stays 12,345.
    """
    if math.isinf(number):
        return INFINITE if number > 0 else f"-{INFINITE}"
    if number == 0:
        return "0"
    # Rounding first: 99.96 has as many digits before the point as 100 has.
    magnitude = math.floor(math.log10(abs(float(f"{number:.{digits - 1}e}"))))
    return f"{number:,.{max(0, digits - 1 - magnitude)}f}"


def ratio_with_interval(value: float, low: float, high: float) -> tuple[str, str]:
    """Write a ratio and the two ends of its interval, none of them as 1 where the interval leaves out 1."""
    told, lower, upper = ratio_texts(value, low, high)
    return told, f"{lower}{RANGE}{upper}"


def count(number: float) -> str:
    """Write a whole number of things."""
    return f"{number:,.0f}" if float(number).is_integer() else significant(number)


def duration(ns: float) -> str:
    """Write a time, given in nanoseconds, in the unit that suits it."""
    return _scaled(ns, _DURATIONS)


def duration_with_interval(ns: float, low: float, high: float) -> tuple[str, str]:
    """Write a time and the two ends of its interval, in the unit of the time where both ends are near it.

    Where three digits cannot tell the two ends apart, all three numbers get up to two more.
    """
    return _with_interval(ns, low, high, _DURATIONS)


def size(octets: float) -> str:
    """Write a number of bytes in binary units."""
    return _scaled(octets, _SIZES)


def size_with_interval(octets: float, low: float, high: float) -> tuple[str, str]:
    """Write a size and the two ends of its interval."""
    return _with_interval(octets, low, high, _SIZES)


def share(part: float) -> str:
    """Write a share of 1 in percent; what is not all of it never reads as 100 %."""
    text = significant(part * 100)
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    if text == "100" and part < 1:
        # 99.96 % rounded to three digits would claim that nothing was lost.
        text = f"{math.floor(part * 10_000) / 100:.2f}"
    return f"{text} %"


def quantity(value: float, unit: str) -> str:
    """Write a value that comes with its unit, as records carry it."""
    if unit in _IN_NANOSECONDS:
        return duration(value * _IN_NANOSECONDS[unit])
    if unit in {"bytes", "B"}:
        return size(value)
    if unit == "share":
        return share(value)
    return f"{count(value)} {unit}".strip()


def quantity_with_interval(value: float, low: float, high: float, unit: str) -> tuple[str, str]:
    """Write a value that comes with its unit, and the two ends of its interval."""
    if unit in _IN_NANOSECONDS:
        factor = _IN_NANOSECONDS[unit]
        return duration_with_interval(value * factor, low * factor, high * factor)
    if unit in {"bytes", "B"}:
        return size_with_interval(value, low, high)
    if unit == "share":
        return share(value), f"{share(low)} {RANGE} {share(high)}"
    return quantity(value, unit), f"{count(low)}{RANGE}{count(high)}"


def plural(number: int, singular: str, many: str | None = None) -> str:
    """Write a number of things with the noun in the right form."""
    return f"{number:,} {singular if number == 1 else many or singular + 's'}"


def listing(words: Sequence[str], last: str = "and") -> str:
    """Join words as a sentence does."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def settings(values: Mapping[str, object]) -> str:
    """Write settings as `key value` pairs, in the order of their keys."""
    return ", ".join(f"{key} {plain(value)}" for key, value in sorted(values.items()))


def plain(value: object) -> str:
    """Write a JSON value the way a reader of prose expects it."""
    match value:
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case int():
            # No separators: settings such as ports and seeds are names more often than amounts.
            return str(value)
        case float():
            return f"{value:g}"
        case _:
            return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _scaled(number: float, units: Sequence[tuple[float, str]], digits: int = DIGITS) -> str:
    if math.isinf(number):
        return significant(number)
    divisor, unit = _unit(number, units)
    return f"{_in_unit(number, divisor, digits)} {unit}"


def _with_interval(
    number: float, low: float, high: float, units: Sequence[tuple[float, str]]
) -> tuple[str, str]:
    if math.isinf(low):
        return _scaled(number, units), INFINITE
    divisor, unit = _unit(number if math.isfinite(number) else low, units)
    digits = _telling_digits(low / divisor, (number if math.isinf(high) else high) / divisor)
    value = _scaled(number, units, digits)
    if math.isinf(high):
        return value, f"{_scaled(low, units, digits)} {RANGE} {INFINITE}"
    if all(0.1 <= end / divisor < 10_000 for end in (low, high)):
        return value, f"{_in_unit(low, divisor, digits)}{RANGE}{_in_unit(high, divisor, digits)} {unit}"
    return value, f"{_scaled(low, units, digits)} {RANGE} {_scaled(high, units, digits)}"


def _telling_digits(low: float, high: float) -> int:
    """Choose so many significant digits that half of an interval is at least one unit of the last of them."""
    half = (high - low) / 2
    if not (math.isfinite(half) and half > 0 and high > 0):
        return DIGITS
    return min(MOST_DIGITS, max(DIGITS, math.ceil(math.floor(math.log10(high)) + 1 - math.log10(half))))


def _in_unit(number: float, divisor: float, digits: int = DIGITS) -> str:
    # Whole nanoseconds and bytes are counts: no decimals are invented for them.
    return (
        f"{number:,.0f}"
        if divisor == 1.0 and float(number).is_integer()
        else significant(number / divisor, digits)
    )


def _unit(number: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    if not math.isfinite(number):
        return units[0]
    step = 1_000 if units is _DURATIONS else 1_024
    for position, (divisor, unit) in enumerate(units):
        # A value that rounds up to the next unit is written in it: 999.7 µs is 1.00 ms.
        if abs(number) >= divisor or (
            position + 1 < len(units) and abs(number) > divisor - divisor / (2 * step)
        ):
            return divisor, unit
    return units[-1]
