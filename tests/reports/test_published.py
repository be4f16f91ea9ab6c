"""Published reports are what their records say: rendering them again gives the same files."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl
import pytest

from bench.certificate import CERTIFICATE_FILE, Certificate, specify
from bench.porting.matrix import all_frameworks, all_owners
from bench.porting.records import MATRIX_FILE as PORTS_FILE
from bench.porting.records import MATRIX_PAGE as PORTS_PAGE
from bench.porting.records import read_matrix
from bench.porting.tried import tried_sources
from bench.records import Conformance, Verdict, read_run
from bench.sandbox_records import RECORDS_FILE as SANDBOXES_FILE
from bench.sandbox_records import read_sandbox_run
from bench.serving.records import RECORDS_FILE, Fault, read_proxy_run
from bench.stacks import all_stacks
from bench.versions.latencies import LATENCY_FILE, Latencies
from bench.versions.matrix import MATRIX_FILE, Matrix
from canonical.catalogue import load_environment
from canonical.golden import EPISODES, GoldenSet, golden_folder
from reports.certificate import render_certificate
from reports.gauntlet import write_gauntlet
from reports.ports import render_matrix as render_ports
from reports.proxies import render_proxy_run
from reports.render import render_run
from reports.sandboxes import render_sandbox_run
from reports.versions import render_matrix

FOLDER = Path(__file__).resolve().parents[2] / "reports" / "published"
CERTIFICATES = sorted(path.parent for path in FOLDER.glob(f"*/{CERTIFICATE_FILE}"))
GAUNTLETS = sorted(path.parent for path in FOLDER.glob("*/gauntlet.json"))
PROXIES = sorted(path.parent for path in FOLDER.glob(f"*/{RECORDS_FILE}"))
MATRICES = sorted(path.parent for path in FOLDER.glob(f"*/{MATRIX_FILE}"))
SANDBOXES = sorted(path.parent for path in FOLDER.glob(f"*/{SANDBOXES_FILE}"))
PORTS = sorted(path.parent for path in FOLDER.glob(f"*/{PORTS_FILE}"))
PUBLISHED = sorted(path.parent for path in FOLDER.glob("*/records.jsonl"))


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_a_published_report_equals_a_new_rendering(folder: Path) -> None:
    rendered = render_run(read_run(folder)).files
    # Figures depend on the release of matplotlib, which they name; text and tables do not.
    drawn = f"Matplotlib v{mpl.__version__}"
    same = all(drawn in path.read_text(encoding="utf-8") for path in folder.glob("figures/*.svg"))
    compared = {name for name in rendered if same or name.endswith((".md", ".csv"))}
    assert compared
    assert sorted(name for name in compared if (folder / name).read_bytes() != rendered[name]) == []


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_only_whole_runs_of_conforming_environments_at_a_commit_are_published(folder: Path) -> None:
    run = read_run(folder)
    assert not run.partial
    assert run.header.commit is not None
    assert run.header.dirty is False
    assert [record.status for record in run.of(Conformance)] == ["passed"]


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_a_published_ceiling_that_was_judged_by_fewer_criteria_says_so(folder: Path) -> None:
    """The number of the method alone does not tell: criteria came in under method 1."""
    verdicts = read_run(folder).of(Verdict)
    judged = {criterion.name for verdict in verdicts for criterion in verdict.criteria}
    fewer = bool(verdicts) and "freed" not in judged
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert ("**Judged by fewer criteria.**" in report) is fewer
    assert ("; judged by fewer criteria than those of method" in report) is fewer


@pytest.mark.parametrize("folder", PROXIES, ids=lambda folder: folder.name)
def test_a_published_report_of_proxies_equals_a_new_rendering(folder: Path) -> None:
    run = read_proxy_run(folder)
    rendered = render_proxy_run(run).files
    assert sorted(name for name in rendered if (folder / name).read_bytes() != rendered[name]) == []
    assert not run.partial
    assert run.header.commit is not None


@pytest.mark.parametrize("folder", PROXIES, ids=lambda folder: folder.name)
def test_no_published_fault_loses_a_session_without_a_word_or_keeps_a_slot(folder: Path) -> None:
    for fault in read_proxy_run(folder).of(Fault):
        assert (fault.unaccounted, fault.held_after) == (0, {}), f"{fault.stack}, {fault.title}: {fault.name}"
        assert fault.fresh_succeeded == fault.fresh_sessions


@pytest.mark.parametrize("folder", CERTIFICATES, ids=lambda folder: folder.name)
def test_a_published_certificate_is_what_its_file_says_and_holds(folder: Path) -> None:
    certificate = Certificate.read(folder / CERTIFICATE_FILE)
    page = render_certificate(certificate).encode()
    assert (folder / "certificate.md").read_bytes() == page
    assert certificate.passed
    assert certificate.digest is not None
    assert certificate.commit is not None
    assert certificate.dirty is False


@pytest.mark.parametrize("folder", CERTIFICATES, ids=lambda folder: folder.name)
def test_a_published_certificate_is_of_the_environment_and_the_golden_set_as_they_are(folder: Path) -> None:
    certificate = Certificate.read(folder / CERTIFICATE_FILE)
    environment = load_environment(certificate.environment.name)
    assert specify(environment, definition_sha256="").sha256 == certificate.environment.sha256
    assert GoldenSet.read(golden_folder(environment) / EPISODES).digest() == certificate.golden.digest


@pytest.mark.parametrize("folder", GAUNTLETS, ids=lambda folder: folder.name)
def test_a_published_gauntlet_is_what_its_file_says_and_was_withstood(folder: Path) -> None:
    gauntlet = json.loads((folder / "gauntlet.json").read_text(encoding="utf-8"))
    assert (folder / "gauntlet.md").read_text(encoding="utf-8") == write_gauntlet(gauntlet)
    assert gauntlet["verdicts"]
    assert [verdict for verdict in gauntlet["verdicts"] if not verdict["held"]] == []
    assert gauntlet["commit"] is not None
    assert gauntlet["dirty"] is False
    name, _, version = gauntlet["environment"].partition(" ")
    assert load_environment(name).version == version


@pytest.mark.parametrize("folder", MATRICES, ids=lambda folder: folder.name)
def test_a_published_matrix_of_versions_is_what_its_cells_say_and_has_every_supported_release(
    folder: Path,
) -> None:
    matrix = Matrix.read(folder / MATRIX_FILE)
    latency = folder / LATENCY_FILE
    latencies = Latencies.read(latency) if latency.is_file() else None
    rendered = render_matrix(matrix, latencies).files
    # Figures depend on the release of matplotlib, which they name; text does not.
    drawn = f"Matplotlib v{mpl.__version__}"
    same = all(drawn in path.read_text(encoding="utf-8") for path in folder.glob("figures/*.svg"))
    compared = {name for name in rendered if same or name.endswith(".md")}
    assert sorted(name for name in compared if (folder / name).read_bytes() != rendered[name]) == []
    if latencies is not None:
        assert (latencies.commit is not None, latencies.dirty) == (True, False)
    supported = {target.label for one in all_stacks(supported=True) for target in one.per_target()}
    assert {cell.stack for cell in matrix.cells} == supported
    assert [cell.stack for cell in matrix.cells if not cell.outcome.good] == []
    assert matrix.commit is not None
    assert matrix.dirty is False


@pytest.mark.parametrize("folder", PORTS, ids=lambda folder: folder.name)
def test_a_published_matrix_of_ports_is_what_its_file_says_and_has_every_source_under_every_framework(
    folder: Path,
) -> None:
    matrix = read_matrix(folder / PORTS_FILE)
    assert (folder / PORTS_PAGE).read_text(encoding="utf-8") == render_ports(matrix)
    tried = {one.request(owner).name for owner in all_owners() for one in tried_sources(owner)}
    assert {(port.source.name, port.target.framework) for port in matrix.ports} == {
        (source, target) for source in tried for target in all_frameworks()
    }
    assert matrix.holds
    assert len(matrix.round_trips) == len(all_frameworks()) * (len(all_frameworks()) - 1)
    assert (matrix.commit is not None, matrix.dirty) == (True, False)


@pytest.mark.parametrize("folder", SANDBOXES, ids=lambda folder: folder.name)
def test_a_published_run_of_sandboxes_equals_a_new_rendering_and_is_whole(folder: Path) -> None:
    run = read_sandbox_run(folder)
    rendered = render_sandbox_run(run).files
    assert sorted(name for name in rendered if (folder / name).read_bytes() != rendered[name]) == []
    assert not run.partial
    assert run.header.commit is not None
    assert run.header.dirty is False
