import random

from grading import SolutionError, same


def balances(solution, *lines):
    return solution.call("ledger:balances", "\n".join(lines) + "\n")


def assert_sums(solution, seed):
    """Plain amounts are summed by account; without this, nothing has been done."""
    rng = random.Random(seed)
    texts, expected = [], []
    for _ in range(10):
        rows = [(rng.choice("ABC"), rng.randint(0, 99999)) for _ in range(rng.randint(1, 9))]
        texts.append("account;amount\n" + "".join(f"{account};{cents // 100}.{cents % 100:02}\n" for account, cents in rows))
        sums = {}
        for account, cents in rows:
            sums[account] = sums.get(account, 0) + cents
        expected.append(sums)
    assert solution.calls("ledger:balances", [[text] for text in texts]) == expected


def test_the_given_export(solution):
    assert_sums(solution, 1)
    code = "import json, ledger; print(json.dumps(ledger.balances(open('export.csv').read()), sort_keys=True))"
    assert same(solution.run(["python3", "-c", code]).stdout, '{"AT99": 550, "DE123456": 130000}\n')


def test_amounts(solution):
    assert_sums(solution, 2)
    cases = {
        "1234.56": 123456, "1.234,56": 123456, "1,234.56": 123456, "-5": -500, "(7.00)": -700, "12,5": 1250, "+3.10 EUR": 310,
        "1.234": 123400, "1,234,567": 123456700, "0.1": 10, "(1.000,50)": -100050, "-0,01": -1, "1.234.567,8": 123456780, "0.29": 29, "1.15": 115,
    }
    for text, cents in cases.items():
        assert same(balances(solution, "account;amount", f"A;{text}"), {"A": cents}), text


def test_quoting(solution):
    assert_sums(solution, 3)
    assert same(balances(solution, "text;account;amount", '"a;b";X;1', '"say ""hi;"" now";"X";"2,00"'), {"X": 300})


def test_columns(solution):
    assert_sums(solution, 4)
    assert same(balances(solution, "AMOUNT;other;Account", "1;2;3"), {"3": 100})


def test_accounts(solution):
    assert_sums(solution, 5)
    assert same(balances(solution, "account;amount", " d e 1 ;1", "DE1;2", ";3", "DE1;", "  ;4"), {"DE1": 300})


def test_bad_amounts_name_the_line(solution):
    assert_sums(solution, 6)
    for bad in ("abc", "1.2.3x", "--5", "(5", "1.2345"):
        try:
            result = balances(solution, "account;amount", "A;1", f"A;{bad}")
        except SolutionError as error:
            assert same(error.type, "ValueError") and error.text.startswith("line 3: "), (bad, error.text)
        else:
            raise AssertionError((bad, result))
