"""What an adapter says of its framework leads to places that are there; symbols need the stacks."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError

from bench.facts import FACTS_FILE, read_facts
from bench.stacks import ROOT, find_stack
from bench.stone import sharing
from bench.stone.handwritten import BASELINES, FILE, code_lines, used_names
from bench.stone.pieces import declared_of, shown_in_source, shown_of
from bench.stone.places import NoSuchPlace, code_of, find_definition, find_place
from bench.stone.runs import PUBLISHED
from bench.stone.sharing import blame, clause, plain
from bench.stone.tasks import _together
from bench.stone.tools import (
    ASPECTS,
    KINDS,
    LOST,
    NO_SCHEMA,
    ORDER,
    SIGNATURES,
    Way,
    differences,
    lost_by,
    verdict,
)
from bench.worker.inspection import inspect_name
from canonical.adapter import AdapterFacts, Feature
from canonical.catalogue import load_environment
from canonical.stone import Piece, PieceName
from reports.stone import overview

ADAPTERS = sorted(path.parent for path in (ROOT / "adapters").glob("*/adapter.toml"))


def read(folder: Path) -> AdapterFacts:
    return AdapterFacts.read(folder / "adapter.toml")


each = pytest.mark.parametrize("folder", ADAPTERS, ids=lambda folder: folder.name)


@each
def test_every_word_and_every_piece_is_there(folder):
    facts = read(folder)
    assert set(facts.stone.words) == set(facts.words)
    assert set(facts.stone.pieces) == set(PieceName)


@each
def test_every_place_where_a_word_is_mapped_is_there(folder):
    for word, said in read(folder).stone.words.items():
        place = find_place(folder, said.at)
        text = said.at.split(":", 2)[2] if said.at.count(":") > 1 else ""
        assert text in place.text, word


@each
def test_every_key_that_a_word_names_is_one_that_the_adapter_writes(folder):
    """`metadata["error"]` in a table is a promise; the key is a text of the adapter's source."""
    texts = {
        node.value
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    named = re.findall(r'\["([a-z_]+)"\]', " ".join(read(folder).words.values()))
    assert [key for key in named if key not in texts] == []


@each
def test_what_the_adapter_adds_is_said_to_be_the_adapters(folder):
    """A key, a field or a media type of the adapter's own in a cell would read as the framework's word."""
    facts = read(folder)
    for word, told in facts.words.items():
        own = re.search(
            r'(metadata|info|state|task_spec|extra_info"\])\["|vnd\.rosetta|a field `|result in JSON', told
        )
        before = told[: own.start()] if own else ""
        assert own is None or "the adapter" in before, word
        said = facts.stone.words[word]
        assert said.symbols or re.search("no word|none|the adapter", told), (
            f"{word} has no symbol, and names none missing"
        )


@each
def test_a_feature_is_shown_by_what_its_probe_saw_and_by_where_it_is_declared(folder):
    stack = find_stack(folder.name)
    for feature in Feature:
        probe, declared = shown_of(stack, feature)
        assert probe.seen != declared_of(stack, feature)
        assert not probe.seen.startswith(("native", "emulated", "absent"))
        assert f"Feature.{feature.name}:" in declared.text
        assert declared.file == f"adapters/{folder.name}/adapter.py"
        assert declared.name == declared_of(stack, feature)


def test_a_release_of_which_nothing_seen_is_kept_says_how_to_renew_it(monkeypatch, tmp_path):
    stack = find_stack("gem")
    kept = {stack.label: {str(feature): {"level": "native", "note": ""} for feature in Feature}}
    (tmp_path / "features.json").write_text(json.dumps(kept), encoding="utf-8")
    monkeypatch.setattr(type(stack), "features_file", property(lambda _: tmp_path / "features.json"))
    with pytest.raises(NoSuchPlace, match="--keep-features"):
        shown_of(stack, Feature.SPLITS)


@each
def test_what_shows_a_piece_exists(folder):
    facts = read(folder)
    kept = json.loads((folder / "features.json").read_text(encoding="utf-8"))[facts.default_release.label]
    for piece in facts.stone.pieces.values():
        kind, _, name = piece.shown_by.partition(":")
        if kind == "feature":
            assert Feature(name) in kept
        else:
            assert shown_in_source(kind, name).first >= 1


@each
def test_the_hand_written_environment_has_the_parts_that_are_named(folder):
    said, file = read(folder).stone.handwritten, BASELINES / folder.name / FILE
    assert said is not None
    assert isinstance(find_definition(file, said.environment), ast.ClassDef)
    assert code_of(file, said.tool).text.startswith(("def ", "async def ", "@"))
    assert code_of(file, said.reward).text


def test_a_native_piece_names_symbols_and_one_of_the_authors_own_has_none():
    shown = {"how": "so", "shown_by": "feature:splits"}
    for level, symbols in (("native", ()), ("own", ("a:b",))):
        with pytest.raises(ValidationError, match="symbols"):
            Piece(level=level, symbols=symbols, **shown)
    assert Piece(level="convention", **shown).symbols == ()


@pytest.mark.parametrize(
    "place", ["compiler:Nothing", "nothing:Nothing", "compiler:compile_environment:no such text"]
)
def test_a_place_that_is_not_there_is_named(place):
    with pytest.raises(NoSuchPlace):
        find_place(ADAPTERS[0], place)


def test_a_name_of_this_process_is_found_with_its_line(tmp_path, monkeypatch):
    (tmp_path / "strange_module.py").write_text(
        "LIMIT = 3\n\nclass Thing:\n    size: int\n\n    def __init__(self):\n        self.weight = 1\n\n"
        "    def lift(self, height: float) -> bool:\n        return True\n",
        encoding="ascii",
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = {
        name: inspect_name(f"strange_module:{name}")
        for name in ("LIMIT", "Thing", "Thing.size", "Thing.weight", "Thing.lift")
    }
    assert {name: (one.what, one.line) for name, one in found.items()} == {
        "LIMIT": ("value", 1),
        "Thing": ("class", 3),
        "Thing.size": ("field", 4),
        "Thing.weight": ("field", 7),
        "Thing.lift": ("function", 9),
    }
    assert found["Thing.lift"].signature == "(self, height: float) -> bool"
    assert inspect_name("strange_module:Thing.nothing").missing == "Thing has no nothing"
    assert inspect_name("no_such_module:x").missing is not None


def test_only_lines_with_code_are_counted_and_names_by_where_they_come_from(tmp_path):
    file = tmp_path / "written.py"
    file.write_text(
        '"""A module."""\n\n# a comment\nimport gem\nfrom frame.work import Base, tool\n\ntry:\n    from one import x\n'
        "except ImportError:\n    from two import x\n\n\nclass Mine(Base):\n"
        '    """A class."""\n\n    text = """one\n\n    two"""\n    env = gem.Env(\n        1,  # here\n    )\n',
        encoding="ascii",
    )
    assert code_lines(file) == 13
    assert used_names(file) == {"gem.Env", "frame.work.Base", "frame.work.tool", "one.x"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(value=JSON)
def test_what_arrives_as_it_was_sent_has_no_differences(value):
    assert differences(value, json.loads(json.dumps(value))) == []


@given(sent=JSON, arrived=JSON)
def test_whatever_arrives_otherwise_is_named(sent, arrived):
    assert (differences(sent, arrived) == []) == (
        json.dumps(sent, sort_keys=True) == json.dumps(arrived, sort_keys=True)
    )


def test_what_is_lost_changed_or_added_is_named_by_its_path():
    sent = {"name": "t", "parameters": {"properties": {"a": {"default": 3, "enum": [1, 2]}}}}
    arrived = {"name": "t", "parameters": {"properties": {"a": {"enum": [1, "2"], "title": "A"}}}}
    at = "/parameters/properties/a"
    assert differences(sent, arrived) == [f"{at}/default", f"{at}/enum/1", f"{at}/title"]


def test_the_signatures_show_every_kind_that_the_table_names():
    environment = load_environment(str(SIGNATURES))
    assert {tool.name for tool in environment.tools} == set(KINDS)


def parameters_of(file: Path) -> dict[str, list[tuple[str, str, str]]]:
    """Return the parameters of every declaration of the tool, and the fields of every model: name, type and default."""
    found = {}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "order":
            taken = [one for one in node.args.args if one.arg != "self"]
            defaults = [None] * (len(taken) - len(node.args.defaults)) + list(node.args.defaults)
            found[f"order:{node.lineno}"] = [
                (one.arg, ast.unparse(one.annotation), ast.unparse(default) if default else "")
                for one, default in zip(taken, defaults, strict=True)
            ]
        elif isinstance(node, ast.ClassDef):
            found[node.name] = [
                (one.target.id, ast.unparse(one.annotation), ast.unparse(one.value) if one.value else "")
                for one in node.body
                if isinstance(one, ast.AnnAssign)
            ]
    return found


def test_every_framework_declares_the_same_tool():
    files = sorted(BASELINES.glob(f"*/{ORDER}"))
    assert [file.parent.name for file in files] == [folder.name for folder in ADAPTERS]
    found = {file.parent.name: parameters_of(file) for file in files}
    for model in ("Size", "Item"):
        assert len({str(one[model]) for one in found.values()}) == 1
    wanted = next(said for name, said in found["openenv"].items() if name.startswith("order:"))
    assert len(wanted) == 7
    for name, declared in found.items():
        whole = [said for said in declared.values() if len(said) == len(wanted)]
        assert whole, name
        assert all(said == wanted for said in whole), name
        documented = (
            (BASELINES / name / ORDER).read_text(encoding="utf-8").count("colour: The colour of the item.")
        )
        assert documented or name == "gem"


class _Size(BaseModel):
    width: int = Field(ge=1, description="From left to right.")
    height: int = 1


class _Item(BaseModel):
    name: str
    size: _Size | None = None


class _Order(BaseModel, extra="forbid"):
    item: _Item
    colour: Literal["red", "green"] = Field(description="The colour of the item.")
    parts: list[float]
    label: int | str
    portion: Annotated[float, Field(ge=0.0, lt=1.0, description="A part of one.")]
    note: str | None = None
    times: int = 3


def way(schema: dict[str, Any] | None, **more: Any) -> Way:
    return Way("`@tool`", "a tool", "all of it", "Order an item.", schema, **more)


def test_a_whole_schema_loses_nothing():
    whole = way(_Order.model_json_schema())
    assert {name: judge(whole) for name, (_, judge) in ASPECTS.items()} == {
        name: {
            "nested objects": "kept, behind `$ref`",
            "line of the docstring about a parameter": "becomes the parameter's description",
            "arguments that the tool does not have": "excluded",
        }.get(name, "kept")
        for name in ASPECTS
    }
    assert lost_by(whole) == "nothing"


TYPES_ALONE = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in _Order.model_fields} | {"times": {"type": "integer"}},
    "required": list(_Order.model_fields),
}


def test_whatever_a_schema_does_not_say_is_lost_and_the_type_that_is_left_is_named():
    bare = Way("`@tool`", "a tool", "types", "", TYPES_ALONE, "refused: no such type")
    said = {name: judge(bare) for name, (_, judge) in ASPECTS.items()}
    assert said["union"] == said["nested objects"] == "lost: string"
    assert said["optional"] == "lost: required"
    assert said["postponed annotations"] == "refused: no such type"
    assert said.pop("arguments that the tool does not have") == "not excluded"
    assert lost_by(bare) == ", ".join(said)


@pytest.mark.parametrize(
    ("parameter", "change", "aspect"),
    [
        ("colour", {"enum": ["red"]}, "enum"),
        ("times", {"default": 4}, "default"),
        ("label", {"anyOf": [{"type": "integer"}]}, "union"),
        ("note", {"anyOf": [{"type": "string"}]}, "optional"),
        ("portion", {"minimum": 1}, "bounds"),
        ("portion", {"description": ""}, "description of a field"),
        ("parts", {"items": {}}, "list"),
        ("item", {"$ref": "#/$defs/_Size"}, "nested objects"),
    ],
)
def test_a_part_that_has_changed_is_lost_and_no_other(parameter, change, aspect):
    schema = _Order.model_json_schema()
    schema["properties"][parameter] |= change
    found = lost_by(way(schema))
    assert found.split(", ")[0] == aspect
    assert aspect in {found, "nested objects"}


def test_a_way_without_a_schema_loses_nothing_and_keeps_nothing():
    assert lost_by(way(None)) == NO_SCHEMA
    assert {verdict(way(None), judge) for _, judge in ASPECTS.values()} == {NO_SCHEMA}


def test_the_sheet_shows_the_row_that_sums_up_what_is_lost():
    assert overview.LOST == LOST


def test_splits_are_told_together_where_the_same_came_of_all():
    same = {"train": "12 tasks, as defined", "test": "3 tasks, as defined"}
    assert _together(same) == "12 tasks of train, 3 tasks of test: as defined"
    told = "train: 12 tasks, as defined; test: cannot be listed"
    assert _together({**same, "test": "cannot be listed"}) == told
    assert (
        _together(dict.fromkeys(same, "cannot be listed"))
        == "train: cannot be listed; test: cannot be listed"
    )


SAID = """  \u00d7 No solution found when resolving dependencies:
  \u2570\u2500\u25b6 Because only one==1.0 is available and one==1.0 depends on
      tool<2, we can conclude that all versions of one need tool<2.
      And because two==2.0 depends on tool>=2, we can conclude that they are incompatible.

hint: try something else
"""


def test_what_a_resolver_says_is_told_without_its_frame_and_begins_with_what_excludes_what():
    text = plain(SAID)
    assert text.startswith("Because only one==1.0 is available and one==1.0 depends on tool<2, we can")
    assert text.endswith("they are incompatible.")
    assert clause(text) == "only one==1.0 is available and one==1.0 depends on tool<2"
    assert clause("something else") == "something else"
    wanted = "one==1.0 wants tool<2 and two==2.0 wants tool>=2"
    assert blame(text, ["one==1.0", "two==2.0"]) == wanted
    assert blame("Because of the moon, we can conclude nothing", ["one==1.0"]) == "of the moon"
    python = "Because the current Python version (3.11.7) does not satisfy Python>=3.12 and one==1.0 depends on Python>=3.12, we can conclude"
    assert blame(python, ["one==1.0"]) == "one==1.0 wants Python >=3.12"


@pytest.mark.parametrize(
    ("said", "excluding", "value"),
    [
        (None, [], "yes"),
        (None, ["one==1.0 wants Python <=3.12"], "yes: uv overlooks that one==1.0 wants Python <=3.12"),
        (plain(SAID), [], "no: one==1.0 wants tool<2 and two==2.0 wants tool>=2"),
        ("Because one==1.0 depends on Python>=3.12, we can conclude that it cannot be used.",
         ["one==1.0 wants Python >=3.12"], "no: one==1.0 wants Python >=3.12"),
        ("Because of the moon, we can conclude nothing", ["two==2.0 wants Python <=3.12"],
         "no: of the moon; uv overlooks that two==2.0 wants Python <=3.12"),
    ],
)  # fmt: skip
def test_what_metadata_exclude_and_a_resolver_overlooks_is_no_refusal(said, excluding, value):
    assert sharing.verdict(said, excluding, ["one==1.0", "two==2.0"]) == value


def test_every_cell_of_sharing_names_what_was_run_for_it(monkeypatch):
    asked = []

    def run(command, sent=""):
        asked.append((command, sent))
        return subprocess.CompletedProcess(command, 1, "", SAID)

    monkeypatch.setattr(sharing, "run", run)
    monkeypatch.setattr(sharing, "uv_path", lambda: "uv")
    monkeypatch.setattr(sharing, "_whole_version", lambda version: f"{version}.1")
    monkeypatch.setattr(sharing, "requires_python", lambda _: "<=3.12")
    sharing._resolve.cache_clear()
    facts = sharing.gather_sharing([find_stack("gem"), find_stack("skyrl")])
    sharing._resolve.cache_clear()
    ran = {f"printf '%s\\n' {' '.join(sent.split())} | {' '.join(command)}" for command, sent in asked}
    assert {fact.evidence[0].sent for fact in facts} == ran
    assert len(ran) == 2 * 3
    for fact in facts:
        (resolved, *metadata) = fact.evidence
        assert resolved.seen == plain(SAID)
        assert {one.sent.partition(" of ")[0] for one in metadata} == {"Requires-Python"}
        assert f"--python-version {fact.row.rpartition(' ')[2]} " in resolved.sent


def test_no_published_cell_of_sharing_says_no_of_what_was_resolved():
    for fact in read_facts(PUBLISHED / "rosetta" / FACTS_FILE).of("sharing"):
        resolved = fact.evidence[0].seen == "a solution"
        assert fact.value.removeprefix("alone: ").startswith("yes") == resolved
