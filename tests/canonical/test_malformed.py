"""What is wrong with data is said with its place, and without one where the whole is wrong."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError

from canonical.malformed import first_problem


class _Part(BaseModel):
    number: int


class _Whole(BaseModel):
    parts: list[_Part]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ('{"parts": [{"number": 1}, {"number": "x"}]}', "parts.1.number: Input should be a valid integer"),
        ("{}", "parts: Field required"),
        ("{", "Invalid JSON"),
    ],
)
def test_the_first_problem_is_told_after_its_place(given: str, told: str) -> None:
    with pytest.raises(ValidationError) as raised:
        _Whole.model_validate_json(given)
    assert first_problem(raised.value).startswith(told)
