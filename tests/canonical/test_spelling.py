"""A secret is recognised however it is written, and no other is taken for it."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical.spelling import Secret

WAYS = (
    str,
    "{:,}".format,
    "{:_}".format,
    lambda n: f"{n:,}".replace(",", "."),
    lambda n: f"{n:,}".replace(",", "\u202f"),
    lambda n: f"{n:,}".replace(",", " "),
    hex,
)


@given(
    number=st.integers(10_000, 10**9),
    way=st.sampled_from(WAYS),
    before=st.sampled_from(["", "it is ", "x", "(", "-"]),
    after=st.sampled_from(["", ".", " tonnes", ")", ", no"]),
)
def test_a_number_is_found_however_people_and_programs_write_it(number, way, before, after):
    text = f"{before}{way(number)}{after}"
    assert Secret(number).count(text)
    assert Secret(str(number)).count(text)
    assert Secret(-number).count(text)


@given(number=st.integers(1000, 10**9), other=st.integers(1, 10**9))
def test_no_other_number_is_taken_for_it(number, other):
    if number != other:
        assert not Secret(number).count(f"It is {other} or {other:,}.")
        assert not Secret(f"{number}").count(f"It is {other} or {other:,}.")
        assert not Secret(number).count(f"{number}{other} or {other}{number}.")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.14159, "about 3,14159"),
        (1234567.25, "1,234,567.25"),
        (1234567.25, "1.234.567,25"),
        (5000.0, "5,000"),
        ("103556", "103,556 people"),
        ("über", "ÜBER"),
        ("crane", base64.b64encode(b"it is crane, it is").decode()),
        ("open sesame", "emases nepo"),
        ("open sesame", "6f70656e20736573616d65"),
        ("\ud83d\ude00\ud83d", "\ud83d\ude00\ud83d"),
    ],
)
def test_what_is_written_otherwise_is_the_same_secret(value, text):
    assert Secret(value).count(text) > 0


@pytest.mark.parametrize("value", ["cat", " a ", "", 7, 999, -12, 0.5, 1e-9, 100.0, float("nan"), "12"])
def test_what_stands_everywhere_by_chance_says_nothing(value):
    assert not Secret(value).is_telling


@pytest.mark.parametrize("value", ["crane", 1000, 12345, 3.141, 1234.5, "2024", "9" * 5000])
def test_what_is_long_enough_does(value):
    assert Secret(value).is_telling


@given(text=st.text(max_size=30))
def test_counting_takes_any_text(text):
    assert Secret("canary-7f3a").count(text) == 0
    assert Secret(7_654_321).count(text) == 0
