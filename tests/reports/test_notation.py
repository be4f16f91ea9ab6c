from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports import notation

FACTORS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
positive = st.floats(min_value=1e-3, max_value=1e15, allow_nan=False)


def read_back(text: str) -> float:
    number, unit = text.split(" ")
    return float(number.replace(",", "")) * FACTORS[unit]


@given(positive)
def test_a_written_duration_reads_back_within_three_digits(ns: float) -> None:
    """What a page shows is the number of the records, rounded and nothing else."""
    assert read_back(notation.duration(ns)) == pytest.approx(ns, rel=0.005)


@given(st.integers(min_value=0, max_value=2**50))
def test_a_written_size_reads_back_within_three_digits(octets: int) -> None:
    """What a page shows is the number of the records, rounded and nothing else."""
    assert read_back(notation.size(octets)) == pytest.approx(octets, rel=0.005)


@given(positive)
def test_a_duration_is_written_in_the_unit_that_suits_it(ns: float) -> None:
    """No number has more than three digits before its point, except whole seconds, and none is below 1 but in ns."""
    number, unit = notation.duration(ns).split(" ")
    value = float(number.replace(",", ""))
    assert value < 1_000 or unit == "s"
    assert value >= 1 or unit == "ns"


@given(positive, positive, positive)
def test_an_interval_reads_back_to_its_two_ends(one: float, two: float, three: float) -> None:
    """The interval beside a number is the one that was computed."""
    low, value, high = sorted((one, two, three))
    shown, interval = notation.duration_with_interval(value, low, high)
    assert read_back(shown) == pytest.approx(value, rel=0.005)
    ends = [end.strip() for end in interval.split(notation.RANGE)]
    unit = ends[1].split(" ")[1]
    first = ends[0] if " " in ends[0] else f"{ends[0]} {unit}"
    assert (read_back(first), read_back(ends[1])) == pytest.approx((low, high), rel=0.005)


@given(
    st.floats(allow_nan=False) | st.integers(min_value=-(2**60), max_value=2**60),
    st.sampled_from(["ns", "us", "s", "bytes", "share", "sessions"]),
)
def test_no_number_is_written_as_nan_inf_or_with_an_exponent(number: float, unit: str) -> None:
    """Readers of a page never meet the words of a programming language."""
    text = notation.quantity(number, unit)
    assert not re.search(r"nan|inf|none|\de[+-]?\d", text, re.IGNORECASE)


def test_an_interval_among_failures_is_said_with_the_sign_of_infinity() -> None:
    """A rank among failed operations has no finite end, and no invented one."""
    assert notation.duration_with_interval(math.inf, math.inf, math.inf) == ("∞", "∞")
    assert notation.duration_with_interval(2e6, 1e6, math.inf) == ("2.00 ms", f"1.00 ms {notation.RANGE} ∞")
    assert notation.duration_with_interval(math.inf, 1e6, math.inf) == ("∞", f"1.00 ms {notation.RANGE} ∞")


def test_ends_that_three_digits_cannot_tell_apart_get_more() -> None:
    """An interval of a step that waits one second is narrow, not empty."""
    assert notation.duration_with_interval(1_000_420_000, 1_000_310_000, 1_000_510_000) == (
        "1.0004 s",
        f"1.0003{notation.RANGE}1.0005 s",
    )


@given(st.floats(min_value=0, max_value=1, exclude_max=True))
def test_a_share_below_one_never_reads_as_all_of_it(part: float) -> None:
    """One failed session in ten thousand is not 100 % success."""
    assert notation.share(part) != "100 %"
    assert float(notation.share(part).removesuffix(" %")) == pytest.approx(part * 100, abs=0.01, rel=0.006)


def test_units_of_records_are_known() -> None:
    """A cost in ns, µs or bytes is written in the unit that suits it; others keep their own."""
    assert notation.quantity(4_310.5, "ns") == "4.31 µs"
    assert notation.quantity(4.3105, "us") == "4.31 µs"
    assert notation.quantity(2_904, "bytes") == "2.84 KiB"
    assert notation.quantity(0.951, "share") == "95.1 %"
    assert notation.quantity(1_234, "steps/s") == "1,234 steps/s"


@given(st.lists(st.sampled_from(["connect", "reset", "close"]), max_size=4))
def test_a_listing_names_every_word(words: list[str]) -> None:
    """Nothing is lost in a sentence."""
    assert re.findall(r"connect|reset|close", notation.listing(words)) == words
