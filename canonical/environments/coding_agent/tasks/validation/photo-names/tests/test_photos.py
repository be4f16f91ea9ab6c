from grading import same

EXPECTED = {
    "sorted/2025/2025-12-31_01.jpg": "taken: 2025-12-31 23:59\nnew year soon\n",
    "sorted/2026/2026-01-01_01.jpg": "taken: 2026-01-01 00:00\nfireworks\n",
    "sorted/2026/2026-01-01_02.jpg": "taken: 2026-01-01 00:01\nhappy new year\n",
    "sorted/2026/2026-01-01_03.jpg": "taken: 2026-01-01 14:30\nwalk\n",
}


def pictures(solution):
    return {name: text for name, text in solution.files().items() if name.startswith("sorted/")}


def test_every_picture_is_there(solution):
    assert set(EXPECTED.values()) <= set(pictures(solution).values())


def test_names(solution):
    found = pictures(solution)
    for name, text in EXPECTED.items():
        assert same(found.get(name), text), name


def test_duplicates_are_dropped(solution):
    found = pictures(solution)
    assert len(found) == len(EXPECTED)
    assert set(found.values()) == set(EXPECTED.values())


def test_others_are_not_there(solution):
    found = pictures(solution)
    assert set(found.values()) == set(EXPECTED.values())
