"""Task bundles: every mistake of an author is told with its file and what is wrong."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from canonical.bundle import load_bundles, overlaid, read_bundle
from canonical.environments.coding_agent.environment import CodingAgent
from canonical.sandbox.protocol import Snapshot
from canonical.task import TaskLoadError

GOOD: Mapping[str, str] = {
    "task.yaml": "prompt: Repair it.\nkind: fix\nsolution: ['*.py']\nlimits: {test_s: 5, processes: 8}\nmax_turns: 9\n",
    "weights.json": '{"test_a": 2}',
    "data/a.py": "x = 1\n",
    "data/__pycache__/a.pyc": "left over",
    "tests/test_a.py": "def helper(): ...\ndef test_a(solution): ...\n",
    "tests/expected.txt": "1",
    "solutions/oracle/a.py": "x = 2\n",
    "solutions/wrong-three/a.py": "x = 3\n",
}


def make(folder: Path, **changes: str | None) -> Path:
    for name, text in {**GOOD, **changes}.items():
        if text is not None:
            path = folder / "train" / "one" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return folder


def test_a_bundle_is_read_whole(tmp_path: Path) -> None:
    (task,) = load_bundles(make(tmp_path))
    bundle = read_bundle(task)
    assert (bundle.prompt, bundle.kind, bundle.solution) == ("Repair it.", "fix", ("*.py",))
    assert bundle.given.files == {"a.py": b"x = 1\n"}
    assert set(bundle.tests.files) == {"tests/test_a.py", "tests/expected.txt"}
    assert [(test.name, test.path, test.weight) for test in bundle.names] == [
        ("test_a", "tests/test_a.py", 2.0)
    ]
    assert bundle.oracle.files == {"a.py": b"x = 2\n"}
    assert bundle.wrong["three"].files == {"a.py": b"x = 3\n"}
    assert (bundle.test_s, bundle.limits.processes, bundle.max_turns) == (5.0, 8, 9)


@pytest.mark.parametrize(
    ("changes", "place", "reason"),
    [
        ({"task.yaml": "prompt: a\nkind: b\nsolution: [c]\ncolour: red"}, "task.yaml", "unknown keys colour"),
        ({"task.yaml": "kind: b\nsolution: ['*.py']"}, "task.yaml", "needs a text 'prompt'"),
        ({"task.yaml": "prompt: ' '\nkind: b\nsolution: ['*.py']"}, "task.yaml", "needs a text 'prompt'"),
        ({"task.yaml": "prompt: a\nsolution: ['*.py']"}, "task.yaml", "needs a text 'kind'"),
        ({"task.yaml": "prompt: a\nkind: b\nsolution: '*.py'"}, "task.yaml", "needs 'solution'"),
        ({"task.yaml": "prompt: a\nkind: b\nsolution: []"}, "task.yaml", "needs 'solution'"),
        ({"task.yaml": "prompt: a\nkind: b\nsolution: ['../a']"}, "task.yaml", "must stay in the workspace"),
        ({"task.yaml": GOOD["task.yaml"].replace("test_s", "tests")}, "task.yaml", "unknown key tests"),
        ({"task.yaml": GOOD["task.yaml"].replace(": 8", ": 8.5")}, "task.yaml", "processes must be a positive integer"),
        ({"task.yaml": GOOD["task.yaml"].replace(": 5", ": .inf")}, "task.yaml", "JSON cannot carry"),
        ({"task.yaml": GOOD["task.yaml"].replace(": 5", ": 0")}, "task.yaml", "test_s must be a positive number"),
        ({"task.yaml": GOOD["task.yaml"].replace("test_s: 5", "cpu_s: 1.0e+300")}, "task.yaml", "cpu_s must be a positive number of at most 86400"),
        ({"task.yaml": GOOD["task.yaml"].replace("test_s: 5", "test_s: 1e300")}, "task.yaml", "test_s must be a positive number of at most 86400"),
        ({"task.yaml": GOOD["task.yaml"].replace(": 8", f": 1{'0' * 400}")}, "task.yaml", "processes must be a positive integer of at most 4194304"),
        ({"task.yaml": GOOD["task.yaml"].replace(": 8", f": 1{'0' * 5000}")}, "task.yaml", "holds a value that cannot be read"),
        ({"task.yaml": GOOD["task.yaml"].replace(": 9", ": 0")}, "task.yaml", "'max_turns' must be"),
        ({"task.yaml": GOOD["task.yaml"].replace(": 9", f": 1{'0' * 400}")}, "task.yaml", "'max_turns' must be an integer from 1 to 1000000"),
        ({"task.yaml": "prompt: [a"}, "task.yaml", "is not YAML"),
        ({"weights.json": '{"test_a": 1, "test_b": 1}'}, "weights.json", "'test_b', which no file"),
        ({"weights.json": '{"test_b": 1}'}, "tests/test_a.py", "test_a has no weight"),
        ({"weights.json": '{"test_a": 0}'}, "weights.json", "the weight of 'test_a' must be a positive number of at most 1,000,000"),
        ({"weights.json": '{"test_a": 1e308}'}, "weights.json", "the weight of 'test_a' must be"),
        ({"weights.json": f'{{"test_a": 1{"0" * 400}}}'}, "weights.json", "the weight of 'test_a' must be"),
        ({"weights.json": None}, "weights.json", "is missing"),
        ({"tests/test_b.py": "def test_a(solution): ..."}, "tests/test_b.py", "already defined in tests/test_a.py"),
        ({"tests/test_a.py": "def test_a(): ..."}, "tests/test_a.py", "must take one argument"),
        ({"tests/test_a.py": "async def test_a(solution): ..."}, "tests/test_a.py", "must be a plain function"),
        ({"tests/test_a.py": "async def test_a(solution):\n    yield"}, "tests/test_a.py", "must be a plain function"),
        ({"tests/test_a.py": "def test_a(solution):\n    for one in (1, 2):\n        yield one"}, "tests/test_a.py", "must be a plain function"),
        ({"tests/test_a.py": "def test_a(solution):\n    yield from solution.calls('a:f', [])"}, "tests/test_a.py", "must be a plain function"),
        ({"tests/test_a.py": "def test_a(solution):\n    x = [(yield)]"}, "tests/test_a.py", "must be a plain function"),
        ({"tests/test_a.py": "class test_a:\n    def __init__(self, solution): ..."}, "tests/test_a.py", "must be a plain function"),
        ({"tests/test_a.py": "test_a = lambda solution: None"}, "tests/test_a.py", "must be a plain function"),
        ({"tests/test_a.py": "def test_a(solution): ...\ntest_a = made(test_a)"}, "tests/test_a.py", "must be a plain function"),
        ({"tests/test_a.py": "def test_a(:"}, "tests/test_a.py", "is not Python"),
        ({"solutions/oracle/a.py": None}, "solutions/oracle", "is missing"),
        ({"solutions/oracle/b.txt": ""}, "solutions/oracle/b.txt", "would not be carried"),
        ({"solutions/better/a.py": ""}, "solutions/better", "is neither oracle nor"),
        ({"notes.txt": ""}, "notes.txt", "is no part of a bundle"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_file_and_reason(
    tmp_path: Path, changes: dict[str, str | None], place: str, reason: str
) -> None:
    with pytest.raises(TaskLoadError) as caught:
        load_bundles(make(tmp_path, **changes))
    assert caught.value.path == tmp_path / "train" / "one" / place
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("prompt: a\nkind: b\nsolution: ['*.py']\nprompt: c\n", 4, "'prompt' was already used in line 1"),
        ("limits: {test_s: 5, test_s: 6}\n", 1, "'test_s' was already used in line 1"),
        ("metadata:\n- a: 1\n  b: 2\n  a: 3\n", 4, "'a' was already used in line 2"),
    ],
)
def test_a_key_that_appears_twice_is_told_with_its_line(
    tmp_path: Path, text: str, line: int, reason: str
) -> None:
    with pytest.raises(TaskLoadError) as caught:
        load_bundles(make(tmp_path, **{"task.yaml": text}))
    assert (caught.value.path.name, caught.value.line) == ("task.yaml", line)
    assert reason in caught.value.reason


def test_equal_keys_of_different_mappings_are_no_repetition(tmp_path: Path) -> None:
    metadata = "metadata: {a: &one {x: 1}, b: {x: 2}, c: [*one, *one]}\n"
    (task,) = load_bundles(make(tmp_path, **{"task.yaml": GOOD["task.yaml"] + metadata}))
    assert task.inputs["metadata"] == {"a": {"x": 1}, "b": {"x": 2}, "c": [{"x": 1}, {"x": 1}]}


@pytest.mark.parametrize("folder", ["data", "tests", "solutions/oracle", "solutions/wrong-three"])
def test_a_link_in_a_bundle_is_refused_when_it_is_loaded(tmp_path: Path, folder: str) -> None:
    link = make(tmp_path) / "train/one" / folder / "link.py"
    link.symlink_to("/etc/passwd")
    with pytest.raises(TaskLoadError, match="neither a file nor a folder") as caught:
        load_bundles(tmp_path)
    assert caught.value.path == link


def test_what_helpers_of_a_test_yield_is_their_own(tmp_path: Path) -> None:
    source = """
tests = [1]
def rows():
    yield 1
def test_a(solution):
    def inner():
        yield 1
    assert [*inner(), *(lambda: (yield))()] and [x for x in rows()]
"""
    (task,) = load_bundles(make(tmp_path, **{"tests/test_a.py": source}))
    assert [test.name for test in read_bundle(task).names] == ["test_a"]


def test_the_files_of_a_task_belong_to_its_hash(tmp_path: Path) -> None:
    before = load_bundles(make(tmp_path)).sha256
    (tmp_path / "train/one/tests/expected.txt").write_text("2")
    assert load_bundles(tmp_path).sha256 != before


def test_one_snapshot_over_another() -> None:
    given = Snapshot({"a": b"1", "b": b"2"}, frozenset({"a", "b"}))
    over = Snapshot({"b": b"3", "c": b"4"}, frozenset({"c"}))
    both = overlaid(given, over)
    assert both.files == {"a": b"1", "b": b"3", "c": b"4"}
    assert both.executable == {"a", "c"}


def test_weights_stay_secret(tmp_path: Path) -> None:
    (task,) = load_bundles(make(tmp_path))
    assert "test_a" not in json.dumps(dict(task.inputs))


def test_bundles_can_be_read_in_many_threads_while_garbage_is_collected() -> None:
    tasks = list(CodingAgent().tasks())[:8]

    def in_the_middle(*_: object) -> None:
        for _step in range(200):
            pass

    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.callbacks.append(in_the_middle)
    gc.set_threshold(50)
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(bundle.names for bundle in pool.map(read_bundle, tasks * 4))
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*threshold)
        gc.callbacks.remove(in_the_middle)
