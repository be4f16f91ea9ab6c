from grading import same

EXPECTED = "city\tpeople\torders\ttotal\nBern\t2\t2\t10.35\nUlm\t2\t3\t10.35\nZug\t1\t0\t0.00\n"


def rows(solution):
    return [line.split("\t") for line in solution.read("report.tsv").splitlines()]


def test_header(solution):
    first, *cities = rows(solution)
    assert first == ["city", "people", "orders", "total"]
    # A first line above nothing, or above other lines than reports of cities, is no report.
    assert {"Bern", "Ulm"} <= {row[0] for row in cities}
    assert ["Ulm", "2", "3", "10.35"] in cities


def test_cities(solution):
    assert {row[0]: row[1] for row in rows(solution)[1:]} == {"Bern": "2", "Ulm": "2", "Zug": "1"}


def test_sums(solution):
    assert {row[0]: (row[2], row[3]) for row in rows(solution)[1:]} == {"Bern": ("2", "10.35"), "Ulm": ("3", "10.35"), "Zug": ("0", "0.00")}


def test_exact_file(solution):
    assert same(solution.read("report.tsv"), EXPECTED)
