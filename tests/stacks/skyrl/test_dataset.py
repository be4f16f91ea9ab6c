"""The data set holds what SkyRL's trainer reads, and no secret."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from canonical.task import UnknownTaskError


def write(*arguments):
    return subprocess.run(
        [sys.executable, "-P", "-m", "adapters.skyrl.dataset", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_task_of_a_split_is_a_row(wordle):
    done = write("wordle", "--split", "test", "--seed", "4")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    tasks = wordle.tasks().split("test")
    assert [row["extra_info"] for row in rows] == [
        {"task": task.id, "split": "test", "index": index, "seed": 4} for index, task in enumerate(tasks)
    ]
    assert {row["env_class"] for row in rows} == {row["data_source"] for row in rows} == {"wordle"}
    assert rows[0]["prompt"][0]["role"] == "user"
    text = done.stdout.lower()
    assert not [task for task in tasks if f'"{task.secret["answer"]}"' in text]


def test_rows_show_the_prompt_of_the_very_episode(compiled, canary, environment):
    with pytest.raises(UnknownTaskError):
        next(compiled.rows("none"))
    rows = list(compiled.rows("test"))
    assert rows == [
        {
            "data_source": environment.name,
            "prompt": [{"role": "user", "content": "Level 9."}],
            "env_class": environment.name,
            "reward_spec": {"method": "rule"},
            "extra_info": {"task": "test/0", "split": "test", "index": 0, "seed": 0},
        }
    ]
    assert canary not in json.dumps(rows)
    assert len(environment.closed) == 1
    assert not compiled.live


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none"], "there is no environment 'none'"),
        (["wordle", "--split", "none"], "there is no split 'none'"),
    ],
)
def test_a_wrong_name_is_one_clear_line(arguments, words):
    done = write(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
