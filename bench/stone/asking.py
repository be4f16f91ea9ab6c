"""Asking a release, in its stack, what it has: metadata, names, values of expressions, definitions."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import protocol
from bench.stacks import Stack, StackError, require_stack

TIMEOUT_S = 300
"""How long a release may take to answer everything, in seconds; frameworks take many to be imported."""


@dataclass(frozen=True, slots=True)
class Release:
    """Hold what a release has answered, each by its question.

    Attributes:
        stack: The stack that was asked.
        metadata: The metadata of its distribution, as `importlib.metadata` gives it as JSON.
        names: What each name is.
        values: What each expression gives; `{"raises": name, "saying": text}` where it raises.
        definitions: Where each expression for names of classes and functions is met, as `file:line name`.
    """

    stack: Stack
    metadata: dict[str, Any]
    names: dict[str, protocol.Inspection]
    values: dict[str, Any]
    definitions: dict[str, list[str]]


def ask(
    stack: Stack,
    *,
    names: Sequence[str] = (),
    expressions: Sequence[str] = (),
    definitions: Sequence[str] = (),
) -> Release:
    """Ask a release, whose stack must be ready.

    Args:
        stack: The stack.
        names: What to resolve, as `module:name`.
        expressions: Statements, the last of them an expression.
        definitions: Regular expressions for names of classes and functions.

    Raises:
        StackError: The stack is not ready, or it does not answer.
    """
    require_stack(stack)
    questions = {
        "package": stack.release.package,
        "names": list(names),
        "expressions": list(expressions),
        "definitions": list(definitions),
    }
    with tempfile.TemporaryDirectory(prefix="rosetta-stone-") as folder:
        place = Path(folder) / "answers.json"
        try:
            done = subprocess.run(
                [str(stack.python), "-P", "-W", "ignore", "-m", "bench.worker.answers", str(place)],
                input=json.dumps(questions), capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
                cwd=folder, env={**os.environ, "HOME": folder},
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise StackError(f"{stack.label} has not answered within {TIMEOUT_S} s") from error
        if done.returncode or not place.is_file():
            raise StackError(f"{stack.label} does not answer: {done.stderr.strip()[-400:]}")
        answers = json.loads(place.read_text(encoding="utf-8"))
    return Release(
        stack,
        answers["metadata"],
        {
            name: protocol.Inspection.model_validate(one)
            for name, one in zip(names, answers["symbols"], strict=True)
        },
        dict(zip(expressions, answers["values"], strict=True)),
        dict(zip(definitions, answers["definitions"], strict=True)),
    )
