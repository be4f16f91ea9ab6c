import json
import random

from grading import same

HEAD = """
import json, sys
from bank import Bank, TransferError
def attempt(bank, *details):
    try:
        bank.transfer(*details)
        return "ok"
    except TransferError:
        return "refused"
b = Bank()
b.open("a", 100)
b.open("b", 5)
b.open("f", 50)
b.freeze("f")
def state():
    return [b.balance(n) for n in "abf"], [b.history(n) for n in "abf"]
"""


def run(solution, code, stdin=""):
    result = solution.run(["python3", "-c", HEAD + code], stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def assert_moved(solution, seed):
    """Transfers between two open accounts move money; without this, nothing has been done."""
    rng = random.Random(seed)
    moves, balances = [], [100, 5]
    for _ in range(20):
        giver = 0 if balances[0] > balances[1] else 1
        cents = rng.randint(1, balances[giver])
        balances[giver] -= cents
        balances[1 - giver] += cents
        moves.append(["ab"[giver], "ab"[1 - giver], cents])
    out = run(solution, "print(json.dumps([[attempt(b, *d) for d in json.load(sys.stdin)], state()[0]]))", stdin=json.dumps(moves))
    assert same(json.loads(out), [["ok"] * 20, [*balances, 50]])


def test_failed_transfers_change_nothing(solution):
    assert_moved(solution, 1)
    code = "heard = []\nb.listen(lambda *d: heard.append(d))\n"
    code += "print([attempt(b, *d) for d in (('a', 'nobody', 5), ('a', 'f', 5), ('f', 'a', 5), ('nobody', 'a', 5), ('b', 'a', 6))])\nprint(state(), heard)"
    assert same(run(solution, code), "['refused', 'refused', 'refused', 'refused', 'refused']\n([100, 5, 50], [[], [], []]) []\n")


def test_listeners_hear_what_happened(solution):
    assert_moved(solution, 2)
    code = "heard = []\nb.listen(lambda s, t, c: heard.append((1, s, t, c, b.balance(s), b.balance(t))))\nb.listen(lambda s, t, c: heard.append((2, c)))\nattempt(b, 'a', 'b', 40)\nattempt(b, 'b', 'a', 99)\nprint(heard)"
    assert same(run(solution, code), "[(1, 'a', 'b', 40, 60, 45), (2, 40)]\n")


def test_listener_errors_are_collected(solution):
    assert_moved(solution, 3)
    code = "heard = []\ndef bad(*d):\n    raise RuntimeError('no')\nb.listen(bad)\nb.listen(lambda *d: heard.append(d))\nprint(attempt(b, 'a', 'b', 1), attempt(b, 'a', 'b', 2))\nprint(heard, [(l is bad, type(e).__name__, str(e)) for l, e in b.failures], b.balance('b'))"
    assert same(run(solution, code), "ok ok\n[('a', 'b', 1), ('a', 'b', 2)] [(True, 'RuntimeError', 'no'), (True, 'RuntimeError', 'no')] 8\n")


def test_history_is_own_and_a_copy(solution):
    assert_moved(solution, 4)
    code = "attempt(b, 'a', 'b', 7)\nprint(b.history('a'), b.history('b'), b.history('f'))\nb.history('a').clear()\nprint(b.history('a'))\nother = Bank()\nother.open('a')\nprint(other.history('a'))"
    assert same(run(solution, code), "[('to b', -7)] [('from a', 7)] []\n[('to b', -7)]\n[]\n")


def test_self_and_amounts(solution):
    assert_moved(solution, 5)
    code = "print([attempt(b, *d) for d in (('a', 'a', 5), ('a', 'b', 0), ('a', 'b', -5), ('a', 'b', 100), ('a', 'b', 1))], b.balance('a'), b.balance('b'))"
    assert same(run(solution, code), "['refused', 'refused', 'refused', 'ok', 'refused'] 0 105\n")


def test_money_is_conserved(solution):
    rng = random.Random(2)
    moves = [[rng.choice("abfx"), rng.choice("abfx"), rng.randint(-3, 60)] for _ in range(300)]
    balances, verdicts = {"a": 100, "b": 5, "f": 50}, []
    for source, target, cents in moves:
        good = source in "ab" and target in "ab" and source != target and 0 < cents <= balances.get(source, 0)
        if good:
            balances[source] -= cents
            balances[target] += cents
        verdicts.append("ok" if good else "refused")
    out = run(solution, "print(json.dumps([[attempt(b, *d) for d in json.load(sys.stdin)], state()[0]]))", stdin=json.dumps(moves))
    assert same(json.loads(out), [verdicts, list(balances.values())])
