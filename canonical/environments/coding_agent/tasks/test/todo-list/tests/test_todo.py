import json
import random


def play(solution, *commands, files=None):
    """Run commands one after the other in one workspace, and return (exit code, stdout, stderr) of each."""
    code = "import json, subprocess, sys\nout = []\nfor c in json.loads(sys.argv[1]):\n    r = subprocess.run(['python3', 'todo.py', *c], capture_output=True, text=True)\n    out.append([r.returncode, r.stdout, r.stderr])\nprint(json.dumps(out))"
    result = solution.run(["python3", "-c", code, json.dumps(commands)], files=files or {})
    return [tuple(each) for each in json.loads(result.stdout)]


def assert_kept(solution, seed):
    """Items are kept from one command to the next; without this, nothing has been done."""
    rng = random.Random(seed)
    items = [f"item {rng.randint(0, 99999)}" for _ in range(rng.randint(2, 4))]
    outputs = [each[1] for each in play(solution, *(["add", item] for item in items), ["list"])]
    assert outputs[-1] == "".join(f"{number} [ ] {item}\n" for number, item in enumerate(items, start=1))


def test_add_and_list(solution):
    assert_kept(solution, 1)
    results = play(solution, ["list"], ["add", "buy", "milk"], ["add", "caf\u00e9 \u2713"], ["list"])
    assert results == [(0, "", ""), (0, "added 1\n", ""), (0, "added 2\n", ""), (0, "1 [ ] buy milk\n2 [ ] caf\u00e9 \u2713\n", "")]


def test_done(solution):
    assert_kept(solution, 2)
    results = play(solution, ["add", "a"], ["add", "b"], ["done", "1"], ["done", "1"], ["list"], ["list", "--all"])
    assert [each[1] for each in results[2:]] == ["done 1\n", "done 1\n", "2 [ ] b\n", "1 [x] a\n2 [ ] b\n"]
    assert all(each[0] == 0 for each in results)


def test_clear_keeps_numbers(solution):
    assert_kept(solution, 3)
    commands = [["add", "a"], ["add", "b"], ["add", "c"], ["done", "3"], ["done", "1"], ["clear"], ["list", "--all"], ["add", "d"], ["clear"], ["list"]]
    outputs = [each[1] for each in play(solution, *commands)]
    assert outputs[5:] == ["cleared 2\n", "2 [ ] b\n", "added 4\n", "cleared 0\n", "2 [ ] b\n4 [ ] d\n"]


def test_errors(solution):
    assert_kept(solution, 4)
    results = play(solution, ["done", "1"], [], ["add"], ["add", " "], ["done"], ["done", "x"], ["sing"], ["list", "--some"], ["clear", "now"], ["list"])
    assert results[0] == (1, "", "todo.py: no item 1\n")
    for result in results[1:-1]:
        assert result[0] == 2 and result[1] == "" and result[2].startswith("usage:"), result
    assert results[-1] == (0, "", "")


def test_damaged_file(solution):
    assert_kept(solution, 5)
    for damaged in ("{", "[1, 2", "null", '{"items": 5}'):
        code = "import subprocess\nr = subprocess.run(['python3', 'todo.py', 'add', 'x'], capture_output=True, text=True)\nprint(r.returncode, r.stderr, open('todo.json').read())"
        result = solution.run(["python3", "-c", code], files={"todo.json": damaged})
        assert result.stdout == f"1 todo.py: todo.json is damaged\n {damaged}\n", damaged


# An item is added while no file may grow beyond a few hundred bytes, which is where the program breaks off.
BROKEN_OFF = """
import json, resource, subprocess, sys
first, second = json.load(sys.stdin)
add = ["python3", "todo.py", "add"]
subprocess.run([*add, first], stdout=subprocess.DEVNULL)
before = open("todo.json", "rb").read()
small = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
subprocess.run([*add, second], preexec_fn=small, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    after = open("todo.json", "rb").read()
except OSError:
    after = b""
listed = subprocess.run(["python3", "todo.py", "list"], capture_output=True, text=True).stdout
print(json.dumps([len(before) > 300, before == after, listed]))
"""

# The program runs here, where whatever it does to the file is seen: opening for writing, moving, removing, replacing.
WATCHED = """
import json, os, runpy, subprocess, sys
first, second = json.load(sys.stdin)
subprocess.run(["python3", "todo.py", "add", first], stdout=subprocess.DEVNULL)
seen, moved = [], []
def is_list(path):
    return isinstance(path, (str, bytes)) and os.path.basename(os.fsdecode(path)) == "todo.json"
def watch(event, args):
    if event == "open" and is_list(args[0]) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_TRUNC):
        seen.append("opened for writing")
    elif event in ("os.remove", "os.truncate") and is_list(args[0]):
        seen.append(event)
    elif event == "os.rename" and is_list(args[0]):
        seen.append("moved away")
    elif event == "os.rename" and is_list(args[1]):
        moved.append(open(args[0], "rb").read())
sys.addaudithook(watch)
sys.argv = ["todo.py", "add", second]
try:
    runpy.run_path("todo.py", run_name="__main__")
except SystemExit:
    pass
sys.stdout.flush()
print()
print(json.dumps([seen, moved[-1:] == [open("todo.json", "rb").read()], second in "".join(map(bytes.decode, moved))]))
"""


def test_replaced_in_one_step(solution):
    assert_kept(solution, 6)
    rng = random.Random(7)
    first, second = (" ".join(f"{rng.randrange(10**6):06}" for _ in range(100)) for _ in range(2))
    done = solution.run(["python3", "-c", BROKEN_OFF], stdin=json.dumps([first, second]))
    assert json.loads(done.stdout.splitlines()[-1]) == [True, True, f"1 [ ] {first}\n"], done.stdout[-300:]
    done = solution.run(["python3", "-c", WATCHED], stdin=json.dumps([first, second]))
    assert json.loads(done.stdout.splitlines()[-1]) == [[], True, True], (done.stdout[-300:], done.stderr[-300:])
    code = "import json, os, subprocess\nsubprocess.run(['python3', 'todo.py', 'add', 'a'])\nbefore = open('todo.json')\nfirst = before.read()\nsubprocess.run(['python3', 'todo.py', 'add', 'b'])\nbefore.seek(0)\nprint(json.dumps([before.read() == first, os.fstat(before.fileno()).st_nlink, os.listdir()]))"
    lines = solution.run(["python3", "-c", code]).stdout.splitlines()
    is_unchanged, links, names = json.loads(lines[-1])
    assert (is_unchanged, links) == (True, 0), lines
    assert set(names) <= {"README.txt", "todo.json", "todo.py", "__pycache__"}
