"""Grading of repositories: required tests under pytest, in a sandbox with pristine tests, twice.

Here the tests import the solution into their own process, as repositories' tests do, so a solution that sets out to forge
results can. What is done about it: the tests and everything that configures pytest are those of the base commit with the
test patch; the results must name every required test; the files of the tests must be unchanged afterwards; and the same
tests run a second time as twins that fail whatever the solution does, so that results which do not depend on the tests are
found out. What remains: a solution that reads the tests' own code at run time and tells a test from its twin. Tests that
start the program under test as a process of its own leave less to forge.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, distribution

from canonical.grading.grade import GradingError, Report, Verdict, one_of_few
from canonical.grading.submission import submission
from canonical.sandbox.program import python_program
from canonical.sandbox.protocol import (
    Backend,
    CommandFailedError,
    CommandTimeoutError,
    LimitError,
    Limits,
    SandboxError,
    SandboxGoneError,
    Snapshot,
)

PACKAGES = ".grading-packages"
_NEEDED = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
_CONFIGURING = frozenset({"pyproject.toml", "setup.py"})
_TEST_FOLDERS = frozenset({"test", "tests", "testing"})
_REPORTER = python_program(("canonical.grading.reporter",), with_packages=True)
_RESULT_BYTES = 4 << 20


def is_test_file(path: str) -> bool:
    """Return whether a file belongs to the tests of a repository, so that the agent's version of it is not graded."""
    *folders, name = path.split("/")
    return (
        bool(_TEST_FOLDERS.intersection(folders))
        or name in _CONFIGURING
        or (name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py")))
    )


async def grade_repository(
    backend: Backend,
    workspace: Snapshot,
    base: Snapshot,
    tests: Snapshot,
    required: Sequence[str],
    *,
    limits: Limits,
    run_s: float,
) -> Report:
    """Run the required tests of a repository on an agent's workspace. All of them must pass.

    Args:
        backend: Makes the sandboxes.
        workspace: The repository as the agent left it.
        base: The repository as the agent found it.
        tests: The files that the test patch leaves, laid over everything.
        required: The node ids of the tests.
        limits: What the sandboxes may use.
        run_s: Wall-clock seconds for one run of all tests.

    Raises:
        SubmissionError: The solution is too large to be graded.
        GradingError: Grading itself failed.
    """
    kept = Snapshot(
        {path: data for path, data in workspace.files.items() if not is_test_file(path)}, workspace.executable
    )
    fixed = {path: data for path, data in base.files.items() if is_test_file(path)}
    carried = submission(kept, base, ("**",))
    pristine = {**fixed, **tests.files}
    graded = Snapshot({**carried.files, **pristine}, carried.executable)
    twins, twinned = _twins(pristine, required)
    packages = pytest_files()
    async with one_of_few():
        passed, reason = await _run(backend, graded, packages, pristine, required, limits, run_s)
        if passed.issuperset(required):
            again = Snapshot({**graded.files, **twins}, graded.executable)
            forged, _ = await _run(
                backend, again, packages, {**pristine, **twins}, sorted(twinned), limits, run_s
            )
            if forged:
                passed, reason = set(), "the result does not depend on the test"
    return Report(
        tuple(Verdict(name, 1.0, name in passed, "" if name in passed else reason) for name in required),
        is_all_or_nothing=True,
    )


def pytest_files() -> Snapshot:
    """Return the installed pytest with what it imports, to be copied into a sandbox.

    Raises:
        GradingError: It is not installed.
    """
    files: dict[str, bytes] = {}
    for name in _NEEDED:
        try:
            found = distribution(name)
        except PackageNotFoundError:
            raise GradingError(
                f"{name} is not installed; grading repositories needs the extra `swe`"
            ) from None
        for path in found.files or ():
            # Some ask for their own version, which stands there; entry points would make pytest load plugins.
            if (path.suffix == ".py" or path.name == "METADATA") and ".." not in path.parts:
                files[f"{PACKAGES}/{path.as_posix()}"] = path.locate().read_bytes()  # type: ignore[attr-defined]
    return Snapshot(files)


async def _run(  # noqa: PLR0917 - what two runs differ in stands in one line each
    backend: Backend,
    graded: Snapshot,
    packages: Snapshot,
    pristine: dict[str, bytes],
    ids: Sequence[str],
    limits: Limits,
    run_s: float,
) -> tuple[set[str], str]:
    """Return which tests passed, and why others did not."""
    if not ids:
        return set(), "no test was named"
    try:
        sandbox = await backend.open(
            Snapshot({**graded.files, **packages.files}, graded.executable),
            limits=replace(limits, output_bytes=2 * _RESULT_BYTES),
        )
    except LimitError:
        return set(), "the files do not fit into a sandbox"
    except SandboxError as error:
        raise GradingError(f"no sandbox to grade in: {error}") from error
    try:
        request = json.dumps({"packages": PACKAGES, "ids": list(ids)}).encode()
        done = await sandbox.exec(_REPORTER, timeout_s=run_s, stdin=request, env={"PYTHONHASHSEED": "0"})
        left = await sandbox.snapshot()
    except CommandTimeoutError:
        return set(), f"the tests did not end within {run_s:g} s"
    except CommandFailedError as error:
        raise GradingError(f"the sandbox cannot run the tests: {error}") from error
    except (LimitError, SandboxGoneError) as error:
        return set(), f"the tests could not run to their end: {error}"
    finally:
        with suppress(SandboxError):
            await sandbox.close()
    if any(left.files.get(path) != data for path, data in pristine.items()):
        return set(), "the files of the tests were changed while they ran"
    try:
        outcomes = json.loads(done.stdout)
        return {name for name in ids if outcomes.get(name) is True}, "it did not pass"
    except (ValueError, AttributeError, RecursionError):
        return set(), f"pytest ended with exit code {done.exit_code} and no results"


def _twins(pristine: dict[str, bytes], required: Sequence[str]) -> tuple[dict[str, bytes], set[str]]:
    """Return the test files with functions that always fail, and the node ids of which the function was found."""
    by_file: dict[str, set[str]] = {}
    for name in required:
        by_file.setdefault(name.partition("::")[0], set()).add(name)
    files: dict[str, bytes] = {}
    twinned: set[str] = set()
    for path, names in by_file.items():
        if path not in pristine:
            continue
        try:
            tree = ast.parse(pristine[path])
        except (SyntaxError, ValueError):
            continue
        wanted = {name.split("[")[0].rpartition("::")[2] for name in names}
        found = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in wanted:
                found.add(node.name)
                failure = ast.parse("raise AssertionError").body
                # Whatever the body does, also when it returns early or skips.
                node.body = [ast.Try(body=node.body, handlers=[], orelse=[], finalbody=failure)]
        files[path] = ast.unparse(ast.fix_missing_locations(tree)).encode()
        twinned |= {name for name in names if name.split("[")[0].rpartition("::")[2] in found}
    return files, twinned
