"""The verbs that serve say in one line what is wrong before anything starts."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.machine import Machine
from bench.serving.caps import CapsRequest
from bench.serving.faults import FAULTS, FaultNotPossible, play_faults
from bench.serving.proxies import load_proxy, proxy_names
from bench.serving.records import SCHEMA, ProxyHeader, ProxyRunWriter
from bench.stacks import find_stack
from rosetta.__main__ import main


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    return int(left.value.code), capsys.readouterr().err


def test_several_replicas_ask_for_a_proxy_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = fails(capsys, "serve", "wordle", "--as", "openenv", "--replicas", "3")
    assert code == 2
    assert all(f"--proxy {name}" in said for name in proxy_names())


@pytest.mark.parametrize("name", proxy_names())
def test_a_proxy_that_is_not_installed_is_named_with_the_command_that_gets_it(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(load_proxy(name)), "find", lambda _self: None)
    code, said = fails(capsys, "serve", "wordle", "--as", "openenv", "--replicas", "3", "--proxy", name)
    assert code == 3
    assert load_proxy(name).how_to_get in " ".join(said.split())


def test_a_framework_in_process_has_nothing_to_serve(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for verb in (["serve", "wordle"], ["deploy", "wordle", "--proxy", "envoy", "--out", str(tmp_path)]):
        code, said = fails(capsys, *verb, "--as", "gem")
        assert code == 2
        assert "nothing to serve" in said


def test_a_place_that_is_none_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(load_proxy("envoy")), "find", lambda _self: Path("/bin/true"))
    code, said = fails(capsys, "balance", "--as", "openenv", "--proxy", "envoy", "--at", "nowhere")
    assert code == 2
    assert "HOST:PORT" in said


def test_several_frameworks_are_for_faults_only(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = fails(capsys, "bench-proxy", "--as", "openenv", "--as", "ors")
    assert code == 2
    assert "--fault" in said


def test_a_report_of_proxies_is_written_again_from_its_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = ProxyHeader(
        run_id="1-proxies", started=datetime(2026, 1, 1, tzinfo=UTC), stack="openenv-0.10.0", environment="wordle",
        replicas=1, turns=1, tool_s=0.0, machine=Machine.read(), args_passed=(), schema=SCHEMA,
    )  # fmt: skip
    with ProxyRunWriter(tmp_path / "run", header):
        pass
    with pytest.raises(SystemExit) as left:
        main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page")])
    assert not left.value.code
    assert "Measured" in capsys.readouterr().out
    assert (tmp_path / "page" / "report.md").is_file()


def test_an_unknown_fault_is_answered_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = fails(capsys, "bench-proxy", "--fault", "earthquake")
    assert code == 2
    assert "half-open" in said


def test_a_fault_that_cannot_be_done_here_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "never-made"
    asked = CapsRequest(
        stack=find_stack("openenv"), environment="wordle", proxies=[], variants=[], sessions=1, replicas=1, turns=1,
        tool_s=0.0, folder=folder,
    )  # fmt: skip
    deed = dataclasses.replace(FAULTS["half-open"], obstacle=lambda: "there is no such thing")
    monkeypatch.setitem(FAULTS, "half-open", deed)
    with pytest.raises(FaultNotPossible, match="there is no such thing"):
        asyncio.run(
            play_faults(
                asked, [asked.stack], ["half-open"], on_progress=lambda _: None, on_event=lambda _: None
            )
        )
    assert not folder.exists()
