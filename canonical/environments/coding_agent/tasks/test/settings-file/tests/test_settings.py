import random

from grading import SolutionError, same


def parse(solution, *lines):
    return solution.call("settings:parse", "\n".join(lines))


def assert_plain(solution, seed):
    """Sections of plain keys and values are read; without this, nothing has been done."""
    rng = random.Random(seed)
    texts, expected = [], []
    for _ in range(10):
        sections = {f"s{at}": {f"k{rng.randint(0, 9999)}": f"v{rng.randint(0, 9999)}" for _ in range(rng.randint(1, 4))} for at in range(3)}
        texts.append("\n".join(line for name, keys in sections.items() for line in (f"[{name}]", *(f"{key} {rng.choice('=:')} {value}" for key, value in keys.items()))))
        expected.append(sections)
    assert same(solution.calls("settings:parse", [[text] for text in texts]), expected)


def test_the_example(solution):
    assert_plain(solution, 1)
    code = "import json, settings; print(json.dumps(settings.parse(open('example.conf').read()), sort_keys=True))"
    expected = '{"": {"name": "demo"}, "limits": {"users": "10, 20, 30"}, "paths": {"home": "/srv/demo", "pattern": "*.txt # not a comment", "tmp": "/tmp"}}\n'
    assert same(solution.run(["python3", "-c", code]).stdout, expected)


def test_sections(solution):
    assert_plain(solution, 2)
    assert same(parse(solution, "[ a b ]", "x=1", "[c]", "[ a b ]", "x=2", "y=3"), {"a b": {"x": "2", "y": "3"}, "c": {}})
    assert same(parse(solution, ""), {})
    assert same(parse(solution, "k=1"), {"": {"k": "1"}})


def test_comments(solution):
    assert_plain(solution, 3)
    assert same(parse(solution, "# x = 1", "  ; y", "a = b#c", "d = e #f", "g = h\t;i", "[s] # note"), {"": {"a": "b#c", "d": "e", "g": "h"}, "s": {}})


def test_quotes(solution):
    assert_plain(solution, 4)
    assert same(parse(solution, r'a = "x \" y"', r'b = "\\"', r'c = "1\n2"', 'd = ""', 'e = " s "', 'f = "a ; b" ; c', 'g = in"side'), {"": {"a": 'x " y', "b": "\\", "c": "1\n2", "d": "", "e": " s ", "f": "a ; b", "g": 'in"side'}})


def test_continuation(solution):
    assert_plain(solution, 5)
    assert same(parse(solution, "a = 1\\", "   2", "b = 3 \\", "4 \\", " 5", "c = 6 # not \\", "d = 7"), {"": {"a": "12", "b": "3 4 5", "c": "6", "d": "7"}})


def test_errors(solution):
    assert_plain(solution, 6)
    for lines, number in (
        (["a = 1", "nonsense"], 2), (["[open"], 1), (["= 1"], 1), (['a = "x'], 1), ([r'a = "\t"'], 1), (["", "a = 1", "[x] y"], 3), (["a\\", "b", "c=1"], 1), (['a = "x" y'], 1), (["a = 1", "b = 2\\"], 2),
    ):
        try:
            result = parse(solution, *lines)
        except SolutionError as error:
            assert same((error.type, error.text), ("ValueError", f"line {number}")), (lines, error.text)
        else:
            raise AssertionError((lines, result))
