from grading import same

EXPECTED = "city\tpeople\torders\ttotal\nBern\t2\t2\t10.35\nUlm\t2\t3\t10.35\nZug\t1\t0\t0.00\n"


def rows(solution):
    return [line.split("\t") for line in solution.read("report.tsv").splitlines()]


def test_header(solution):
    assert rows(solution)[0] == ["city", "people", "orders", "total"]


def test_cities(solution):
    assert {row[0]: row[1] for row in rows(solution)[1:]} == {"Bern": "2", "Ulm": "2", "Zug": "1"}


def test_sums(solution):
    assert {row[0]: (row[2], row[3]) for row in rows(solution)[1:]} == {"Bern": ("2", "10.35"), "Ulm": ("3", "10.35"), "Zug": ("0", "0.00")}


def test_exact_file(solution):
    assert same(solution.read("report.tsv"), EXPECTED)
