"""An environment of the earlier API, as its documentation writes them: tools without a state, and two rewards."""

from __future__ import annotations

from importlib import import_module
from typing import Any

vf: Any = import_module("verifiers")


def add(first: int, second: int) -> int:
    """Add two numbers.

    Args:
        first: A number.
        second: Another.
    """
    return first + second


def right(completion: Any, answer: str) -> float:
    """Pay 1 for the answer."""
    return float(completion[-1]["content"] == answer)


def short(completion: Any) -> float:
    """Pay for few messages."""
    return 1.0 / len(completion)


def load_environment(max_turns: int = 10, rows: int = 4) -> Any:
    """Return the environment."""
    dataset: Any = import_module("datasets").Dataset
    return vf.ToolEnv(
        dataset=dataset.from_list(
            [{"question": f"What is {place} and 2?", "answer": str(place + 2)} for place in range(rows)]
        ),
        tools=[add],
        rubric=vf.Rubric(funcs=[right, short], weights=[1.0, 0.5]),
        system_prompt="Use the tool.",
        max_turns=max_turns,
    )
