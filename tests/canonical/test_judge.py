"""What a judge promises: a score that a model gave, or an error that says why there is none; never a silent 0."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from typing import Any

import pytest

from canonical.chat import ChatModel
from canonical.content import Observation
from canonical.episode import Episode
from canonical.judge import Judge
from canonical.reward import Exchange, Gate, Score, ScoringError, WeightedSum
from canonical.step import Cause
from canonical.tool import ToolCall
from tests.canonical.chat_server import Answer, free_port, says, serve_chat
from tests.canonical.miniatures import CANARY, Counter

KEY = "ROSETTA_TEST_KEY"


def make(url: str, **options: Any) -> Judge[Any]:
    options = {"retries": 0, "timeout": 5.0, "prompt": lambda state, _: f"How good is {state}?", **options}
    return Judge("quality", model="tiny", base_url=url, api_key_variable=KEY, **options)


def judge(answer: Any, **options: Any) -> Score:
    with serve_chat(answer if isinstance(answer, Answer) else says(answer)) as server:
        return asyncio.run(make(server.url, **options).evaluate("this", ()))


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ('{"score": 0.5}', 0.5),
        ('{"score": 0}', 0.0),
        ('{"score": 1}', 1.0),
        (' \n{"score": 1.0e0}\n', 1.0),
        ('```json\n{"score": 0.25}\n```', 0.25),
        ('```\n{"score": 0.25}\n```\n', 0.25),
    ],
)
def test_the_answer_is_the_score(answer, score):
    assert judge(answer) == Score({"quality": score})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("I would say 0.5.", "is not one JSON object: a value is expected"),
        ('The score is {"score": 0.5}', "is not one JSON object: a value is expected"),
        ('{"score": 0.5} because it is good', "is not one JSON object: something follows"),
        ('{"score": 0.5}{"score": 0.5}', "is not one JSON object: something follows"),
        ('```json\n{"score": 0.5}\n```\nGood.', "is not one JSON object"),
        ("", "is not one JSON object"),
        ('{"score": NaN}', "NaN is not a JSON value"),
        ('{"score": Infinity}', "Infinity is not a JSON value"),
        ('{"score": 1e999}', "a number is too large"),
        ('{"score": 1, "score": 0}', "a key appears twice"),
        ('{"score": 1.01}', r"has a score outside \[0, 1\]"),
        ('{"score": -1}', r"has a score outside \[0, 1\]"),
        ('{"score": "0.5"}', "has a score that is not a number"),
        ('{"score": true}', "has a score that is not a number"),
        ('{"score": null}', "has a score that is not a number"),
        ('{"score": [1]}', "has a score that is not a number"),
        ('{"score": 1, "reason": "good"}', 'is not an object with the one key "score"'),
        ('{"points": 1}', 'is not an object with the one key "score"'),
        ("0.5", 'is not an object with the one key "score"'),
        ("[" * 100_000, "nested"),
    ],
)
def test_any_other_answer_is_an_error_that_says_why(answer, reason):
    with pytest.raises(ScoringError, match=f"^judge 'quality': the answer of the model.*{reason}"):
        judge(answer)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer({"error": {"message": "broken"}}, 500), "answered HTTP 500"),
        (Answer("overloaded", 503), "answered HTTP 503"),
        (Answer({"error": {"message": "who are you"}}, 401), "answered HTTP 401"),
        (Answer({"error": {"message": "no such model"}}, 404), "answered HTTP 404"),
        (Answer("not JSON"), "answered in another form than the chat API"),
        (Answer("[" * 200_000), "answered in another form than the chat API"),
        (Answer({}), "answered in another form than the chat API"),
        (Answer({"choices": []}), "answered in another form than the chat API"),
        (Answer({"choices": [{"message": None}]}), "answered in another form than the chat API"),
        (Answer({"choices": [{"message": {"content": [1]}}]}), "answered in another form than the chat API"),
        (says('{"score": 1}', calls=[{"id": "x"}]), "answered in another form than the chat API"),
    ],
)
def test_a_failing_endpoint_is_an_error_that_names_it(answer, reason):
    with pytest.raises(
        ScoringError, match=f"^judge 'quality': the endpoint http://127.0.0.1:[0-9]+/v1 {reason}"
    ):
        judge(answer)


def test_an_endpoint_that_never_finishes_is_left_after_the_timeout():
    """The limit is on the whole attempt: bytes that trickle in do not renew it."""
    slow = says('{"score": 1}')
    slow.drip = 0.05
    with pytest.raises(ScoringError, match=r"did not answer within 0\.3 s"):
        judge(slow, timeout=0.3)


def test_an_endpoint_that_accepts_and_says_nothing_is_left_after_the_timeout():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        silent = make(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", timeout=0.3)
        with pytest.raises(ScoringError, match=r"did not answer within 0\.3 s"):
            asyncio.run(silent.evaluate("this", ()))


def test_an_endpoint_that_is_not_there_is_an_error():
    url = f"http://user:password@127.0.0.1:{free_port()}/v1"
    with pytest.raises(ScoringError, match=r"the endpoint http://127\.0\.0\.1:[0-9]+/v1 cannot be reached$"):
        asyncio.run(make(url).evaluate("this", ()))


@pytest.mark.parametrize("url", ["http://[", "nowhere", "ftp://127.0.0.1/"])
def test_an_address_that_is_none_is_an_error(url):
    with pytest.raises(ScoringError, match=r"the endpoint .* cannot be (asked|reached)"):
        asyncio.run(make(url).evaluate("this", ()))


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_a_passing_failure_is_tried_again(status):
    with serve_chat(Answer({}, status), says('{"score": 1}')) as server:
        assert asyncio.run(make(server.url, retries=1).evaluate("this", ())) == Score({"quality": 1.0})
        assert len(server.requests) == 2


def test_a_failure_that_stays_is_not_tried_again():
    with serve_chat(Answer({}, 400), says('{"score": 1}')) as server:
        with pytest.raises(ScoringError, match="HTTP 400"):
            asyncio.run(make(server.url, retries=3).evaluate("this", ()))
        assert len(server.requests) == 1


def test_tries_come_to_an_end():
    with serve_chat(Answer({}, 500)) as server:
        with pytest.raises(ScoringError, match="HTTP 500"):
            asyncio.run(make(server.url, retries=1).evaluate("this", ()))
        assert len(server.requests) == 2


def test_the_question_holds_the_prompt_and_the_scale():
    exchanges = (Exchange(ToolCall("add", {"amount": 2}), Observation.of("two \ud800")),)

    def prompt(state: Any, seen: Any) -> str:
        return f"{state}: {[exchange.observation.text for exchange in seen]}{seen[0].observation.text}"

    with serve_chat(says('{"score": 7.5}')) as server:
        judged = make(server.url, prompt=prompt, low=-2.5, high=10, temperature=None)
        assert asyncio.run(judged.evaluate("this", exchanges)) == Score({"quality": 7.5})
    (request,) = server.requests
    assert request["path"] == "/v1/chat/completions"
    assert request["model"] == "tiny"
    assert "temperature" not in request
    system, user = request["messages"]
    assert "at least -2.5 and at most 10" in system["content"]
    assert user["content"].startswith("this: [")
    assert user["content"].endswith("two ?")


def test_the_key_comes_from_the_named_variable(monkeypatch):
    monkeypatch.setenv(KEY, "a-secret-key")
    with serve_chat(Answer({}, 401)) as server:
        with pytest.raises(ScoringError) as caught:
            asyncio.run(make(server.url).evaluate("this", ()))
        assert server.headers[0]["authorization"] == "Bearer a-secret-key"
        assert server.requests[0]["temperature"] == 0.0
    assert "a-secret-key" not in str(caught.value)


def test_a_missing_key_is_an_error_that_names_the_variable(monkeypatch):
    monkeypatch.delenv(KEY, raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ScoringError, match=f"set the environment variable {KEY}"):
        asyncio.run(Judge("q", model="m", prompt=lambda *_: "", api_key_variable=KEY).evaluate(None, ()))


def test_a_missing_package_is_an_error_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ScoringError, match=r'pip install "rosetta-environments\[model\]"'):
        asyncio.run(make("http://127.0.0.1:1/v1").evaluate("this", ()))


def test_without_an_event_loop_the_error_names_the_async_variant():
    with pytest.raises(RuntimeError, match="await the async variant"):
        make("http://127.0.0.1:1/v1").score("this")


@pytest.mark.parametrize(("low", "high"), [(1, 1), (2, 1), (0, float("inf")), (float("nan"), 1)])
def test_an_empty_scale_is_refused_at_once(low, high):
    with pytest.raises(ValueError, match="the scale"):
        make("http://127.0.0.1:1/v1", low=low, high=high)


@pytest.mark.parametrize("options", [{"timeout": 0}, {"timeout": float("nan")}, {"retries": -1}])
def test_limits_that_make_no_sense_are_refused_at_once(options):
    with pytest.raises(ValueError, match=r"timeout|retries"):
        ChatModel(model="m", **options)


class Judged(Counter):
    """Count, and let a model say how well."""

    name = "judged"

    def __init__(self, url: str) -> None:
        weighted = WeightedSum((0.5, make(url)), (0.5, make(url, uses_exchanges=False)))
        weighted._weighted[1][1].name = "style"
        self.rubric = Gate(
            make(url, prompt=lambda state, _: f"{state.goal} {CANARY}"), weighted, threshold=0.5
        )


def test_a_judge_scores_an_episode():
    async def play(url: str) -> tuple[float, Any]:
        episode = await Episode.open_async(Judged(url), "train/2")
        result = await episode.step_async(ToolCall("add", {"amount": 2}))
        await episode.close_async()
        return result.total, result

    with serve_chat(says('{"score": 0.5}')) as server:
        total, result = asyncio.run(play(server.url))
    assert total == 0.5
    assert result.components == {"quality": 0.25, "style": 0.25}
    assert result.cause is Cause.SOLVED
    assert len(server.requests) == 3


def test_a_judge_that_fails_ends_the_episode_with_an_error_that_gives_nothing_away():
    async def play(url: str) -> None:
        episode = await Episode.open_async(Judged(url), "train/2")
        try:
            with pytest.raises(ScoringError) as caught:
                await episode.step_async(ToolCall("add", {"amount": 2}))
            assert episode.cause is Cause.ERROR
            assert CANARY not in str(caught.value)
        finally:
            await episode.close_async()

    for answer in (
        says(f"{CANARY}!"),
        says(json.dumps({"score": 1, CANARY: 1})),
        Answer({"error": {"message": CANARY}}, 400),
    ):
        with serve_chat(answer) as server:
            asyncio.run(play(server.url))


def test_judges_of_many_episodes_ask_at_the_same_time():
    async def ask_all(url: str) -> list[Score]:
        judged = make(url)
        return await asyncio.gather(*(judged.evaluate(index, ()) for index in range(8)))

    with serve_chat(says('{"score": 1}')) as server:
        assert asyncio.run(ask_all(server.url)) == [Score({"quality": 1.0})] * 8
        assert asyncio.run(ask_all(server.url)) == [Score({"quality": 1.0})] * 8  # in another event loop
        questions = {request["messages"][1]["content"] for request in server.requests}
    assert questions == {f"How good is {index}?" for index in range(8)}
