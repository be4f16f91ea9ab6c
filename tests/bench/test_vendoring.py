"""Code is taken along whole, and rewritten in nothing but what names a module that was taken along."""

from __future__ import annotations

import ast
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.porting.vendoring import Module, VendoringError, close_over, rewritten

HOME = "here._inside"
KNOWN = {
    "canonical": Module("", is_package=True),
    "canonical.task": Module("from canonical.deep.content import JSON\n"),
    "canonical.step": Module(""),
    "canonical.deep": Module("", is_package=True),
    "canonical.deep.content": Module("import yaml\n"),
    "canonical.deep.other": Module(""),
    "adapters": Module("", is_package=True),
    "adapters.gem": Module("", is_package=True),
    "adapters.gem.one_target": Module(""),
    "adapters.gem.two_target": Module(""),
    "adapters.gem.session": Module(""),
}


def needed(text):
    return set(close_over([("the code", text)], KNOWN).modules)


def test_what_an_import_leads_to_is_taken_along_with_the_packages_above_it():
    assert needed("from canonical.task import Task") == {
        "canonical",
        "canonical.task",
        "canonical.deep",
        "canonical.deep.content",
    }


@pytest.mark.parametrize(
    "text",
    [
        "def later():\n    from canonical import step",
        "import canonical.step as s",
        "PROGRAM = ('canonical.step',)",
        "NAMES = [f'canonical.{name}tep' for name in 's']",
    ],
)
def test_a_module_is_found_in_whatever_way_code_gets_hold_of_it(text):
    assert needed(text) == {"canonical", "canonical.step"}


def test_a_name_that_is_put_together_stands_for_every_module_that_it_can_become():
    found = needed("m = import_module(f'adapters.gem.{kind()}_target')")
    assert found == {"adapters", "adapters.gem", "adapters.gem.one_target", "adapters.gem.two_target"}


@pytest.mark.parametrize(
    "text",
    [
        "m = import_module(f'adapters.gem.{kind()}_target')\nm.compile()",
        "x = importlib.import_module(f'adapters.gem.{kind()}_target').compile",
    ],
)
def test_of_the_modules_that_a_name_can_become_only_those_have_a_part_that_have_what_is_asked(text):
    known = {**KNOWN, "adapters.gem.two_target": Module("def compile(): ...\n")}
    assert set(close_over([("the code", text)], known).modules) == {
        "adapters",
        "adapters.gem",
        "adapters.gem.two_target",
    }


def test_a_package_named_by_a_text_stands_for_its_modules():
    assert needed("_PACKAGE = 'canonical.deep'") >= {"canonical.deep.content", "canonical.deep.other"}


@pytest.mark.parametrize(
    "text", ["'''See canonical.step for more.'''", "# canonical.step", "x = 'canonical'"]
)
def test_what_is_only_talked_about_is_not_taken_along(text):
    assert needed(text) == set()


def test_what_is_not_of_this_project_is_named_with_a_place_that_imports_it():
    found = close_over([("the code", "from canonical.task import Task\nimport gem.core")], KNOWN)
    assert found.foreign == {"gem": "the code", "yaml": "canonical.deep.content"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "from bench.plan import Plan\nfrom canonical import step\nfrom adapters.ors import x",
            "adapters.ors",
        ),
        ("from . import sibling", "line 1: a relative import"),
        ("def broken(:", "the code is not Python"),
    ],
)
def test_what_cannot_be_taken_along_is_said_with_its_place(text, said):
    with pytest.raises(VendoringError, match=re.escape(said)):
        close_over([("the code", text)], {name: one for name, one in KNOWN.items() if "adapters" not in name})


def test_statements_texts_and_comments_are_rewritten_and_nothing_else():
    before = '''\
"""See `canonical.task.Task`, canonical, canonical.nowhere and mycanonical.task."""
from canonical.task import (  # as canonical.step does
    Task,
)
import canonical.step as step, json
from canonical import step as another
canonical = {"canonical": Task}
text = f"canonical.{step}: {canonical['canonical']} ü" "adapters.gem.session:x"; raw = b"canonical.step"
path = "canonical/step" + "x.canonical.step"
'''
    after = rewritten("the code", before, HOME, KNOWN)
    assert (
        after
        == '''\
"""See `here._inside.canonical.task.Task`, canonical, canonical.nowhere and mycanonical.task."""
from here._inside.canonical.task import (  # as here._inside.canonical.step does
    Task,
)
import here._inside.canonical.step as step, json
from here._inside.canonical import step as another
canonical = {"canonical": Task}
text = f"here._inside.canonical.{step}: {canonical['canonical']} ü" "here._inside.adapters.gem.session:x"; raw = b"canonical.step"
path = "canonical/step" + "x.canonical.step"
'''
    )


def test_an_import_that_binds_the_old_name_is_refused():
    with pytest.raises(VendoringError, match=r"line 2: `import canonical\.step` cannot be moved"):
        rewritten("the code", "x = 1\nimport canonical.step\n", HOME, KNOWN)


_PIECES = st.sampled_from(
    [
        "from canonical.task import Task",
        "from canonical import step",
        "import canonical.deep.content as content",
        "if True:\n    from adapters.gem.session import x; y = 'canonical.step'",
        "# see canonical.step, not canonical.nothing",
        "names = ('canonical.step', 'ä canonical.deep.content', '''\ncanonical.task''')",
        "value = f'canonical.{1 + 1}_x' f'{2}'",
        "def f():\n    '''canonical.task.Task'''\n    return 'é'",
    ]
)


@given(st.lists(_PIECES, max_size=6))
def test_rewritten_code_imports_nothing_from_where_it_was_and_says_the_same_without_the_prefix(pieces):
    before = "\n".join(pieces) + "\n"
    after = rewritten("the code", before, HOME, KNOWN)
    for node in ast.walk(ast.parse(after)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        assert all(name.startswith(HOME) for name in names)
    assert after.replace(f"{HOME}.", "") == before
