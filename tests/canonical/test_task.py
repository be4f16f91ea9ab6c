"""Tasks, task sets and their loaders: every bad row and bad bundle is reported with file, line and reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical.content import JSON
from canonical.task import Task, TaskLoadError, TaskSet, UnknownTaskError
from tests.canonical.strategies import any_text, json_values

names = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=8)
ids = st.builds(lambda split, name: f"{split}/{name}", names, names | any_text.filter(bool))
objects = st.dictionaries(any_text, json_values, max_size=3)
tasks = st.builds(
    lambda id_, inputs, secret: Task(id=id_, inputs=inputs, secret=secret), ids, objects, objects
)
task_lists = st.lists(tasks, min_size=1, max_size=6, unique_by=lambda task: task.id)


class TestTask:
    @pytest.mark.parametrize("bad", ["", "train", "train/", "/7", "/"])
    def test_an_id_names_a_split_and_a_task(self, bad: str) -> None:
        with pytest.raises(ValueError, match="is not of the form 'split/name'"):
            Task(id=bad)

    @given(ids)
    def test_the_split_is_what_stands_before_the_first_slash(self, id_: str) -> None:
        assert Task(id=id_).split == id_.split("/", 1)[0]

    def test_a_task_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError):
            Task(id="a/b").id = "c/d"  # type: ignore[misc]


class TestTaskSet:
    @given(task_lists)
    def test_a_set_keeps_its_order_and_finds_every_task(self, listed: list[Task]) -> None:
        found = TaskSet(listed)
        assert list(found) == listed
        assert len(found) == len(listed)
        assert all(found.get(task.id) is task and task.id in found for task in listed)

    @given(task_lists)
    def test_the_splits_divide_the_set_in_order(self, listed: list[Task]) -> None:
        found = TaskSet(listed)
        assert list(found.splits) == list(dict.fromkeys(task.split for task in listed))
        assert sorted(t.id for split in found.splits for t in found.split(split)) == sorted(
            t.id for t in listed
        )
        for split in found.splits:
            assert list(found.split(split)) == [task for task in listed if task.split == split]

    @given(task_lists)
    def test_the_hash_is_a_function_of_content(self, listed: list[Task]) -> None:
        assert TaskSet(listed).sha256 == TaskSet(list(listed)).sha256
        copies = [
            Task(id=t.id, inputs=json.loads(json.dumps(dict(t.inputs))), secret=dict(t.secret))
            for t in listed
        ]
        assert TaskSet(copies).sha256 == TaskSet(listed).sha256

    @given(task_lists, st.data())
    def test_the_hash_sees_every_change(self, listed: list[Task], data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(listed) - 1))
        task = listed[index]
        part = data.draw(st.sampled_from(["inputs", "secret", "id"]))
        change: dict[str, Any] = {"id": task.id, "inputs": dict(task.inputs), "secret": dict(task.secret)}
        if part == "id":
            change["id"] += "\u2603" * 9
        else:
            change[part] = {**change[part], "\u2603" * 13: 1}
        changed = [*listed[:index], Task(**change), *listed[index + 1 :]]
        assert TaskSet(changed).sha256 != TaskSet(listed).sha256

    @given(st.lists(tasks, min_size=2, max_size=4, unique_by=lambda task: task.id))
    def test_the_hash_sees_the_order(self, listed: list[Task]) -> None:
        assert TaskSet(listed).sha256 != TaskSet(listed[::-1]).sha256

    def test_the_hash_tells_inputs_from_secrets(self) -> None:
        assert (
            TaskSet([Task(id="a/b", inputs={"x": 1})]).sha256
            != TaskSet([Task(id="a/b", secret={"x": 1})]).sha256
        )

    def test_a_hash_is_fixed_for_ever(self) -> None:
        """Records hold it, so another way of hashing would make old records incomparable."""
        row = b'{"id":"a/b","inputs":{"x":[1,"\\u00e9"]},"secret":{}}\n'
        import hashlib

        assert (
            TaskSet([Task(id="a/b", inputs={"x": [1, "\u00e9"]})]).sha256 == hashlib.sha256(row).hexdigest()
        )

    def test_an_empty_set_and_a_repeated_id_are_refused(self) -> None:
        with pytest.raises(ValueError, match="a task set needs at least one task"):
            TaskSet([])
        with pytest.raises(ValueError, match="task id 'a/b' appears twice"):
            TaskSet([Task(id="a/b"), Task(id="a/b")])

    def test_an_unknown_task_or_split_is_named_with_what_exists(self) -> None:
        found = TaskSet([Task(id="a/1"), Task(id="b/1")])
        with pytest.raises(UnknownTaskError, match="there is no split 'c'; the splits are a, b"):
            found.split("c")
        with pytest.raises(
            UnknownTaskError, match=r"there is no task 'c/1'; this set holds 2 tasks, the first is 'a/1'"
        ):
            found.get("c/1")
        for odd in (None, 7, ["a/1"], "x" * 10_000):
            with pytest.raises(UnknownTaskError) as caught:
                found.get(odd)  # type: ignore[arg-type]
            assert len(str(caught.value)) < 300


class TestJsonl:
    def write(self, folder: Path, text: str | bytes) -> Path:
        path = folder / "tasks.jsonl"
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
        return path

    def refused(self, path: Path, reason: str, line: int | None) -> None:
        with pytest.raises(TaskLoadError) as caught:
            TaskSet.from_jsonl(path)
        error = caught.value
        assert (error.path, error.line) == (path, line)
        assert reason in error.reason
        assert str(error) == f"{path}{'' if line is None else f', line {line}'}: {error.reason}"
        assert "\n" not in str(error)

    @given(listed=task_lists)
    def test_rows_are_read_as_they_were_written(
        self, tmp_path_factory: pytest.TempPathFactory, listed: list[Task]
    ) -> None:
        rows = [{"id": t.id, "inputs": dict(t.inputs), "secret": dict(t.secret)} for t in listed]
        path = self.write(tmp_path_factory.mktemp("rows"), "".join(json.dumps(row) + "\n" for row in rows))
        assert list(TaskSet.from_jsonl(path)) == listed

    @pytest.mark.parametrize(
        "text", ['{"id": "a/1"}', '\n\n{"id": "a/1"}\r\n  \n', '{"id": "a/1", "inputs": {}}\n']
    )
    def test_blank_lines_line_ends_and_absent_halves_do_not_matter(self, tmp_path: Path, text: str) -> None:
        assert list(TaskSet.from_jsonl(self.write(tmp_path, text))) == [Task(id="a/1")]

    def test_line_breaks_of_other_alphabets_do_not_end_a_row(self, tmp_path: Path) -> None:
        text = '{"id": "a/1", "inputs": {"x": "one\u2028two\u0085three"}}\n'
        assert TaskSet.from_jsonl(self.write(tmp_path, text)).get("a/1").inputs == {
            "x": "one\u2028two\u0085three"
        }

    @pytest.mark.parametrize(
        ("row", "reason"),
        [
            ("{", "is not JSON"),
            ("id: a/1", "is not JSON"),
            ('{"id": "a/2"} x', "is not JSON"),
            ("[" * 100_000, "is not JSON"),
            ('{"id": "a/2", "inputs": {"n": ' + "1" * 5000 + "}}", "is not JSON"),
            ('{"id": "a/2", "inputs": {"n": NaN}}', "is not JSON"),
            ('{"id": "a/2", "inputs": {"n": -Infinity}}', "is not JSON"),
            ('{"id": "a/2", "inputs": {"n": 1e999}}', "is not JSON"),
            ('{"id": "a/2", "id": "a/3"}', 'the key "id" appears twice'),
            ("[]", "must be an object"),
            ('"a/2"', "must be an object"),
            ("7", "must be an object"),
            ("null", "must be an object"),
            ("true", "must be an object"),
            ("{}", "needs a text 'id'"),
            ('{"id": 7}', "needs a text 'id'"),
            ('{"id": null}', "needs a text 'id'"),
            ('{"id": "two"}', "task id 'two' is not of the form 'split/name'"),
            ('{"id": ""}', "task id '' is not of the form 'split/name'"),
            ('{"id": "a/2", "input": {}}', "has unknown keys input"),
            ('{"id": "a/2", "z": 1, "answer": 2}', "has unknown keys answer, z"),
            ('{"id": "a/2", "inputs": []}', "'inputs' must be an object"),
            ('{"id": "a/2", "inputs": null}', "'inputs' must be an object"),
            ('{"id": "a/2", "secret": "x"}', "'secret' must be an object"),
            ('{"id": "a/1"}', "id 'a/1' was already used in line 1"),
        ],
    )
    def test_a_bad_row_is_reported_with_file_line_and_reason(
        self, tmp_path: Path, row: str, reason: str
    ) -> None:
        self.refused(self.write(tmp_path, f'{{"id": "a/1"}}\n\n{row}\n'), reason, 3)

    @pytest.mark.parametrize("text", ["", "\n", "  \n\n"])
    def test_a_file_without_a_task_is_refused(self, tmp_path: Path, text: str) -> None:
        self.refused(self.write(tmp_path, text), "holds no task", None)

    def test_a_file_that_cannot_be_read_is_refused(self, tmp_path: Path) -> None:
        self.refused(tmp_path / "absent.jsonl", "cannot be read", None)
        self.refused(tmp_path, "cannot be read", None)
        self.refused(self.write(tmp_path, b'{"id": "a/\xff"}'), "cannot be read", None)

    def test_a_byte_order_mark_is_named(self, tmp_path: Path) -> None:
        self.refused(self.write(tmp_path, b'\xef\xbb\xbf{"id": "a/1"}'), "byte order mark", 1)

    def test_an_error_shows_nothing_of_the_row(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, '{"id": "a/1", "secret": {"answer": "canary"}, "x": 1}\n')
        with pytest.raises(TaskLoadError) as caught:
            TaskSet.from_jsonl(path)
        assert "canary" not in str(caught.value)


class TestBundles:
    def bundle(self, folder: Path, name: str = "train/one", **files: str | bytes | None) -> Path:
        bundle = folder / name
        contents: dict[str, str | bytes | None] = {
            "task_yaml": "title: One\nlimit: 3\n",
            "weights_json": '{"test_a": 2, "test_b": 0.5}',
            **files,
        }
        for part in ("data", "tests"):
            (bundle / part).mkdir(parents=True)
        (bundle / "tests" / "test_a.py").write_text("assert True\n")
        for key, content in contents.items():
            if content is not None:
                path = bundle / key.replace("_", ".")
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return bundle

    def refused(self, folder: Path, path: Path, reason: str, line: int | None = None) -> None:
        with pytest.raises(TaskLoadError) as caught:
            TaskSet.from_bundles(folder)
        assert (caught.value.path, caught.value.line) == (path, line)
        assert reason in caught.value.reason
        assert "\n" not in str(caught.value)

    def test_a_bundle_becomes_a_task(self, tmp_path: Path) -> None:
        bundle = self.bundle(tmp_path)
        task = TaskSet.from_bundles(tmp_path).get("train/one")
        assert task.inputs == {"title": "One", "limit": 3}
        assert task.secret == {"weights": {"test_a": 2, "test_b": 0.5}}
        assert task.folder == bundle

    def test_bundles_come_in_the_order_of_their_names(self, tmp_path: Path) -> None:
        for name in ("validation/a", "train/b", "train/a"):
            self.bundle(tmp_path, name)
        found = TaskSet.from_bundles(tmp_path)
        assert [task.id for task in found] == ["train/a", "train/b", "validation/a"]
        assert found.splits == ("train", "validation")

    def test_files_beside_the_bundles_and_hidden_folders_do_not_matter(self, tmp_path: Path) -> None:
        self.bundle(tmp_path)
        (tmp_path / "README.md").write_text("x")
        (tmp_path / "train" / "notes.txt").write_text("x")
        (tmp_path / ".git" / "hooks").mkdir(parents=True)
        (tmp_path / "train" / "__pycache__").mkdir()
        assert [task.id for task in TaskSet.from_bundles(tmp_path)] == ["train/one"]

    def test_the_hash_sees_the_files_of_a_bundle_but_not_where_it_lies(self, tmp_path: Path) -> None:
        self.bundle(tmp_path / "here")
        self.bundle(tmp_path / "there")
        here, there = (TaskSet.from_bundles(tmp_path / name).sha256 for name in ("here", "there"))
        assert here == there
        tests = tmp_path / "there" / "train" / "one" / "tests"
        (tests / "__pycache__").mkdir()
        (tests / "__pycache__" / "test_a.pyc").write_bytes(b"compiled")
        assert TaskSet.from_bundles(tmp_path / "there").sha256 == here
        (tests / "test_a.py").write_text("assert False\n")
        assert TaskSet.from_bundles(tmp_path / "there").sha256 != here

    @pytest.mark.parametrize("part", ["data", "tests"])
    def test_a_missing_folder_is_named(self, tmp_path: Path, part: str) -> None:
        bundle = self.bundle(tmp_path)
        for file in (bundle / part).iterdir():
            file.unlink()
        (bundle / part).rmdir()
        self.refused(tmp_path, bundle / part, "is missing from the bundle")

    def test_missing_files_are_named(self, tmp_path: Path) -> None:
        first = self.bundle(tmp_path / "a", weights_json=None)
        self.refused(tmp_path / "a", first / "weights.json", "is missing from the bundle")
        second = self.bundle(tmp_path / "b", task_yaml=None)
        self.refused(tmp_path / "b", second / "task.yaml", "is missing from the bundle")

    @pytest.mark.parametrize(
        ("text", "reason", "line"),
        [
            ("title: One\nlimit: [1,\n", "is not YAML", 3),
            ("title: 'One\n", "is not YAML", 2),
            ("a: 1\n\tb: 2\n", "is not YAML", 2),
            ("a: !!python/object:os.system x\n", "is not YAML", 1),
            ("a: \x00\n", "is not YAML", None),
            ("[" * 1200, "is not YAML", None),
            ("", "must be a mapping with text keys", None),
            ("- a\n- b\n", "must be a mapping with text keys", None),
            ("just text\n", "must be a mapping with text keys", None),
            ("1: one\n", "must be a mapping with text keys", None),
            ("when: 2024-01-01\n", "holds a value that JSON cannot carry", None),
            ("x: .nan\n", "holds a value that JSON cannot carry", None),
            ("x: .inf\n", "holds a value that JSON cannot carry", None),
            ("x: !!binary aGk=\n", "holds a value that JSON cannot carry", None),
            ("x: &x\n  y: *x\n", "holds a value that JSON cannot carry", None),
            (b"a: \xff\n", "cannot be read", None),
        ],
    )  # fmt: skip
    def test_a_bad_description_is_reported(
        self, tmp_path: Path, text: str | bytes, reason: str, line: int | None
    ) -> None:
        bundle = self.bundle(tmp_path, task_yaml=text)
        self.refused(tmp_path, bundle / "task.yaml", reason, line)

    @pytest.mark.parametrize(
        ("text", "reason", "line"),
        [
            ('{\n"a": 1,\n}', "is not JSON: a comma stands before } at column 1", 3),
            ("", "is not JSON", 1),
            ("[" * 100_000, "is not JSON", 1),
            ('{"a": ' + "1" * 5000 + "}", "is not JSON", 1),
            ('{"a": NaN}', "is not JSON", 1),
            ('{"a": 1, "a": 2}', 'the key "a" appears twice', 1),
            ("{}", "must map at least one test to its weight", None),
            ("[1]", "must map at least one test to its weight", None),
            ("null", "must map at least one test to its weight", None),
            ('{"a": 0}', "the weight of 'a' must be a positive number of at most 1,000,000", None),
            ('{"a": -1}', "the weight of 'a' must be a positive number of at most 1,000,000", None),
            ('{"a": true}', "the weight of 'a' must be a positive number of at most 1,000,000", None),
            ('{"a": "1"}', "the weight of 'a' must be a positive number of at most 1,000,000", None),
            ('{"a": null}', "the weight of 'a' must be a positive number of at most 1,000,000", None),
            (b'{"\xff": 1}', "cannot be read", None),
        ],
    )
    def test_bad_weights_are_reported(
        self, tmp_path: Path, text: str | bytes, reason: str, line: int | None
    ) -> None:
        bundle = self.bundle(tmp_path, weights_json=text)
        self.refused(tmp_path, bundle / "weights.json", reason, line)

    def test_a_folder_without_bundles_is_refused(self, tmp_path: Path) -> None:
        self.refused(tmp_path / "absent", tmp_path / "absent", "is not a folder")
        self.refused(tmp_path, tmp_path, "holds no bundle; expected <split>/<name>/task.yaml")

    def test_the_secret_of_a_bundle_is_not_printed(self, tmp_path: Path) -> None:
        self.bundle(tmp_path)
        assert "test_a" not in repr(TaskSet.from_bundles(tmp_path).get("train/one"))


def test_loaded_values_are_json(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    value: dict[str, JSON] = {"a": [1, 2.5, None, True, {"b": "\ud83d\ude00"}]}
    path.write_text(json.dumps({"id": "a/1", "inputs": value}))
    assert TaskSet.from_jsonl(path).get("a/1").inputs == json.loads(json.dumps(value))


@pytest.mark.parametrize(
    ("splits", "training", "evaluation"),
    [
        (["test", "train", "validation"], "train", "validation"),
        (["test", "train"], "train", "test"),
        (["easy", "hard", "train"], "train", "easy"),
        (["easy", "hard"], "easy", "hard"),
        (["only"], "only", "only"),
    ],
)
def test_nobody_trains_on_what_others_are_judged_by_for_want_of_a_name(
    splits: list[str], training: str, evaluation: str
) -> None:
    tasks = TaskSet(Task(id=f"{split}/0") for split in splits)
    assert (tasks.training_split, tasks.evaluation_split) == (training, evaluation)
