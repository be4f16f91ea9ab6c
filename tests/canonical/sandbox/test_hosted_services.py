"""E2B and Modal cannot be reached here: what can be tried is that a missing SDK or key is said in one line."""

from __future__ import annotations

import asyncio
import base64
import importlib.util
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical.sandbox.backends import backend_names, load_backend
from canonical.sandbox.protocol import BackendUnavailableError
from canonical.sandbox.remote.backend import Lines

SDKS = ("e2b", "modal")


def test_every_backend_is_found_by_its_name() -> None:
    assert {"docker", "e2b", "local", "modal", "unsafe"} <= set(backend_names())
    assert all(load_backend(name).name == name for name in backend_names())


@pytest.mark.parametrize("name", SDKS)
def test_a_missing_sdk_or_key_is_one_clear_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("E2B_API_KEY", "MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(BackendUnavailableError) as raised:
        asyncio.run(load_backend(name).open())
    text = str(raised.value)
    expected = {"e2b": "E2B_API_KEY", "modal": "modal token new"}[name]
    assert "\n" not in text
    assert (f'pip install "rosetta-environments[{name}]"' in text) != (
        importlib.util.find_spec(name) is not None
    )
    assert (expected in text) == (importlib.util.find_spec(name) is not None)


@given(st.lists(st.binary(max_size=200), max_size=8), st.lists(st.integers(0, 2000), max_size=20))
def test_lines_of_base64_come_back_wherever_they_were_cut(chunks: list[bytes], cuts: list[int]) -> None:
    text = "".join(base64.b64encode(chunk).decode() + "\n" for chunk in chunks)
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    lines = Lines()
    assert b"".join(lines.feed(text[a:b]) for a, b in pairwise(places)) == b"".join(chunks)


@pytest.mark.parametrize("text", ["not base64!\n", "YQ=\n", "x" * 300_000])
def test_what_no_carrier_writes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"line|base64|padding|[Ii]nvalid"):
        Lines().feed(text)
