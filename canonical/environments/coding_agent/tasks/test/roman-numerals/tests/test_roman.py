import random

from grading import SolutionError, same


def refused(solution, function, value):
    try:
        solution.call(f"roman:{function}", value)
    except SolutionError as error:
        return same(error.type, "ValueError")
    return False


def reference(number):
    digits = ["", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"]
    tens = str.maketrans("IVX", "XLC")
    hundreds = str.maketrans("IVX", "CDM")
    thousands, rest = divmod(number, 1000)
    return "M" * thousands + digits[rest // 100].translate(hundreds) + digits[rest // 10 % 10].translate(tens) + digits[rest % 10]


def assert_right(solution, seed):
    """A module that refuses everything refuses what is bad, too, and nothing has been done."""
    numbers = random.Random(seed).sample(range(1, 4000), 60)
    numerals = [reference(number) for number in numbers]
    assert same(solution.calls("roman:to_roman", [[number] for number in numbers]), numerals)
    assert same(solution.calls("roman:from_roman", [[numeral] for numeral in numerals]), numbers)


def test_known_numbers(solution):
    assert_right(solution, 1)
    for number, numeral in ((4, "IV"), (40, "XL"), (400, "CD"), (1994, "MCMXCIV"), (3999, "MMMCMXCIX"), (44, "XLIV")):
        assert same(solution.call("roman:to_roman", number), numeral)


def test_all_numbers_there_and_back(solution):
    numbers = list(range(1, 4000))
    numerals = [reference(number) for number in numbers]
    assert same(solution.calls("roman:to_roman", [[number] for number in numbers]), numerals)
    assert same(solution.calls("roman:from_roman", [[numeral] for numeral in numerals]), numbers)


def test_lower_case(solution):
    assert_right(solution, 2)
    numbers = random.Random(3).sample(range(1, 4000), 60)
    assert same(solution.calls("roman:from_roman", [[reference(number).lower()] for number in numbers]), numbers)
    assert same(solution.call("roman:from_roman", "mcmxciv"), 1994)
    assert refused(solution, "from_roman", "iiii")


def test_bad_numerals(solution):
    assert_right(solution, 4)
    for text in ("IIII", "VX", "IC", "MMMM", "", "VV", "IXI", "ABC", "X X", "IM", "XCX", " X"):
        assert refused(solution, "from_roman", text), text


def test_range(solution):
    assert_right(solution, 5)
    for number in (0, -1, 4000):
        assert refused(solution, "to_roman", number), number
