"""A compiled environment is served as any OpenEnv environment is: by uvicorn, from a factory."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import subprocess
import sys

import pytest

from adapters.openenv.adapter import ADAPTER
from canonical.adapter import Endpoint, Feature, Level
from canonical.tool import ToolCall

COMMAND = [
    sys.executable, "-P", "-m", "uvicorn", "--factory", "adapters.openenv.compiler:app_from_environment", "--port", "0",
]  # fmt: skip


def environ(**more):
    kept = {key: value for key, value in os.environ.items() if key != "ROSETTA_ENVIRONMENT"}
    return {**kept, **more}


def test_uvicorn_serves_an_environment_by_its_name():
    async def play(url):
        async with ADAPTER.connect(None, Endpoint(url, lambda: 0)) as session:
            opened = await session.open("train/0000", 0)
            assert [tool.name for tool in opened.tools] == ["guess"]
            return await session.step(ToolCall("guess", {"word": "crane"}))

    with subprocess.Popen(
        COMMAND, env=environ(ROSETTA_ENVIRONMENT="wordle"), stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            for line in server.stderr:
                if found := re.search(r"running on (http://\S+)", line):
                    break
            result = asyncio.run(play(found[1]))
        finally:
            server.terminate()
            rest = server.stderr.read()
    assert result.observation.text.startswith("C R A N E")
    assert "Traceback" not in rest


@pytest.mark.parametrize(
    ("name", "words"),
    [(None, "set ROSETTA_ENVIRONMENT to the name"), ("none", "there is no environment 'none'")],
)
def test_a_missing_or_unknown_name_is_one_clear_line(name, words):
    more = {} if name is None else {"ROSETTA_ENVIRONMENT": name}
    done = subprocess.run(
        COMMAND, env=environ(**more), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_framework_and_not_a_folder_of_this_project_is_imported():
    assert "site-packages" in importlib.util.find_spec("openenv").origin


def test_the_adapter_names_one_distribution_and_judges_every_feature():
    assert list(ADAPTER.packages()) in [["openenv"], ["openenv-core"]]
    features = ADAPTER.features()
    assert set(features) == set(Feature)
    assert all(support.note for support in features.values() if support.level is not Level.NATIVE)
