"""The list of deliberate faults stays in step with the source that they change."""

from __future__ import annotations

from tests.faults import run


def test_every_fault_fits_its_file_exactly_once_and_changes_it() -> None:
    faults = run.read_faults(run.FAULTS)
    assert len(faults) >= 10
    assert len({fault.name for fault in faults}) == len(faults)
    for fault in faults:
        text = (run.ROOT / fault.file).read_text(encoding="utf-8")
        changed = text.replace(fault.old, fault.new)
        assert changed != text
        compile(changed, fault.file, "exec")
