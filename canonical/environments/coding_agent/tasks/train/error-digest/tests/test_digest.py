from grading import same

EXPECTED = [
    ("4", "2026-04-01T06:00:01", "timeout after N s"),
    ("2", "2026-04-01T06:00:00", "cannot open /tmp/aN"),
    ("2", "2026-04-01T07:30:00", "disk N full (N %)"),
    ("1", "2026-04-01T09:30:00", "checksum: a ERROR b"),
    ("1", "2026-04-01T08:00:00", "is a word too"),
]


def rows(solution):
    return [tuple(line.split("\t")) for line in solution.read("digest.tsv").splitlines()]


def test_counts(solution):
    assert {row[2]: row[0].strip() for row in rows(solution)} == {message: count for count, _, message in EXPECTED}


def test_first_times(solution):
    assert {row[2]: row[1] for row in rows(solution)} == {message: time for _, time, message in EXPECTED}


def test_order(solution):
    assert [row[2] for row in rows(solution)] == [message for _, _, message in EXPECTED]


def test_exact_file(solution):
    assert same(solution.read("digest.tsv"), "".join("\t".join(row) + "\n" for row in EXPECTED))
