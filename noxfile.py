# /// script
# requires-python = ">=3.11"
# dependencies = ["nox[uv]>=2025.2.9"]
# ///
"""Every task of this project; `nox -l` lists them, `nox -s NAME` runs one, arguments after `--` are passed on.

Sessions for frameworks and libraries of tasks are made from the folders under `adapters/` and `libraries/`, so a new one edits
nothing here.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "typing", "tests"]

ROOT = Path(__file__).parent
PYTHON = "3.11"
CONSTRAINTS = "constraints.txt"
HARNESS = ROOT / ".nox" / "harness" / "bin" / "rosetta"
ADAPTERS: dict[str, dict[str, Any]] = {
    path.parent.name: tomllib.loads(path.read_text(encoding="utf-8"))
    for path in sorted(ROOT.glob("adapters/*/adapter.toml"))
}
LIBRARIES: dict[str, dict[str, Any]] = {
    path.parent.name: tomllib.loads(path.read_text(encoding="utf-8"))
    for path in sorted(ROOT.glob("libraries/*/library.toml"))
}

# Behind pyenv's shims the bare names of other Pythons lead nowhere, while the versions themselves are there.
_versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
os.environ["PATH"] = os.pathsep.join([
    *(str(path) for path in sorted(_versions.glob("3.1[0-9].*/bin"), reverse=True)),
    os.environ.get("PATH", ""),
])  # fmt: skip
os.environ.pop("PYTHONPATH", None)
os.environ["PYTHONSAFEPATH"] = "1"
# Without compiled files every process would compile a whole framework again, and that would be measured.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _install(session: nox.Session, *groups: str) -> None:
    """Install the project with the harness and dependency groups, at the versions that are known to work."""
    arguments = [argument for group in groups for argument in ("--group", group)]
    session.install("-e", ".[harness]", *arguments, "-c", CONSTRAINTS)


def _rosetta(session: nox.Session, *arguments: str) -> None:
    """Run the command line from the environment of the session `harness`."""
    session.run(str(HARNESS), *arguments, external=True)


@nox.session(python=PYTHON)
def lint(session: nox.Session) -> None:
    """Check style, formatting and the import contracts."""
    _install(session, "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")


@nox.session(python=PYTHON)
def typing(session: nox.Session) -> None:
    """Check types strictly."""
    _install(session, "typing")
    session.run("mypy")
    session.run("mypy", "noxfile.py", "hatch_build.py")


@nox.session(python=PYTHON)
def tests(session: nox.Session) -> None:
    """Run the tests that need no framework."""
    _install(session, "test")
    session.run("python", "-P", "-m", "pytest", "-n", "auto", "-m", "not slow", *session.posargs)


@nox.session(python=PYTHON, default=False)
def tests_slow(session: nox.Session) -> None:
    """Run the tests that take long: the load engine against faulty servers, reports in other processes and locales."""
    _install(session, "test")
    session.run("python", "-P", "-m", "pytest", "-n", "auto", "-m", "slow", *session.posargs)


@nox.session(python=["3.12", "3.13"], default=False)
def tests_newer(session: nox.Session) -> None:
    """Run the same tests on the newer Pythons that stacks use."""
    _install(session, "test")
    session.run("python", "-P", "-m", "pytest", "-n", "auto", "-m", "not slow", *session.posargs)


@nox.session(python=PYTHON, default=False)
def acceptance(session: nox.Session) -> None:
    """Run the conformance of every stack, a smoke benchmark of every framework, and a seventh framework, as tests."""
    _install(session, "test", "lint", "typing")
    session.run("python", "-P", "-m", "pytest", "tests/acceptance", *session.posargs)


@nox.session(python=PYTHON, default=False)
def fleet(session: nox.Session) -> None:
    """Play every server framework through Envoy, and through HAProxy and nginx where they are installed; `-m slow`: faults."""
    session.install("-e", ".[harness,envoy]", "--group", "test", "-c", CONSTRAINTS)
    session.run("python", "-P", "-m", "pytest", "tests/fleet", *(session.posargs or ["-m", "not slow"]))


@nox.session(python=PYTHON, default=False)
def harness(session: nox.Session) -> None:
    """Install the command line, for the sessions that measure and prove."""
    _install(session)


@nox.session(venv_backend="none", default=False, requires=["harness"])
def conformance(session: nox.Session) -> None:
    """Prove every framework against the reference, at each everyday release."""
    _rosetta(session, "conformance", "--all", "--build", *session.posargs)


@nox.session(venv_backend="none", default=False, requires=["harness"])
def certify(session: nox.Session) -> None:
    """Certify Wordle, or what is named: its golden set through every framework, at each everyday release."""
    _rosetta(session, "certify", *(session.posargs or ["wordle"]), "--build")


@nox.session(venv_backend="none", default=False, requires=["harness"])
def rosetta(session: nox.Session) -> None:
    """Put the frameworks side by side: gather facts from every stack, and render the tables."""
    _rosetta(session, "tables", "--gather", "--build", *session.posargs)


@nox.session(python=PYTHON, default=False)
def site(session: nox.Session) -> None:
    """Open the published pages in Chromium: links, filters, search, the tree of questions, accessibility. Needs Chromium."""
    _install(session, "site")
    session.run("python", "-P", "-m", "pytest", "tests/browser", *session.posargs)


@nox.session(venv_backend="none", default=False, requires=["harness"])
def versions(session: nox.Session) -> None:
    """Play every supported release of every framework, not only the everyday ones, and say which release broke what."""
    _rosetta(session, "versions", *session.posargs)


@nox.session(name="versions-newest", venv_backend="none", default=False, requires=["harness"])
def versions_newest(session: nox.Session) -> None:
    """Play the newest release that the index offers of each package, and say what differs from the newest supported one."""
    _rosetta(session, "versions", "--newest", *session.posargs)


@nox.session(name="bench-sandbox", venv_backend="none", default=False, requires=["harness"])
def bench_sandbox(session: nox.Session) -> None:
    """Measure sandboxes: start, calls, memory, how many live at once, throughput, and what is left behind."""
    _rosetta(session, "bench-sandbox", *session.posargs)


@nox.session(python=PYTHON, default=False)
def faults(session: nox.Session) -> None:
    """Put deliberate faults into copies of the project; the suite must notice every one."""
    _install(session, "test")
    for name, facts in ADAPTERS.items():
        session.run("rosetta", "stack", "build", name, "--all", "--quiet")
        everyday = [release for release in facts["releases"] if not release.get("matrix_only")]
        for label in (f"{release['package']}-{release['version']}" for release in everyday):
            python, pins = f".stacks/{label}/bin/python", f"adapters/{name}/constraints/{label}.txt"
            session.run(
                "uv", "pip", "install", "--quiet", "--python", python, "pytest", "hypothesis", "-c", pins
            )
    session.run("python", "-P", "-m", "tests.faults.run", *session.posargs)


@nox.session(python=PYTHON, default=False)
def truths(session: nox.Session) -> None:
    """Measure servers that fail in known ways; every verdict must be the one that is known to be true."""
    _install(session, "test")
    session.run("python", "-P", "-m", "tests.truths.run", *session.posargs)


@nox.session(venv_backend="none", default=False)
def pin(session: nox.Session) -> None:
    """Renew constraints.txt, the versions of everything that the harness, the tests and the checks use."""
    groups = [argument for group in ("test", "site", "lint", "typing") for argument in ("--group", group)]
    session.run(
        "uv", "pip", "compile", "pyproject.toml", "--extra", "harness", "--extra", "envoy", "--extra", "model",
        *groups, "--quiet",
        "--python-version", PYTHON, "--no-header", "--no-annotate", "--upgrade", "-o", CONSTRAINTS,
        external=True,
    )  # fmt: skip


def _framework_sessions(name: str, facts: dict[str, Any]) -> None:
    slug = name.replace("_", "-")

    @nox.session(name=f"bench-{slug}", venv_backend="none", default=False, requires=["harness"])
    def bench(session: nox.Session) -> None:
        _rosetta(session, "bench", name, "--build", *session.posargs)

    bench.__doc__ = f"Measure {facts['title']}: connect, reset and step latencies and concurrency ceilings."

    @nox.session(name=f"conformance-{slug}", venv_backend="none", default=False, requires=["harness"])
    def conform(session: nox.Session) -> None:
        _rosetta(session, "conformance", name, "--build", *session.posargs)

    conform.__doc__ = f"Prove {facts['title']} against the reference, at each everyday release."

    for release in facts["releases"]:
        label = f"{release['package']}-{release['version']}"

        @nox.session(
            name=f"versions-{label}",
            venv_backend="none",
            default=False,
            requires=["harness"],
            tags=["versions"],
        )
        def cell(session: nox.Session, label: str = label) -> None:
            _rosetta(session, "versions", "--release", label, *session.posargs)

        cell.__doc__ = f"Play {label}, one cell of the matrix of versions."
        if release.get("matrix_only"):
            continue
        packages = [f"adapters.{name}"]
        if (ROOT / "bench" / "baselines" / name).is_dir():
            packages.append(f"bench.baselines.{name}")
        _stack_session("adapters", name, release, packages, f"the {facts['title']} adapter")


def _library_sessions(name: str, facts: dict[str, Any]) -> None:
    for release in facts["releases"]:
        _stack_session("libraries", name, release, [f"libraries.{name}"], f"the lifter of {facts['title']}")


def _stack_session(folder: str, name: str, release: dict[str, Any], packages: list[str], what: str) -> None:
    label = f"{release['package']}-{release['version']}"
    tags = [f"stack-{name.replace('_', '-')}", "stacks"]

    @nox.session(name=f"stack-{label}", python=release["python"], default=False, tags=tags)
    def stack(session: nox.Session) -> None:
        constraints = f"{folder}/{name}/constraints/{label}.txt"
        session.install("-e", f".[{release['extra']}]", "hypothesis", "mypy", "pytest", "-c", constraints)
        if (ROOT / "tests" / "stacks" / name).is_dir():
            # A framework's dependencies warn as they like; only our own default run treats warnings as errors.
            session.run(
                "python",
                "-P",
                "-m",
                "pytest",
                "-o",
                "filterwarnings=",
                f"tests/stacks/{name}",
                *session.posargs,
                # A selection such as `-m slow` may leave nothing in one stack.
                success_codes=[0, 5] if session.posargs else [0],
            )
        if release.get("default"):
            # Frameworks rarely ship type markers; their own annotations are followed all the same.
            session.run(
                "mypy", "--follow-untyped-imports", *(part for one in packages for part in ("-p", one))
            )

    stack.__doc__ = f"Run the tests of {what} inside its stack, {label}."


for _name, _facts in ADAPTERS.items():
    _framework_sessions(_name, _facts)
for _name, _facts in LIBRARIES.items():
    _library_sessions(_name, _facts)


if __name__ == "__main__":
    nox.main()
