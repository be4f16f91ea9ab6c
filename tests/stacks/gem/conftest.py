"""The ways in which GEM's users hold environments, and in which manner GEM keeps what every adapter promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gem
import pytest

from adapters.gem.compiler import compile_environment
from canonical.catalogue import load_environment
from canonical.dialect import TextForm, write_calls
from canonical.tool import ToolCall
from tests.stacks.suite.framework import Manner
from tests.stacks.suite.lab import Lab


def as_text(name: str, **arguments: Any) -> str:
    """Return a call as a model writes it for GEM."""
    return write_calls([ToolCall(name, arguments)], TextForm.XML)


@pytest.fixture(scope="module")
def manner() -> Manner:
    return Manner(
        actions=(ToolCall("set_state", {"state": {}}),),
        unopened="call reset first",
        unstartable="task odd/broken cannot be played: the start of",
        closed="call reset first",
        abandoned="still under way",
        keeps_episode=True,
        inline=("inline",),
        writes_json=True,
    )


@pytest.fixture
def compiled(environment: Lab) -> Any:
    return compile_environment(environment)


@pytest.fixture
def env(compiled: Any) -> Any:
    return gem.make(compiled.env_id)


@pytest.fixture(scope="session")
def wordle() -> Any:
    return compile_environment(load_environment("wordle"))


@pytest.fixture(scope="session")
def say() -> Callable[..., str]:
    return as_text
