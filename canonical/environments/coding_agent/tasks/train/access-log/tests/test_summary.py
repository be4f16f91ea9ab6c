import random

from grading import same

FORMS = (
    "2026-03-01T10:00:00Z {m} {p} {s} {b} {t}",
    '[2026-03-01 10:00:02] "{m} {p} HTTP/1.1" status={s} size={b} time={t}',
    "10.0.0.7 | {m} {p} | {s} | {b} | {t}",
)


def line(form, m="GET", p="/", s="200", b="1", t="1ms"):
    return FORMS[form].format(m=m, p=p, s=s, b=b, t=t)


def summarise(solution, *lines):
    return solution.call("summary:summarise", "\n".join(lines))


def assert_counted(solution, seed):
    """Lines of the first server are summed up; without this, nothing has been done."""
    rng = random.Random(seed)
    for _ in range(2):
        sizes = [rng.randint(1, 9999) for _ in range(rng.randint(2, 9))]
        times = rng.sample(range(1, 999), len(sizes))
        result = summarise(solution, *(line(0, p=f"/{at}", b=str(size), t=f"{time}ms") for at, (size, time) in enumerate(zip(sizes, times))))
        assert (result["requests"], result["bytes"], result["broken"], result["status"]) == (len(sizes), sum(sizes), 0, {"200": len(sizes)})
        assert list(result["slowest"]) == [f"/{times.index(max(times))}", max(times)]


def test_the_given_log(solution):
    assert_counted(solution, 1)
    code = "import json, summary; print(json.dumps(summary.summarise(open('access.log').read()), sort_keys=True))"
    expected = '{"broken": 2, "bytes": 6009, "requests": 6, "slowest": ["/items/9", 1250.0], "status": {"200": 3, "302": 1, "304": 1, "500": 1}}\n'
    assert same(solution.run(["python3", "-c", code]).stdout, expected)


def test_each_kind_of_line(solution):
    assert_counted(solution, 2)
    for form in range(3):
        result = summarise(solution, line(form, m="PUT", p="/a/b?x=1?y", s="404", b="12", t="5ms"), line(form, b="-"))
        assert result["requests"] == 2 and result["bytes"] == 12 and result["broken"] == 0, form
        assert same(result["status"], {"404": 1, "200": 1})
        assert same(list(result["slowest"]), ["/a/b", 5.0])


def test_durations(solution):
    assert_counted(solution, 3)
    for text, expected in (("1500us", 1.5), ("2s", 2000.0), ("0.004s", 4.0), ("12ms", 12.0), ("0.25ms", 0.25)):
        path, duration = summarise(solution, line(0, t=text))["slowest"]
        assert path == "/" and abs(duration - expected) < 1e-9, text
        assert type(duration) is float
    assert list(summarise(solution, line(0, t="900us"), line(1, p="/b", t="0.9ms"), line(2, p="/c", t="0.001s"))["slowest"])[0] == "/c"


def test_broken_lines(solution):
    assert_counted(solution, 4)
    result = summarise(solution, "hello", line(0, s="OK"), line(1, b="many"), line(2, t="5"), line(0, t="5h"), "GET / 200", line(0))
    assert result["broken"] == 6 and result["requests"] == 1


def test_nothing(solution):
    assert_counted(solution, 5)
    assert same(summarise(solution, "# only", "", "   ", "#"), {"requests": 0, "bytes": 0, "status": {}, "slowest": None, "broken": 0})


def test_first_of_equals(solution):
    assert_counted(solution, 6)
    assert list(summarise(solution, line(0, p="/one", t="1s"), line(1, p="/two", t="1000ms"))["slowest"]) == ["/one", 1000.0]
