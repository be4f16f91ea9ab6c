"""What is written for NeMo Gym's own commands is what these commands take."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from nemo_gym.base_resources_server import BaseRunRequest
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming

from adapters.nemo_gym.project import make_config, make_row, write_project
from adapters.nemo_gym.wire import read_content, read_tool
from bench.conformance import TOUCHSTONE
from canonical.catalogue import load_environment
from canonical.content import Message
from canonical.episode import Episode

BIN = Path(sys.executable).parent
CONFIG = "resources_servers/rosetta_wordle/configs/rosetta_wordle.yaml"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    write_project(load_environment("wordle"), "wordle", folder, salt="s")
    return folder


def environ(**more):
    return {**{key: value for key, value in os.environ.items() if key != "ROSETTA_ENVIRONMENT"}, **more}


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("source", ["wordle", TOUCHSTONE])
def test_a_row_holds_the_prompt_and_the_tools_of_its_episode(source):
    environment = load_environment(source)
    for task in list(environment.tasks())[:3]:
        row = asyncio.run(make_row(environment, task, 7))
        asked = NeMoGymResponseCreateParamsNonStreaming.model_validate(row["responses_create_params"])
        sent = asked.model_dump(exclude_unset=True)
        seen = tuple(Message(m["role"], read_content(m["content"])) for m in sent["input"])
        assert seen == Episode.open(environment, task, seed=7).prompt
        assert [read_tool(tool) for tool in sent["tools"]] == [tool.spec for tool in environment.tools]


def test_a_row_shows_no_secret_and_its_key_is_its_own():
    environment = load_environment("wordle")
    first, second = list(environment.tasks())[:2]
    made = [asyncio.run(make_row(environment, *what)) for what in ((first, 0), (first, 1), (second, 0))]
    assert len({row["verify_key"] for row in made}) == 3
    assert made[0] == asyncio.run(make_row(environment, first, 0))
    assert made[0]["verify_key"] != asyncio.run(make_row(environment, first, 0, salt="s"))["verify_key"]
    assert str(first.secret["answer"]) not in json.dumps(made[0])
    BaseRunRequest.model_validate({"responses_create_params": made[0]["responses_create_params"]})


def test_the_folder_is_one_of_a_resources_server(project):
    environment = load_environment("wordle")
    place = project / "resources_servers" / "rosetta_wordle"
    assert yaml.safe_load((place / "configs" / "rosetta_wordle.yaml").read_text()) == make_config(environment)
    for split in environment.tasks().splits:
        assert [row["task"] for row in rows(place / "data" / f"{split}.jsonl")] == [
            task.id for task in environment.tasks().split(split)
        ]
    assert len(rows(place / "data" / "example.jsonl")) == 5
    assert (place / "requirements.txt").read_text() == "rosetta-environments[nemo-gym]\n"


def test_the_framework_accepts_the_example_rows(project):
    """`ng_prepare_data` is the framework's own validator of rows and configurations."""
    done = subprocess.run(
        [
            BIN / "ng_prepare_data",
            f"+config_paths=[{CONFIG},responses_api_models/openai_model/configs/openai_model.yaml]",
            "+output_dirpath=prepared",
            "+mode=example_validation",
            "+policy_base_url=http://127.0.0.1:1/v1",
            "+policy_api_key=none",
            "+policy_model_name=none",
        ],
        cwd=project,
        env=environ(),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    metrics = project / "resources_servers" / "rosetta_wordle" / "data" / "example_metrics.json"
    assert json.loads(metrics.read_text())["Number of examples"] == 5
