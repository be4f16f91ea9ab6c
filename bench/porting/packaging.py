"""Write an environment as a package of a framework that installs and runs without this project.

What a framework wants of a package stands in `adapters/<name>/package/`: a tree of Jinja templates, whose Python files import
the adapter and `canonical` as any code of this project does. What these files need is taken along under the package's own
name, found by reading what imports what, and every import is rewritten to its new home.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

import jinja2
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from bench.porting.ledger import compose_ledger, concerned, target_losses
from bench.porting.records import LOSS_FILE, LossEntry, PackageRecord
from bench.porting.vendoring import Closure, Module, VendoringError, close_over, modules_below, rewritten
from bench.stacks import ROOT, Stack, adapters_folder, find_stack
from canonical.adapter import Feature, Level, Loss, Support
from canonical.catalogue import definition_path, environment_names, load_environment
from canonical.content import JSON
from canonical.dialect import TextForm, write_calls
from canonical.environment import Environment
from canonical.sampling import random_call
from canonical.stone import Concern

HOME = "_rosetta"
"""The package, inside the written one, that holds what was taken along."""

_TEMPLATES = Path(__file__).parent / "templates"
_FOLDER = "package"
_ENVIRONMENTS = "canonical.environments"
_CATALOGUE = "canonical.catalogue"
_SANDBOXES = "canonical.sandbox.backends"
# What belongs to an environment here and to no package of it: golden episodes, scenarios of conformance, known attacks.
_LEFT_OUT = {"golden", "scenarios.yaml", "attacks.py", "__pycache__"}
_LICENCE = re.compile(r"(LICEN[CS]E|COPYING|NOTICE)(\..*)?", re.IGNORECASE)
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")
_STAYING = {"bench", "reports", "rosetta"}
_SECTIONS = re.compile(r"^(?:Args|Attributes|Raises|Returns|Example|Examples):\s*$", re.MULTILINE)
_CHECK_S = 120.0

_CHECK = """
import json, sys, types
from importlib import import_module

base, package, home, name = sys.argv[1:]
# The package itself may import its framework, which need not be here.
parent = sys.modules[package] = types.ModuleType(package)
parent.__path__ = [base + "/" + package]
environment = import_module(home + ".canonical.catalogue").load_environment(name)
tasks = environment.tasks()
own = [name for name in sys.modules if name.partition(".")[0] in {"canonical", "adapters", "bench"}]
print(json.dumps([environment.name, environment.version, tasks.sha256, own]))
"""


class PackageError(RuntimeError):
    """Report that an environment cannot be written as a package: what is wrong, where, and what to do."""


@dataclass(frozen=True, slots=True)
class WrittenPackage:
    """Hold what was written.

    Attributes:
        folder: Where it lies.
        framework: Name of the adapter.
        environment: Name of the environment.
        distribution: What the package is called when it is installed.
        module: What it is called when it is imported.
        release: The release of the framework whose versions `constraints.txt` pins.
        files: What was written, relative to the folder, sorted.
        sha256: Hash of names, contents and rights of all files: equal for equal packages.
        ledger: What becomes of each piece of the environment.
    """

    folder: Path
    framework: str
    environment: str
    distribution: str
    module: str
    release: str
    files: tuple[str, ...]
    sha256: str
    ledger: tuple[Loss, ...]

    def to_json(self) -> dict[str, JSON]:
        """Return it as JSON."""
        return {
            "folder": str(self.folder),
            "framework": self.framework,
            "environment": self.environment,
            "distribution": self.distribution,
            "module": self.module,
            "release": self.release,
            "files": list(self.files),
            "sha256": self.sha256,
            "ledger": [LossEntry.of(loss).model_dump(mode="json") for loss in self.ledger],
        }


@dataclass(frozen=True, slots=True)
class _File:
    data: bytes
    executable: bool = False

    @classmethod
    def of(cls, path: Path) -> _File:
        return cls(path.read_bytes(), bool(path.stat().st_mode & 0o100))


@dataclass(frozen=True, slots=True)
class _Origin:
    """Say where the modules and the data of an environment come from.

    Attributes:
        modules: By the full name that they get.
        data: Path below the environment's folder -> file.
    """

    modules: Mapping[str, Module]
    data: Mapping[str, Path]


def write_package(environment: str, framework: str, out: Path) -> WrittenPackage:
    """Write an environment as a package of a framework. Equal environments give equal packages, byte for byte.

    Nothing is left behind when it fails, and the package is looked at before it is put where it belongs: its own copy of the
    environment must load by itself and have the same tasks.

    Args:
        environment: Name of the catalogue, or path of a Python file or of an environment's folder.
        framework: Name of the adapter.
        out: The folder to write; it must not exist, or be empty.

    Raises:
        PackageError: The folder is not empty or cannot be written, or the environment cannot be taken along.
        bench.stacks.UnknownStackError: There is no such framework.
        canonical.catalogue.UnknownEnvironmentError: There is no such environment.
    """
    stack = find_stack(framework)
    loaded = load_environment(environment)
    _refuse_occupied(out)
    if environment not in environment_names() and not Path(environment).exists():
        raise PackageError(
            f"{environment} is played over a bridge, so there is no code of it here that could go into a package"
        )
    package = _Package(environment, loaded, stack)
    files = package.files()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".rosetta-", dir=out.parent.resolve()) as place:
            folder = Path(place) / "package"
            for name, file in files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.data)
                path.chmod(0o755 if file.executable else 0o644)
            package.check(folder)
            _refuse_occupied(out)
            if out.exists():
                out.rmdir()
            shutil.move(folder, out)
    except OSError as error:
        raise PackageError(
            f"{out} cannot be written: {error.strerror or error}; nothing is left of it"
        ) from error
    return WrittenPackage(
        folder=out,
        framework=stack.adapter,
        environment=loaded.name,
        distribution=package.distribution,
        module=package.module,
        release=stack.label,
        files=tuple(files),
        sha256=_digest(files),
        ledger=tuple(package.ledger),
    )


def package_ledger(framework: str) -> list[Loss]:
    """Return what becomes of each piece of an environment of ours in a package of a framework.

    Raises:
        bench.stacks.UnknownStackError: There is no such framework.
    """
    return compose_ledger(target_losses(_features(find_stack(framework))))


def packaged_frameworks() -> tuple[str, ...]:
    """Return the names of the adapters that say what a package of their framework is, sorted."""
    return tuple(sorted(path.parent.name for path in adapters_folder().glob(f"*/{_FOLDER}") if path.is_dir()))


def _refuse_occupied(out: Path) -> None:
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise PackageError(f"{out} is there and is not a folder; nothing was written")
    if out.is_dir() and any(out.iterdir()):
        raise PackageError(f"{out} is not empty; nothing was written. Name a folder that does not exist yet")


def _digest(files: Mapping[str, _File]) -> str:
    digest = hashlib.sha256()
    for name, file in files.items():
        digest.update(f"{name}\0{file.executable:d}{hashlib.sha256(file.data).hexdigest()}".encode())
    return digest.hexdigest()


class _Package:
    """Put the files of a package together."""

    def __init__(self, source: str, environment: Environment[Any], stack: Stack) -> None:
        if _IDENTIFIER.fullmatch(environment.name) is None:
            raise PackageError(
                f"{source}: an environment that becomes a package needs a name of a-z, 0-9 and _ that begins with a letter, "
                f"not {environment.name!r}"
            )
        self.environment = environment
        self.module = f"{environment.name}_{stack.adapter}"
        self.distribution = canonicalize_name(self.module)
        self._stack = stack
        self._home = f"{self.module}.{HOME}"
        self._place = f"{_ENVIRONMENTS}.{environment.name}"
        self._templates = adapters_folder() / stack.adapter / _FOLDER
        if not self._templates.is_dir():
            raise PackageError(
                f"there is no package of {stack.facts.title} yet; there are {', '.join(packaged_frameworks())}"
            )
        self.ledger = [
            replace(loss, note=loss.note.replace(f"adapters.{stack.adapter}.", f"{self.module}."))
            for loss in package_ledger(stack.adapter)
        ]
        self._origin = _origin(source, environment, self._place)
        self._base = _base(self._templates, self._substituted)

    def files(self) -> dict[str, _File]:
        """Return all files of the package by their path in it, sorted.

        Raises:
            PackageError: Something cannot be taken along.
        """
        known = self._known()
        try:
            # What templates say of requirements depends on the closure, and what is imported by them does not.
            drafts = self._rendered(requirements=[], optional={}, licences=[], sandboxed=False)
            roots = [(name, text) for name, text in drafts.items() if name.endswith(".py")]
            closure = close_over(
                [*roots, ("the package", f"from {_CATALOGUE} import load_environment")], known
            )
            requirements, optional = self._requirements(closure)
            licences = [name for name in self._origin.data if _LICENCE.fullmatch(Path(name).name)]
            texts = self._rendered(
                requirements=requirements,
                optional=optional,
                licences=licences,
                sandboxed=_SANDBOXES in closure.modules,
            )
            found = {
                name: _File(self._moved(name, text, closure).encode("utf-8")) for name, text in texts.items()
            }
            found |= self._vendored(closure)
        except VendoringError as error:
            raise PackageError(f"{self.environment.name} cannot be packaged: {error}") from error
        found |= {
            f"{self._vendored_folder}/{self._place.replace('.', '/')}/{name}": _File.of(path)
            for name, path in self._origin.data.items()
        }
        found["LICENSE"] = _File.of(ROOT / "LICENSE")
        found["constraints.txt"] = _File.of(self._stack.constraints)
        found[LOSS_FILE] = _File(self._losses().encode("utf-8"))
        computed = self._computed(_digest(dict(sorted(found.items()))))
        return dict(sorted({**found, **computed}.items()))

    def check(self, folder: Path) -> None:
        """Make sure that the copy of the environment in a written package loads by itself and has the same tasks.

        Raises:
            PackageError: It does not; the text says why.
        """
        command = [
            sys.executable, "-P", "-B", "-s", "-c", _CHECK,
            str(folder / self._base), self.module, self._home, self.environment.name,
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_CHECK_S, cwd=folder
            )
        except subprocess.TimeoutExpired:
            raise PackageError(
                f"the packaged {self.environment.name} did not load within {_CHECK_S:g} s"
            ) from None
        if done.returncode != 0:
            raise PackageError(
                f"the packaged {self.environment.name} does not load by itself: {_last_line(done.stderr)}. "
                "Does it need a file that does not lie in its folder?"
            )
        name, version, sha256, own = json.loads(done.stdout.splitlines()[-1])
        mine = self.environment
        if own:
            raise PackageError(f"the packaged {mine.name} still imports {own[0]}")
        if [name, version, sha256] != [mine.name, mine.version, mine.tasks().sha256]:
            raise PackageError(f"the packaged {mine.name} has other tasks than {mine.name} has here")

    @property
    def _vendored_folder(self) -> str:
        return "/".join(filter(None, [self._base, self.module, HOME]))

    def _known(self) -> dict[str, Module]:
        adapter = self._stack.adapter
        known = modules_below(Path(inspect.getfile(Environment)).parent, "canonical")
        # Other environments stay here, and so does what finds them: the catalogue of a package has one.
        known = {name: module for name, module in known.items() if not name.startswith(f"{_ENVIRONMENTS}.")}
        known[_CATALOGUE] = Module(self._engine().get_template("catalogue.py.j2").render(self._values()))
        known["adapters"] = Module.read(adapters_folder() / "__init__.py")
        known |= modules_below(adapters_folder() / adapter, f"adapters.{adapter}")
        return {**known, **self._origin.modules}

    def _vendored(self, closure: Closure) -> dict[str, _File]:
        folder = self._vendored_folder
        found = {f"{folder}/__init__.py": _File(_ABOUT_HOME.encode())}
        _make_sure_of_catalogue(closure)
        for name, module in closure.modules.items():
            place = name.replace(".", "/") + ("/__init__.py" if module.is_package else ".py")
            text = rewritten(name, module.text, self._home, closure.modules)
            # Extras, which messages tell people to install, are those of the package.
            text = text.replace(f"{_project()['name']}[", f"{self.distribution}[")
            found[f"{folder}/{place}"] = _File(text.encode("utf-8"))
        return found

    def _moved(self, name: str, text: str, closure: Closure) -> str:
        return rewritten(name, text, self._home, closure.modules) if name.endswith(".py") else text

    def _substituted(self, name: str) -> str:
        return name.replace("__module__", self.module).replace("__name__", self.environment.name)

    def _engine(self) -> jinja2.Environment:
        engine = jinja2.Environment(
            loader=jinja2.FileSystemLoader([self._templates, _TEMPLATES]),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            autoescape=False,  # noqa: S701 - none of it is HTML
        )
        engine.filters |= {"yaml": _as_yaml, "python": repr, "toml": _as_toml, "cell": _as_cell}
        return engine

    def _rendered(self, **more: Any) -> dict[str, str]:
        engine = self._engine()
        values = {**self._values(), **more}
        found = {}
        shared = ((path, f"root/{path.name}") for path in sorted((_TEMPLATES / "root").glob("*.j2")))
        own = ((path, path.relative_to(self._templates).as_posix()) for path in _templates(self._templates))
        for path, template in (*shared, *own):
            target = template.removeprefix("root/") if path.is_relative_to(_TEMPLATES) else template
            name = self._substituted(target.removesuffix(".j2"))
            found[name] = engine.get_template(template).render(values)
        return found

    def _values(self) -> dict[str, Any]:
        environment, stack = self.environment, self._stack
        tasks = environment.tasks()
        first = tasks.split(tasks.training_split)[0]
        example = random_call(environment, first, random.Random(0))  # noqa: S311 - the same in every package
        # Parts of a docstring that speak of code are for those who call it.
        about = _SECTIONS.split(inspect.getdoc(type(environment)) or environment.name)[0].strip()
        values = {
            "name": environment.name,
            "version": environment.version,
            "released": _released(environment.version),
            "class_name": type(environment).__name__,
            "summary": about.partition("\n")[0],
            "about": about,
            "module": self.module,
            "distribution": self.distribution,
            "home": self._home,
            "definition": f"{self._place}.environment",
            "vendored": self._vendored_folder,
            "place": f"{self._vendored_folder}/{self._place.replace('.', '/')}",
            "splits": [(name, len(tasks.split(name))) for name in tasks.splits],
            "training_split": tasks.training_split,
            "evaluation_split": tasks.evaluation_split,
            "first_task": first.id,
            "tools": [tool.spec for tool in environment.tools],
            "example": example,
            "written": {form.value: write_calls([example], form) for form in TextForm},
            "max_turns": environment.max_turns,
            "free_errors": environment.free_errors,
            "longest": environment.max_turns + environment.free_errors,
            "reward": environment.reward,
            "waits": environment.waits,
            "framework": stack.facts.title,
            "package": stack.release.package,
            "release": stack.release.version,
            "python": stack.release.python,
            "ledger": self.ledger,
            "concerns": [(concern, concerned(concern, self.ledger)) for concern in Concern],
            "project": _project(),
        }
        hook = self._hook("values")
        return {**values, **(hook(environment) if hook else {})}

    def _losses(self) -> str:
        record = PackageRecord(
            environment=self.environment.name,
            version=self.environment.version,
            tasks_sha256=self.environment.tasks().sha256,
            framework=self._stack.adapter,
            release=self._stack.label,
            ledger=[LossEntry.of(loss) for loss in self.ledger],
        )
        return record.model_dump_json(indent=2) + "\n"

    def _computed(self, digest: str) -> dict[str, _File]:
        hook = self._hook("files")
        if hook is None:
            return {}
        written: Iterable[tuple[str, str]] = hook(self.environment, digest)
        return {name: _File(text.encode("utf-8")) for name, text in written}

    def _hook(self, name: str) -> Any:
        if not (self._templates / "package.py").is_file():
            return None
        return getattr(import_module(f"adapters.{self._stack.adapter}.{_FOLDER}.package"), name, None)

    def _requirements(self, closure: Closure) -> tuple[list[str], dict[str, list[str]]]:
        """Return what the package needs, and what it can use: of what this project needs, that which the closure imports."""
        needed = {_key(line): line for line in _project()["dependencies"]}
        usable = {
            _key(line): (extra, line)
            for extra, lines in _pyproject()["tool"]["rosetta"]["extras"].items()
            for line in lines
        }
        facts = self._stack.facts
        own = facts.extras[self._stack.release.extra]
        found = dict.fromkeys(own)
        optional: dict[str, list[str]] = {}
        distributions = _distributions()
        brought = {key for line in needed for key in _brought(line)}
        # Some of what this project needs is asked for by a text, without a statement that imports it.
        asked = closure.texts & {key.replace("-", "_") for key in needed}
        names = {**closure.foreign, **dict.fromkeys(asked, "")}
        for name, place in sorted(names.items()):
            if name in sys.stdlib_module_names or name == self.module:
                continue
            if name in _STAYING:
                raise VendoringError(
                    f"{place} imports {name}, which measures and shows, and is part of no package"
                )
            candidates = [canonicalize_name(one) for one in distributions.get(name, [name])]
            line = next((needed[one] for one in candidates if one in needed), None)
            more = next((usable[one] for one in candidates if one in usable), None)
            if line is not None:
                found[line] = None
            elif name in facts.imports or brought.intersection(candidates):
                continue  # comes with the framework, or with what is needed anyway
            elif more is not None and not place.startswith(self._place):
                optional.setdefault(more[0], []).append(more[1])
            elif name in distributions:
                found[distributions[name][0]] = None
            else:
                raise PackageError(
                    f"{place} imports {name}, which no installed distribution provides, so nobody knows what the package "
                    "would have to require; put it into the folder of the environment as data, or install it as a package"
                )
        return list(found), optional


_ABOUT_HOME = '''"""The environment, and the part of Rosetta that plays it, with imports that lead here. See NOTICE."""
'''


def _features(stack: Stack) -> dict[Feature, Support]:
    """Return what was proven of the features of a release."""
    proven = json.loads(stack.features_file.read_text(encoding="utf-8"))
    return {
        Feature(name): Support(Level(entry["level"]), entry["note"])
        for name, entry in proven[stack.label].items()
    }


def _origin(source: str, environment: Environment[Any], place: str) -> _Origin:
    definition = definition_path(environment)
    folder = definition.parent
    if source in environment_names():
        return _Origin(modules_below(folder, place), _data_below(folder, _packages(folder)))
    package = Module(f'"""The environment {environment.name}."""\n', is_package=True)
    modules = {place: package, f"{place}.environment": Module.read(definition)}
    if definition.name != "environment.py":
        return _Origin(modules, {})
    data = _data_below(folder, set())
    return _Origin(
        modules, {name: path for name, path in data.items() if name not in {"environment.py", "__init__.py"}}
    )


def _packages(folder: Path) -> set[Path]:
    inner = (path for path in folder.iterdir() if (path / "__init__.py").is_file())
    return {folder}.union(*map(_packages, inner))


def _data_below(folder: Path, packages: set[Path]) -> dict[str, Path]:
    """Return what lies below a folder and is no module of a package there."""
    found = {}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        # What an environment says of itself here tells of this project's commands and documents.
        if (
            parts == ("README.md",)
            or _LEFT_OUT & set(parts)
            or any(part.startswith(".") for part in parts)
            or path.suffix == ".pyc"
        ):
            continue
        if path.is_file() and not (path.suffix == ".py" and path.parent in packages):
            found["/".join(parts)] = path
    return found


def _templates(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.j2") if path.is_file())


def _base(folder: Path, substituted: Any) -> str:
    """Return the folder of the package in which its module lies."""
    for path in _templates(folder):
        parts = path.relative_to(folder).parts
        if "__module__" in parts:
            return str(substituted("/".join(parts[: parts.index("__module__")])))
    raise PackageError(f"{folder} has no template in a folder __module__")


def _make_sure_of_catalogue(closure: Closure) -> None:
    """Make sure that no module asks the catalogue for what the catalogue of a package does not have.

    Raises:
        VendoringError: One does.
    """
    tree = ast.parse(closure.modules[_CATALOGUE].text)
    offered = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for name, place in closure.imported.items():
        module, _, asked = name.rpartition(".")
        if module == _CATALOGUE and asked not in offered:
            raise VendoringError(f"{place} needs {asked} of {_CATALOGUE}, which no package has")


def _released(version: str) -> str:
    try:
        return str(Version(version))
    except InvalidVersion:
        return "0"


def _key(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


_distributions = cache(packages_distributions)


def _brought(distribution: str) -> set[str]:
    try:
        return {_key(line) for line in requires(distribution) or ()}
    except PackageNotFoundError:
        return set()


@cache
def _pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _project() -> dict[str, Any]:
    project: dict[str, Any] = _pyproject()["project"]
    return project


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it ended without a word"])[-1]


def _as_yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)


def _as_toml(value: Any) -> str:
    # Texts and lists of texts of TOML are those of JSON.
    return json.dumps(value, ensure_ascii=False)


def _as_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
