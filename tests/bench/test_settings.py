"""Settings of a server travel through the port as one object; what is left out stays as it is."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bench import protocol
from bench.client import start_worker
from bench.session import serve
from bench.settings import COLLECTORS, UnknownSetting, _chosen
from canonical.server_settings import ServerSettings

settings = st.builds(
    ServerSettings,
    http=st.none() | st.just("h11"),
    ws=st.none() | st.just("websockets"),
    ws_deflate=st.none() | st.booleans(),
    ping_interval_s=st.none() | st.floats(0, 100),
    backlog=st.none() | st.integers(1, 4096),
    threads=st.none() | st.integers(1, 100),
    gc_freeze=st.none() | st.booleans(),
    gc_thresholds=st.none() | st.tuples(st.integers(0, 10**6), st.integers(0, 100), st.integers(0, 100)),
)


@given(settings)
def test_settings_reach_a_worker_as_they_were_given(given_settings):
    asked = protocol.Serve(seq=1, environment="wordle", settings=given_settings)
    assert protocol.REQUESTS.validate_json(asked.model_dump_json(exclude_none=True)) == asked


@given(settings)
def test_uvicorn_is_told_what_was_set_and_nothing_else(given_settings):
    told = given_settings.uvicorn()
    assert {"http", "ws", "backlog"} & told.keys() == {
        name for name in ("http", "ws", "backlog") if getattr(given_settings, name) is not None
    }
    assert ("ws_per_message_deflate" in told) == (given_settings.ws_deflate is not None)
    assert ("ws_ping_interval" in told) == (given_settings.ping_interval_s is not None)


def test_an_interval_of_0_sends_no_pings():
    assert ServerSettings(ping_interval_s=0).uvicorn() == {"ws_ping_interval": None}
    with pytest.raises(ValidationError):
        ServerSettings(backlog=0)


def test_settings_are_chosen_by_name_and_an_unknown_one_is_named_with_the_others():
    assert _chosen(COLLECTORS, ()) == COLLECTORS
    assert list(_chosen(COLLECTORS, ["gc=python"])) == ["gc=python"]
    with pytest.raises(
        UnknownSetting, match="no setting 'gc=often' to compare; there are gc=python, gc=frozen"
    ):
        _chosen(COLLECTORS, ["gc=often"])


@pytest.mark.slow
@pytest.mark.parametrize("name", list(COLLECTORS))
def test_the_collector_of_a_server_is_what_was_asked_for_and_is_recorded(name):
    async def main():
        async with start_worker(Path(sys.executable), "canonical.reference") as worker:
            return (await serve(worker, "wordle", settings=COLLECTORS[name])).settings

    found, wanted = asyncio.run(main()), COLLECTORS[name]
    assert (found["gc_freeze"], tuple(found["gc_thresholds"])) == (wanted.gc_freeze, wanted.gc_thresholds)
