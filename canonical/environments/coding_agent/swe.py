"""Rows of the SWE-bench kind as coding tasks: a repository at a commit, an issue, and tests that must pass afterwards."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from canonical.bundle import Bundle
from canonical.environments.coding_agent.environment import CodingAgent
from canonical.grading.grade import HiddenTest, Report
from canonical.grading.repository import grade_repository
from canonical.sandbox.protocol import Backend, Snapshot
from canonical.strict_json import InvalidJSONError, read_json
from canonical.task import Task, TaskLoadError, TaskSet

_TEXTS = ("instance_id", "repo", "base_commit", "problem_statement", "patch", "test_patch")
_LISTS = ("FAIL_TO_PASS", "PASS_TO_PASS")


class RepositoryAgent(CodingAgent):
    """Resolve issues in repositories; a subclass says where the rows and the repositories lie.

    The return is 1.0 when every test of FAIL_TO_PASS and PASS_TO_PASS passes, and 0.0 otherwise. A row that names
    `owner/name` needs a git repository `owner__name` in the folder of repositories. What the tests of a repository import
    must be there in the sandbox; pytest itself is copied in from the extra `swe`.

    Attributes:
        rows: A JSON Lines file of rows.
        repositories: The folder of git repositories.
        split: The split that the tasks are in.
    """

    name = "repositories"
    version = "1"
    rows: ClassVar[Path | None] = None
    repositories: ClassVar[Path | None] = None
    split: ClassVar[str] = "test"

    def tasks(self) -> TaskSet:
        """Return one task per row.

        Raises:
            TaskLoadError: The file cannot be read, or a row lacks something; the error names line and reason.
        """
        if self.rows is None or self.repositories is None:
            raise TaskLoadError(Path("rows"), "is not set; a subclass names the rows and the repositories")
        return _read_rows(self.rows, self.split)

    def read_bundle(self, task: Task) -> Bundle:
        """Return a task as the repository at its base commit, with what the test patch leaves as hidden files."""
        secret: Any = task.secret
        inputs: Any = task.inputs
        folder = (self.repositories or Path()) / inputs["repo"].replace("/", "__")
        base = _files_at(folder, inputs["base_commit"])
        required = list(dict.fromkeys([*secret["FAIL_TO_PASS"], *secret["PASS_TO_PASS"]]))
        # A test file that the patch removes holds no test that is required.
        tests, _ = _patched(folder, base, secret["test_patch"])
        oracle, removed = _patched(folder, base, secret["patch"])
        return Bundle(
            prompt=inputs["problem_statement"],
            kind="repository",
            solution=("**",),
            given=base,
            tests=tests,
            names=tuple(HiddenTest(name, name.partition("::")[0], 1.0) for name in required),
            oracle=oracle,
            removed=removed,
            test_s=600.0,
        )

    async def grade(self, backend: Backend, bundle: Bundle, workspace: Snapshot) -> Report:
        """Run the required tests with pytest, over pristine tests with the test patch."""
        return await grade_repository(
            backend,
            workspace,
            bundle.given,
            bundle.tests,
            [test.name for test in bundle.names],
            limits=bundle.limits,
            run_s=bundle.test_s,
        )


@cache
def _read_rows(path: Path, split: str) -> TaskSet:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskLoadError(path, f"cannot be read: {error}") from error
    tasks = [_task(path, number, line, split) for number, line in enumerate(lines, start=1) if line.strip()]
    try:
        return TaskSet(tasks)
    except ValueError as error:
        raise TaskLoadError(path, str(error)) from error


def _task(path: Path, number: int, line: str, split: str) -> Task:
    try:
        row: Any = read_json(line)
    except InvalidJSONError as error:
        raise TaskLoadError(path, f"is not JSON: {error.reason}", number) from None
    if not isinstance(row, dict):
        raise TaskLoadError(path, "must be an object", number)
    for key in _TEXTS:
        if not isinstance(row.get(key), str) or not row[key].strip():
            raise TaskLoadError(path, f"needs a text {key!r}", number)
    if not re.fullmatch(r"[0-9a-fA-F]{7,64}", row["base_commit"]):
        raise TaskLoadError(path, "'base_commit' is not the hash of a commit", number)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", row["repo"]) or ".." in row["repo"]:
        raise TaskLoadError(path, "'repo' is not of the form 'owner/name'", number)
    secret = {key: row[key] for key in ("patch", "test_patch")}
    secret |= {key: _ids(path, number, key, row.get(key)) for key in _LISTS}
    if not secret["FAIL_TO_PASS"]:
        raise TaskLoadError(path, "FAIL_TO_PASS names no test", number)
    inputs = {key: row[key] for key in ("repo", "base_commit", "problem_statement")}
    return Task(id=f"{split}/{row['instance_id']}", inputs=inputs, secret=secret)


def _ids(path: Path, number: int, key: str, value: Any) -> list[str]:
    """Return a list of node ids, which published rows hold as a list or as a text of JSON."""
    if isinstance(value, str):
        try:
            value = read_json(value)
        except InvalidJSONError:
            value = None
    if not isinstance(value, list) or not all(isinstance(one, str) and "::" in one for one in value):
        raise TaskLoadError(path, f"{key!r} must be a list of node ids of pytest", number)
    return value


def _git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], input=stdin, capture_output=True, check=False, timeout=300
    )
    if done.returncode != 0:
        reason = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise TaskLoadError(folder, f"git {arguments[0]} failed: {reason[-1] if reason else done.returncode}")
    return done.stdout


def _files_at(folder: Path, commit: str) -> Snapshot:
    if not folder.is_dir():
        raise TaskLoadError(folder, "is missing; it must be a git repository")
    files: dict[str, bytes] = {}
    executable = set()
    with tarfile.open(fileobj=io.BytesIO(_git(folder, "archive", "--format=tar", commit))) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None:
                files[member.name] = content.read()
                if member.mode & 0o100:
                    executable.add(member.name)
    return Snapshot(files, frozenset(executable))


_NAMES = re.compile(r"^diff --git a/(.+) b/(.+)$", re.MULTILINE)


def _patched(folder: Path, base: Snapshot, patch: str) -> tuple[Snapshot, tuple[str, ...]]:
    """Return the files that a patch makes or changes, and the names of those that it removes."""
    names = sorted({name for pair in _NAMES.findall(patch) for name in pair})
    if not names:
        raise TaskLoadError(folder, "a patch names no file; it must begin with 'diff --git'")
    if any(name.startswith("/") or ".." in name.split("/") for name in names):
        raise TaskLoadError(folder, "a patch names a file outside the repository")
    with TemporaryDirectory() as scratch:
        root = Path(scratch)
        for name in names:
            if name in base.files:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes(base.files[name])
        # A repository of its own, so that git does not take a folder above for the one to patch.
        _git(root, "init", "--quiet")
        _git(root, "apply", "--whitespace=nowarn", "-", stdin=patch.encode("utf-8", "surrogateescape"))
        after = {name: (root / name).read_bytes() for name in names if (root / name).is_file()}
    executable = frozenset(name for name in after if name in base.executable)
    return Snapshot(after, executable), tuple(name for name in names if name not in after)
