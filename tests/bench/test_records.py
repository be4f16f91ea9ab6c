"""What is written is what is read, and what is damaged is refused."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from bench.machine import Machine, Pressure
from bench.records import (
    METHOD,
    SCHEMA,
    BadRecord,
    BadSamples,
    Ceiling,
    Cell,
    Conformance,
    Cost,
    Criterion,
    DuplicateCell,
    EmptyRun,
    End,
    Footer,
    Generator,
    Header,
    MissingHeader,
    Note,
    Ratio,
    Run,
    RunExists,
    RunWriter,
    ServerReading,
    Subjected,
    Support,
    UnknownCell,
    Verdict,
    WriteFailed,
    read_run,
    read_samples,
    samples_path,
    write_samples,
)
from bench.samples import Phase, SampleColumns, Status

never_timed = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)

REPOSITORY = Path(__file__).parents[2]


def header(**changes):
    facts = {
        "run_id": "r1",
        "started": datetime(2026, 11, 29, 12, 0, 0, 123_456, tzinfo=UTC),
        "adapter": "openenv",
        "environment": Subjected(name="wordle", version="1", sha256="ab", tasks_sha256="cd"),
        "framework": {"openenv": "0.10.0"},
        "python": "CPython 3.12.1",
        "machine": Machine(
            system="Linux",
            kernel="6",
            architecture="x86_64",
            python="CPython 3.11.7",
            python_compiler="GCC",
            python_gil=True,
        ),
        "args_passed": ("--plan", "quick"),
        "plan": {"sessions": [1, 8], "wait": 0.5},
        "seeds": {"order": 1},
        "features": {"seeded_reset": Support(level="native")},
    }
    return Header(**facts | changes)


def cell(name="c1", **changes):
    facts = {
        "id": name,
        "adapter": "openenv",
        "subject": "compiled",
        "workload": {"turns": 6, "tool_ns": 0},
        "sessions": 8,
        "repetition": 0,
        "engine": "client",
        "server": {"workers": 1},
        "order": 0,
    }
    return Cell(**facts | changes)


def verdict(name="c1"):
    criterion = Criterion(name="success", passed=True, value=0.97, limit=0.95, unit="share")
    return Verdict(cell=name, sessions=8, passed=True, criteria=(criterion,), first_errors={})


def write(folder, *records):
    with RunWriter(folder, header()) as run:
        for record in records:
            run.write(record)
    return folder / "records.jsonl"


words = st.text(max_size=20)
names = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,20}\Z")
counts = st.integers(0, 2**63 - 1)
positive = st.integers(1, 2**63 - 1)
numbers = st.floats(allow_nan=False, allow_infinity=False)
shares = st.floats(0, 1e12)
plain = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63) | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(words, plain, max_size=4)
moments = st.datetimes(timezones=st.just(UTC), min_value=datetime(1970, 1, 1), max_value=datetime(2200, 1, 1))  # noqa: DTZ001


def maybe(strategy):
    return st.none() | strategy


pressures = st.builds(
    Pressure,
    at_ns=counts,
    cpu_some_avg10=maybe(shares),
    busy_s=maybe(shares),
    steal_s=maybe(shares),
    cpus=maybe(positive),
    load_1m=maybe(shares),
)
readings = st.builds(
    ServerReading,
    rss_bytes=maybe(counts),
    fds=maybe(counts),
    threads=maybe(counts),
    open_sessions=maybe(counts),
    loop_lag_p99_ns=maybe(counts),
)
generators = st.builds(
    Generator,
    cpu_s=shares,
    wall_s=st.floats(1e-9, 1e9),
    cores=positive,
    loop_lag_p99_ns=maybe(counts),
    saturated=st.booleans(),
)
criteria = st.builds(
    Criterion,
    name=words,
    passed=st.booleans(),
    value=maybe(counts | numbers),
    limit=counts | numbers,
    unit=words,
    note=words,
)
headers = st.builds(
    header,
    run_id=words,
    started=moments,
    framework=st.dictionaries(words, words, max_size=3),
    constraints_sha256=maybe(words),
    commit=maybe(words),
    dirty=maybe(st.booleans()),
    args_passed=st.lists(words, max_size=3).map(tuple),
    plan=objects,
    seeds=st.dictionaries(words, st.integers(), max_size=3),
    features=st.dictionaries(
        words,
        st.builds(Support, level=st.sampled_from(["native", "emulated", "absent"]), note=words),
        max_size=3,
    ),
)
loose = (
    st.builds(
        Conformance,
        status=st.sampled_from(["passed", "failed", "error"]),
        episodes=counts,
        steps=counts,
        divergences=counts,
        seconds=shares,
        digest=words,
        first_divergence=maybe(words),
    )
    | st.builds(
        Ceiling,
        adapter=words,
        subject=st.sampled_from(["compiled", "baseline"]),
        workload=objects,
        criterion=st.sampled_from(["slo", "success_only"]),
        lower=st.integers(0, 1_000),
        upper=maybe(st.integers(1_001, 2_000)),
        stopped_by=st.sampled_from(["success", "client", "server_died"]),
        censored=st.booleans(),
        confirmed=st.booleans(),
        trials=counts,
        configured_caps=objects,
    )
    | st.builds(
        Ratio,
        name=words,
        phase=st.sampled_from(Phase),
        pairs=positive,
        ratio=st.just(1.0),
        low=st.floats(1e-9, 1),
        high=st.floats(1, 1e9),
        n=positive,
    )
    | st.builds(Cost, name=words, value=counts | numbers, unit=words, n=positive)
    | st.builds(Note, text=words)
)


@st.composite
def stories(draw):
    """Draw the records of a consistent run: some cells that begin, are judged and end, and other records between."""
    records = []
    for name in draw(st.lists(names, unique=True, max_size=4)):
        records.append(
            cell(
                name,
                workload=draw(objects),
                server=draw(objects),
                sessions=draw(positive),
                repetition=draw(counts),
                engine=draw(st.sampled_from(["client", "locust"])),
                subject=draw(st.sampled_from(["compiled", "baseline"])),
            )
        )
        records += draw(st.lists(loose, max_size=2))
        if draw(st.booleans()):
            errors = st.dictionaries(words, positive, max_size=3)
            records.append(
                Verdict(
                    cell=name,
                    sessions=draw(positive),
                    passed=draw(st.booleans()),
                    criteria=tuple(draw(st.lists(criteria, max_size=3))),
                    first_errors=draw(errors),
                )
            )
        records.append(
            End(
                cell=name,
                status=draw(
                    st.sampled_from(["ok", "failed", "skipped", "unverified", "timeout", "interrupted"])
                ),
                reason=draw(maybe(words)),
                pressure_before=draw(maybe(pressures)),
                pressure_after=draw(maybe(pressures)),
                server_peak=draw(maybe(readings)),
                generator=draw(maybe(generators)),
                peak_open=draw(maybe(counts)),
                throughput_steps_per_s=draw(maybe(shares)),
            )
        )
    return records


class TestRoundTrip:
    @settings(never_timed, max_examples=40)
    @given(head=headers, records=stories())
    def test_every_record_reads_back_equal(self, tmp_path_factory, head, records):
        folder = tmp_path_factory.mktemp("run")
        with RunWriter(folder, head) as run:
            for record in records:
                run.write(record)
        found = read_run(folder)
        assert found.header == head
        assert list(found.records) == records
        assert not found.partial

    def test_the_header_stands_first_with_schema_and_method(self, tmp_path):
        first = json.loads(write(tmp_path).read_text().splitlines()[0])
        assert (first["kind"], first["schema"], first["method"]) == ("header", SCHEMA, METHOD)

    def test_what_is_absent_is_left_out(self, tmp_path):
        text = write(
            tmp_path,
            cell(server={"workers": 1, "backlog": None, "gc": {"freeze": None}}),
            End(cell="c1", status="ok"),
        ).read_text()
        assert "null" not in text
        assert json.loads(text.splitlines()[1])["server"] == {"workers": 1, "gc": {}}
        assert json.loads(text.splitlines()[2]) == {"kind": "end", "cell": "c1", "status": "ok"}

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_no_number_that_is_none_can_be_recorded(self, bad):
        with pytest.raises(ValidationError):
            Criterion(name="x", passed=True, value=bad, limit=1, unit="s")
        with pytest.raises(ValidationError):
            Cost(name="x", value=bad, unit="s", n=1)
        with pytest.raises(ValidationError):
            cell(server={"deep": [{"er": bad}]})
        with pytest.raises(ValidationError):
            Pressure(at_ns=1, load_1m=bad)

    def test_garbage_from_a_broken_process_can_be_recorded(self, tmp_path):
        write(tmp_path, Note(text="broken \udcff output"))
        (note,) = read_run(tmp_path).of(Note)
        assert note.text == "broken ? output"

    def test_a_cell_id_that_is_no_file_name_is_refused(self):
        for name in ("", "../c1", "a/b", ".hidden", "c 1", "c1\n"):
            with pytest.raises(ValidationError):
                cell(name)

    def test_an_interval_or_bracket_upside_down_is_refused(self):
        with pytest.raises(ValidationError, match="upside down"):
            Ratio(name="x", phase=Phase.STEP, pairs=8, ratio=1.0, low=2.0, high=1.0, n=8)
        with pytest.raises(ValidationError, match="upside down"):
            Ceiling(
                adapter="x",
                subject="compiled",
                workload={},
                criterion="slo",
                lower=8,
                upper=8,
                stopped_by="success",
                censored=False,
                trials=1,
                configured_caps={},
            )

    def test_times_of_day_are_utc(self):
        with pytest.raises(ValidationError, match="UTC"):
            header(started=datetime.fromisoformat("2026-11-29T12:00:00+02:00"))

    def test_a_run_answers_by_cell_and_kind(self, tmp_path):
        write(
            tmp_path,
            cell(),
            verdict(),
            End(cell="c1", status="ok"),
            cell("c2"),
            End(cell="c2", status="skipped", reason="no port"),
        )
        run = read_run(tmp_path)
        assert [one.id for one in run.of(Cell)] == ["c1", "c2"]
        assert run.cell("c2").id == "c2"
        assert run.end("c2").reason == "no port"
        assert run.of(Verdict) == (verdict(),)
        assert run.footer.counts == {"ok": 1, "skipped": 1}
        assert read_run(tmp_path / "records.jsonl") == run


class TestWriter:
    def test_each_line_is_there_at_once(self, tmp_path):
        run = RunWriter(tmp_path, header())
        run.write(cell())
        assert len((tmp_path / "records.jsonl").read_text().splitlines()) == 2
        assert read_run(tmp_path).partial
        run.close()
        run.close()
        assert read_run(tmp_path).footer.interrupted  # c1 had not ended

    def test_interrupting_keeps_what_was_measured_and_says_so(self, tmp_path):
        with pytest.raises(KeyboardInterrupt), RunWriter(tmp_path, header()) as run:  # noqa: PT012
            run.write(cell())
            run.write(End(cell="c1", status="ok"))
            run.write(cell("c2"))
            raise KeyboardInterrupt
        found = read_run(tmp_path)
        assert found.partial
        assert found.footer.interrupted
        assert found.footer.counts == {"ok": 1, "interrupted": 1}
        assert found.end("c2").status == "interrupted"

    def test_a_run_is_never_overwritten(self, tmp_path):
        before = write(tmp_path).read_bytes()
        with pytest.raises(RunExists, match="already holds a run"):
            RunWriter(tmp_path, header())
        assert (tmp_path / "records.jsonl").read_bytes() == before

    def test_a_folder_that_cannot_be_made_is_named(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(WriteFailed, match=r"cannot write to .*file/run: Not a directory"):
            RunWriter(tmp_path / "file" / "run", header())

    def test_the_writer_refuses_what_the_reader_would_refuse(self, tmp_path):
        with RunWriter(tmp_path, header()) as run:
            run.write(cell())
            for _ in range(2):
                with pytest.raises(DuplicateCell, match="line 3"):
                    run.write(cell())
            with pytest.raises(UnknownCell, match="line 3"):
                run.write(verdict("c9"))
            with pytest.raises(UnknownCell):
                run.write_samples("c9", SampleColumns())
            run.write(End(cell="c1", status="ok"))
            with pytest.raises(BadRecord, match="ends a second time"):
                run.write(End(cell="c1", status="ok"))
            with pytest.raises(BadRecord, match="second header"):
                run.write(header())
        with pytest.raises(ValueError, match="was closed"):
            run.write(Note(text="late"))
        assert len(read_run(tmp_path).records) == 2

    def full_disk(self, folder, body):
        """Run a writer in a process whose files may hold 4 KiB, which is what a full disk looks like to it."""
        script = f"""
            import resource, sys
            sys.path[:0] = [{str(REPOSITORY)!r}, {str(Path(__file__).parent)!r}]
            from pathlib import Path
            from bench.records import *
            from bench.samples import SampleColumns
            from test_records import cell, header
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
            folder = Path({str(folder)!r})
            try:
                with RunWriter(folder, header()) as run:
                    run.write(cell())
                    {body}
            except WriteFailed as failure:
                print(failure)
        """
        done = subprocess.run(
            # -B: Python would cut the compiled files that it writes off at the limit, too, and break them for everyone.
            [sys.executable, "-B", "-c", textwrap.dedent(script)],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def test_a_full_disk_names_the_folder_and_keeps_what_was_written(self, tmp_path):
        said = self.full_disk(tmp_path, "for number in range(1_000): run.write(Note(text=f'note {number}'))")
        assert said.startswith(f"cannot write to {tmp_path}: File too large.")
        assert "kept there" in said
        found = read_run(tmp_path)
        notes = [note.text for note in found.of(Note)]
        assert notes == [f"note {number}" for number in range(len(notes))]
        assert len(notes) > 10
        assert found.partial
        assert not found.truncated

    def test_samples_on_a_full_disk_leave_no_half_file_and_the_run_is_closed(self, tmp_path):
        body = "columns = SampleColumns(); [columns.append(i, i * 7919 % 1000, 'step', False, i * i, i * 31, i ** 3) for i in range(20_000)]; run.write_samples('c1', columns)"
        said = self.full_disk(tmp_path, body)
        assert said.startswith(f"cannot write to {tmp_path}: ")
        assert list((tmp_path / "samples").iterdir()) == []
        found = read_run(tmp_path)
        assert found.end("c1").status == "interrupted"
        assert found.footer.interrupted

    def test_a_killed_writer_leaves_a_readable_run(self, tmp_path):
        script = f"""
            import sys
            sys.path[:0] = [{str(REPOSITORY)!r}, {str(Path(__file__).parent)!r}]
            from pathlib import Path
            from bench.records import *
            from test_records import header
            run = RunWriter(Path({str(tmp_path)!r}), header())
            number = 0
            while True:
                run.write(Note(text=f"note {{number}}"))
                number += 1
                if number == 200:
                    print("go", flush=True)
        """
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout.readline() == b"go\n"
            writer.kill()
            assert writer.wait() == -signal.SIGKILL
        found = read_run(tmp_path)
        notes = [note.text for note in found.of(Note)]
        assert notes == [f"note {number}" for number in range(len(notes))]
        assert len(notes) >= 200
        assert found.footer is None
        assert found.partial


class TestReader:
    @pytest.fixture
    def file(self, tmp_path):
        return write(tmp_path, cell(), verdict(), End(cell="c1", status="ok"), Note(text="quiet"))

    def change(self, file, number, **fields):
        lines = file.read_text().splitlines()
        record = json.loads(lines[number])
        record.update(fields)
        lines[number] = json.dumps({key: value for key, value in record.items() if value is not ...})
        file.write_text("\n".join(lines) + "\n")

    def replace(self, file, number, line):
        lines = file.read_bytes().splitlines()
        lines[number] = line
        file.write_bytes(b"\n".join(lines) + b"\n")

    @never_timed
    @given(data=st.data())
    def test_a_file_cut_anywhere_reads_as_partial(self, file, tmp_path_factory, data):
        content = file.read_bytes()
        at = data.draw(st.integers(0, len(content) - 1))
        folder = tmp_path_factory.mktemp("cut")
        (folder / "records.jsonl").write_bytes(content[:at])
        whole = content[:at].count(b"\n")
        if whole == 0:
            with pytest.raises(EmptyRun):
                read_run(folder)
            return
        found = read_run(folder)
        assert found.partial
        assert found.truncated is not content[:at].endswith(b"\n")
        assert found.torn_line == (content[:at].count(b"\n") + 1 if found.truncated else None)
        assert found.records == read_run(file).records[: whole - 1]

    def test_without_a_file_the_run_is_empty(self, tmp_path):
        with pytest.raises(EmptyRun, match="there is no run in"):
            read_run(tmp_path / "nowhere")
        (tmp_path / "records.jsonl").touch()
        with pytest.raises(EmptyRun, match="no complete record"):
            read_run(tmp_path)

    def test_without_a_header_it_is_no_run(self, file):
        file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
        with pytest.raises(MissingHeader, match="begins with a cell"):
            read_run(file)

    def test_a_second_header_is_refused(self, file):
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join([lines[0], *lines]))
        with pytest.raises(BadRecord, match="line 2: a second header"):
            read_run(file)

    def test_a_cell_that_begins_twice_is_refused(self, file):
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join([lines[0], lines[1], *lines[1:]]))
        with pytest.raises(DuplicateCell, match="line 3: cell c1 begins a second time"):
            read_run(file)

    @pytest.mark.parametrize("number", [2, 3])
    def test_a_record_of_an_unknown_cell_is_refused(self, file, number):
        self.change(file, number, cell="c9")
        with pytest.raises(UnknownCell, match=f"line {number + 1}: cell c9 did not begin"):
            read_run(file)

    def test_a_cell_that_ends_twice_is_refused(self, file):
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join([*lines[:4], *lines[3:]]))
        with pytest.raises(BadRecord, match="ends a second time"):
            read_run(file)

    @pytest.mark.parametrize("addition", ['{"kind":"note","text":"late"}\n', "half a li"])
    def test_nothing_stands_after_the_footer(self, file, addition):
        with file.open("a") as end:
            end.write(addition)
        with pytest.raises(BadRecord, match=r"line 7: .*after the footer"):
            read_run(file)

    def test_a_footer_that_counts_otherwise_is_refused(self, file):
        self.change(file, 5, counts={"ok": 2})
        with pytest.raises(BadRecord, match="line 6: the footer counts"):
            read_run(file)

    @pytest.mark.parametrize(
        ("number", "fields", "reason"),
        [
            (0, {"schema": 2}, "written with schema 2; this version reads schema 1"),
            (0, {"schema": ...}, "written with schema None"),
            (0, {"method": ...}, "method: Field required"),
            (0, {"started": "yesterday"}, "started"),
            (0, {"started": "2026-11-29T12:00:00"}, "started"),
            (1, {"surprise": 1}, "surprise: Extra inputs are not permitted"),
            (1, {"sessions": ...}, "sessions: Field required"),
            (1, {"sessions": "8"}, "sessions: Input should be a valid integer"),
            (1, {"sessions": 8.0}, "sessions: Input should be a valid integer"),
            (1, {"sessions": True}, "sessions: Input should be a valid integer"),
            (1, {"sessions": 0}, "sessions: Input should be greater than 0"),
            (1, {"sessions": None}, "'sessions' is null"),
            (1, {"server": {"deep": {"er": None}}}, "'er' is null"),
            (1, {"server": {"list": [None]}}, "server"),
            (1, {"engine": "wrk"}, "engine: Input should be 'client' or 'locust'"),
            (1, {"id": "../../etc"}, "id: String should match pattern"),
            (2, {"criteria": [{"name": "x"}]}, "criteria.0.passed: Field required"),
            (3, {"status": "fine"}, "status"),
            (
                3,
                {"throughput_steps_per_s": math.nan},
                "throughput_steps_per_s: Input should be a finite number",
            ),
            (3, {"throughput_steps_per_s": -1.0}, "throughput_steps_per_s"),
            (4, {"kind": "rumour"}, "rumour"),
            (4, {"kind": ...}, "kind"),
            (4, {"text": 5}, "text: Input should be a valid string"),
            (5, {"finished": 5}, "finished"),
        ],
    )
    def test_a_damaged_field_is_named_with_its_line(self, file, number, fields, reason):
        self.change(file, number, **fields)
        with pytest.raises(BadRecord) as caught:
            read_run(file)
        assert caught.value.line == number + 1
        assert caught.value.file == file
        assert reason in str(caught.value)

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            (b"", "not a line of JSON"),
            (b'{"kind": "note", "text": "half', "not a line of JSON"),
            (b'{"kind": "note", "text": "a"} {}', "not a line of JSON"),
            (b'{"kind": "note", "text": "\xff"}', "not a line of JSON"),
            (b'{"kind": "note", "text": "a", "text": "b"}', "'text' stands twice"),
            (b'["note"]', "a record is a JSON object"),
            (b"\0\0\0\0", "not a line of JSON"),
        ],
    )
    def test_a_line_that_is_no_record_is_refused(self, file, line, reason):
        self.replace(file, 4, line)
        with pytest.raises(BadRecord, match="line 5") as caught:
            read_run(file)
        assert reason in str(caught.value)

    @never_timed
    @given(line=st.binary(max_size=60).filter(lambda line: b"\n" not in line))
    def test_no_garbage_gets_through_or_crashes_the_reader(self, file, tmp_path_factory, line):
        folder = tmp_path_factory.mktemp("garbage")
        lines = file.read_bytes().splitlines()
        (folder / "records.jsonl").write_bytes(b"\n".join([lines[0], line, *lines[1:]]) + b"\n")
        with pytest.raises(BadRecord):
            read_run(folder)


rows = st.lists(
    st.tuples(
        st.integers(-(2**31), 2**31 - 1),
        st.integers(-(2**31), 2**31 - 1),
        st.sampled_from(Phase),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(-(2**63), 2**63 - 1),
        st.sampled_from(Status),
        maybe(st.text(st.characters(codec="utf-8"), max_size=10)),
    ),
    max_size=30,
)


def columns_of(some):
    columns = SampleColumns()
    for row in some:
        columns.append(*row)
    return columns


class TestSamples:
    @never_timed
    @given(parts=st.lists(rows, max_size=3))
    def test_samples_read_back_as_they_were_taken(self, tmp_path_factory, parts):
        path = tmp_path_factory.mktemp("samples") / "c1.parquet"
        write_samples(path, *map(columns_of, parts))
        table = read_samples(path)
        assert [tuple(row.values()) for row in table.to_pylist()] == [row for part in parts for row in part]

    def test_a_run_finds_the_samples_of_a_cell(self, tmp_path):
        with RunWriter(tmp_path, header()) as run:
            run.write(cell())
            run.write_samples("c1", columns_of([(0, 0, Phase.STEP, False, 1, 1, 9, Status.OK, None)]))
            run.write(End(cell="c1", status="ok"))
        found = read_run(tmp_path)
        assert isinstance(found, Run)
        assert found.has_samples("c1")
        assert not found.has_samples("c2")
        assert found.samples("c1").num_rows == 1
        with pytest.raises(BadSamples, match=r"c2\.parquet cannot be read"):
            found.samples("c2")

    def test_damaged_samples_are_refused(self, tmp_path):
        path = samples_path(tmp_path, "c1")
        path.parent.mkdir()
        write_samples(
            path, columns_of([(i, i, Phase.STEP, False, i, i, i * i, Status.OK, None) for i in range(2_000)])
        )
        content = path.read_bytes()
        for damage in (
            content[:-1],
            content[: len(content) // 2],
            b"",
            content[:2_000] + bytes([content[2_000] ^ 1]) + content[2_001:],
        ):
            path.write_bytes(damage)
            with pytest.raises(BadSamples, match="cannot be read"):
                read_samples(path)

    def test_other_columns_are_refused(self, tmp_path):
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.table({"ns": [1, 2]}), tmp_path / "c1.parquet")
        with pytest.raises(BadSamples, match="other columns"):
            read_samples(tmp_path / "c1.parquet")

    def test_unknown_words_are_refused(self, tmp_path):
        import pyarrow as pa
        from pyarrow import parquet

        from bench.records import SAMPLES_SCHEMA, samples_table

        table = samples_table(columns_of([(0, 0, Phase.STEP, False, 1, 1, 9, Status.OK, None)]))
        strange = table.set_column(2, SAMPLES_SCHEMA.field("phase"), pa.array(["lunch"]).dictionary_encode())
        parquet.write_table(strange, tmp_path / "c1.parquet")
        with pytest.raises(BadSamples, match="unknown phase: lunch"):
            read_samples(tmp_path / "c1.parquet")


def test_a_footer_cannot_be_written_by_hand_against_the_cells(tmp_path):
    with pytest.raises(BadRecord, match="the footer counts"), RunWriter(tmp_path, header()) as run:
        run.write(Footer(finished=datetime.now(UTC), counts={"ok": 3}, interrupted=False))
