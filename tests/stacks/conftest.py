"""What the tests of every framework stand on. They need a framework, so they run inside its stacks only.

A folder's `conftest.py` overrides `manner` where its framework does things in another way than most.
"""

# ruff: noqa: E402 - the suite's assertions explain themselves only when it is registered before it is imported

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("tests.stacks.suite")

from canonical.adapter import Adapter, Feature, Level
from canonical.catalogue import load_environment
from tests.stacks.suite.framework import ROOT, Framework, Manner
from tests.stacks.suite.lab import CANARY, LONE, Lab, WaitingLab
from tests.stacks.suite.standing import Stand, standing

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    # The frameworks' own warnings are theirs to mend; ours stay errors.
    config.addinivalue_line("filterwarnings", r"ignore:::(?!adapters\.|canonical\.|bench\.|tests\.)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "adapter" in metafunc.fixturenames:
        adapters = _framework(metafunc.definition.path).adapters
        if len(adapters) > 1:
            metafunc.parametrize("adapter", list(adapters), indirect=True, scope="module")


def _framework(path: Path) -> Framework:
    return Framework.of(path.relative_to(HERE).parts[0])


@pytest.fixture(scope="module")
def framework(request: pytest.FixtureRequest) -> Framework:
    """The framework, by the name of the folder that the test stands in."""
    return _framework(request.path)


@pytest.fixture(scope="module")
def manner() -> Manner:
    return Manner()


@pytest.fixture(scope="module")
def adapter(request: pytest.FixtureRequest, framework: Framework) -> Adapter[Any]:
    """The adapter, in every way in which the installed release can be driven."""
    chosen = getattr(request, "param", None)
    return framework.adapter if chosen is None else framework.adapters[chosen]


@pytest.fixture
def images(adapter: Adapter[Any]) -> None:
    """Leave tests of images out where the framework is declared to have none."""
    if adapter.features()[Feature.IMAGES].level is Level.ABSENT:
        pytest.skip("this framework has no images")


@pytest.fixture
def threaded(framework: Framework, manner: Manner, adapter: Adapter[Any]) -> None:
    """Leave tests out in which a tool blocks, where everything runs in the thread of the caller."""
    if any(framework.adapters[way] is adapter for way in manner.inline):
        pytest.skip("everything runs where the caller is")


@pytest.fixture(params=[Lab, WaitingLab], ids=["plain", "waiting"])
def environment(request: pytest.FixtureRequest) -> Iterator[Lab]:
    made: Lab = request.param()
    yield made
    made.gate.set()


@pytest.fixture
def lab(environment: Lab, adapter: Adapter[Any]) -> Iterator[Stand]:
    with standing(environment, adapter) as stand:
        yield stand
        environment.gate.set()


@pytest.fixture(scope="module")
def standing_lab(adapter: Adapter[Any]) -> Iterator[Stand]:
    with standing(Lab(), adapter) as stand:
        yield stand


@pytest.fixture(scope="module")
def standing_wordle(adapter: Adapter[Any]) -> Iterator[Stand]:
    with standing(load_environment("wordle"), adapter) as stand:
        yield stand


@pytest.fixture(scope="module")
def by_hand(framework: Framework) -> Iterator[Stand]:
    """The hand-written Wordle, standing."""
    if not (ROOT / "bench" / "baselines" / framework.name).is_dir():
        pytest.skip("this framework has no hand-written Wordle")
    written = import_module(f"bench.baselines.{framework.name}.baseline").ADAPTER
    with standing(load_environment("wordle"), written) as stand:
        yield stand


@pytest.fixture
def server(framework: Framework) -> Framework:
    """The framework, where it has a server."""
    if not framework.is_server:
        pytest.skip("this framework runs environments in process")
    return framework


@pytest.fixture(scope="module")
def serve_standing(framework: Framework) -> Callable[..., Any]:
    """What serves an environment while a context lasts, by default with the framework's own adapter."""
    return lambda environment, adapter=None: standing(environment, adapter or framework.adapter)


@pytest.fixture
def canary() -> str:
    return CANARY


@pytest.fixture
def lone() -> str:
    return LONE
