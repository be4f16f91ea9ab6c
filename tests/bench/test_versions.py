"""The matrix of versions: what a cell depends on, what is known to fail, what moved, and which release moved it."""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

import canonical
from bench.conformance import TOUCHSTONE, ConformanceResult, Divergence
from bench.relay import Piece
from bench.stacks import (
    Candidate,
    Stack,
    StackError,
    adapter_names,
    adapters_folder,
    all_stacks,
    find_python,
    find_stack,
    releases_of,
)
from bench.versions import bisection
from bench.versions import known as knowing
from bench.versions import play as playing
from bench.versions.bisection import (
    BisectionError,
    Seen,
    State,
    Trial,
    Turn,
    UntriedEndError,
    between,
    bisect,
    state_of_promise,
    state_of_symbol,
)
from bench.versions.candidates import CandidateError, UnresolvedError, candidate_stack
from bench.versions.cells import Cell, Finding, Frame, Outcome, SymbolState
from bench.versions.drift import FrameChange, Shift, changes, drift_json, drifts, frame_changes
from bench.versions.frames import VARIES, read_frames, steady
from bench.versions.kept import CellStore, cell_key, suite_files
from bench.versions.known import (
    KnownFailure,
    KnownFailuresError,
    judge,
    known_failures,
    read_known_failures,
    stray_failures,
)
from bench.versions.matrix import MATRIX_FILE, Matrix, MatrixError, in_order, join_matrices
from bench.versions.newest import differences, newest_offers
from bench.versions.pieces import PieceError, check_piece
from bench.versions.play import Conformed, play_cell, play_cells
from bench.versions.symbols import symbols_of
from canonical.catalogue import definition_path, load_environment
from reports.page import markdown, page
from reports.versions import differing_parts, matrix_report, matrix_text
from rosetta import versions as command
from rosetta.versions import turn_text

WHEN = datetime(2026, 11, 29, 12, tzinfo=UTC)
STACK = find_stack("gem")


FINDINGS = (Finding(promise="stepping: rewards are exact", difference="0 and 1"),)


def cell(version: str = "1.0", **further: object) -> Cell:
    values = {
        "framework": "gem", "title": "GEM", "stack": f"gem-llm-{version}", "package": "gem-llm", "version": version,
        "python": "3.11", "environment": "wordle", "key": "k", "outcome": Outcome.PASSES, "episodes": 3, "steps": 9,
        "digest": "d" * 64, "played": WHEN,
    }  # fmt: skip
    return Cell.model_validate({**values, **further})


def matrix(*cells: Cell) -> Matrix:
    return Matrix(
        environment="wordle", episodes=3, seed=0, written=WHEN, commit="c" * 40, dirty=False, cells=cells
    )


@given(st.integers(2, 200), st.data())
def test_bisection_names_the_release_that_changed_it_and_tries_few(count: int, data: st.DataObject) -> None:
    turn = data.draw(st.integers(1, count - 1))
    versions = [f"1.{number}" for number in range(count)]

    async def state(version: str) -> Seen:
        return Seen("old" if int(version.partition(".")[2]) < turn else "new", f"as {version} words it")

    found = asyncio.run(bisect(versions, state))
    assert (found.last.version, found.first.version) == (versions[turn - 1], versions[turn])
    assert (found.last.state, found.first.state) == ("old", "new")
    assert len(found.trials) <= 2 + (count - 1).bit_length()
    assert len({one.version for one in found.trials}) == len(found.trials)


def test_bisection_refuses_ends_that_do_not_differ() -> None:
    async def state(version: str) -> Seen:
        return Seen("the same", f"as {version} words it")

    with pytest.raises(BisectionError, match=r"1\.0 and 1\.2 do not differ: the same"):
        asyncio.run(bisect(["1.0", "1.1", "1.2"], state))
    with pytest.raises(BisectionError, match=r"are the same, 1\.0"):
        asyncio.run(bisect(["1.0"], state))


@given(st.integers(3, 60), st.data())
def test_bisection_goes_round_releases_that_cannot_be_tried_and_blames_none_of_them(
    count: int, data: st.DataObject
) -> None:
    turn = data.draw(st.integers(1, count - 1))
    broken = data.draw(st.sets(st.integers(1, count - 2)))

    async def state(version: str) -> Seen:
        number = int(version)
        if number in broken:
            return Seen("not installable", "no wheel", tried=False)
        return Seen("old" if number < turn else "new")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bisection, "_GRACE_S", 0)
        found = asyncio.run(bisect([str(number) for number in range(count)], state))
    last = max(number for number in range(turn) if number not in broken)
    first = min(number for number in range(turn, count) if number not in broken)
    assert (found.last.version, found.first.version) == (str(last), str(first))
    assert [one.version for one in found.untried] == [str(number) for number in range(last + 1, first)]
    assert len({one.version for one in found.trials}) == len(found.trials)


def test_an_end_that_cannot_be_tried_is_no_answer() -> None:
    async def state(version: str) -> Seen:
        return Seen("its probe fails", "it hangs", tried=version != "1.2")

    with pytest.raises(UntriedEndError, match=r"1\.2 is an end, .*\(its probe fails: it hangs\)"):
        asyncio.run(bisect(["1.0", "1.1", "1.2"], state))


def test_what_was_not_narrowed_down_is_said_as_a_range_with_the_reason() -> None:
    last, middle, first = (
        Trial("1.0", "old"), Trial("1.1", "not installable", "no wheel", tried=False), Trial("1.2", "new"),
    )  # fmt: skip
    told = turn_text("gem-llm", Turn(last, first, (last, first, middle), (middle,)), "3 of 3 releases tried")
    assert told.startswith(
        "gem-llm changed it between 1.0 and 1.2: 1.1 could not be tried (not installable: no wheel) (3 of 3"
    )
    assert turn_text("gem-llm", Turn(last, first, ()), "all").startswith("gem-llm 1.2 changed it (all)")


def test_an_interruption_is_not_told_as_a_release_that_cannot_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object) -> Stack:
        signal.raise_signal(signal.SIGINT)
        raise UnresolvedError("uv was ended")

    monkeypatch.setattr(bisection, "candidate_stack", ended)
    told: list[Trial] = []
    # What is started in the background is started with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(bisect(["1.0", "1.1"], state_of_symbol("gem-llm", "gem:make", tmp_path), told.append))
    finally:
        signal.signal(signal.SIGINT, before)
    assert told == []


@pytest.mark.parametrize(
    ("seen", "promise", "tried"),
    [
        (cell(outcome=Outcome.NOT_INSTALLABLE, reason="no wheel"), "", False),
        (cell(outcome=Outcome.NO_INTERPRETER, reason="no Python"), "feature:snapshot", False),
        (cell(outcome=Outcome.FAILS, episodes=0, findings=FINDINGS), "another", False),
        (cell(outcome=Outcome.FAILS, episodes=0, findings=FINDINGS), "", True),
        (cell(outcome=Outcome.FAILS, findings=FINDINGS), "rewards", True),
        (cell(), "", True),
    ],
)
def test_a_release_that_played_nothing_says_nothing_of_a_promise(
    seen: Cell, promise: str, tried: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(*_: object, **__: object) -> Cell:
        return seen

    monkeypatch.setattr(bisection, "candidate_stack", lambda *_: STACK)
    monkeypatch.setattr(bisection, "play_cell", play)
    state = state_of_promise("gem-llm", promise, tmp_path, environment="wordle", episodes=1, seed=0)
    assert asyncio.run(_seen(state)).tried is tried


async def _seen(state: State) -> Seen:
    return await state("0.1.0")


@pytest.mark.parametrize(
    ("piece", "words"),
    [
        (
            "symbol:gem.core.Env",
            r"names no symbol; write symbol:<module>:<name>, such as one of .*gem\.core:Env",
        ),
        ("symbol:", "names no symbol"),
        ("feature:magic", "there is no feature 'magic'; there are seeded_reset, .*snapshot"),
        ("trouble:none", "there is no trouble of GEM 'none'; there are a_seeded_reset"),
        ("sybmol:gem.core:Env", r"no kind of piece 'sybmol'(?s:.)*wordle / solved: "),
        ("no such promise", "no promise has 'no such promise' in it"),
    ],
)
def test_a_piece_that_nothing_has_is_refused_before_anything_is_installed(piece: str, words: str) -> None:
    with pytest.raises(PieceError, match=words):
        check_piece(piece, STACK, "wordle")


@pytest.mark.parametrize(
    "piece",
    [
        "", "symbol:gem.core:Env.spawn", "feature:snapshot", "trouble:a_wrapped_environment_cannot_be_spawned",
        "budget", "touchstone / images", "feature snapshot: is declared native", "wordle / fuzz-0-17: Any actions",
    ],
)  # fmt: skip
def test_a_piece_that_a_release_can_have_is_taken(piece: str) -> None:
    check_piece(piece, STACK, "wordle")


def test_releases_between_two_are_in_the_direction_that_was_asked_for() -> None:
    versions = [Version(one) for one in ("0.9", "0.10", "0.11", "1.0")]
    assert between(versions, "0.9", "0.11") == ["0.9", "0.10", "0.11"]
    assert between(versions, "1.0", "0.10") == ["1.0", "0.11", "0.10"]
    with pytest.raises(BisectionError, match=r"there is no release 0\.8; there are 0\.9, 0\.10, 0\.11, 1\.0"):
        between(versions, "0.8", "1.0")
    with pytest.raises(BisectionError, match=r"there is no release abc; there are 0\.9"):
        between(versions, "abc", "1.0")
    with pytest.raises(BisectionError, match=r"are the same, 0\.10; name two"):
        between(versions, "0.10", "0.10.0")


def known(promise: str) -> KnownFailure:
    return KnownFailure(test=f"gem-llm-1.0: {promise}", kind="upstream", reason="it rounds", issue="here")


def test_a_known_failure_is_no_finding_and_one_that_passes_is() -> None:
    assert judge(FINDINGS, []) == (FINDINGS, ())
    assert judge(FINDINGS, [known("stepping")]) == ((), FINDINGS)
    (stale,), nothing = judge((), [known("stepping")])
    assert (stale.promise, nothing) == ("stepping", ())
    assert "take the entry out" in stale.difference
    new, _ = judge(FINDINGS, [known("resetting")])
    assert [one.promise for one in new] == ["stepping: rewards are exact", "resetting"]


def test_every_known_failure_is_of_a_supported_release() -> None:
    assert stray_failures(adapter_names()) == []


def test_a_known_failure_of_a_release_that_there_is_not_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = [target.label for one in releases_of("verifiers", supported=True) for target in one.per_target()]
    # Of a release with targets each target is a cell, and the release alone is none.
    bare = next(one.label for one in releases_of("verifiers", supported=True) if one.label not in labels)
    wrong = [f"{bare}: x", "verifiers-9.9: x"]
    rows = [
        f'[[known]]\ntest = "{one}"\nkind = "ours"\nreason = "r"\n' for one in [f"{labels[0]}: x", *wrong]
    ]
    (tmp_path / "verifiers").mkdir()
    (tmp_path / "verifiers" / "known_failures.toml").write_text("".join(rows), encoding="utf-8")
    stacks = releases_of("verifiers", supported=True)
    monkeypatch.setattr(knowing, "adapters_folder", lambda: tmp_path)
    monkeypatch.setattr(knowing, "releases_of", lambda _name, **_: stacks)
    told = stray_failures(["verifiers"])
    assert [one.partition(" is of no release")[0].partition(": ")[2] for one in told] == [*map(repr, wrong)]
    assert labels[0] in told[0]


def test_a_file_of_known_failures_that_is_malformed_says_where(tmp_path: Path) -> None:
    path = tmp_path / "known_failures.toml"
    path.write_text('[[known]]\ntest = "no release"\nkind = "ours"\nreason = "r"\n', encoding="utf-8")
    with pytest.raises(KnownFailuresError, match=r"known_failures\.toml: known: test"):
        read_known_failures(path)


def test_what_is_known_is_asked_for_by_release() -> None:
    assert known_failures(STACK) == ()


def test_a_cell_is_kept_under_everything_that_decides_it(tmp_path: Path) -> None:
    store = CellStore(tmp_path / "cells")
    assert store.read("gem-llm-1.0", "k") is None
    store.write(cell())
    assert store.read("gem-llm-1.0", "k") == cell()
    assert store.read("gem-llm-1.0", "another") is None
    # What could not be played may be playable the next time, without any change that a key could see.
    store.write(cell(outcome=Outcome.NO_INTERPRETER, reason="it needs Python 3.99"))
    assert store.read("gem-llm-1.0", "k") is None


def test_a_key_depends_on_release_environment_and_plan_and_on_nothing_else() -> None:
    def key(stack: Stack = STACK, environment: str = "wordle", episodes: int = 9, seed: int = 0) -> str:
        return cell_key(stack, environment, episodes=episodes, seed=seed)

    keys = [
        key(), key(environment="coding_agent"), key(episodes=8), key(seed=1),
        *(key(one) for one in all_stacks(supported=True) if one.label != STACK.label),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)
    assert key() == keys[0]


@pytest.mark.parametrize(
    "file",
    [
        "words/answers.txt",
        "tasks/train/one/task.yaml",
        "scenarios.yaml",
        "tasks/train/one/fix.patch",
        "search.py",
    ],
)
def test_a_key_sees_every_file_of_the_environment_but_for_what_is_not_played(
    tmp_path: Path, file: str
) -> None:
    source = definition_path(load_environment(str(TOUCHSTONE)))
    (tmp_path / "environment.py").write_bytes(source.read_bytes())

    def key() -> str:
        return cell_key(STACK, str(tmp_path), episodes=1, seed=0)

    keys = [key()]
    for content in ("one", "two"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(content, encoding="utf-8")
        keys.append(key())
    assert len(set(keys)) == 3
    for aside in ("golden/episodes.jsonl", "__pycache__/environment.pyc"):
        (tmp_path / aside).parent.mkdir(exist_ok=True)
        (tmp_path / aside).write_text("x", encoding="utf-8")
    assert key() == keys[-1]


def test_a_key_sees_the_core_in_all_its_folders_and_whatever_plays() -> None:
    seen = {file.relative_to(root.parent).as_posix() for root, files in suite_files() for file in files}
    assert {
        "canonical/grading/grade.py", "canonical/sandbox/local/inside/serve.py", "canonical/episode.py", "bench/workloads.py",
        "bench/samples.py", "bench/conformance.py", "bench/scenarios.yaml", "bench/versions/frames.py", "bench/versions/known.py",
        "bench/worker/service.py", "bench/touchstone/environment.py", "bench/touchstone/scenarios.yaml",
    } <= seen  # fmt: skip
    assert not {
        one for one in seen if "environments/" in one or "golden/" in one or one.startswith("bench/load")
    }
    core = Path(canonical.__file__).parent
    assert {
        f"canonical/{one.relative_to(core).as_posix()}"
        for one in core.rglob("*.py")
        if "environments" not in one.relative_to(core).parts
    } <= seen


def test_what_is_kept_is_not_played_again_and_a_release_without_its_interpreter_says_how_to_get_it(
    tmp_path: Path,
) -> None:
    release = STACK.release.model_copy(update={"python": "3.99"})
    stack, store = replace(STACK, release=release), CellStore(tmp_path)

    def played(*stacks: Stack, fresh: bool = False) -> list[tuple[Cell, bool]]:
        seen: list[tuple[Cell, bool]] = []
        asyncio.run(
            play_cells(
                stacks, environment="wordle", episodes=1, seed=0, store=store, fresh=fresh,
                on_cell=lambda one, is_kept: seen.append((one, is_kept)),
            )
        )  # fmt: skip
        return seen

    ((first, is_kept),) = played(stack)
    assert (first.outcome, is_kept) == (Outcome.NO_INTERPRETER, False)
    assert "uv python install 3.99" in first.reason
    store.write(cell(stack=STACK.label, key=cell_key(STACK, "wordle", episodes=1, seed=0)))
    assert [is_kept for _, is_kept in played(STACK)] == [True]


def test_a_release_whose_worker_died_is_played_again(tmp_path: Path) -> None:
    """Whoever interrupts a run ends its workers, and that says nothing of the release."""
    store = CellStore(tmp_path)
    died = Finding(
        promise="the adapter works with the release", difference="the worker was killed by signal 15"
    )
    store.write(cell(outcome=Outcome.FAILS, findings=(died,), episodes=0, steps=0, key="same"))
    assert store.read(cell().stack, "same") is None
    differs = Finding(promise="rewards", difference="1.0 became 0.5")
    store.write(cell(outcome=Outcome.FAILS, findings=(differs,), episodes=3, key="same"))
    assert store.read(cell().stack, "same") is not None


def test_a_release_that_cannot_be_installed_says_what_the_resolver_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_stack: Stack, **_: bool) -> None:
        raise StackError("two of its requirements do not go together")

    monkeypatch.setattr(playing, "build_stack", refuse)
    (found,) = asyncio.run(
        play_cells([STACK], environment="wordle", episodes=1, seed=0, store=CellStore(tmp_path))
    )
    assert (found.outcome, found.reason) == (
        Outcome.NOT_INSTALLABLE, "two of its requirements do not go together",
    )  # fmt: skip
    assert found.outcome.good


def state(name: str, signature: str | None) -> SymbolState:
    return SymbolState(name=name, there=signature is not None, what="function", signature=signature or "")


def test_symbols_appear_vanish_and_change_from_one_release_to_the_next() -> None:
    before = (state("m:a", "(x)"), state("m:b", None), state("m:c", "(x)"), state("m:d", "(x)"))
    after = (
        state("m:a", "(x)"),
        state("m:b", "(x)"),
        state("m:c", None),
        state("m:d", "(x, y)"),
        state("m:e", "()"),
    )
    assert [(one.name, one.shift, one.before, one.after) for one in changes(before, after)] == [
        ("m:b", Shift.APPEARED, "", "(x)"),
        ("m:c", Shift.VANISHED, "(x)", ""),
        ("m:d", Shift.CHANGED, "(x)", "(x, y)"),
    ]


def test_neighbours_are_compared_by_version_and_never_across_packages() -> None:
    cells = in_order([
        cell("0.10", symbols=(state("m:a", "(new)"),)),
        cell("0.9", symbols=(state("m:a", "(old)"),)),
        cell("0.8", outcome=Outcome.NOT_INSTALLABLE, reason="no"),
        cell("0.1", package="other", symbols=(state("m:a", "(other)"),)),
    ])  # fmt: skip
    ((before, after, found),) = drifts(cells)
    assert (before.version, after.version) == ("0.9", "0.10")
    assert [(one.before, one.after) for one in found] == [("(old)", "(new)")]


@pytest.mark.parametrize(
    "name", sorted(path.parent.name for path in adapters_folder().glob("*/adapter.toml"))
)
def test_names_that_the_adapter_imports_from_its_framework_are_watched(name: str) -> None:
    stack = find_stack(name)
    watched = symbols_of(stack)
    assert set(stack.facts.stone.symbols) <= set(watched)
    assert len(watched) == len(set(watched)) > 3


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        ("nothing-of-ours==1.0", "is the package of no framework; there are gem-llm, nemo-gym"),
        ("gem-llm", "names no single release; write gem-llm==<version>"),
        ("gem-llm>=0.1", "names no single release"),
        ("gem-llm==0.1.*", "names no single release"),
        ("README.md", r"README\.md is no wheel"),
        ("tests", "tests is no wheel"),
        ("gem-llm==", "neither package==version nor the path of a wheel"),
        ("missing-1.0-py3-none-any.whl", "there is no file missing"),
    ],
)
def test_what_is_no_candidate_is_refused_in_words(tmp_path: Path, candidate: str, words: str) -> None:
    with pytest.raises(CandidateError, match=words):
        candidate_stack(candidate, tmp_path)


def test_an_interpreter_is_asked_for_by_its_minor_version_or_by_its_patch() -> None:
    python = find_python("3.11")
    assert python is not None
    assert find_python("3.11.99") is None
    assert find_python("3.99") is None


def test_releases_that_are_no_everyday_ones_are_played_by_the_matrix_alone() -> None:
    everyday = {one.label for one in all_stacks()}
    rare = {one.label for one in all_stacks(supported=True)} - everyday
    assert {one.release.matrix_only for one in all_stacks(supported=True) if one.label in rare} <= {True}
    assert not any(one.release.matrix_only for one in all_stacks())


def test_the_report_names_outcome_promise_and_first_difference() -> None:
    broken = cell(
        "0.9", outcome=Outcome.FAILS, symbols=(state("m:a", "(old)"),), features={"snapshot": "absent"},
        findings=(Finding(promise="stepping: rewards are exact", difference="at step 3: 0.5 and 1"),),
    )  # fmt: skip
    missing = cell(
        "2.0", outcome=Outcome.NO_INTERPRETER, reason="it needs Python 3.99", episodes=0, steps=0, digest=""
    )
    whole = matrix(
        *in_order([missing, cell(symbols=(state("m:a", "(new)"),), features={"snapshot": "native"}), broken])
    )
    report = matrix_report(whole)
    for text in (markdown(report), page(report)):
        for words in (
            "stepping: rewards are exact",
            "at step 3: 0.5 and 1",
            "it needs Python 3.99",
            "(old)",
            "snapshot",
        ):
            assert words in text
    assert matrix_text(whole).splitlines()[0].startswith("gem-llm-0.9  Python 3.11  fails")
    assert "at step 3: 0.5 and 1" in matrix_text(whole)


def test_a_matrix_is_read_as_it_was_written_and_a_broken_file_says_where(tmp_path: Path) -> None:
    path: Path = tmp_path / MATRIX_FILE
    path.write_text(matrix(cell()).to_text(), encoding="utf-8")
    assert Matrix.read(path) == matrix(cell())
    path.write_text('{"cells": []}', encoding="utf-8")
    with pytest.raises(MatrixError, match=r"versions\.json: environment: Field required"):
        Matrix.read(path)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(MatrixError, match=r"versions\.json: Invalid JSON"):
        Matrix.read(path)
    with pytest.raises(MatrixError, match="No such file"):
        Matrix.read(tmp_path / "none.json")


def test_of_long_signatures_the_part_that_differs_is_shown() -> None:
    many = [f"parameter_{number}: int = {number}" for number in range(12)]
    before, after = f"({', '.join(many)})", f"({', '.join([*many[:5], 'new: str', *many[6:]])})"
    assert differing_parts(before, after) == ("..., parameter_5: int = 5, ...", "..., new: str, ...")
    assert differing_parts(f"({', '.join(many)}", f"({', '.join([*many[:5], *many[6:]])}") == (
        "..., parameter_5: int = 5, ...",
        "..., (nothing), ...",
    )
    assert differing_parts("(x)", "(x, y)") == ("(x)", "(x, y)")
    assert differing_parts("", after)[1].startswith("(parameter_0")


def asked(body: str, **fields: str) -> bytes:
    heads = "".join(
        f"{name}: {value}\r\n" for name, value in {**fields, "Content-Length": str(len(body))}.items()
    )
    return f"POST /e/{uuid4()}/call?page=2 HTTP/1.1\r\nHost: 127.0.0.1:81\r\n{heads}\r\n{body}".encode()


def answered(body: str, kind: str = "application/json") -> bytes:
    chunks = "".join(f"{len(part):x}\r\n{part}\r\n" for part in (body[:5], body[5:]) if part)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n"
    return f"{head}Date: today\r\n\r\n{chunks}0\r\n\r\n".encode()


def test_messages_are_read_in_their_order_without_names_and_ports_and_keepalives() -> None:
    body = json.dumps(
        {"id": str(uuid4()), "at": "http://127.0.0.1:4711/x", "word": "crane", "of": [1, {"b": None}]}
    )
    first, second = asked(body, Cookie="a"), asked(body).replace(b"/call?page=2", b"/ping")
    reply, stream = (
        answered('{"ok": true}'),
        answered(': quiet\n\nevent: end\ndata: {"ok": 1}\n\n', "text/event-stream"),
    )
    # The second connection speaks first.
    conversations = [(second + first, answered("") + stream), (first, reply)]
    pieces = [
        Piece(1, True, len(first)), Piece(1, False, len(reply)), Piece(0, True, len(second)), Piece(0, True, len(first)),
        Piece(0, False, len(answered("")) + len(stream)),
    ]  # fmt: skip
    frames = read_frames(conversations, pieces)
    assert [one.name for one in frames] == [
        "client: POST /e/(id)/call", "server: answer to POST /e/(id)/call",
        "client: POST /e/(id)/call", "server: answer to POST /e/(id)/call",
    ]  # fmt: skip
    assert frames[0].fields == {
        "query page": '"2"', "header cookie": '"a"', "body.id": '"(id)"', "body.at": '"http://127.0.0.1:(port)/x"',
        "body.word": '"crane"', "body.of[0]": "1", "body.of[1].b": "null",
    }  # fmt: skip
    assert frames[1].fields == {
        "status": "200",
        "header content-type": '"application/json"',
        "body.ok": "true",
    }
    assert frames[3].fields["event 0 event"] == '"end"'
    assert frames[3].fields["event 0 data.ok"] == "1"


def test_what_differs_from_one_playing_to_the_next_is_nothing_that_a_release_decides() -> None:
    playings = [
        [Frame(name="client: message step", fields={"word": "crane", "took": str(n)})] for n in range(3)
    ]
    assert steady(playings) == (Frame(name="client: message step", fields={"word": "crane", "took": VARIES}),)
    # A playing of other messages says nothing of the first one's.
    assert steady([playings[0], [*playings[1], *playings[2]]]) == tuple(playings[0])


def message(name: str, **fields: str) -> Frame:
    return Frame(name=name, fields=fields)


def test_the_wire_is_compared_message_by_message_and_what_happens_to_many_is_told_once() -> None:
    before = (
        message("a", x="1", y="2"),
        message("step", done="false"),
        message("step", done="true"),
        message("gone"),
    )
    after = (message("a", x="1", z="3"), message("new"), message("step", done="0"), message("step", done="1"))
    assert frame_changes(before, before) == []
    assert frame_changes(before, after) == [
        FrameChange("a", "y", Shift.VANISHED, "2", ""),
        FrameChange("a", "z", Shift.APPEARED, "", "3"),
        FrameChange("new", "", Shift.APPEARED),
        FrameChange("step", "done", Shift.CHANGED, "false", "0", times=2),
        FrameChange("gone", "", Shift.VANISHED),
    ]


def test_the_report_has_a_row_of_the_wire_for_each_pair_of_neighbours() -> None:
    frames = [(message("a", x=value),) for value in ("1", "1", "2")]
    whole = matrix(*(cell(f"0.{number}", frames=one) for number, one in enumerate(frames)))
    text = markdown(matrix_report(whole))
    assert "| `gem-llm-0.0` | `gem-llm-0.1` | 1 | same |" in text
    assert "| `gem-llm-0.1` | `gem-llm-0.2` | 1 | a, field x changed |" in text
    (_, (pair,)) = (drift_json(whole.cells)["wire"][0]["changes"], [drift_json(whole.cells)["wire"][1]])
    assert pair["changes"] == [
        {"frame": "a", "field": "x", "shift": "changed", "before": "1", "after": "2", "times": 1}
    ]
    lost = matrix(cell(unrecorded="the relay broke"))
    assert "could not be recorded: the relay broke" in markdown(matrix_report(lost))


def divergence(scenario: str) -> Divergence:
    return Divergence(scenario, "s, task train/1, seed 0", 2, "reward", "0.25", "0.2")


@pytest.mark.parametrize(
    ("broken", "known_of", "outcome", "promises"),
    [
        ((), (), Outcome.PASSES, []),
        (("rounds: rewards",), ("rounds",), Outcome.KNOWN, ["rounds: rewards"]),
        # A known failure that passes, and one that fails otherwise, are errors.
        ((), ("rounds",), Outcome.FAILS, ["rounds"]),
        (("ends: flags",), ("rounds",), Outcome.FAILS, ["ends: flags", "rounds"]),
        (("rounds: rewards", "ends: flags"), ("rounds",), Outcome.FAILS, ["ends: flags", "rounds: rewards"]),
    ],
)
def test_known_failures_of_a_cell_are_strict_in_both_directions(
    broken: tuple[str, ...],
    known_of: tuple[str, ...],
    outcome: Outcome,
    promises: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def conform(*_: object) -> Conformed:
        return Conformed(
            ConformanceResult(episodes=3, steps=9, divergences=[divergence(one) for one in broken]), ()
        )

    monkeypatch.setattr(playing, "build_stack", lambda _stack, **_: None)
    monkeypatch.setattr(playing, "conform", conform)
    monkeypatch.setattr(playing, "known_failures", lambda _stack: tuple(map(known, known_of)))
    found = asyncio.run(play_cell(STACK, environment="wordle", episodes=1, seed=0))
    assert (found.outcome, [one.promise for one in found.findings]) == (outcome, promises)
    assert found.outcome.good is (outcome is not Outcome.FAILS)


def test_a_key_tells_apart_two_wheels_that_lay_at_one_place(tmp_path: Path) -> None:
    pins = tmp_path / "pins.txt"
    pins.write_text("gem-llm @ file:///a.whl\n", encoding="utf-8")
    keys = {
        cell_key(replace(STACK, candidate=Candidate(name, pins, ("gem-llm",))), "wordle", episodes=1, seed=0)
        for name in ("candidate-gem-llm-1-aa", "candidate-gem-llm-1-bb")
    }
    assert len(keys) == 2


def test_matrices_of_several_jobs_are_joined_and_those_of_other_plans_are_not() -> None:
    first, second = matrix(cell("0.2")), matrix(cell("0.1"), cell("0.2", outcome=Outcome.FAILS))
    later = second.model_copy(update={"written": WHEN + timedelta(hours=1), "commit": "d" * 40})
    joined = join_matrices([later, first])
    assert [(one.version, one.outcome) for one in joined.cells] == [
        ("0.1", Outcome.PASSES),
        ("0.2", Outcome.FAILS),
    ]
    assert (joined.written, joined.commit) == (later.written, None)
    with pytest.raises(
        MatrixError, match="different plans cannot be joined: wordle, 3 episodes, seed 0; wordle, 9 episodes"
    ):
        join_matrices([first, first.model_copy(update={"episodes": 9})])
    with pytest.raises(MatrixError, match="no matrix to join"):
        join_matrices([])


def test_what_the_index_offers_is_newer_than_the_newest_supported_release_or_it_is_not() -> None:
    stacks = [one for one in all_stacks(supported=True) if one.release.package in {"gem-llm", "ors-sdk"}]
    offered = {"gem-llm": ["0.0.4", "0.10.0"], "ors-sdk": ["0.1.0"]}
    offers = newest_offers(stacks, lambda package: [Version(one) for one in offered[package]])
    assert [(one.package, one.supported.release.version, one.version, one.is_newer) for one in offers] == [
        ("gem-llm", "0.1.0", "0.10.0", True),
        ("ors-sdk", "0.1.0", "0.1.0", False),
    ]


def test_what_a_newer_release_shows_otherwise_is_said_in_words() -> None:
    before = cell(
        "1.0", features={"snapshot": "native"}, symbols=(state("m:a", "(x)"),), frames=(message("a", x="1"),)
    )
    same = before.model_copy(update={"version": "1.1"})
    assert differences(before, same) == []
    after = cell(
        "1.1", outcome=Outcome.FAILS, findings=FINDINGS, features={}, symbols=(state("m:a", "(y)"),), frames=(message("a", x="2"),)
    )  # fmt: skip
    assert differences(before, after) == [
        "outcome: passes in 1.0, fails in 1.1",
        "promise broken: 0 and 1",
        "feature snapshot: native before, not as declared now",
        "symbol m:a changed: was (x), is (y)",
        "wire: a, field x changed: was 1, is 2 (in 1)",
    ]
    gone = cell("1.1", outcome=Outcome.NOT_INSTALLABLE, reason="two of them\n  do not go together")
    assert differences(before, gone) == [
        "outcome: passes in 1.0, not installable in 1.1", "do not go together",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome.PASSES, 0), (Outcome.KNOWN, 0), (Outcome.FAILS, 1),
        (Outcome.NOT_INSTALLABLE, 3), (Outcome.NO_INTERPRETER, 3),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_candidate", [True, False])
def test_a_gate_passes_no_candidate_that_could_not_be_tried(
    outcome: Outcome, code: int, is_candidate: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "candidate_stack", lambda *_: STACK)
    monkeypatch.setattr(command, "_play", lambda *_: [cell(outcome=outcome)])
    monkeypatch.setattr(command, "write_matrix", lambda *_: "")
    asked = ["--candidate", "gem-llm==1.0"] if is_candidate else ["--release", STACK.label]
    done = CliRunner().invoke(command.versions, [*asked, "--out", str(tmp_path / "out")])
    # Of supported releases, what cannot be tried here is no finding.
    assert done.exit_code == (code if is_candidate or code != 3 else 0), done.output


def test_a_known_failure_of_no_release_fails_the_matrix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_play", lambda *_: [cell()])
    monkeypatch.setattr(command, "write_matrix", lambda *_: "")
    monkeypatch.setattr(command, "stray_failures", lambda _: ["gem/known_failures.toml: of no release"])
    done = CliRunner().invoke(command.versions, ["--release", STACK.label, "--out", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "of no release" in done.output


@pytest.mark.parametrize(
    ("wanted", "played"),
    [
        ("verifiers-0.3.1-taskset", ["verifiers-0.3.1-taskset"]),
        ("gem-llm-0.1.0", ["gem-llm-0.1.0"]),
        ("verifiers-0.3.1", [one.label for one in find_stack("verifiers", "0.3.1").per_target()]),
    ],
)
def test_a_release_is_named_by_the_label_that_the_matrix_shows(
    wanted: str, played: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def play(_console: object, stacks: list[Stack], *_: object) -> list[Cell]:
        asked.extend(one.label for one in stacks)
        return [cell()]

    monkeypatch.setattr(command, "_play", play)
    monkeypatch.setattr(command, "write_matrix", lambda *_: "")
    done = CliRunner().invoke(command.versions, ["--release", wanted, "--out", str(tmp_path / "out")])
    assert (done.exit_code, asked) == (0, played), done.output


def test_the_report_does_not_say_that_every_framework_has_a_server() -> None:
    assert "in one process where the framework has no server" in markdown(matrix_report(matrix(cell())))
