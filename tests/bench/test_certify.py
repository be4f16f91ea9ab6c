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
from click.testing import CliRunner

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
from bench.endurance_records import (
    Cycles,
    Endurance,
    EnduranceError,
    Isolation,
    Reading,
    Secrecy,
    read_endurance,
)
from canonical.catalogue import load_environment
from canonical.dialect import write_calls
from canonical.golden import EPISODES, Case, GoldenError, GoldenSet, golden_folder, record
from canonical.tool import ToolCall
from reports.certificate import render_certificate, render_summary
from rosetta.__main__ import cli
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


def endured(stack: str, findings: list[str] | None = None, *, environment: str = "counter 1") -> Endurance:
    reading = Reading(sessions=0, descriptors=9, threads=3, bytes=1)
    left = dataclasses.replace(reading, threads=4)
    return Endurance(
        stack=stack,
        packages={},
        environment=environment,
        limits={},
        session_ttl_s=None,
        isolation=Isolation(64, 60, 512, findings or []),
        cycles=[Cycles(way, 1000, "server", reading, left, 0.5) for way in ("closed", "dropped")],
        secrecy=Secrecy(32, "wire", 4096, 32),
        seconds=1.0,
    )


def kept(path: Path, *results: Endurance) -> Path:
    path.write_text(json.dumps([result.to_json() for result in results]), encoding="utf-8")
    return path


def test_what_endurance_found_becomes_a_section_with_the_true_number_of_sessions(tmp_path: Path) -> None:
    results = read_endurance(kept(tmp_path / "endurance.json", endured("one-1"), endured("three-3")))
    assert results == [endured("one-1"), endured("three-3")]
    section = endurance_section(results, miniatures.Counter(), ["one-1", "two-2"])
    assert section.passed
    assert section.rows == [
        [
            "one-1",
            "64 sessions, 512 steps, 0 differences",
            "1,000 closed, 1,000 dropped",
            "0 leaks; +0 sessions, +0 descriptors, +1 threads",
            "0 in 4,096 bytes of 32 episodes",
        ],
        ["two-2", "not measured", "not measured", "not measured", "not measured"],
    ]
    assert "Of each release 2,000 others are opened and given up" in section.text
    assert "thousand" not in section.text
    assert "Not measured: two-2." in section.text
    assert "Measured too, and not certified here: three-3." in section.text
    assert "the built-in environment `canary`" in section.text
    few = endured("two-2")
    few.cycles = [Cycles("closed", 2, "server", few.cycles[0].before, few.cycles[0].after, 0.1)]
    assert (
        "Of each release 2 to 2,000 others"
        in endurance_section([endured("one-1"), few], miniatures.Counter(), ["one-1", "two-2"]).text
    )
    assert not endurance_section([endured("one-1", ["mixed up"])], miniatures.Counter(), ["one-1"]).passed


def test_endurance_of_something_else_is_refused_with_what_it_is_of() -> None:
    with pytest.raises(EnduranceError, match="one-1 was measured with counter 2, not with counter 1"):
        endurance_section([endured("one-1", environment="counter 2")], miniatures.Counter(), ["one-1"])
    with pytest.raises(EnduranceError, match="is of one-1, and none of these is certified"):
        endurance_section([endured("one-1")], miniatures.Counter(), ["two-2"])


def test_a_file_that_claims_to_pass_and_holds_findings_does_not_pass(tmp_path: Path) -> None:
    value = {**endured("one-1", ["mixed up"]).to_json(), "passed": True}
    path = tmp_path / "endurance.json"
    path.write_text(json.dumps([value]), encoding="utf-8")
    (result,) = read_endurance(path)
    assert not result.passed


ENDURED: Any = endured("one-1").to_json()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "the whole: Input should be a valid"),
        ("[]", "of no framework"),
        ("[{}]", "0.stack: Field required"),
        ("not JSON", "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        (json.dumps([ENDURED, ENDURED]), "of one-1 twice"),
        (json.dumps([{**ENDURED, "cycles": []}]), "0.cycles: List should have at least 1 item"),
        (json.dumps([{**ENDURED, "cycles": [{**ENDURED["cycles"][0], "cycles": 0}]}]), "0.cycles.0.cycles: "),
        (json.dumps([{**ENDURED, "secrecy": {**ENDURED["secrecy"], "bytes": "many"}}]), "0.secrecy.bytes: "),
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_a_file_that_holds_no_endurance_is_refused_before_anything_is_replayed(
    text: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "endurance.json"
    path.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(cli, ["certify", "wordle", "--framework", "gem", "--endurance", str(path)])
    assert done.exit_code == 2
    assert "Invalid value for '--endurance'" in done.output
    with pytest.raises(EnduranceError) as refused:
        read_endurance(path)
    assert words in str(refused.value)
    assert str(path) in str(refused.value)


def test_files_that_are_no_certificate_are_refused_with_the_place(
    certificates: dict[str, Certificate], tmp_path: Path
) -> None:
    path = tmp_path / CERTIFICATE_FILE
    with pytest.raises(CertificateError, match="No such file"):
        Certificate.read(path)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(CertificateError, match="environment: Field required"):
        Certificate.read(path)
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(CertificateError, match=r"certificate\.json: Input should be"):
        Certificate.read(path)
    newer = certificates["Honest"].model_copy(update={"schema_version": 99})
    path.write_text(newer.to_text(), encoding="utf-8")
    with pytest.raises(CertificateError, match="has version 99"):
        Certificate.read(path)


def test_the_golden_set_of_the_copy_is_whole(source: str) -> None:
    golden = GoldenSet.read(Path(source) / "golden" / EPISODES)
    assert golden.groups == {"solved": 1, "failed": 1, "budget": 1, "open": 1, "several": 1}
