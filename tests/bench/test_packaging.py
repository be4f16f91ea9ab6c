"""An environment becomes a package of each framework: complete, alone, and the same every time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from bench.porting.packaging import PackageError, packaged_frameworks, write_package
from bench.porting.records import PackageRecord
from bench.stacks import ROOT, UnknownStackError, adapter_names
from canonical.catalogue import load_environment
from canonical.stone import PieceName

EXAMPLE = str(ROOT / "docs" / "examples" / "higher_lower.py")
FRAMEWORKS = packaged_frameworks()
OWN = re.compile(
    r"^\s*(?:from|import)\s+(?:canonical|adapters|libraries|bench|reports|rosetta)\b", re.MULTILINE
)


def slow_but(*everyday):
    return [pytest.param(one, marks=[] if one in everyday else pytest.mark.slow) for one in FRAMEWORKS]


@pytest.fixture(scope="module", params=slow_but("gem", "nemo_gym"))
def written(request, tmp_path_factory):
    return write_package(EXAMPLE, request.param, tmp_path_factory.mktemp("packages") / "out")


def modules(written):
    return [written.folder / name for name in written.files if name.endswith(".py")]


def test_every_framework_has_a_package():
    assert adapter_names() == FRAMEWORKS


def test_no_file_imports_this_project_and_every_one_compiles(written):
    assert len(modules(written)) > 15
    for path in modules(written):
        text = path.read_text(encoding="utf-8")
        assert OWN.search(text) is None, path
        compile(text, path, "exec", dont_inherit=True)


@pytest.mark.parametrize(
    "framework",
    [pytest.param(one, marks=[] if one == "nemo_gym" else pytest.mark.slow) for one in FRAMEWORKS],
)
def test_two_packages_of_one_environment_are_equal_byte_for_byte(framework, tmp_path):
    """The other is written by another process, in which texts have other hashes, and to another place."""
    first = write_package(EXAMPLE, framework, tmp_path / "out")
    script = (
        "import sys; from pathlib import Path; from bench.porting.packaging import write_package\n"
        "print(write_package(sys.argv[1], sys.argv[2], Path(sys.argv[3])).sha256)"
    )
    other = tmp_path / "elsewhere" / "deep"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, EXAMPLE, framework, other],
        env={**os.environ, "PYTHONHASHSEED": "4711"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == first.sha256
    found = sorted(path.relative_to(other).as_posix() for path in other.rglob("*") if path.is_file())
    assert found == list(first.files)
    assert [name for name in found if (other / name).read_bytes() != (first.folder / name).read_bytes()] == []


def test_what_is_written_is_what_is_said_and_holds_what_every_package_has(written):
    found = sorted(p.relative_to(written.folder).as_posix() for p in written.folder.rglob("*") if p.is_file())
    assert found == list(written.files)
    assert {"LICENSE", "NOTICE", "README.md", "constraints.txt", "pyproject.toml"} <= set(found)


def test_it_requires_its_framework_and_no_version_that_is_not_pinned(written):
    project = tomllib.loads((written.folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == written.distribution
    pins = (written.folder / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {re.sub("[-_.]+", "-", pin.partition("==")[0]).lower() for pin in pins if "==" in pin}
    names = {re.sub("[-_.]+", "-", Requirement(line).name).lower() for line in project["dependencies"]}
    assert written.release.rpartition("-")[0] in names
    assert names <= pinned


def test_the_readme_names_splits_and_tools_and_the_ledger_every_piece(written):
    text = (written.folder / "README.md").read_text(encoding="utf-8")
    environment = load_environment(EXAMPLE)
    words = [
        *(f"| `{split}` |" for split in environment.tasks().splits),
        *(f"`{tool.name}(" for tool in environment.tools),
        *(
            f"- {loss.piece}, {loss.status}: {loss.note}"
            for loss in written.ledger
            if loss.status != "preserved"
        ),
    ]
    assert [word for word in words if word not in text] == []
    page = (written.folder / "PORT.md").read_text(encoding="utf-8")
    assert [piece for piece in PieceName if f"| {piece} | " not in page] == []
    record = PackageRecord.model_validate_json((written.folder / "loss.json").read_text(encoding="utf-8"))
    assert [entry.loss() for entry in record.ledger] == list(written.ledger)
    for path in re.findall(r"^\| `([^`*<>]+)`", text, re.MULTILINE):
        assert (written.folder / path).exists() or path in environment.tasks().splits, path


def test_the_catalogue_of_a_package_has_its_environment_and_says_so_of_others(written):
    base = next(path.parent.parent for path in modules(written) if path.parent.name == written.module)
    script = (
        "import sys, types; sys.path.insert(0, sys.argv[1]); m = sys.argv[2]\n"
        "sys.modules[m] = types.ModuleType(m); sys.modules[m].__path__ = [sys.argv[1] + '/' + m]\n"
        "from importlib import import_module\n"
        "c = import_module(m + '._rosetta.canonical.catalogue')\n"
        "print(c.load_environment('higher_lower').name)\n"
        "c.load_environment('another')"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-B", "-c", script, base, written.module], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.stdout == "higher_lower\n"
    assert done.stderr.strip().endswith(
        "UnknownEnvironmentError: there is no environment 'another' here; there is higher_lower"
    )


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_data_of_an_environment_goes_along_and_golden_episodes_stay(framework, tmp_path):
    written = write_package("wordle", framework, tmp_path / "out")
    own = [
        name.partition("/environments/wordle/")[2]
        for name in written.files
        if "/environments/wordle/" in name
    ]
    assert {"environment.py", "words/answers.txt", "words/allowed.txt", "words/LICENSE"} <= set(own)
    assert not [name for name in written.files if "golden" in name or "coding_agent" in name]
    source = ROOT / "canonical" / "environments" / "wordle"
    for name in own:
        if name.startswith("words/"):
            (place,) = written.folder.rglob(f"environments/wordle/{name}")
            assert place.read_bytes() == (source / name).read_bytes()


def test_a_folder_may_be_named_from_where_one_stands(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for out in ("out", "deep/out", "../beside"):
        written = write_package("wordle", FRAMEWORKS[0], Path(out))
        assert (tmp_path / "here" / out / "README.md").is_file()
        assert written.folder == Path(out)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(PackageError, match=r"file/out cannot be written: [A-Z].+; nothing is left of it"):
        write_package(EXAMPLE, FRAMEWORKS[0], tmp_path / "file" / "out")


@pytest.mark.parametrize("name", ["server.py", "sub/kept.txt"])
def test_a_folder_that_holds_something_is_refused_and_stays_as_it_is(tmp_path, name):
    kept = tmp_path / "out" / name
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    with pytest.raises(PackageError, match="is not empty; nothing was written"):
        write_package(EXAMPLE, FRAMEWORKS[0], tmp_path / "out")
    assert [p for p in (tmp_path / "out").rglob("*") if p.is_file()] == [kept]
    assert kept.read_text() == "mine"


def test_an_empty_folder_is_taken_and_a_file_is_not(tmp_path):
    (tmp_path / "empty").mkdir()
    assert write_package(EXAMPLE, FRAMEWORKS[0], tmp_path / "empty").files
    (tmp_path / "file").write_text("mine")
    with pytest.raises(PackageError, match="is not a folder"):
        write_package(EXAMPLE, FRAMEWORKS[0], tmp_path / "file")


def changed(tmp_path, old, new):
    text = Path(EXAMPLE).read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "own.py"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return str(path)


BEGIN = "from canonical.environment import Environment\n"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"higher_lower"', '"Higher-Lower"', "needs a name of a-z"),
        (BEGIN, f"{BEGIN}import canonical.step\n", "`import canonical.step` cannot be moved"),
        (BEGIN, f"{BEGIN}import bench.plan\n", "imports bench, which measures and shows"),
        (
            BEGIN,
            f"{BEGIN}from pathlib import Path\nHERE = Path(__file__).with_name('words.txt').read_text()\n",
            "does not load by itself: FileNotFoundError",
        ),
    ],
)
def test_what_cannot_become_a_package_is_said_and_nothing_is_left_behind(tmp_path, old, new, said):
    (tmp_path / "words.txt").write_text("words")
    source = changed(tmp_path, old, new)
    with pytest.raises(PackageError, match=re.escape(said)):
        write_package(source, FRAMEWORKS[0], tmp_path / "made" / "out")
    assert not (tmp_path / "made" / "out").exists()
    assert list((tmp_path / "made").glob(".*")) == []


def test_a_folder_of_an_environment_goes_along_with_its_data(tmp_path):
    folder = tmp_path / "own"
    (folder / "data" / "golden").mkdir(parents=True)
    for name in ("numbers.txt", "data/more.txt", "data/golden/left.txt", ".hidden", "attacks.py"):
        (folder / name).write_text("7")
    text = Path(changed(tmp_path, BEGIN, f"{BEGIN}from pathlib import Path\n")).read_text(encoding="utf-8")
    reading = "int((Path(__file__).parent / 'numbers.txt').read_text())"
    (folder / "environment.py").write_text(text.replace("n * 37", f"n * {reading}"), encoding="utf-8")
    written = write_package(str(folder), FRAMEWORKS[0], tmp_path / "out")
    inside = {name.partition("/environments/higher_lower/")[2] for name in written.files} - {""}
    assert inside == {"__init__.py", "environment.py", "numbers.txt", "data/more.txt"}


def test_an_unknown_framework_is_named_beside_those_that_there_are(tmp_path):
    with pytest.raises(UnknownStackError, match="there is no framework 'none'"):
        write_package(EXAMPLE, "none", tmp_path / "out")
