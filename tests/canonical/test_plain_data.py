"""Plain data: exact types survive, nothing else crosses, and `same` trusts nobody."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical.grading.plain import NotPlainError, dump, load, same

keys = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
plain = st.recursive(
    keys | st.integers(min_value=1 << 70),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.sets(keys) | st.dictionaries(keys, inner),
    max_leaves=12,
)


@given(plain)
def test_plain_data_comes_back_the_same(value: Any) -> None:
    assert same(load(dump(value)), value)


@given(plain, plain)
def test_same_is_equality_with_types(one: Any, other: Any) -> None:
    assert same(one, one)
    assert same(one, other) == same(other, one)
    if same(one, other):
        assert type(one) is type(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (1, 1.0), (0, False), ([1], (1,)), ("a", b"a"), ({1}, {True}), ({1: 2}, {True: 2}), ([[]], [()]), (None, False)],
)  # fmt: skip
def test_what_only_python_calls_equal_is_not_the_same(one: Any, other: Any) -> None:
    assert not same(one, other)


def test_numbers_that_are_no_number_are_the_same() -> None:
    assert same([math.nan], [math.nan])
    assert same(0.0, -0.0)
    assert not same(math.inf, -math.inf)


class AlwaysEqual(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def circle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("value", [AlwaysEqual(3), object(), frozenset({1}), iter([1]), 1j, circle(), [AlwaysEqual(1)], len])  # fmt: skip
def test_nothing_else_crosses_or_is_the_same(value: Any) -> None:
    with pytest.raises(NotPlainError):
        dump(value)
    assert not same(value, value)
    assert not same(value, 3)


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        value = load(text)
    except NotPlainError:
        return
    assert same(load(dump(value)), value)


@pytest.mark.parametrize("text", ['["l", [1]', "1.5", "NaN", '["f", "nan?"]', '["i", "zz"]', '["d", [[1]]]', '["s", [["l", []]]]', "[" * 100_000, '["x", []]', '{"a": 1}', "9" * 5_000])  # fmt: skip
def test_what_dump_does_not_write_is_refused(text: str) -> None:
    with pytest.raises(NotPlainError):
        load(text)
