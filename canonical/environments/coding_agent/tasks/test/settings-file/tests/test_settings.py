from grading import SolutionError, same


def parse(solution, *lines):
    return solution.call("settings:parse", "\n".join(lines))


def test_the_example(solution):
    code = "import json, settings; print(json.dumps(settings.parse(open('example.conf').read()), sort_keys=True))"
    expected = '{"": {"name": "demo"}, "limits": {"users": "10, 20, 30"}, "paths": {"home": "/srv/demo", "pattern": "*.txt # not a comment", "tmp": "/tmp"}}\n'
    assert same(solution.run(["python3", "-c", code]).stdout, expected)


def test_sections(solution):
    assert same(parse(solution, "[ a b ]", "x=1", "[c]", "[ a b ]", "x=2", "y=3"), {"a b": {"x": "2", "y": "3"}, "c": {}})
    assert same(parse(solution, ""), {})
    assert same(parse(solution, "k=1"), {"": {"k": "1"}})


def test_comments(solution):
    assert same(parse(solution, "# x = 1", "  ; y", "a = b#c", "d = e #f", "g = h\t;i", "[s] # note"), {"": {"a": "b#c", "d": "e", "g": "h"}, "s": {}})


def test_quotes(solution):
    assert same(parse(solution, r'a = "x \" y"', r'b = "\\"', r'c = "1\n2"', 'd = ""', 'e = " s "', 'f = "a ; b" ; c', 'g = in"side'), {"": {"a": 'x " y', "b": "\\", "c": "1\n2", "d": "", "e": " s ", "f": "a ; b", "g": 'in"side'}})


def test_continuation(solution):
    assert same(parse(solution, "a = 1\\", "   2", "b = 3 \\", "4 \\", " 5", "c = 6 # not \\", "d = 7"), {"": {"a": "12", "b": "3 4 5", "c": "6", "d": "7"}})


def test_errors(solution):
    for lines, number in (
        (["a = 1", "nonsense"], 2), (["[open"], 1), (["= 1"], 1), (['a = "x'], 1), ([r'a = "\t"'], 1), (["", "a = 1", "[x] y"], 3), (["a\\", "b", "c=1"], 1), (['a = "x" y'], 1), (["a = 1", "b = 2\\"], 2),
    ):
        try:
            result = parse(solution, *lines)
        except SolutionError as error:
            assert same((error.type, error.text), ("ValueError", f"line {number}")), (lines, error.text)
        else:
            raise AssertionError((lines, result))
