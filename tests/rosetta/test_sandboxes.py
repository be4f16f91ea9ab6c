"""The verbs about sandboxes as a person meets them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from canonical.sandbox.protocol import BackendUnavailableError
from rosetta.__main__ import main
from tests.canonical.sandbox.hosted import Hosted
from tests.canonical.sandbox.liars import CannotBeClosedTwice, backend_of


class Unavailable(Hosted):
    """Not be there."""

    async def isolation(self) -> object:
        raise BackendUnavailableError("the backend needs a thing: install the thing")


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["rosetta", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    return int(left.value.code or 0), captured.out, " ".join(captured.err.split())


@pytest.mark.parametrize(
    ("backend", "code", "words"),
    [(Hosted(), 0, "1 kept, 0 broken"), (backend_of(CannotBeClosedTwice), 1, "BROKEN          close-twice")],
    ids=["honest", "lying"],
)
def test_check_sandbox_shows_isolation_results_and_evidence(
    backend: Hosted,
    code: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rosetta.sandboxes.load_backend", lambda _: backend)
    got, out, _ = run(capsys, monkeypatch, "check-sandbox", "x", "--check", "close-twice")
    assert got == code
    assert "enforced  environment" in out
    assert words in out
    got, out, _ = run(capsys, monkeypatch, "check-sandbox", "x", "--check", "close-twice", "--quiet")
    *broken, counts = out.splitlines()
    assert (got, len(broken)) == (code, code)
    assert counts.endswith("0 does not apply")
    assert all(line.startswith("BROKEN  close-twice: ") for line in broken)
    got, out, _ = run(capsys, monkeypatch, "check-sandbox", "x", "--check", "close-twice", "--json")
    value = json.loads(out)
    assert (got, value["passed"]) == (code, code == 0)
    assert value["checks"][0]["evidence"]


@pytest.mark.parametrize(
    "verb", [("check-sandbox", "x"), ("bench-sandbox", "--backend", "x")], ids=lambda verb: verb[0]
)
def test_a_backend_that_is_not_there_is_one_line(
    verb: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("rosetta.sandboxes.load_backend", lambda _: Unavailable())
    more = ("--out", str(tmp_path / "run")) if verb[0] == "bench-sandbox" else ()
    got, out, err = run(capsys, monkeypatch, *verb, *more, "--quiet")
    assert (got, out, err) == (3, "", "error: the backend needs a thing: install the thing")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("check-sandbox", "nothing"), "there is no sandbox backend 'nothing'; there are docker, e2b, local"),
        (("check-sandbox", "unsafe"), "say --unsafe-no-isolation to mean it"),
        (("bench-sandbox", "--backend", "unsafe"), "say --unsafe-no-isolation to mean it"),
        (("check-sandbox", "local", "--check", "nothing"), "there is no check 'nothing'; there are"),
    ],
)
def test_a_wrong_command_is_one_line_and_starts_nothing(
    arguments: tuple[str, ...],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    got, out, err = run(capsys, monkeypatch, *arguments)
    assert (got, out) == (2, "")
    assert words in err


BACKENDS = {
    "docker": "the docker sandbox needs the Docker SDK",
    "bogus": "there is no sandbox backend 'bogus'; there are docker, e2b, local",
    "unsafe": "set ROSETTA_UNSAFE_NO_ISOLATION=1 as well to mean it",
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("verb", ["rollout", "play", "check", "gauntlet"])
def test_episodes_without_their_backend_are_one_line(
    verb: str, backend: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line of the environment is blamed, no promise is called broken, and no attack is said to be held or not."""
    monkeypatch.setenv("ROSETTA_SANDBOX", backend)
    monkeypatch.setitem(sys.modules, "docker", None)
    monkeypatch.delenv("ROSETTA_UNSAFE_NO_ISOLATION", raising=False)
    more = () if verb == "play" else ("--quiet",)
    got, out, err = run(capsys, monkeypatch, verb, "coding_agent", *more)
    assert (got, out) == (3, "")
    assert err.startswith("error: ")
    assert err.count("error") == 1
    assert BACKENDS[backend] in err


def test_a_check_that_cannot_start_its_own_process_breaks_no_promise(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    forbidden = tmp_path / "python"
    forbidden.write_text("", encoding="utf-8")
    monkeypatch.setattr("canonical.sandbox.checks.lifecycle.sys.executable", str(forbidden))
    got, out, err = run(capsys, monkeypatch, "check-sandbox", "local", "--check", "host-killed", "--quiet")
    assert (got, out) == (3, "")
    assert err.startswith(f"error: the check host-killed starts another process of {forbidden}")
    assert "Permission denied" in err


@pytest.mark.slow
def test_bench_sandbox_writes_records_and_a_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("rosetta.sandboxes.load_backend", lambda _: Hosted())
    monkeypatch.setattr("bench.sandboxes.SANDBOX_PLANS", {"smoke": _tiny()})
    folder = tmp_path / "run"
    got, out, _ = run(
        capsys, monkeypatch, "bench-sandbox", "--plan", "smoke", "--out", str(folder), "--json", "--live", "2"
    )
    value = json.loads(out)
    assert got == 0
    assert (folder / "report.md").is_file()
    assert Path(value["report"]).is_file()
    assert any(line.startswith("Live at once") and "2 of 2" in line for line in value["summary"])
    got, _, err = run(
        capsys, monkeypatch, "bench-sandbox", "--plan", "smoke", "--out", str(folder), "--quiet"
    )
    assert got == 2
    assert "already holds a run" in err


def _tiny() -> object:
    from bench.sandboxes import SMOKE

    return SMOKE.model_copy(
        update={
            "opens": 2,
            "calls": 2,
            "live": 1,
            "warmup": 0,
            "sessions": (1,),
            "seconds": 0.05,
            "settle_s": 0.0,
        }
    )
