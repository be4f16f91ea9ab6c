"""The command line as a person meets it: help, results, one-line errors, exit codes, no traceback."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.recording import Request
from bench.stacks import StackError
from canonical.catalogue import environment_names
from canonical.transcript import Transcript
from rosetta.__main__ import main

VERBS = (
    "check-sandbox",
    "bench-sandbox",
    "envs",
    "play",
    "rollout",
    "check",
    "serve",
    "conformance",
    "certify",
    "golden",
    "bench",
    "plan",
    "bench-settings",
    "report",
    "doctor",
    "stack",
)


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Rosetta = Callable[..., Done]


@pytest.fixture
def rosetta(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Rosetta:
    """Run the command line in this process, which is faster and the same but for the start of the process."""

    def run(*arguments: str, stdin: str = "") -> Done:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        monkeypatch.setattr(sys, "argv", ["rosetta", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Done(int(left.value.code or 0), captured.out, captured.err)

    return run


def test_the_installed_command_and_the_module_are_the_same() -> None:
    module = subprocess.run(
        [sys.executable, "-P", "-m", "rosetta", "--help"], capture_output=True, text=True, check=True
    )
    command = subprocess.run(
        [Path(sys.executable).parent / "rosetta", "-h"], capture_output=True, text=True, check=True
    )
    assert module.stdout == command.stdout


def test_help_names_every_verb_and_the_exit_codes(rosetta: Rosetta) -> None:
    done = rosetta("--help")
    assert done.returncode == 0
    for verb in VERBS:
        assert f"\n  {verb} " in done.stdout
    assert "Exit codes" in done.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(rosetta: Rosetta, verb: str) -> None:
    done = rosetta(verb, "--help")
    assert done.returncode == 0
    assert "Usage:" in done.stdout


def test_envs_lists_the_catalogue(rosetta: Rosetta) -> None:
    assert [row["name"] for row in json.loads(rosetta("envs", "--json").stdout)] == list(environment_names())
    text = rosetta("envs").stdout
    assert "wordle (version 1)" in text
    assert "train 2,717, validation 340, test 339" in text


def test_a_person_can_play_win_and_stop(rosetta: Rosetta) -> None:
    tasks = {step: f"train/{step:04d}" for step in (0, 1)}
    solved = json.loads(rosetta("rollout", "wordle", "--task", tasks[0], "--json").stdout)[0]
    word = solved["steps"][0]["action"]["arguments"]["word"]
    done = rosetta("play", "wordle", "--task", tasks[0], stdin=f"zzzzz\n{word}\n")
    assert done.returncode == 0
    assert "not in the word list" in done.stdout
    assert "G G G G G" in done.stdout
    assert "terminated, solved: reward 1" in done.stdout
    assert "stopped" in rosetta("play", "wordle", stdin="crane\n\n").stdout


@pytest.mark.parametrize("policy", ["oracle", "random"])
def test_a_rollout_is_shown_and_written_and_can_be_replayed(
    rosetta: Rosetta, policy: str, tmp_path: Path
) -> None:
    out = tmp_path / "transcripts.jsonl"
    done = rosetta(
        "rollout", "wordle", "--policy", policy, "--split", "test", "--episodes", "2", "--out", str(out)
    )
    assert done.returncode == 0
    assert "test/0000" in done.stdout
    first, second = (Transcript.from_line(line) for line in out.read_text(encoding="ascii").splitlines())
    assert (first.task, second.task) == ("test/0000", "test/0001")
    again = tmp_path / "again.jsonl"
    done = rosetta(
        "rollout", "wordle", "--policy", "replay", "--actions", str(out), "--split", "test", "--episodes", "2",
        "--out", str(again), "--quiet",
    )  # fmt: skip
    assert done.returncode == 0
    assert again.read_bytes() == out.read_bytes()


def test_a_script_is_played_line_by_line(rosetta: Rosetta, tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('{"name": "guess", "arguments": {"word": "crane"}}\n"some text"\n', encoding="utf-8")
    (played,) = json.loads(
        rosetta("rollout", "wordle", "--policy", "scripted", "--actions", str(script), "--json").stdout
    )
    assert [step["result"]["observation"].get("error") for step in played["steps"]] == [None, "unparsable"]
    script.write_text('{"name": "guess"}\n', encoding="utf-8")
    done = rosetta("rollout", "wordle", "--policy", "scripted", "--actions", str(script))
    assert done.returncode == 2
    assert "line 1: an action is a text, or an object" in done.stderr


def test_check_passes_what_keeps_its_promises_and_shows_what_does_not(
    rosetta: Rosetta, tmp_path: Path
) -> None:
    assert rosetta("check", "wordle", "--episodes", "5").returncode == 0
    broken = tmp_path / "environment.py"
    broken.write_text(
        "import random\n"
        "from canonical.environment import Environment\n"
        "from canonical.reward import Criterion\n"
        "from canonical.task import Task, TaskSet\n"
        "from canonical.tool import tool\n"
        "class Coin(Environment[dict[str, int]]):\n"
        "    '''Toss.'''\n"
        "    name = 'coin'\n"
        "    max_turns = 3\n"
        "    rubric = Criterion('heads', lambda state: float(state['heads']))\n"
        "    def tasks(self): return TaskSet([Task(id='train/0')])\n"
        "    def start(self, task, rng): return {'heads': 0}\n"
        "    def prompt(self, task, state): return 'Toss.'\n"
        "    @tool\n"
        "    def toss(self, state) -> str:\n"
        "        '''Toss a coin.'''\n"
        "        state['heads'] = random.randint(0, 1)\n"
        "        return str(state['heads'])\n",
        encoding="utf-8",
    )
    done = rosetta("check", str(broken))
    assert done.returncode == 1
    assert "toss" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["rollout", "chess"], 2, "there is no environment 'chess'; the catalogue has"),
        (["rollout", "wordle", "--task", "train/9999"], 2, "there is no task 'train/9999'"),
        (["rollout", "wordle", "--split", "dev"], 2, "there is no split 'dev'"),
        (["rollout", "wordle", "--policy", "model"], 2, "needs --model"),
        (["rollout", "wordle", "--policy", "telepathy"], 2, "telepathy"),
        (["rollout", "wordle", "--policy", "model", "--model", "m", "--base-url", "http://127.0.0.1:9/v1"], 3, "error:"),
        (["conformance", "gymnastics"], 2, "there is no framework 'gymnastics'; there are"),
        (["conformance"], 2, "name at least one framework"),
        (["bench", "gymnastics"], 2, "there is no framework 'gymnastics'"),
        (["bench", "openenv", "--release", "0.0.1"], 2, "no supported release '0.0.1'"),
        (["bench", "openenv", "--environment", "no/such/file.py"], 2, "there is no environment"),
        (["bench", "openenv", "--arrival", "open:often"], 2, "write 'closed', 'open:RATE' or 'open:RATE:constant'"),
        (["bench", "openenv", "--arrival", "open:5", "--method", "openenv-scaling"], 2, "leave --arrival or --method out"),
        (["bench", "gem", "--arrival", "open:5"], 2, "runs environments in process"),
        (["bench", "skyrl", "--method", "openenv-scaling"], 2, "runs environments in process"),
        (["serve", "wordle", "--as", "gymnastics"], 2, "there is no framework"),
        (["certify", "chess"], 2, "there is no environment 'chess'"),
        (["certify", "wordle", "--framework", "gymnastics"], 2, "there is no framework 'gymnastics'"),
        (["certify", "wordle", "--release", "9.9.9"], 2, "'9.9.9' names no single release"),
        (["certify", "wordle", "--framework", "gem", "--release", "9"], 2, "has no supported release '9'"),
        (["golden", "chess"], 2, "there is no environment 'chess'"),
        (["report", "/nowhere"], 2, "does not exist"),
        (["frobnicate"], 2, "No such command"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_line_and_an_exit_code(
    rosetta: Rosetta, arguments: list[str], code: int, words: str
) -> None:
    done = rosetta(*arguments)
    assert done.returncode == code, done.stderr
    assert words in " ".join(done.stderr.split())
    assert "error" not in done.stdout.lower()


def test_a_folder_without_records_is_named(rosetta: Rosetta, tmp_path: Path) -> None:
    done = rosetta("report", str(tmp_path))
    assert done.returncode == 3
    assert "records.jsonl is missing" in " ".join(done.stderr.split())


@pytest.mark.slow
def test_a_report_can_be_written_elsewhere(rosetta: Rosetta, tmp_path: Path) -> None:
    run = Path(__file__).parents[2] / "reports" / "published" / "openenv-0.10.0-wordle"
    done = rosetta("report", str(run), "--out", str(tmp_path / "page"), "--json")
    page = Path(json.loads(done.stdout)["report"])
    assert done.returncode == 0
    assert page.is_relative_to(tmp_path / "page")
    assert page.is_file()


def test_doctor_names_every_stack_and_the_command_that_mends_it(rosetta: Rosetta) -> None:
    value = json.loads(rosetta("doctor", "--json").stdout)
    assert value["stacks"]
    for row in value["stacks"]:
        assert row["state"] == "ready" or row["fix"]
    text = rosetta("doctor").stdout
    assert all(row["stack"] in text for row in value["stacks"])


def broken_environment(folder: Path, start: str) -> Path:
    path = folder / "environment.py"
    path.write_text(
        "from canonical.environment import Environment\n"
        "from canonical.reward import Criterion\n"
        "from canonical.task import Task, TaskSet\n"
        "from canonical.tool import tool\n"
        "class Broken(Environment[dict[str, int]]):\n"
        "    '''Break.'''\n"
        "    name = 'broken'\n"
        "    max_turns = 3\n"
        "    rubric = Criterion('nothing', lambda state: 0.0)\n"
        "    def tasks(self): return TaskSet(Task(id=f'train/{n}') for n in range(4))\n"
        f"    def start(self, task, rng): {start}\n"
        "    def prompt(self, task, state): return 'Go.'\n"
        "    @tool\n"
        "    def go(self, state) -> str:\n"
        "        '''Go.'''\n"
        "        return 'gone'\n",
        encoding="utf-8",
    )
    return path


def test_episodes_that_were_played_are_kept_when_a_later_one_fails(rosetta: Rosetta, tmp_path: Path) -> None:
    path = broken_environment(tmp_path, "return {} if task.id != 'train/2' else 1 / 0")
    out = tmp_path / "out.jsonl"
    done = rosetta(
        "rollout", str(path), "--policy", "random", "--episodes", "4", "--out", str(out), "--quiet"
    )
    assert done.returncode == 3
    said = " ".join(done.stderr.split())
    assert "the start of broken failed with ZeroDivisionError" in said
    assert f"{path}, line 11, in start: def start(self, task, rng)" in said
    assert f"rosetta check {path}" in said
    assert [Transcript.from_line(line).task for line in out.read_text().splitlines()] == [
        "train/0",
        "train/1",
    ]


def test_an_output_that_cannot_be_written_is_found_before_anything_is_played(
    rosetta: Rosetta, tmp_path: Path
) -> None:
    done = rosetta("rollout", "wordle", "--out", str(tmp_path / "no" / "such.jsonl"))
    assert done.returncode == 2
    assert "---" not in done.stdout


def test_a_file_that_is_not_text_is_named(rosetta: Rosetta, tmp_path: Path) -> None:
    file = tmp_path / "actions"
    file.write_bytes(b"\xba\xba")
    done = rosetta("rollout", "wordle", "--policy", "replay", "--actions", str(file))
    assert done.returncode == 2
    assert "is not text" in " ".join(done.stderr.split())


def test_a_failure_among_things_done_side_by_side_is_one_line(
    rosetta: Rosetta, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ExceptionGroup("several", [ExceptionGroup("inner", [StackError("one clear line")])])

    monkeypatch.setattr("rosetta.frameworks.prove", fail)
    monkeypatch.setattr("rosetta.frameworks.make_ready", lambda *_, **__: None)
    done = rosetta("conformance", "openenv")
    assert done.returncode == 3
    assert done.stderr.strip() == "error: one clear line"


def test_the_start_of_the_help_keeps_its_lines(rosetta: Rosetta) -> None:
    assert "\n    rosetta play wordle " in rosetta("--help").stdout


def test_one_command_gives_a_new_environment_its_golden_set_and_says_later_whether_it_still_holds(
    rosetta: Rosetta, tmp_path: Path
) -> None:
    example = Path(__file__).parents[2] / "docs" / "examples" / "higher_lower.py"
    (tmp_path / "environment.py").write_text(example.read_text(encoding="utf-8"), encoding="utf-8")
    file = tmp_path / "golden" / "episodes.jsonl"
    new = rosetta("golden", str(tmp_path))
    assert new.returncode == 1
    assert f"{file}: there is no such file yet\nNothing was written" in new.stdout
    assert not file.exists()

    assert rosetta("golden", str(tmp_path), "--write").returncode == 0
    first = file.read_bytes()
    value = json.loads(rosetta("golden", str(tmp_path), "--json").stdout)
    assert value["state"] == "equal"
    assert value["episodes"] >= 500

    changed = first.replace(b"Higher.", b"Hotter.", 1)
    file.write_bytes(changed)
    told = rosetta("golden", str(tmp_path))
    assert told.returncode == 1
    assert "(left is the file, right the new recording): observation differs at step" in told.stdout
    assert file.read_bytes() == changed


def test_records_that_were_cut_off_are_named_with_the_line(rosetta: Rosetta, tmp_path: Path) -> None:
    run = Path(__file__).parents[2] / "reports" / "published" / "openenv-0.10.0-wordle" / "records.jsonl"
    lines = run.read_bytes().splitlines(keepends=True)[:3]
    (tmp_path / "records.jsonl").write_bytes(b"".join(lines) + b'{"kind": "no')
    done = rosetta("report", str(tmp_path), "--out", str(tmp_path / "page"))
    assert done.returncode == 0
    said = " ".join(done.stderr.split())
    assert f"{tmp_path / 'records.jsonl'}, line 4 was cut off and is left out" in said
    assert "Line 4 of records.jsonl was cut off" in (tmp_path / "page" / "report.md").read_text(
        encoding="utf-8"
    )


def test_a_report_that_cannot_be_written_hides_neither_the_records_nor_what_happened_first(
    rosetta: Rosetta, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    published = (
        Path(__file__).parents[2] / "reports" / "published" / "openenv-0.10.0-wordle" / "records.jsonl"
    )
    folder = tmp_path / "run"
    first: list[Exception] = []

    async def measure(request: Request, _: object) -> None:
        request.folder.mkdir()
        (request.folder / "records.jsonl").write_bytes(published.read_bytes())
        (request.folder / "index.html").mkdir()
        if first:
            raise first[0]

    monkeypatch.setattr("bench.benchmark.run_benchmark", measure)
    monkeypatch.setattr("rosetta.frameworks.make_ready", lambda *_, **__: None)
    done = rosetta("bench", "openenv", "--out", str(folder), "--quiet")
    assert done.returncode == 3
    assert str(folder) in done.stderr
    assert (folder / "records.jsonl").read_bytes() == published.read_bytes()

    first.append(StackError("the first trouble"))
    done = rosetta("bench", "openenv", "--out", str(tmp_path / "other"), "--quiet")
    assert done.returncode == 3
    assert done.stderr.strip().endswith("error: the first trouble")


def test_a_class_that_lacks_a_method_is_told_which(rosetta: Rosetta, tmp_path: Path) -> None:
    source = Path("docs/examples/higher_lower.py").read_text(encoding="utf-8")
    (tmp_path / "mine.py").write_text(source.replace("def start", "def begin"), encoding="utf-8")
    done = rosetta("check", str(tmp_path / "mine.py"))
    assert done.returncode != 0
    assert "HigherLower does not define `start`" in done.stderr


def test_without_a_verb_the_help_is_shown_once(rosetta: Rosetta) -> None:
    done = rosetta()
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.count("Usage:") == 1


@pytest.mark.parametrize("is_in_background", [False, True])
def test_what_batch_systems_send_interrupts_as_a_person_does(is_in_background: bool) -> None:
    """Shells let what they put into the background ignore Ctrl-C, which must not make it deaf to SIGTERM."""
    command = [sys.executable, "-P", "-m", "rosetta", "check", "wordle", "--episodes", "1000000"]
    started = subprocess.Popen(
        ["sh", "-c", ("trap '' INT; " if is_in_background else "") + 'exec "$@"', "sh", *command],
        stderr=subprocess.PIPE,
    )
    _wait_until_it_works(started.pid)
    started.terminate()
    _, stderr = started.communicate(timeout=60)
    assert (started.returncode, b"interrupted" in stderr) == (130, True), stderr


def _wait_until_it_works(pid: int) -> None:
    """Wait until the process handles SIGTERM itself: a bit of `SigCgt`."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
        if caught and int(caught[1], 16) & 1 << (signal.SIGTERM - 1):
            return
        time.sleep(0.05)
    raise AssertionError("it never began")
