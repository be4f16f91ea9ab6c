"""The state of an environment as JSON and back, or the reason why it is not plain data."""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import chain
from types import SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from canonical.content import JSON


class StateError(ValueError):
    """Say why a state cannot become JSON, or JSON not a state. The text quotes no value, since values may be secret."""


def store_state(start: Callable[..., Any], state: Any) -> JSON:
    """Return a state as JSON from which `load_state` makes an equal one.

    Args:
        start: The method that made the state; its return annotation may say more than the value does, such as the type
            of the values of a mapping.
        state: The state.

    Raises:
        StateError: The state is not plain data: it would not come back the same.
    """
    kind: type = type(state)
    try:
        adapter = _adapter(start, kind)
        stored: JSON = adapter.dump_python(state, mode="json", warnings=False)
        restored = adapter.validate_python(stored)
    except _FAILURES as error:
        raise StateError(_reason(error, kind)) from None
    change = next(_changes(state, restored, "it", {}), None)
    if change is not None:
        raise StateError(change)
    return stored


def load_state(start: Callable[..., Any], kind: type, stored: JSON) -> Any:
    """Return a new state, equal to the one that `store_state` stored. A set may come back in another order.

    Args:
        start: The method that made the state.
        kind: The class of the state.
        stored: What `store_state` returned.

    Raises:
        StateError: The value does not fit the class.
    """
    # A copy, because pydantic takes over lists and objects in fields of type Any as they are, and one snapshot may be
    # loaded more than once.
    own = json.loads(json.dumps(stored))
    try:
        return _adapter(start, kind).validate_python(own)
    except _FAILURES as error:
        raise StateError(_reason(error, kind)) from None


# What pydantic raises for classes and values that it cannot handle, and what their own methods raise in its hands.
_FAILURES = (
    PydanticUserError, NameError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError,
)  # fmt: skip


@cache
def _adapter(start: Callable[..., Any], kind: Any) -> TypeAdapter[Any]:
    hint = _return_hint(start)
    options = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    for option in options:
        if (get_origin(option) or option) is kind or (kind is dict and is_typeddict(option)):
            return TypeAdapter(option)
    return TypeAdapter(kind)


def _return_hint(start: Callable[..., Any]) -> Any:
    # The other annotations may name what exists for type checkers only, and do not matter here.
    try:
        written = {key: hint for key, hint in start.__annotations__.items() if key == "return"}
        hints = get_type_hints(
            SimpleNamespace(__annotations__=written), start.__globals__, include_extras=True
        )
    except NameError:
        return None
    return hints.get("return")


def _reason(error: Exception, kind: type) -> str:
    if isinstance(error, ValidationError):
        detail = error.errors(include_url=False, include_context=False, include_input=False)[0]
        # Further in, and in a mapping, the place may be a key, and keys are data.
        place = "" if issubclass(kind, dict) or not detail["loc"] else str(detail["loc"][0])
        is_own = detail["type"] in {"value_error", "assertion_error"}
        message = "refused by its validator" if is_own else detail["msg"]
        return f"{place}: {message}" if place else message
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    hint = "; annotate a field that holds a generator as Rng" if "random.Random" in text else ""
    return text.partition(". Set ")[0].rstrip(".") + hint


_Twins = dict[int, tuple[Any, Any, str]]


def _changes(before: Any, after: Any, place: str, twins: _Twins) -> Iterator[str]:
    """Yield what storing would change; `twins` holds the parts met so far, to find one that is held twice."""
    if type(before) is not type(after):
        yield f"{place} is a {type(before).__name__} and would come back as a {type(after).__name__}"
        return
    parts = _parts(before, after)
    if parts is None:
        if not (before == after or (before != before and after != after)):  # noqa: PLR0124 - NaN differs from itself
            yield f"{place} would come back with another value"
        return
    known = twins.setdefault(id(before), (before, after, place))
    if known[1] is not after and not _is_fixed(before):
        yield f"{place} and {known[2]} are one object and would come back as two"
        return
    mine, theirs = parts
    if list(mine) != list(theirs):
        yield f"{place} would come back with other parts"
        return
    for name, value in mine.items():
        inner = (
            f"an entry of {place}" if isinstance(before, dict | list | tuple | deque) else f"{place}.{name}"
        )
        yield from _changes(value, theirs[name], inner.removeprefix("it."), twins)


def _is_fixed(value: Any) -> bool:
    if isinstance(value, BaseModel):
        return bool(value.model_config.get("frozen"))
    parameters = getattr(value, "__dataclass_params__", None)
    return isinstance(value, tuple) or (parameters is not None and bool(parameters.frozen))


def _parts(before: Any, after: Any) -> tuple[dict[Any, Any], dict[Any, Any]] | None:
    """Return the named parts of two values of one type, or None for values that have no parts."""
    match before:
        case random.Random():
            return {"state": before.getstate()}, {"state": after.getstate()}
        case dict():
            return before, after
        case list() | tuple() | deque():
            return dict(enumerate(before)), dict(enumerate(after))
        case set():
            return {"elements": frozenset(before)}, {"elements": frozenset(after)}
        case BaseModel():
            return _model_parts(before), _model_parts(after)
        case _ if is_dataclass(before):
            return _dataclass_parts(before), _dataclass_parts(after)
        case _:
            return None


def _model_parts(model: BaseModel) -> dict[str, Any]:
    return {**model.__dict__, **(model.__pydantic_extra__ or {}), **(model.__pydantic_private__ or {})}


def _dataclass_parts(value: Any) -> dict[str, Any]:
    names = chain((field.name for field in fields(value)), getattr(value, "__dict__", {}))
    return {name: getattr(value, name) for name in names if hasattr(value, name)}
