import random

FILES = {"a.txt": "one two\nthree\n", "b.txt": "no newline"}


def run(solution, *arguments, stdin=""):
    return solution.run(["python3", "wc.py", *arguments], stdin=stdin, files=FILES)


def assert_counted(solution, seed):
    """A file is counted; without this, nothing has been done."""
    rng = random.Random(seed)
    text = "".join(rng.choice(("one", "three", " ", "  ", "\n")) for _ in range(rng.randint(50, 200)))
    done = solution.run(["python3", "wc.py", "fresh.txt"], files={"fresh.txt": text})
    counts = text.count("\n"), len(text.split()), len(text)
    assert done.stdout == "{} {} {} fresh.txt\n".format(*counts)


def test_one_file(solution):
    assert_counted(solution, 1)
    result = run(solution, "a.txt")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "2 3 14 a.txt\n", "")
    assert run(solution, "b.txt").stdout == "0 2 10 b.txt\n"
    assert run(solution, "notes.txt").stdout == "3 10 49 notes.txt\n"


def test_options(solution):
    assert_counted(solution, 2)
    assert run(solution, "-l", "a.txt").stdout == "2 a.txt\n"
    assert run(solution, "-cl", "a.txt").stdout == "2 14 a.txt\n"
    assert run(solution, "a.txt", "-w").stdout == "3 a.txt\n"
    assert run(solution, "-w", "-w", "a.txt").stdout == "3 a.txt\n"


def test_standard_input(solution):
    assert_counted(solution, 3)
    assert run(solution, stdin="x y\n").stdout == "1 2 4\n"
    assert run(solution, "-l", "-", stdin="x y\n").stdout == "1 -\n"


def test_total(solution):
    assert_counted(solution, 4)
    assert run(solution, "a.txt", "b.txt").stdout == "2 3 14 a.txt\n0 2 10 b.txt\n2 5 24 total\n"
    assert run(solution, "-c", "a.txt", "a.txt").stdout == "14 a.txt\n14 a.txt\n28 total\n"


def test_missing_file(solution):
    assert_counted(solution, 5)
    result = run(solution, "none.txt", "a.txt")
    assert (result.exit_code, result.stderr) == (1, "wc.py: none.txt: cannot read\n")
    assert result.stdout == "2 3 14 a.txt\n2 3 14 total\n"


def test_usage(solution):
    assert_counted(solution, 6)
    result = run(solution, "-x", "a.txt")
    assert result.exit_code == 2 and result.stderr.startswith("usage:") and result.stdout == ""
    assert run(solution, "--", "-x").stderr == "wc.py: -x: cannot read\n"


def test_bytes(solution):
    assert_counted(solution, 7)
    code = "open('raw', 'wb').write(bytes(range(256)) * 3)\nimport subprocess, sys\nprint(subprocess.run([sys.executable, 'wc.py', 'raw'], capture_output=True, text=True).stdout, end='')"
    data = bytes(range(256)) * 3
    expected = f"{data.count(10)} {len(data.split())} {len(data)} raw\n"
    assert solution.run(["python3", "-c", code]).stdout == expected
