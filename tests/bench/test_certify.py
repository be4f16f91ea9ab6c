"""A certificate is given for what a framework showed, to nobody who shows anything else, and says what was different."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import endurance
from bench.certificate import (
    CERTIFICATE_FILE,
    Certificate,
    CertificateError,
    Section,
    endurance_section,
    read_section,
    specify,
)
from bench.certify import REFERENCE, Subject, certify, read_golden
from bench.conformance import RETURN
from canonical.catalogue import load_environment
from canonical.dialect import write_calls
from canonical.golden import EPISODES, Case, GoldenError, GoldenSet, golden_folder, record
from canonical.tool import ToolCall
from reports.certificate import render_certificate, render_summary
from rosetta.console import Console
from rosetta.parity import hand_over
from tests.canonical import miniatures

ROOT = Path(__file__).parents[2]
WORDS = ("slate", "crane", "zzzzz", "\u0441rane")


def guess(word: str) -> ToolCall:
    return ToolCall("guess", {"word": word})


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a copy of Wordle with a golden set of a few episodes."""
    folder = tmp_path_factory.mktemp("certified") / "wordle"
    shutil.copytree(
        ROOT / "canonical" / "environments" / "wordle",
        folder,
        ignore=shutil.ignore_patterns("golden", "__pycache__"),
    )
    environment = load_environment(str(folder))
    task = environment.tasks().split("test")[5]
    answer = next(iter(environment.oracle(task)))
    cases = [
        Case("solved-1", task.id, 3, [guess("slate"), answer, guess("crane"), "after"]),
        Case("failed-1", task.id, 4, [guess("slate")] * 7),
        Case("budget-1", task.id, 5, ["?"] * 13),
        Case("open-1", "train/0003", 6, [guess(word) for word in WORDS]),
        Case("several-1", "train/0004", 7, [write_calls([guess(word) for word in WORDS])]),
    ]
    golden = asyncio.run(record(environment, cases))
    golden_folder(environment).mkdir()
    (golden_folder(environment) / EPISODES).write_text(golden.to_text(), encoding="ascii")
    return str(folder)


def liar(kind: str) -> Subject:
    return Subject(
        f"tests.miniatures.liars:{kind}",
        Path(sys.executable),
        "Liar",
        f"liar-{kind}",
        "half of it",
        is_server=False,
    )


@pytest.fixture(scope="session")
def certificates(source: str) -> dict[str, Certificate]:
    """Certify once what several tests look at, each liar as if it were alone; one of them cannot even be started."""
    broken = dataclasses.replace(liar("Honest"), adapter="tests.miniatures.crashing", release="liar-Broken")
    kinds = [broken, *map(liar, ("Honest", "ReturnMisread", "PromptRetyped", "StatusRaisedAsCrash"))]
    whole = asyncio.run(certify(source, kinds))
    return {
        proof.release.removeprefix("liar-"): whole.model_copy(update={"frameworks": [proof]})
        for proof in whole.frameworks
    }


def test_who_shows_what_the_reference_shows_is_certified_with_one_digest(
    certificates: dict[str, Certificate], source: str
) -> None:
    certificate = certificates["Honest"]
    golden = read_golden(load_environment(source), source)
    (proof,) = certificate.frameworks
    assert certificate.passed
    assert certificate.digest == proof.digest == certificate.reference.digest == golden.digest()
    assert (proof.episodes, proof.steps, proof.divergences) == (5, golden.steps, 0)
    assert proof.returns == sum(episode.transcript.cause is not None for episode in golden.episodes) == 3
    assert certificate.golden.ends == {"none": 2, "solved": 1, "failed": 1, "budget": 1}
    assert proof.dependencies["pydantic"]
    assert proof.features["images"].level == "native"
    assert "**Certified.**" in render_certificate(certificate)


def test_a_return_that_a_trainer_would_read_otherwise_is_a_divergence_although_every_step_is_right(
    certificates: dict[str, Certificate],
) -> None:
    certificate = certificates["ReturnMisread"]
    (proof,) = certificate.frameworks
    assert not certificate.passed
    assert {row.piece for row in proof.shown} == {RETURN}
    assert proof.shown[0].scenario == "solved-1"
    assert (proof.shown[0].reference, proof.shown[0].framework) == ("1.0", "0.5")
    assert certificate.digest == proof.digest, "the digest is of transcripts, and those are right"


def test_the_digest_is_of_what_the_framework_showed_not_of_what_it_should_have_shown(
    certificates: dict[str, Certificate],
) -> None:
    certificate = certificates["PromptRetyped"]
    (proof,) = certificate.frameworks
    assert certificate.digest is None
    assert proof.digest != certificate.golden.digest == certificate.reference.digest
    assert {row.piece for row in proof.shown} == {"prompt"}
    assert proof.divergences == 5


def test_sessions_that_break_off_are_divergences_and_the_others_are_played(
    certificates: dict[str, Certificate],
) -> None:
    (proof,) = certificates["StatusRaisedAsCrash"].frameworks
    assert proof.episodes == 5
    assert {row.piece for row in proof.shown} == {"session"}
    assert "a tool failed" in proof.shown[0].framework


def test_a_certificate_with_a_divergence_reads_well_and_ends_with_exit_code_1(
    certificates: dict[str, Certificate], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        hand_over(certificates["ReturnMisread"], tmp_path / "new" / "folder", Console())
    assert left.value.code == 1
    told = capsys.readouterr().out
    assert "Liar (liar-ReturnMisread), episode solved-1 (task test/0005, seed 3): return" in told
    assert "reference: 1.0\n    framework: 0.5" in told
    assert "Not certified. Liar (liar-ReturnMisread): 2 divergences." in told
    page = (tmp_path / "new" / "folder" / "certificate.md").read_text(encoding="utf-8")
    assert "## Divergences" in page
    assert "**2 divergences**" in page
    hand_over(certificates["Honest"], tmp_path, Console())


@pytest.mark.parametrize("kind", ["Honest", "ReturnMisread", "StatusRaisedAsCrash"])
def test_the_page_is_a_function_of_the_file(
    certificates: dict[str, Certificate], kind: str, tmp_path: Path
) -> None:
    path = tmp_path / CERTIFICATE_FILE
    path.write_text(certificates[kind].to_text(), encoding="ascii")
    read = Certificate.read(path)
    assert read == certificates[kind]
    assert read.to_text() == certificates[kind].to_text()
    assert render_certificate(read) == render_certificate(certificates[kind])
    assert render_summary(read) == render_summary(certificates[kind])


def test_a_framework_that_cannot_be_started_does_not_pass_and_does_not_stop_the_others(
    certificates: dict[str, Certificate],
) -> None:
    certificate = certificates["Broken"]
    (proof,) = certificate.frameworks
    assert not certificate.passed
    assert certificates["Honest"].passed, "it was played after the broken one"
    assert proof.failure is not None
    assert "broken on purpose" in proof.failure
    page = render_certificate(certificate)
    assert "Liar (liar-Broken): broke off" in page
    assert "broken on purpose" in page


@pytest.mark.slow
def test_a_golden_set_that_the_core_no_longer_gives_is_not_certified(source: str, tmp_path: Path) -> None:
    folder = tmp_path / "changed"
    shutil.copytree(source, folder)
    path = folder / "golden" / EPISODES
    path.write_text(path.read_text(encoding="ascii").replace("G G G G G", "G G G G Y"), encoding="ascii")
    certificate = asyncio.run(certify(str(folder), [REFERENCE]))
    assert not certificate.passed
    assert not certificate.reference.passed
    assert certificate.reference.shown[0].piece == "observation"


def test_a_missing_golden_set_and_one_of_another_version_name_the_command(tmp_path: Path) -> None:
    shutil.copy(ROOT / "docs" / "examples" / "higher_lower.py", tmp_path / "environment.py")
    environment = load_environment(str(tmp_path))
    with pytest.raises(GoldenError, match="has no golden set; `rosetta golden here --write` records one"):
        read_golden(environment, "here")
    other = asyncio.run(record(miniatures.Counter(), [Case("a", "train/6", 0, ["?"])]))
    golden_folder(environment).mkdir()
    (golden_folder(environment) / EPISODES).write_text(other.to_text(), encoding="ascii")
    with pytest.raises(
        GoldenError, match=r"belongs to counter .*, and this is higher_lower 1; `rosetta golden"
    ):
        read_golden(environment, "here")


def test_the_hash_of_the_specification_changes_with_whatever_a_player_could_notice() -> None:
    class Longer(miniatures.Counter):
        max_turns = miniatures.Counter.max_turns + 1

    class Newer(miniatures.Counter):
        version = "other"

    kinds: tuple[Any, ...] = (
        miniatures.Counter(), Longer(), Newer(), miniatures.ForgivingCounter(), miniatures.Dice(),
    )  # fmt: skip
    hashes = [specify(kind, definition_sha256="x").sha256 for kind in kinds]
    assert len(set(hashes)) == len(hashes)
    assert specify(miniatures.Counter(), definition_sha256="y").sha256 == hashes[0], (
        "a comment changes nothing"
    )


def test_a_section_that_does_not_hold_takes_the_certificate_away(
    certificates: dict[str, Certificate], tmp_path: Path
) -> None:
    path = tmp_path / "section.json"
    for passed in (True, False):
        section = Section(
            title="Leaks", text="Tried.", columns=["a", "b"], rows=[["x|y", "0"]], passed=passed
        )
        path.write_text(section.model_dump_json(), encoding="utf-8")
        assert read_section(path) == section
        certificate = certificates["Honest"].model_copy(update={"sections": [section]})
        assert certificate.passed is passed
        page = render_certificate(certificate)
        assert "## Leaks" in page
        assert "| x\\|y | 0 |" in page
        assert ("Leaks: does not hold" in page) is not passed


def endured(findings: list[str]) -> dict[str, Any]:
    reading = endurance.Reading(sessions=0, descriptors=9, threads=3, bytes=1)
    left = dataclasses.replace(reading, threads=4)
    return endurance.Endurance(
        stack="one-1",
        packages={},
        environment="wordle 1",
        limits={},
        session_ttl_s=None,
        isolation=endurance.Isolation(64, 60, 512, findings),
        cycles=[endurance.Cycles("closed", 1000, "server", reading, left, 0.5)],
        secrecy=endurance.Secrecy(32, "wire", 4096, 32),
        seconds=1.0,
    ).to_json()


def test_what_endurance_found_becomes_a_section(tmp_path: Path) -> None:
    path = tmp_path / "endurance.json"
    path.write_text(json.dumps([endured([])]), encoding="utf-8")
    section = endurance_section(path)
    assert section.passed
    assert section.rows == [
        [
            "one-1",
            "64 sessions, 512 steps, 0 differences",
            "1,000 closed",
            "0 leaks; +0 sessions, +0 descriptors, +1 threads",
            "0 in 4,096 bytes of 32 episodes",
        ]
    ]
    path.write_text(json.dumps([endured(["mixed up"])]), encoding="utf-8")
    assert not endurance_section(path).passed
    path.write_text("[]", encoding="utf-8")
    assert not endurance_section(path).passed
    path.write_text("[{}]", encoding="utf-8")
    with pytest.raises(CertificateError, match="it has no 'isolation'"):
        endurance_section(path)


def test_files_that_are_no_certificate_are_refused_with_the_place(
    certificates: dict[str, Certificate], tmp_path: Path
) -> None:
    path = tmp_path / CERTIFICATE_FILE
    with pytest.raises(CertificateError, match="No such file"):
        Certificate.read(path)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(CertificateError, match="environment: Field required"):
        Certificate.read(path)
    newer = certificates["Honest"].model_copy(update={"schema_version": 99})
    path.write_text(newer.to_text(), encoding="utf-8")
    with pytest.raises(CertificateError, match="has version 99"):
        Certificate.read(path)


def test_the_golden_set_of_the_copy_is_whole(source: str) -> None:
    golden = GoldenSet.read(Path(source) / "golden" / EPISODES)
    assert golden.groups == {"solved": 1, "failed": 1, "budget": 1, "open": 1, "several": 1}
