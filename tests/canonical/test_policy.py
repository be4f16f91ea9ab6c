"""What policies and the rollout promise: the same seeds play the same episode, a session is always closed, and a model's
answer becomes actions in its order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical.adapter import Opened, Session, SessionError
from canonical.chat import ChatError
from canonical.content import JSON, ErrorCode
from canonical.dialect import TextForm, describe_tools
from canonical.environment import NoOracleError
from canonical.environments.wordle.environment import Wordle
from canonical.policy import ModelPolicy, OraclePolicy, Policy, RandomPolicy, ReplayPolicy, ScriptedPolicy
from canonical.reference import ReferenceSession
from canonical.rollout import roll_out
from canonical.schema import SchemaDialect, render_tools
from canonical.step import Cause, StepResult
from canonical.task import UnknownTaskError
from canonical.tool import ToolCall
from canonical.transcript import Action, Transcript, TranscriptStep
from tests.canonical.chat_server import Answer, calling, says, serve_chat
from tests.canonical.miniatures import Counter, Dice, Gallery, Waiter
from tests.canonical.strategies import counter_calls, messy

ENVIRONMENTS = (Counter, Dice, Gallery, Waiter, Wordle)
RANDOM_SEEDS = st.integers(-(2**63), 2**63)


class Watched:
    """Be a session that counts what is done to it, and fails where it is told to."""

    def __init__(self, session: ReferenceSession, fail: str = "") -> None:
        self._session, self._fail = session, fail
        self.done: list[str] = []

    def _note(self, what: str) -> None:
        self.done.append(what)
        if what == self._fail:
            raise SessionError(f"{what} failed")

    async def open(self, task: str, seed: int) -> Opened:
        self._note("open")
        return await self._session.open(task, seed)

    async def step(self, action: Action) -> StepResult:
        self._note("step")
        return await self._session.step(action)

    async def public_state(self) -> JSON:
        return {}

    async def reported_return(self) -> float:
        return await self._session.reported_return()

    async def close(self) -> None:
        self._note("close")
        await self._session.close()


def first_task(environment: Any) -> str:
    return next(iter(environment.tasks())).id


async def play(environment: Any, policy: Policy, seed: int = 0, task: str | None = None) -> Transcript:
    return await roll_out(
        ReferenceSession(environment),
        policy,
        task=task or first_task(environment),
        seed=seed,
        environment=environment.name,
        version=environment.version,
    )


def test_the_watched_session_is_a_session():
    assert isinstance(Watched(ReferenceSession(Counter())), Session)


@pytest.mark.parametrize("kind", [Counter, Waiter, Wordle])
def test_the_oracle_reaches_the_highest_return(kind):
    environment = kind()
    for task in list(environment.tasks())[:5]:
        transcript = asyncio.run(play(environment, OraclePolicy(environment), seed=3, task=task.id))
        assert transcript.cause is Cause.SOLVED
        assert transcript.total == environment.reward.high


def test_an_environment_without_a_solution_says_so():
    environment = Dice()
    with pytest.raises(NoOracleError, match="dice has no oracle"):
        asyncio.run(play(environment, OraclePolicy(environment)))


@pytest.mark.parametrize("kind", ENVIRONMENTS)
@given(RANDOM_SEEDS, RANDOM_SEEDS)
def test_random_play_is_a_function_of_the_seeds_and_the_task(kind, policy_seed, seed):
    environment = kind()
    for policy in (RandomPolicy(policy_seed), RandomPolicy(policy_seed, environment)):
        first, second = (
            asyncio.run(play(environment, policy, seed)),
            asyncio.run(play(environment, policy, seed)),
        )
        assert first.to_line() == second.to_line()
        assert first.cause is not None


@given(st.lists(st.integers(0, 3), min_size=2, max_size=6))
def test_one_policy_plays_many_episodes_at_once_as_it_plays_them_alone(seeds):
    environment, policy = Waiter(), RandomPolicy(7)

    async def all_at_once() -> list[Transcript]:
        return await asyncio.gather(*(play(environment, policy, seed) for seed in seeds))

    alone = [asyncio.run(play(environment, policy, seed)).to_line() for seed in seeds]
    assert [transcript.to_line() for transcript in asyncio.run(all_at_once())] == alone


def test_other_seeds_and_tasks_get_other_random_actions():
    environment = Wordle()
    tasks = [task.id for task in list(environment.tasks())[:2]]
    actions = {
        tuple(str(step.action) for step in asyncio.run(play(environment, RandomPolicy(p), s, task)).steps)
        for p in (0, 1)
        for s in (0, 1)
        for task in tasks
    }
    assert len(actions) == 8


def test_random_calls_fit_the_schemas():
    for kind in ENVIRONMENTS:
        transcript = asyncio.run(play(kind(), RandomPolicy(5)))
        assert all(
            step.result.observation.error is not ErrorCode.INVALID_ARGUMENTS for step in transcript.steps
        )


@given(st.lists(messy(counter_calls), max_size=8))
def test_a_script_is_played_in_order_until_the_episode_ends(actions):
    transcript = asyncio.run(play(Counter(), ScriptedPolicy(iter(actions))))
    played = [step.action for step in transcript.steps]
    assert played == actions[: len(played)]
    assert len(played) == len(actions) or transcript.cause is not None
    assert all(step.result.cause is None for step in transcript.steps[:-1])


@pytest.mark.parametrize("kind", ENVIRONMENTS)
@given(RANDOM_SEEDS)
def test_a_replay_gives_the_same_transcript(kind, seed):
    transcript = asyncio.run(play(kind(), RandomPolicy(1), seed))
    again = asyncio.run(play(kind(), ReplayPolicy(Transcript.from_line(transcript.to_line())), seed))
    assert again.to_line() == transcript.to_line()


def test_a_transcript_holds_what_crossed_the_border():
    environment = Counter()
    seen: list[TranscriptStep] = []
    session = Watched(ReferenceSession(environment))
    transcript = asyncio.run(
        roll_out(session, ScriptedPolicy([ToolCall("add", {})]), task="train/3", seed=9, watch=seen.append)
    )
    assert transcript.task == "train/3"
    assert transcript.seed == 9
    assert transcript.prompt[0].text == "Count to the hidden goal, at most 9."
    assert [tool.name for tool in transcript.tools] == ["add", "refuse"]
    assert transcript.steps == tuple(seen)
    assert transcript.cause is None
    assert session.done == ["open", "step", "close"]


class Failing:
    """Be a policy that fails after its first action, and notes that it was closed."""

    def __init__(self, error: Exception | None) -> None:
        self.error, self.closed = error, 0

    async def play(self, opened: Opened, *, task: str, seed: int) -> AsyncGenerator[Action, StepResult]:
        try:
            yield ToolCall("add", {})
            if self.error is not None:
                raise self.error
            while True:
                yield ToolCall("add", {"amount": 0})
        finally:
            self.closed += 1


@pytest.mark.parametrize(
    ("fail", "error", "done"),
    [
        ("open", None, ["open", "close"]),
        ("step", None, ["open", "step", "close"]),
        ("", ChatError("no"), ["open", "step", "close"]),
    ],
)
def test_the_session_is_closed_whatever_fails(fail, error, done):
    session, policy = Watched(ReferenceSession(Counter()), fail), Failing(error)
    with pytest.raises((SessionError, ChatError)):
        asyncio.run(roll_out(session, policy, task="train/5", seed=0))
    assert session.done == done
    assert policy.closed == (0 if fail == "open" else 1)


def test_the_session_and_the_policy_are_closed_when_the_rollout_is_cancelled():
    session, policy = Watched(ReferenceSession(Counter())), Failing(None)

    def stop(_: TranscriptStep) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(roll_out(session, policy, task="train/1", seed=0, watch=stop))
    assert session.done == ["open", "step", "close"]
    assert policy.closed == 1


def test_the_policy_is_closed_when_the_episode_ends_first():
    policy = Failing(None)
    transcript = asyncio.run(play(Counter(), policy, task="train/5"))
    assert transcript.cause is Cause.BUDGET
    assert policy.closed == 1


def test_an_unknown_task_is_refused():
    environment = Counter()
    with pytest.raises(SessionError, match="no task"):
        asyncio.run(play(environment, RandomPolicy(), task="train/99"))
    with pytest.raises(UnknownTaskError):
        asyncio.run(anext(OraclePolicy(environment).play(Opened((), ()), task="train/99", seed=0)))


def test_random_play_without_tools_says_so():
    with pytest.raises(ValueError, match="no tool"):
        asyncio.run(anext(RandomPolicy().play(Opened((), ()), task="train/1", seed=0)))


def ask(
    environment: Any, *answers: Answer, task: str | None = None, **options: Any
) -> tuple[Transcript, list[Any]]:
    """Let a model that gives these answers play, and return what happened and what it was sent."""
    with serve_chat(*answers) as server:
        policy = ModelPolicy("tiny", base_url=server.url, timeout=10.0, **{"retries": 0, **options})
        transcript = asyncio.run(play(environment, policy, task=task))
        return transcript, server.requests


def add(amount: Any, identity: str | None = "a") -> dict[str, Any]:
    return calling("add", {"amount": amount}, identity)


def test_a_model_is_offered_the_prompt_and_the_tools_and_shown_the_results():
    transcript, requests = ask(
        Counter(),
        says(None, calls=[add(2)]),
        says("Now two more.", calls=[add(2, "b")]),
        task="train/4",
        seed=5,
        temperature=0.5,
    )
    assert [step.action for step in transcript.steps] == [ToolCall("add", {"amount": 2})] * 2
    assert transcript.cause is Cause.SOLVED
    first, second = requests
    assert first["model"] == "tiny"
    assert (first["seed"], first["temperature"]) == (5, 0.5)
    assert first["messages"] == [{"role": "user", "content": "Count to the hidden goal, at most 9."}]
    assert first["tools"] == render_tools(transcript.tools, SchemaDialect.OPENAI_CHAT)
    assert second["messages"] == [
        *first["messages"],
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"amount": 2}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": transcript.steps[0].result.observation.text},
    ]


def test_what_is_not_asked_for_is_not_sent():
    _, (request, *_) = ask(Counter(), says(None, calls=[add(1)]), task="train/1")
    assert request.keys() == {"path", "model", "messages", "tools"}


def test_several_calls_of_one_answer_run_in_order():
    transcript, requests = ask(
        Counter(),
        says(None, calls=[add(1, "x"), calling("refuse", "", "y"), add(2, "z")]),
        says(None, calls=[add(4)]),
        task="train/7",
    )
    assert [step.action for step in transcript.steps] == [
        ToolCall("add", {"amount": 1}),
        ToolCall("refuse", {}),
        ToolCall("add", {"amount": 2}),
        ToolCall("add", {"amount": 4}),
    ]
    assert [m["tool_call_id"] for m in requests[1]["messages"] if m["role"] == "tool"] == ["x", "y", "z"]
    assert transcript.cause is Cause.SOLVED


def test_calls_after_the_end_of_the_episode_are_not_made():
    transcript, _ = ask(Counter(), says(None, calls=[add(1), add(1)]), task="train/1")
    assert len(transcript.steps) == 1


def test_an_answer_without_a_call_is_a_text_action():
    text = '<tool_call>{"name": "add", "arguments": {"amount": 1}}</tool_call>'
    transcript, requests = ask(Counter(), says("Which goal?"), says(text), task="train/1")
    assert [step.action for step in transcript.steps] == ["Which goal?", text]
    assert transcript.steps[0].result.observation.error is ErrorCode.UNPARSABLE
    assert transcript.cause is Cause.SOLVED
    assert requests[1]["messages"][1:] == [
        {"role": "assistant", "content": "Which goal?"},
        {"role": "user", "content": transcript.steps[0].result.observation.text},
    ]


def test_a_refusal_and_an_empty_answer_are_text_actions():
    transcript, _ = ask(Counter(), says(None, refusal="I will not count."), says(None), says(""))
    assert [step.action for step in transcript.steps] == ["I will not count.", "", "", "", ""]
    assert transcript.cause is Cause.BUDGET


def test_a_call_with_broken_arguments_is_answered_with_what_is_wrong():
    """It goes into the conversation as text, since servers refuse one that holds a call whose arguments are no JSON."""
    transcript, requests = ask(
        Counter(),
        says("Both.", calls=[calling("add", '{"amount": 1', "x"), add(1, "y")]),
        says(None, calls=[add(1)]),
        task="train/2",
    )
    broken, good, _ = transcript.steps
    assert broken.action == '<tool_call>{"name": "add", "arguments": {"amount": 1}</tool_call>'
    assert broken.result.observation.error is ErrorCode.UNPARSABLE
    assert "is missing" in broken.result.observation.text
    assert good.action == ToolCall("add", {"amount": 1})
    _, assistant, answer, user = requests[1]["messages"]
    assert assistant["content"] == f"Both.\n{broken.action}"
    assert [call["id"] for call in assistant["tool_calls"]] == ["y"]
    assert answer["tool_call_id"] == "y"
    assert user == {"role": "user", "content": broken.result.observation.text}


@pytest.mark.parametrize(
    "arguments", ["[1]", "3", '"x"', "add", '{"amount": NaN}', '{"amount": 1, "amount": 2}']
)
def test_arguments_that_are_no_object_are_an_error_of_the_model(arguments):
    transcript, _ = ask(Counter(), says(None, calls=[calling("add", arguments)]))
    assert {step.result.observation.error for step in transcript.steps} == {ErrorCode.UNPARSABLE}


@pytest.mark.parametrize("arguments", ["", "{}", "null", " {}\n"])
def test_no_arguments_are_no_error(arguments):
    transcript, _ = ask(Counter(), says(None, calls=[calling("add", arguments)]), task="train/1")
    assert [step.action for step in transcript.steps] == [ToolCall("add", {})]


def test_a_server_that_sends_arguments_as_an_object_and_no_id_is_understood():
    call = {"type": "function", "function": {"name": "add", "arguments": {"amount": 1}}}
    transcript, requests = ask(
        Counter(), says(None, calls=[call, call]), says(None, calls=[call]), task="train/3"
    )
    assert transcript.cause is Cause.SOLVED
    assert [m["tool_call_id"] for m in requests[1]["messages"] if m["role"] == "tool"] == ["call_0", "call_1"]


def test_images_are_shown_to_the_model():
    transcript, requests = ask(
        Gallery(), says(None, calls=[calling("look", {"angle": 7})]), says(None, calls=[calling("leave", {})])
    )
    system, user, _, answer, image = requests[1]["messages"]
    assert system == {"role": "system", "content": "You visit a gallery."}
    assert [part["type"] for part in user["content"]] == ["text", "image_url"]
    assert user["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert answer["content"] == transcript.steps[0].result.observation.text
    assert image == {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9gH"}}],
    }


@pytest.mark.parametrize("form", TextForm)
def test_a_model_without_tool_calls_is_told_of_the_tools_in_text(form):
    text = '{"name": "add", "arguments": {"amount": 1}}'
    transcript, (request, *_) = ask(Counter(), says(text), task="train/1", text_form=form)
    assert transcript.cause is Cause.SOLVED
    assert "tools" not in request
    assert request["messages"][0] == {"role": "system", "content": describe_tools(transcript.tools, form)}


def test_text_that_cannot_be_encoded_reaches_the_model_all_the_same():
    transcript, requests = ask(Counter(), says("\ud800"), says(None, calls=[add(1)]), task="train/1")
    assert transcript.steps[0].action == "\ud800"
    assert requests[1]["messages"][1] == {"role": "assistant", "content": "?"}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer({"error": {"message": "no model tiny"}}, 404), "answered HTTP 404: .*no model tiny"),
        (Answer({"error": {"message": "busy"}}, 503), "answered HTTP 503: .*busy"),
        (Answer("<html>"), "answered in another form than the chat API: the body is not JSON"),
        (Answer({"choices": [{}]}), "there is no message"),
        (says(None, calls=[{"type": "custom", "custom": {}}]), r"tool_calls\[0\] names no function"),
        (says(None, calls=[3]), r"tool_calls\[0\] names no function"),
        (says({"a": 1}), "of another type"),
    ],
)
def test_an_endpoint_that_fails_ends_the_rollout_with_a_reason(answer, reason):
    with serve_chat(answer) as server:
        session = Watched(ReferenceSession(Counter()))
        policy = ModelPolicy("tiny", base_url=server.url, retries=0)
        with pytest.raises(ChatError, match=f"^the endpoint {server.url} .*{reason}"):
            asyncio.run(roll_out(session, policy, task="train/1", seed=0))
    assert session.done == ["open", "close"]


def test_a_transcript_of_a_model_can_be_replayed():
    transcript, _ = ask(
        Counter(),
        says("Hm."),
        says(None, calls=[calling("add", "{"), add(2)]),
        says(None, calls=[add(3)]),
        task="train/5",
    )
    again = asyncio.run(play(Counter(), ReplayPolicy(transcript), task="train/5"))
    assert json.loads(again.to_line()) == json.loads(transcript.to_line())


def test_the_episodes_of_a_model_share_connections_and_leave_none_open():
    async def play_all(policy: ModelPolicy) -> list[Transcript]:
        return await asyncio.gather(*(play(Counter(), policy, task=f"train/{goal}") for goal in (3, 4, 5)))

    with serve_chat(says(None, calls=[add(1)])) as server:
        policy = ModelPolicy("tiny", base_url=server.url, retries=0)
        transcripts = asyncio.run(play_all(policy))
        assert [len(transcript.steps) for transcript in transcripts] == [3, 4, 5]
        assert len(server.requests) == 12
        assert len(server.clients) <= 3
        assert asyncio.run(play(Counter(), policy, task="train/1")).cause is Cause.SOLVED
