"""A compiled environment is served as any environment of ORS is: by its own `Server`, or by uvicorn from a factory."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys

import pytest

from adapters.ors.adapter import ADAPTER
from adapters.ors.compiler import app_from_environment
from canonical.adapter import Endpoint, Feature, Level
from canonical.tool import ToolCall

UVICORN = [
    sys.executable, "-P", "-m", "uvicorn", "--factory", "adapters.ors.compiler:app_from_environment", "--port", "0",
]  # fmt: skip
SCRIPT = (
    "from adapters.ors.compiler import compile_environment, make_server\n"
    "from canonical.catalogue import load_environment\n"
    "make_server(compile_environment(load_environment('wordle'))).run(host='127.0.0.1', port=0)"
)
RUN = [sys.executable, "-P", "-c", SCRIPT]


def environ(**more):
    kept = {key: value for key, value in os.environ.items() if key != "ROSETTA_ENVIRONMENT"}
    return {**kept, **more}


@pytest.mark.parametrize("command", [UVICORN, RUN], ids=["uvicorn", "Server.run"])
def test_a_server_of_its_own_process_serves_an_environment(command):
    async def play(url):
        async with ADAPTER.connect(None, Endpoint(url, lambda: 0)) as session:
            opened = await session.open("train/0000", 0)
            assert [tool.name for tool in opened.tools] == ["guess"]
            return await session.step(ToolCall("guess", {"word": "crane"}))

    with subprocess.Popen(
        command, env=environ(ROSETTA_ENVIRONMENT="wordle"), stderr=subprocess.PIPE, text=True
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
def test_a_missing_or_unknown_name_is_one_clear_line(monkeypatch, name, words):
    monkeypatch.delenv("ROSETTA_ENVIRONMENT", raising=False)
    if name is not None:
        monkeypatch.setenv("ROSETTA_ENVIRONMENT", name)
    with pytest.raises(SystemExit, match=words):
        app_from_environment()


def test_the_adapter_names_one_distribution_and_judges_every_feature():
    assert list(ADAPTER.packages()) in [["openreward"], ["ors-sdk"]]
    features = ADAPTER.features()
    assert set(features) == set(Feature)
    assert all(support.note for support in features.values() if support.level is not Level.NATIVE)
