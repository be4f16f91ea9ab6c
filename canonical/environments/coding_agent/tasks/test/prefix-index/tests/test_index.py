import random

from grading import same

INDEX = "index:WordIndex"


def reference(words, call):
    name, (argument,) = call
    if name == "count_longer":
        return sum(len(word) > argument for word in words)
    found = [word for word in words if word.startswith(argument)]
    return len(found) if name == "count_prefix" else min(found, default=None)


def assert_faster(solution):
    """An index that looks through all words at each question takes seconds here, and nothing has been done."""
    code = MAKE + "print(sum(i.count_prefix(f'{q % 100:02}') for q in range(3000)))"
    counts = {}
    for word in WORDS:
        counts[word[:2]] = counts.get(word[:2], 0) + 1
    expected = sum(counts.get(f"{q % 100:02}", 0) for q in range(3000))
    assert same(solution.run(["python3", "-c", code], cpu_s=5, timeout_s=50).stdout, f"{expected}\n")
    assert_right(solution, 1)


def assert_right(solution, seed):
    """Different words are found, so that speed alone is paid nothing."""
    rng = random.Random(seed)
    words = sorted({"".join(rng.choice("abcd") for _ in range(rng.randint(2, 6))) for _ in range(60)}, key=lambda word: word[::-1])
    calls = [(name, [rng.choice("abcd") + rng.choice(("", "a", "c"))]) for name in ("count_prefix", "first_with_prefix") for _ in range(15)]
    calls += [("count_longer", [length]) for length in range(1, 7)]
    assert same(solution.script(INDEX, [words], calls), [reference(words, call) for call in calls])


def test_small(solution):
    assert_faster(solution)
    words = ["tea", "ten", "tea", "inn", "te", "", "t\U0010ffff", "t\U0010ffffx"]
    calls = [("count_prefix", [p]) for p in ("te", "tea", "", "x", "t\U0010ffff", "teas")] + [("first_with_prefix", [p]) for p in ("t", "te", "i", "q", "")] + [("count_longer", [n]) for n in (-1, 0, 2, 3, 99)]
    assert same(solution.script(INDEX, [words], calls), [reference(words, call) for call in calls])
    assert same(solution.script(INDEX, [[]], [("count_prefix", [""]), ("first_with_prefix", [""]), ("count_longer", [0])]), [0, None, 0])


def test_random(solution):
    assert_faster(solution)
    rng = random.Random(7)
    for _ in range(6):
        words = ["".join(rng.choice("ab\u00e9z") for _ in range(rng.randint(0, 5))) for _ in range(120)]
        calls = []
        for _ in range(80):
            kind = rng.choice(("count_prefix", "first_with_prefix", "count_longer"))
            calls.append((kind, [rng.randint(-1, 6) if kind == "count_longer" else "".join(rng.choice("ab\u00e9z") for _ in range(rng.randint(0, 4)))]))
        assert same(solution.script(INDEX, [words], calls), [reference(words, call) for call in calls])


def test_list_is_apart(solution):
    assert_faster(solution)
    code = "from index import WordIndex\nw = ['b', 'a']\ni = WordIndex(w)\nw.append('c')\nprint(i.count_prefix(''), i.first_with_prefix('c'), i.count_longer(0), w)"
    assert same(solution.run(["python3", "-c", code]).stdout, "2 None 2 ['b', 'a', 'c']\n")


WORDS = [f"{n * 7919 % 99991:05}" + "x" * (n % 13) for n in range(50000)]
MAKE = "from index import WordIndex\nwords = [f'{n * 7919 % 99991:05}' + 'x' * (n % 13) for n in range(50000)]\ni = WordIndex(words)\n"


def test_prefixes_are_fast(solution):
    assert_right(solution, 2)
    code = MAKE + "print(sum(i.count_prefix(f'{q % 1000:03}') for q in range(20000)), sum(len(i.first_with_prefix(f'{q % 990:03}') or '') for q in range(20000)))"
    first, counts = {}, {}
    for word in sorted(WORDS):
        counts[word[:3]] = counts.get(word[:3], 0) + 1
        first.setdefault(word[:3], word)
    one = sum(counts.get(f"{q % 1000:03}", 0) for q in range(20000))
    two = sum(len(first.get(f"{q % 990:03}", "")) for q in range(20000))
    assert same(solution.run(["python3", "-c", code], cpu_s=10, timeout_s=50).stdout, f"{one} {two}\n")


def test_lengths_are_fast(solution):
    assert_right(solution, 3)
    code = MAKE + "print(sum(i.count_longer(q % 20) for q in range(100000)))"
    lengths = [5 + n % 13 for n in range(50000)]
    longer = [sum(length > limit for length in lengths) for limit in range(20)]
    assert same(solution.run(["python3", "-c", code], cpu_s=10, timeout_s=50).stdout, f"{sum(longer[q % 20] for q in range(100000))}\n")
