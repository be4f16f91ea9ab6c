FILES = {"a.txt": "one two\nthree\n", "b.txt": "no newline"}


def run(solution, *arguments, stdin=""):
    return solution.run(["python3", "wc.py", *arguments], stdin=stdin, files=FILES)


def test_one_file(solution):
    result = run(solution, "a.txt")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "2 3 14 a.txt\n", "")
    assert run(solution, "b.txt").stdout == "0 2 10 b.txt\n"
    assert run(solution, "notes.txt").stdout == "3 10 49 notes.txt\n"


def test_options(solution):
    assert run(solution, "-l", "a.txt").stdout == "2 a.txt\n"
    assert run(solution, "-cl", "a.txt").stdout == "2 14 a.txt\n"
    assert run(solution, "a.txt", "-w").stdout == "3 a.txt\n"
    assert run(solution, "-w", "-w", "a.txt").stdout == "3 a.txt\n"


def test_standard_input(solution):
    assert run(solution, stdin="x y\n").stdout == "1 2 4\n"
    assert run(solution, "-l", "-", stdin="x y\n").stdout == "1 -\n"


def test_total(solution):
    assert run(solution, "a.txt", "b.txt").stdout == "2 3 14 a.txt\n0 2 10 b.txt\n2 5 24 total\n"
    assert run(solution, "-c", "a.txt", "a.txt").stdout == "14 a.txt\n14 a.txt\n28 total\n"


def test_missing_file(solution):
    result = run(solution, "none.txt", "a.txt")
    assert (result.exit_code, result.stderr) == (1, "wc.py: none.txt: cannot read\n")
    assert result.stdout == "2 3 14 a.txt\n2 3 14 total\n"


def test_usage(solution):
    result = run(solution, "-x", "a.txt")
    assert result.exit_code == 2 and result.stderr.startswith("usage:") and result.stdout == ""
    assert run(solution, "--", "-x").stderr == "wc.py: -x: cannot read\n"


def test_bytes(solution):
    code = "open('raw', 'wb').write(bytes(range(256)) * 3)\nimport subprocess, sys\nprint(subprocess.run([sys.executable, 'wc.py', 'raw'], capture_output=True, text=True).stdout, end='')"
    data = bytes(range(256)) * 3
    expected = f"{data.count(10)} {len(data.split())} {len(data)} raw\n"
    assert solution.run(["python3", "-c", code]).stdout == expected
