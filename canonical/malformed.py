"""What is wrong with data that do not fit their model, for the person who wrote them."""

from __future__ import annotations

from pydantic import ValidationError


def first_problem(error: ValidationError) -> str:
    """Return the first thing that is wrong, after its place where it has one, such as `releases.0.python: Field required`."""
    detail = error.errors(include_url=False)[0]
    return ": ".join(filter(None, [".".join(map(str, detail["loc"])), detail["msg"]]))
