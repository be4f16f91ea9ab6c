"""Where environments run: which framework it is, which server, and what is said when there is none."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest

from canonical.adapter import Endpoint, Feature, Level, SessionError
from canonical.tool import ToolCall
from tests.stacks.suite.standing import NOWHERE

DRAW = ToolCall("draw")


def serves_wordle(command, adapter):
    """Start a server, play a step of Wordle there, and end it; return what it wrote after it had started."""

    async def play(url):
        async with adapter.connect(None, Endpoint(url, lambda: 0)) as session:
            opened = await session.open("train/0000", 0)
            assert [tool.name for tool in opened.tools] == ["guess"]
            return await session.step(ToolCall("guess", {"word": "crane"}))

    named = {**os.environ, "ROSETTA_ENVIRONMENT": "wordle"}
    with subprocess.Popen(command, env=named, stderr=subprocess.PIPE, text=True) as running:
        try:
            for line in running.stderr:
                if found := re.search(r"running on (http://\S+)", line):
                    break
            result = asyncio.run(play(found[1]))
        finally:
            running.terminate()
            rest = running.stderr.read()
    assert result.observation.text.startswith("C R A N E")
    assert "Traceback" not in rest


class TestPlaces:
    """Where environments run: which framework it is, which server, and what is said when there is none."""

    def test_the_framework_and_not_a_folder_of_this_project_is_imported(self, framework):
        found = {name: spec for name in framework.facts.imports if (spec := find_spec(name)) is not None}
        assert found
        for spec in found.values():
            places = [spec.origin] if spec.origin else list(spec.submodule_search_locations)
            assert all("site-packages" in Path(place).parts for place in places)

    def test_the_adapter_names_one_installed_release_and_judges_every_feature(self, framework, adapter):
        ((package, version),) = adapter.packages().items()
        assert distribution(package).version == version
        assert package in {release.package for release in framework.facts.releases}
        features = adapter.features()
        assert set(features) == set(Feature)
        assert all(support.note for support in features.values() if support.level is not Level.NATIVE)

    def test_what_cannot_be_connected_to_is_said(self, framework, adapter):
        words = "serve the environment" if framework.is_server else "in process|in the trainer's own process"

        async def main():
            with pytest.raises(SessionError, match=words):
                async with adapter.connect(None, NOWHERE):
                    pass

        asyncio.run(main())

    def test_an_endpoint_has_an_address_where_there_is_a_server(self, framework, lab):
        assert (lab.endpoint.url is not None) is framework.is_server

    def test_whoever_stops_serving_frees_every_episode(self, lab, manner):
        if manner.lingers:
            pytest.skip("clients whose server is gone try for long to end their sessions")

        async def main():
            connections = [lab.connect() for _ in range(3)]
            sessions = [await connection.__aenter__() for connection in connections]
            for session in sessions:
                await session.open("train/0", 0)
            assert lab.live == 3
            await asyncio.to_thread(lab.stop)
            assert lab.live == 0
            assert lab.closes(3)
            if lab.endpoint.url is not None and manner.stopped is not None:
                with pytest.raises(SessionError):
                    await sessions[0].step(DRAW)
                with pytest.raises(SessionError, match=manner.stopped):
                    await sessions[0].step(DRAW)
            await asyncio.gather(*(connection.__aexit__(None, None, None) for connection in connections))

        asyncio.run(main())
        assert lab.closes(3)

    def test_a_server_that_is_not_there_is_named(self, server):
        async def main():
            with socket.create_server(("127.0.0.1", 0)) as taken:
                port = taken.getsockname()[1]
            with pytest.raises(SessionError, match=f"127.0.0.1:{port}"):
                async with server.adapter.connect(None, Endpoint(f"http://127.0.0.1:{port}", lambda: 0)):
                    pass

        asyncio.run(main())

    @pytest.mark.parametrize("port", ["taken", 70_000])
    def test_a_port_that_cannot_be_had_is_an_os_error_in_words(self, server, environment, port):
        adapter = server.adapter

        async def main():
            with socket.create_server(("127.0.0.1", 0)) as taken:
                wanted = taken.getsockname()[1] if port == "taken" else port
                with pytest.raises(OSError, match=f"cannot serve on 127.0.0.1.*{wanted}"):
                    async with adapter.serve(adapter.compile(environment), port=wanted):
                        pass

        asyncio.run(main())

    def test_uvicorn_serves_an_environment_by_its_name(self, server):
        app = f"adapters.{server.name}.compiler:app_from_environment"
        serves_wordle(
            [sys.executable, "-P", "-m", "uvicorn", "--factory", app, "--port", "0"], server.adapter
        )

    @pytest.mark.parametrize(
        ("name", "words"),
        [(None, "set ROSETTA_ENVIRONMENT to the name"), ("none", "there is no environment 'none'")],
    )
    def test_a_missing_or_unknown_name_is_one_clear_line(self, server, monkeypatch, name, words):
        """`SystemExit` with a text is a line of standard error, and no traceback."""
        monkeypatch.delenv("ROSETTA_ENVIRONMENT", raising=False)
        if name is not None:
            monkeypatch.setenv("ROSETTA_ENVIRONMENT", name)
        with pytest.raises(SystemExit, match=words):
            server.module("compiler").app_from_environment()

    def test_the_wire_needs_no_framework(self, server):
        """The load engine reads and writes frames where no framework is installed."""
        script = (
            f"import sys, adapters.{server.name}.wire; "
            f"print([m for m in {server.facts.imports} if m in sys.modules and m != 'pydantic'])"
        )
        done = subprocess.run(
            [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "[]"
