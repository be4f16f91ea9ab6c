import random


def run(solution, *arguments, stdin="", files=None):
    return solution.run(["python3", "pick.py", *arguments], stdin=stdin, files=files or {})


def assert_picked(solution, seed):
    """Columns of a plain table are picked; without this, nothing has been done."""
    rng = random.Random(seed)
    rows = [["one", "two", "three"], *([str(rng.randint(0, 9999)) for _ in range(3)] for _ in range(rng.randint(3, 9)))]
    lines = [",".join(row) + "\n" for row in rows]
    result = run(solution, "three,one", "fresh.csv", files={"fresh.csv": "".join(lines)})
    assert result.stdout == "".join(f"{row[2]},{row[0]}\n" for row in rows)


def test_order_and_quotes(solution):
    assert_picked(solution, 1)
    result = run(solution, "city,name", "people.csv")
    assert result.exit_code == 0
    assert result.stdout == 'city,name\nUlm,"Miller, Ann"\n"New ""York""",Bo\nUlm,Cy\n'
    assert run(solution, "b", "x.csv", files={"x.csv": 'a,b\n1,"two\nlines"\n2,plain\n'}).stdout == 'b\n"two\nlines"\nplain\n'
    assert run(solution, "age,age", "people.csv").stdout == "age,age\n31,31\n44,44\n,\n"


def test_numbers(solution):
    assert_picked(solution, 2)
    assert run(solution, "#3,#1", "people.csv").stdout == 'age,name\n31,"Miller, Ann"\n44,Bo\n,Cy\n'


def test_where(solution):
    assert_picked(solution, 3)
    assert run(solution, "name", "--where", "city=Ulm", "people.csv").stdout == 'name\n"Miller, Ann"\nCy\n'
    assert run(solution, "--where", "city=Ulm", "name", "people.csv", "--where", "age=31").stdout == 'name\n"Miller, Ann"\n'
    assert run(solution, "a", "--where", "b=x=y", stdin="a,b\n1,x=y\n2,x\n").stdout == "a\n1\n"
    assert run(solution, "name", "--where", "#3=44", "people.csv").stdout == "name\nBo\n"


def test_short_rows(solution):
    assert_picked(solution, 4)
    assert run(solution, "c,a", stdin="a,b,c\n1\n1,2,3,4\n\n").stdout == "c,a\n,1\n3,1\n"


def test_standard_input(solution):
    assert_picked(solution, 5)
    assert run(solution, "a", "-", stdin="a,b\n\u00e9,2\n").stdout == "a\n\u00e9\n"


def test_errors(solution):
    assert_picked(solution, 6)
    result = run(solution, "name,zip", "people.csv")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "pick.py: no column zip; there are: name, city, age\n")
    result = run(solution, "name", "--where", "zip=1", "people.csv")
    assert (result.exit_code, result.stdout) == (1, "")
    assert run(solution, "#4", "people.csv").stderr == "pick.py: no column #4; there are: name, city, age\n"
    result = run(solution, "name", "none.csv")
    assert (result.exit_code, result.stderr) == (1, "pick.py: cannot read none.csv\n")
    for wrong in ([], ["a", "b", "c"], ["name", "--where"], ["name", "--where", "city", "people.csv"], ["--what", "name"]):
        result = run(solution, *wrong)
        assert result.exit_code == 2 and result.stderr.startswith("usage:"), wrong
