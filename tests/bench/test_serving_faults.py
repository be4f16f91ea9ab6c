"""What a fault has cost is counted in sessions."""

from __future__ import annotations

from collections import Counter

from bench.records import samples_table
from bench.samples import Phase, SampleColumns, Status
from bench.serving.faults import lost_sessions


def test_a_session_that_fails_twice_is_lost_once_by_its_first_error() -> None:
    columns = SampleColumns()
    columns.append(1, 3, Phase.CLOSE, False, 9, 9, 1, Status.ERROR, "delete: gone")
    columns.append(1, 2, Phase.STEP, False, 5, 5, 1, Status.ERROR, "call: gone")
    columns.append(2, 2, Phase.STEP, False, 5, 5, 1, Status.OK)
    columns.append(3, 2, Phase.STEP, False, 5, 5, 1, Status.ERROR, "hung up")
    assert lost_sessions(samples_table(columns)) == Counter({"call: gone": 1, "hung up": 1})
