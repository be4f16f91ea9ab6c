from grading import SolutionError, same


def balances(solution, *lines):
    return solution.call("ledger:balances", "\n".join(lines) + "\n")


def test_the_given_export(solution):
    code = "import json, ledger; print(json.dumps(ledger.balances(open('export.csv').read()), sort_keys=True))"
    assert same(solution.run(["python3", "-c", code]).stdout, '{"AT99": 550, "DE123456": 130000}\n')


def test_amounts(solution):
    cases = {
        "1234.56": 123456, "1.234,56": 123456, "1,234.56": 123456, "-5": -500, "(7.00)": -700, "12,5": 1250, "+3.10 EUR": 310,
        "1.234": 123400, "1,234,567": 123456700, "0.1": 10, "(1.000,50)": -100050, "-0,01": -1, "1.234.567,8": 123456780, "0.29": 29, "1.15": 115,
    }
    for text, cents in cases.items():
        assert same(balances(solution, "account;amount", f"A;{text}"), {"A": cents}), text


def test_quoting(solution):
    assert same(balances(solution, "text;account;amount", '"a;b";X;1', '"say ""hi;"" now";"X";"2,00"'), {"X": 300})


def test_columns(solution):
    assert same(balances(solution, "AMOUNT;other;Account", "1;2;3"), {"3": 100})


def test_accounts(solution):
    assert same(balances(solution, "account;amount", " d e 1 ;1", "DE1;2", ";3", "DE1;", "  ;4"), {"DE1": 300})


def test_bad_amounts_name_the_line(solution):
    for bad in ("abc", "1.2.3x", "--5", "(5", "1.2345"):
        try:
            result = balances(solution, "account;amount", "A;1", f"A;{bad}")
        except SolutionError as error:
            assert same(error.type, "ValueError") and error.text.startswith("line 3: "), (bad, error.text)
        else:
            raise AssertionError((bad, result))
