import json
import random

from grading import same

INDEX = "index:WordIndex"


def reference(words, call):
    name, (argument,) = call
    if name == "count_longer":
        return sum(len(word) > argument for word in words)
    found = [word for word in words if word.startswith(argument)]
    return len(found) if name == "count_prefix" else min(found, default=None)


# Words and questions come in and answers go out, so that the code of the test tells nothing of what it expects.
PLAY = """
import json, sys
from index import WordIndex
words, name, questions = json.load(sys.stdin)
index = WordIndex(words)
ask = getattr(index, name)
print(json.dumps([ask(question) for question in questions]))
"""


def play(solution, words, name, questions, cpu_s):
    done = solution.run(["python3", "-c", PLAY], stdin=json.dumps([words, name, questions]), cpu_s=cpu_s, timeout_s=50)
    return json.loads(done.stdout)


def many_words(rng):
    """Return words of digits and a tail; half of them begin with the same letters."""
    stem = "".join(rng.choice("klmn") for _ in range(4))
    return [rng.choice(("", stem)) + f"{rng.randrange(100000):05}" + "x" * rng.randrange(9) for _ in range(50000)]


def many_prefixes(rng, words, count):
    """Return prefixes that differ from one another, so that remembering answers is no way to be fast; a few begin no word."""
    found = sorted({word[:length] for word in words for length in range(1, 10)})
    return rng.sample(found, count - 200) + [f"{number}y" for number in rng.sample(range(10**5), 200)]


def counts(words):
    found = {}
    for word in words:
        for length in range(1, 10):
            if length <= len(word):
                found[word[:length]] = found.get(word[:length], 0) + 1
    return found


def assert_faster(solution):
    """An index that looks through all words at each new question takes seconds here, and nothing has been done."""
    rng = random.Random(61)
    words = many_words(rng)
    questions, known = many_prefixes(rng, words, 5000), counts(words)
    assert same(play(solution, words, "count_prefix", questions, 6), [known.get(question, 0) for question in questions])
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


APART = """
import json, sys
from index import WordIndex
words, more, prefix = json.load(sys.stdin)
index = WordIndex(words)
left = list(words)
words += more
print(json.dumps([left, index.count_prefix(""), index.first_with_prefix(prefix), index.count_longer(0)]))
"""


def test_list_is_apart(solution):
    assert_faster(solution)
    rng = random.Random(62)
    words = rng.sample([f"{number:03}" for number in range(500)], 20)
    more = rng.sample([f"{number:03}" for number in range(500, 1000)], rng.randint(3, 9))
    done = solution.run(["python3", "-c", APART], stdin=json.dumps([words, more, more[0][:2]]))
    assert same(json.loads(done.stdout), [words, 20, None, 20])


def test_prefixes_are_fast(solution):
    assert_right(solution, 2)
    rng = random.Random(63)
    words, first = many_words(rng), {}
    for word in sorted(words):
        for length in range(1, 10):
            first.setdefault(word[:length], word)
    questions, known = many_prefixes(rng, words, 20000), counts(words)
    assert same(play(solution, words, "count_prefix", questions, 8), [known.get(question, 0) for question in questions])
    assert same(play(solution, words, "first_with_prefix", questions, 8), [first.get(question) for question in questions])


def test_lengths_are_fast(solution):
    assert_right(solution, 3)
    rng = random.Random(64)
    words, questions = many_words(rng), rng.sample(range(-50000, 10**9), 50000) + list(range(-1, 20)) * 2000
    rng.shuffle(questions)
    longer = [sum(len(word) > limit for word in words) for limit in range(20)]
    known = [len(words) if question < 0 else longer[question] if question < 20 else 0 for question in questions]
    assert same(play(solution, words, "count_longer", questions, 8), known)
