"""Runs with known truth, written through the real RunWriter: what a report says can be checked against how it was made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.ceiling import Trial, evaluate, judge_generator
from bench.machine import Machine, Pressure
from bench.records import (
    Ceiling,
    Cell,
    Conformance,
    Cost,
    End,
    Header,
    Note,
    Ratio,
    Run,
    RunWriter,
    ServerReading,
    Subjected,
    Support,
    read_run,
    samples_table,
)
from bench.samples import Phase, SampleColumns, Status
from bench.stats import population
from reports.render import PAGE, RenderedReport, render_run

SECOND = 1_000_000_000
MACHINE = Machine(
    system="Linux",
    kernel="6.1.0",
    architecture="x86_64",
    cpu_model="Imaginary 2000",
    cores=4,
    affinity=(0, 1),
    memory_bytes=8 * 2**30,
    nofile_soft=1024,
    nofile_hard=20_000,
    port_low=32_768,
    port_high=60_999,
    somaxconn=4096,
    python="CPython 3.11.9",
    python_compiler="GCC 12",
    python_gil=True,
)
SINGLE = {"turns": 5, "tool_ns": 0, "tool_kind": "sync", "think_ns": 0, "spread_ns": 0, "arrival": "closed"}
HELD = {
    "turns": 5,
    "tool_ns": SECOND,
    "tool_kind": "async",
    "think_ns": 0,
    "spread_ns": SECOND // 2,
    "arrival": "closed",
}
SERVER = {"server": "imaginary", "workers": 1, "backlog": 2048, "max_sessions": 10_000}
MEDIANS_NS = {Phase.CONNECT: 2_400_000, Phase.RESET: 380_000, Phase.STEP: 240_000, Phase.CLOSE: 150_000}


@dataclass
class Story:
    """What a synthetic run contains. Every part can be left out."""

    seed: int = 1
    header: dict[str, Any] = field(default_factory=dict)
    conformance: str | None = "passed"
    single_sessions: int = 320
    pairs: bool = True
    ratio: tuple[float, float, float] | None = (0.152, 0.147, 0.158)
    ladder: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512, 1024, 768, 640)
    capacity: int = 700
    """Sessions above which steps become slow."""
    ceiling: bool = True
    costs: bool = True
    server_side: bool = True
    failing_share: float = 0.0
    """Share of the steps at one session that fail."""
    notes: tuple[str, ...] = ()
    status: str = "ok"
    interrupt: bool = False
    footer: bool = True
    steal: bool = False
    foreign: bool = False
    """Whether others used most of the machine beside every cell."""


def draw(rng: np.random.Generator, median_ns: float, size: int, sigma: float = 0.18) -> list[int]:
    """Draw latencies with a tail: lognormal, one in fifty three times as long."""
    values = median_ns * np.exp(rng.normal(0, sigma, size))
    values[rng.random(size) < 0.02] *= 3
    return [int(value) for value in values]


class Synthesis:
    """Writes a story into a folder."""

    def __init__(self, story: Story, folder: Path) -> None:
        self.story = story
        self.folder = folder
        self.rng = np.random.default_rng(story.seed)
        self.order = 0
        self.clock = 5_000 * SECOND

    def write(self) -> Run:
        story = self.story
        writer = RunWriter(self.folder, header(**story.header))
        try:
            if story.conformance:
                failed = story.conformance != "passed"
                writer.write(
                    Conformance(
                        status=story.conformance,
                        episodes=200,
                        steps=1_412,
                        divergences=3 if failed else 0,
                        seconds=11.7,
                        digest="5d" * 32,
                        **(
                            {"first_divergence": "step 3: reward\n  reference 0.5\n  subject   1.0"}
                            if failed
                            else {}
                        ),
                    )
                )
            self.latency(writer)
            if story.pairs:
                self.paired(writer)
            if story.ratio:
                value, low, high = story.ratio
                writer.write(
                    Ratio(
                        name="compiled/baseline step",
                        phase=Phase.STEP,
                        pairs=30,
                        ratio=value,
                        low=low,
                        high=high,
                        n=1_800,
                    )
                )
                writer.write(
                    Ratio(
                        name="compiled/baseline reset",
                        phase=Phase.RESET,
                        pairs=30,
                        ratio=1.01,
                        low=0.96,
                        high=1.07,
                        n=360,
                    )
                )
            if story.costs:
                writer.write(
                    Cost(
                        name="episode_step_overhead",
                        value=4_310.5,
                        unit="ns",
                        n=10_000,
                        low=4_290.0,
                        high=4_333.0,
                    )
                )
                writer.write(
                    Cost(name="live_episode_bytes", value=2_904, unit="bytes", n=500, low=2_888, high=2_920)
                )
            self.held(writer)
            for note in story.notes:
                writer.write(Note(text=note))
            if story.interrupt:
                writer.write(self.cell("held-9999-99", "compiled", HELD, 9_999, "locust"))
        finally:
            if story.footer:
                writer.close(interrupted=story.interrupt)
            elif writer._file is not None:
                writer._file.close()
        return read_run(self.folder)

    def cell(  # noqa: PLR0917 - the columns of a record
        self,
        name: str,
        subject: str,
        workload: dict[str, Any],
        sessions: int,
        engine: str,
        repetition: int = 0,
    ) -> Cell:
        self.order += 1
        return Cell(
            id=name,
            adapter="imaginary",
            subject=subject,
            workload=workload,
            sessions=sessions,
            repetition=repetition,
            engine=engine,
            server=SERVER,
            order=self.order - 1,
        )

    def pressures(self, seconds: float) -> dict[str, Any]:
        before = Pressure(at_ns=self.clock, cpu_some_avg10=2.0, busy_s=10.0, steal_s=0.0, cpus=2, load_1m=0.2)
        self.clock += int(seconds * SECOND)
        stolen = 0.4 * 2 * seconds if self.story.steal else 0.0
        after = Pressure(
            at_ns=self.clock, cpu_some_avg10=9.0, busy_s=10.5, steal_s=stolen, cpus=2, load_1m=0.4
        )
        self.clock += 12 * SECOND
        pressures = {"pressure_before": before, "pressure_after": after}
        if self.story.foreign:
            busy = after.model_copy(update={"busy_s": before.busy_s + 1.4 * seconds})
            return {**pressures, "pressure_after": busy, "own_cpu_s": 0.2 * seconds}
        return pressures

    def sessions(
        self,
        columns: SampleColumns,
        numbers: range,
        factor: float,
        *,
        warmup: bool = False,
        failing: float = 0.0,
    ) -> None:
        for session in numbers:
            at, seq = self.clock + session * 10_000_000, 0
            for phase in (Phase.CONNECT, Phase.RESET, *(Phase.STEP,) * 5, Phase.CLOSE):
                (ns,) = draw(self.rng, MEDIANS_NS[phase] * factor, 1)
                broken = phase is Phase.STEP and not warmup and self.rng.random() < failing
                columns.append(
                    session,
                    seq,
                    phase,
                    warmup,
                    at,
                    at,
                    ns,
                    Status.TIMEOUT if broken else Status.OK,
                    "no answer in 60 s" if broken else None,
                )
                at, seq = at + ns, seq + 1

    def latency(self, writer: RunWriter) -> None:
        story = self.story
        if not story.single_sessions:
            return
        writer.write(self.cell("latency-1", "compiled", SINGLE, 1, "client"))
        columns = SampleColumns()
        self.sessions(columns, range(10), 1.6, warmup=True)
        self.sessions(columns, range(10, 10 + story.single_sessions), 1.0, failing=story.failing_share)
        writer.write_samples("latency-1", columns)
        reading = {"fds": 14, "threads": 5, "open_sessions": 0, "loop_lag_p99_ns": 900_000}
        side = {
            "server_before": ServerReading(rss_bytes=90 * 2**20, **reading),
            "server_peak": ServerReading(rss_bytes=92 * 2**20, **{**reading, "open_sessions": 1}),
            "server_after": ServerReading(rss_bytes=92 * 2**20, **reading),
        }
        writer.write(
            End(
                cell="latency-1",
                status=story.status,
                peak_open=1,
                opened=10 + story.single_sessions,
                succeeded=10 + story.single_sessions,
                **self.pressures(4.0),
                **(side if story.server_side else {}),
            )
        )

    def paired(self, writer: RunWriter) -> None:
        for subject in ("compiled", "baseline"):
            writer.write(self.cell(f"pairs-{subject}", subject, SINGLE, 1, "client"))
        for subject, factor in (("compiled", 1.05), ("baseline", 6.9)):
            columns = SampleColumns()
            self.sessions(columns, range(6), factor, warmup=True)
            self.sessions(columns, range(6, 186), factor)
            writer.write_samples(f"pairs-{subject}", columns)
        for subject in ("compiled", "baseline"):
            writer.write(End(cell=f"pairs-{subject}", status=self.story.status, **self.pressures(6.0)))

    def held(self, writer: RunWriter) -> None:
        story = self.story
        trials: list[tuple[Trial, bool]] = []
        for number, sessions in enumerate(story.ladder):
            name = f"held-{sessions}-{number:02d}"
            writer.write(self.cell(name, "compiled", HELD, sessions, "locust", number))
            columns = SampleColumns()
            lost = self.play_held(columns, sessions)
            writer.write_samples(name, columns)
            table = samples_table(columns)
            generator = judge_generator(
                cpu_s=0.4 + sessions / 900,
                wall_s=7.0,
                cores=1,
                loop_lag_p99_ns=2_000_000 + sessions * 900,
                wait_ns=SECOND,
            )
            trial = Trial(
                cell=name,
                sessions=sessions,
                succeeded=sessions - lost,
                peak_open=sessions,
                wait_ns=SECOND,
                connect=population(table, Phase.CONNECT),
                reset=population(table, Phase.RESET),
                step=population(table, Phase.STEP),
                generator=generator,
                errors={"server hung up": lost} if lost else {},
            )
            verdict = evaluate(trial)
            trials.append((trial, verdict.passed))
            before = ServerReading(
                rss_bytes=96 * 2**20, fds=14, threads=5, open_sessions=0, loop_lag_p99_ns=800_000
            )
            peak = ServerReading(
                rss_bytes=96 * 2**20 + sessions * 33_000,
                fds=14 + sessions,
                threads=5 + sessions // 16,
                open_sessions=sessions,
                loop_lag_p99_ns=1_000_000 + sessions * 20_000,
            )
            after = ServerReading(
                rss_bytes=98 * 2**20, fds=14, threads=5, open_sessions=0, loop_lag_p99_ns=800_000
            )
            side = (
                {"server_before": before, "server_peak": peak, "server_after": after}
                if story.server_side
                else {}
            )
            writer.write(
                End(
                    cell=name,
                    status=story.status,
                    generator=generator,
                    peak_open=sessions,
                    opened=sessions,
                    succeeded=sessions - lost,
                    throughput_steps_per_s=sessions * 5 / 6.0,
                    **self.pressures(7.0),
                    **side,
                )
            )
            writer.write(verdict)
        if story.ceiling and trials:
            failing = min((trial.sessions for trial, passed in trials if not passed), default=None)
            lower = max(
                (
                    trial.sessions
                    for trial, passed in trials
                    if passed and (failing is None or trial.sessions < failing)
                ),
                default=0,
            )
            common = {
                "adapter": "imaginary",
                "subject": "compiled",
                "workload": HELD,
                "trials": len(trials),
                "configured_caps": {"max_sessions": 10_000},
            }
            if failing:
                writer.write(
                    Ceiling(
                        criterion="slo",
                        lower=lower,
                        upper=failing,
                        stopped_by="step_p99",
                        censored=False,
                        confirmed=True,
                        **common,
                    )
                )
            else:
                writer.write(
                    Ceiling(criterion="slo", lower=lower, stopped_by="limit", censored=True, **common)
                )
            writer.write(
                Ceiling(
                    criterion="success_only",
                    lower=max(story.ladder),
                    stopped_by="limit",
                    censored=True,
                    **common,
                )
            )

    def play_held(self, columns: SampleColumns, sessions: int) -> int:
        rng, story = self.rng, self.story
        overload = max(0.0, sessions / story.capacity - 1.0)
        lost = int(sessions * 0.02) if overload > 0.3 else 0
        for session in range(sessions):
            at, seq = self.clock, 0
            for phase in (Phase.CONNECT, Phase.RESET):
                (ns,) = draw(rng, MEDIANS_NS[phase] * (1 + sessions / 60), 1, 0.4)
                columns.append(session, seq, phase, False, at, at, ns)
                seq += 1
            at = self.clock + 3 * SECOND + session * (SECOND // 2) // sessions
            for turn in range(5):
                extra = draw(rng, 300_000 * (1 + sessions / 100) + overload * 1.1 * SECOND, 1, 0.5)[0]
                if session < lost and turn == 4:
                    columns.append(
                        session, seq, Phase.STEP, False, at, at, SECOND, Status.ERROR, "server hung up"
                    )
                else:
                    columns.append(session, seq, Phase.STEP, False, at, at, SECOND + extra)
                at, seq = at + SECOND + extra, seq + 1
            columns.append(session, seq, Phase.CLOSE, False, at, at, draw(rng, 300_000, 1)[0])
        self.clock = at
        return lost


def header(**changes: Any) -> Header:
    fields: dict[str, Any] = {
        "run_id": "imaginary-1.2-wordle-20260301T120000Z",
        "started": datetime(2026, 3, 1, 12, 0, tzinfo=UTC),
        "adapter": "imaginary",
        "environment": Subjected(name="wordle", version="1", sha256="ab" * 32, tasks_sha256="cd" * 32),
        "framework": {"imaginary": "1.2.0", "imaginary-server": "0.9"},
        "python": "3.11.9",
        "constraints_sha256": "ef" * 32,
        "machine": MACHINE,
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "dirty": False,
        "args_passed": ("bench", "imaginary", "--plan", "quick"),
        "plan": {"name": "quick", "pairs": 30, "held": HELD},
        "seeds": {"order": 0, "fuzz": 0},
        "features": {
            "concurrent_sessions": Support(level="native", note="one coroutine per session"),
            "step_reward": Support(level="native"),
            "truncation": Support(level="emulated", note="carried in the metadata of the observation"),
            "images": Support(level="absent", note="observations are text"),
        },
    }
    return Header(**{**fields, **changes})


MakeRun = Callable[..., Run]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Write and read a synthetic run; keywords are those of `Story`."""
    counter = iter(range(100))

    def make(**story: Any) -> Run:
        return Synthesis(Story(**story), tmp_path / f"run-{next(counter)}").write()

    return make


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in which everything was measured."""
    return Synthesis(Story(), tmp_path_factory.mktemp("whole") / "run").write()


@dataclass
class ShownTable:
    """A table as a reader of the page sees it."""

    caption: str
    columns: list[str]
    rows: list[list[tuple[str, str]]]
    """Text and detail of each field."""

    def column(self, title: str) -> list[tuple[str, str]]:
        index = self.columns.index(title)
        return [row[index] for row in self.rows]

    def row(self, *beginning: str) -> list[tuple[str, str]]:
        return next(row for row in self.rows if tuple(text for text, _ in row[: len(beginning)]) == beginning)


class Page(HTMLParser):
    """Reads a page strictly: every element that is opened is closed, in order."""

    VOID = frozenset({"meta", "link", "br", "hr", "img", "input", "wbr", "source"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[ShownTable] = []
        self.sections: dict[str, str] = {}
        self.words: list[str] = []
        self._section = ""
        self._caption = ""
        self._field: list[str] | None = None
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.attributes.append((tag, attributes))
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        if attributes.get("id"):
            self.ids.append(attributes["id"] or "")
        self.targets += [
            value or "" for name, value in attrs if name in {"href", "src", "xlink:href", "srcset"}
        ]
        if tag in self.VOID:
            return
        self.open.append(tag)
        if tag == "h2":
            self._section = attributes["id"] or ""
            self.sections[self._section] = ""
        if tag == "table":
            self.tables.append(ShownTable(self._caption, [], []))
        if tag == "tr" and self.tables and "tbody" in self.open:
            self.tables[-1].rows.append([])
        if tag in {"th", "td"}:
            self._field = ["", ""]
        if tag == "p" and attributes.get("class") == "title":
            self._caption = ""

    def handle_endtag(self, tag: str) -> None:
        if tag in self.VOID:
            return
        assert [tag] == self.open[-1:], f"</{tag}> inside {self.open}"
        self.open.pop()
        if tag in {"th", "td"} and self._field is not None:
            text, detail = (" ".join(part.split()) for part in self._field)
            if tag == "th":
                self.tables[-1].columns.append(text)
            else:
                self.tables[-1].rows[-1].append((text, detail))
            self._field = None

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in {"style", "script"}:
            return
        self.words.append(data)
        if self._section:
            self.sections[self._section] += data
        if self._field is not None:
            part = 1 if self.open[-1] == "span" else 0
            self._field[part] += data
        elif "p" in self.open and self.open[-1] == "span":
            self._caption = self._caption or data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def section(self, anchor: str) -> str:
        return " ".join(self.sections[anchor].split())

    def table(self, caption: str) -> ShownTable:
        found = [table for table in self.tables if table.caption == caption]
        assert len(found) == 1, (
            f"{len(found)} tables are called {caption!r}: {[t.caption for t in self.tables]}"
        )
        return found[0]


@pytest.fixture(scope="session")
def whole_report(whole_run: Run) -> RenderedReport:
    """The report of the run in which everything was measured."""
    return render_run(whole_run)


@pytest.fixture(scope="session")
def whole_page(whole_report: RenderedReport) -> Page:
    """The page of the run in which everything was measured."""
    return Page(whole_report.files[PAGE].decode())


@pytest.fixture
def read_page() -> Callable[[Run], Page]:
    """Render a run and read its page strictly."""
    return lambda run: Page(render_run(run).files[PAGE].decode())
