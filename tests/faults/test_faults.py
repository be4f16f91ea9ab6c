"""The lists of deliberate faults stay in step with the source that they change, and the published page with both."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from bench.stacks import adapter_names
from tests.faults import faults, table

LISTS = faults.fault_files()
PUBLISHED = table.read_verdicts(table.PUBLISHED)
FEWEST = 12
read = cache(faults.read_faults)


def test_every_adapter_has_a_list_and_the_core_has_one() -> None:
    assert {path.stem for path in LISTS} == {faults.CORE, *adapter_names()}


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_every_fault_fits_its_file_exactly_once_and_leaves_it_python(path: Path) -> None:
    found = read(path)
    assert len(found) >= FEWEST
    for fault in found:
        source = (faults.ROOT / fault.file).read_text(encoding="utf-8")
        compile(fault.put_into(source), fault.file, "exec", dont_inherit=True)
        assert [test for test in fault.tests if not (faults.ROOT / test.partition("::")[0]).exists()] == []


@pytest.mark.parametrize("path", [path for path in LISTS if path.stem != faults.CORE], ids=lambda p: p.stem)
def test_every_adapter_has_the_faults_that_hand_written_environments_had(path: Path) -> None:
    found = read(path)
    assert set(faults.EVERYWHERE) <= {fault.name for fault in found}
    assert {fault.file.split("/")[1] for fault in found} == {path.stem}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("- {name: a, file: pyproject.toml, old: no such text, new: b}", "stands 0 times"),
        ("- {name: a, file: pyproject.toml, old: e, new: b}", "not once"),
        ("- {name: a, file: pyproject.toml, old: 'minversion', new: 'minversion'}", "is the old one"),
        ("- {name: a, file: none.py, old: e, new: b}", "none.py"),
        ("- {name: a, file: pyproject.toml, old: e}", "new"),
    ],
)
def test_a_fault_that_does_not_fit_is_named(rows: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "some.yaml"
    path.write_text(rows, encoding="utf-8")
    with pytest.raises(faults.FaultError, match=r"some\.yaml: .*") as raised:
        faults.read_faults(path)
    assert words in str(raised.value)


def test_every_fault_of_a_published_list_was_noticed() -> None:
    for one in PUBLISHED:
        listed = read(faults.FOLDER / f"{one.adapter}.yaml")
        assert [verdict.name for verdict in one.verdicts] == [fault.name for fault in listed]
        assert [verdict.name for verdict in one.verdicts if verdict.noticed_by is None] == []


def test_the_published_page_is_what_the_verdicts_say(tmp_path: Path) -> None:
    for one in PUBLISHED:
        table.publish(one, tmp_path)
    pages = [folder / table.PAGE for folder in (table.PUBLISHED, tmp_path)]
    assert len({page.read_text(encoding="utf-8") if page.exists() else "" for page in pages}) == 1


def test_the_page_shows_a_survivor_and_keeps_its_tables_whole() -> None:
    verdict = table.Verdict(
        name="one", file="a.py", stack="s-1", noticed_by=None, evidence="a | b\n`c`", seconds=1.0
    )
    page = table.render_page([table.Verdicts(adapter="x", verdicts=(verdict,))])
    assert "| one | **survives** |" in page
    assert "| one | `a.py` | s-1 | **survives** | `a \u00a6 b 'c'` |" in page
    assert "1 survived" in page
