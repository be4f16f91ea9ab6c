"""Troubles that an adapter names have a probe, and an answer that is there; what the probes show needs the stacks."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType

import pytest
from pydantic import ValidationError

from bench import protocol
from bench.stacks import ROOT
from bench.stone.places import code_of, find_place
from bench.worker.drive import Unsupported
from bench.worker.troubles import show_trouble
from canonical.adapter import AdapterFacts
from canonical.stone import Trouble
from canonical.trouble import Shown

ADAPTERS = sorted(path.parent for path in (ROOT / "adapters").glob("*/adapter.toml"))
each = pytest.mark.parametrize("folder", ADAPTERS, ids=lambda folder: folder.name)


@each
def test_every_trouble_has_a_probe_and_an_answer_that_is_there(folder):
    troubles = AdapterFacts.read(folder / "adapter.toml").stone.troubles
    assert len(troubles) >= 4
    for name, said in troubles.items():
        assert code_of(folder / "troubles.py", name).text.startswith(("def ", "async def "))
        assert find_place(folder, said.at).text
        assert said.what.endswith(".")
        assert said.answer.endswith(".")


@each
def test_every_probe_is_of_a_trouble_that_is_named(folder):
    """A probe that nobody asks for shows nothing to anybody."""
    lines = (folder / "troubles.py").read_text(encoding="utf-8").splitlines()
    probes = {
        line.partition("def ")[2].partition("(")[0]
        for line in lines
        if line.startswith(("def ", "async def ")) and "-> Shown:" in line
    }
    assert probes == set(AdapterFacts.read(folder / "adapter.toml").stone.troubles)


def test_a_thread_is_named_with_its_day_and_never_by_an_address():
    said = {"what": "So.", "answer": "That.", "at": "m:f"}
    Trouble(**said)
    told = Trouble(**said, upstream="owner/name#12: what it is called", dated="2026-01-02")
    assert told.url == "https://github.com/owner/name/issues/12"
    assert Trouble(**said).url is None
    for wrong in (
        {"upstream": "owner/name#12: what it is called"},
        {"dated": "2026-01-02"},
        {"upstream": "https://example.org/12", "dated": "2026-01-02"},
    ):
        with pytest.raises(ValidationError):
            Trouble(**said, **wrong)


def _adapter(monkeypatch, **probes):
    package = ModuleType("strange")
    troubles = ModuleType("strange.troubles")
    for name, probe in probes.items():
        probe.__module__ = troubles.__name__
        setattr(troubles, name, probe)
    monkeypatch.setitem(sys.modules, "strange", package)
    monkeypatch.setitem(sys.modules, "strange.troubles", troubles)
    return type("Adapter", (), {"name": "strange", "__module__": "strange.adapter"})()


def test_plain_and_waiting_probes_are_shown_and_unknown_ones_refused(monkeypatch):
    async def waiting():
        await asyncio.sleep(0)
        return Shown("a", "b", is_there=True)

    adapter = _adapter(monkeypatch, plain=lambda: Shown("c", "d", is_there=False), waiting=waiting)

    def ask(name):
        return asyncio.run(show_trouble(adapter, protocol.ShowTrouble(seq=1, name=name)))

    assert ask("waiting") == protocol.TroubleShown(seq=1, sent="a", seen="b", is_there=True)
    assert ask("plain") == protocol.TroubleShown(seq=1, sent="c", seen="d", is_there=False)
    for name in ("nothing", "__name__"):
        with pytest.raises(Unsupported, match=name):
            ask(name)
