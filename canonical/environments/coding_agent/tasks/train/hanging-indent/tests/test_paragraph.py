import random

from grading import SolutionError, same


def reference(text, width, indent):
    lines, line, empty = [], "", True
    for word in text.split():
        if not empty and len(line) + 1 + len(word) <= width:
            line += " " + word
            continue
        if not empty:
            lines.append(line)
            line, empty = " " * indent, True
        while len(line) + len(word) > width:
            room = width - len(line)
            lines.append(line + word[:room])
            word, line = word[room:], " " * indent
        line, empty = line + word, False
    return lines + ([] if empty else [line])


def assert_right(solution, seed):
    """Short words without an indent are wrapped, without `textwrap`; without this, nothing has been done."""
    solution.readable("paragraph.py")
    rng = random.Random(seed)
    cases = [[" ".join("y" * rng.randint(1, 5) for _ in range(rng.randint(3, 9))), rng.randint(6, 14)] for _ in range(20)]
    assert same(solution.calls("paragraph:wrap", cases), [reference(*case, 0) for case in cases])


def test_simple_lines(solution):
    assert_right(solution, 1)
    assert same(solution.call("paragraph:wrap", "the quick brown fox", 10), ["the quick", "brown fox"])
    assert same(solution.call("paragraph:wrap", "one", 3), ["one"])
    assert same(solution.call("paragraph:wrap", "a b c d", 3), ["a b", "c d"])


def test_hanging_indent(solution):
    assert_right(solution, 2)
    assert same(solution.call("paragraph:wrap", "alpha beta gamma", 8, 2), ["alpha", "  beta", "  gamma"])


def test_long_words(solution):
    assert_right(solution, 4)
    assert same(solution.call("paragraph:wrap", "ab cdefghijk l", 4), ["ab", "cdef", "ghij", "k l"])
    assert same(solution.call("paragraph:wrap", "abcdefghij", 4, 1), ["abcd", " efg", " hij"])


def test_white_space(solution):
    assert_right(solution, 5)
    assert same(solution.call("paragraph:wrap", "  a \n\n b\tc  ", 20), ["a b c"])
    assert same(solution.call("paragraph:wrap", " \n ", 5), [])


def test_narrow_is_refused(solution):
    assert_right(solution, 6)
    for width, indent in ((0, 0), (3, 3), (5, -1), (-2, 0)):
        try:
            solution.call("paragraph:wrap", "word", width, indent)
        except SolutionError as error:
            assert same(error.type, "ValueError")
        else:
            raise AssertionError((width, indent))


def test_against_reference(solution):
    solution.readable("paragraph.py")
    rng = random.Random(3)
    cases = []
    for _ in range(200):
        words = ["x" * rng.randint(1, 12) for _ in range(rng.randint(0, 9))]
        width = rng.randint(2, 14)
        cases.append([" ".join(words), width, rng.randint(0, width - 1)])
    assert same(solution.calls("paragraph:wrap", cases), [reference(*case) for case in cases])
