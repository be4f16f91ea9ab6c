"""Which stacks are certified is what the options say."""

from __future__ import annotations

import click
import pytest

from bench.stacks import adapter_names, all_stacks
from rosetta.parity import DEFAULT, chosen_stacks


def test_without_a_word_every_release_is_certified() -> None:
    assert chosen_stacks((), None) == list(all_stacks())
    (name, *_) = adapter_names()
    assert chosen_stacks((name,), None) == [stack for stack in all_stacks() if stack.adapter == name]


def test_the_default_release_of_each_framework_can_be_asked_for() -> None:
    stacks = chosen_stacks((), DEFAULT)
    assert [stack.adapter for stack in stacks] == list(adapter_names())
    assert all(stack.release.default for stack in stacks)
    assert chosen_stacks((stacks[-1].adapter,), DEFAULT) == stacks[-1:]


def test_a_release_is_found_by_its_label_alone_and_by_its_version_with_its_framework() -> None:
    for stack in all_stacks():
        assert chosen_stacks((), stack.label) == [stack]
        assert chosen_stacks((stack.adapter,), stack.release.version) == [stack]
    with pytest.raises(click.UsageError, match="names no single release"):
        chosen_stacks((), "99")
