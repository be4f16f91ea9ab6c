"""Resources servers that nobody here compiled, as sources: what they showed, paid and refused, and nothing else."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from adapters.nemo_gym.lifter import LIFTER
from adapters.nemo_gym.project import write_project
from bench.baselines.nemo_gym.wordle import SPLITS, score
from canonical.adapter import SessionError
from canonical.bridge.source import LiftError, LiftOptions
from canonical.catalogue import load_environment
from canonical.content import ErrorCode, Image
from canonical.reward import Aggregation
from canonical.step import Cause
from canonical.stone import PieceName
from canonical.tool import ToolCall

WORDLE = "bench.baselines.nemo_gym.wordle"
ROWS = LiftOptions(data="bench.baselines.nemo_gym.baseline:rows")


@asynccontextmanager
async def lifted(reference, options=ROWS):
    async with LIFTER.lift(reference, options) as source:
        yield source


async def episode(source, task, actions):
    """Return what an episode showed, what each action led to, and its return."""
    async with source.connect() as session:
        opened = await session.open(task, 0)
        results = [await session.step(action) for action in actions]
        return opened, results, await session.reported_return()


def play(reference, task, actions, options=ROWS):
    async def main():
        async with lifted(reference, options) as source:
            return await episode(source, task, actions)

    return asyncio.run(main())


def guess(word):
    return ToolCall("guess", {"word": word})


def test_the_handwritten_wordle_shows_its_marks_and_is_verified_when_the_model_is_done():
    word = SPLITS["train"][7]
    opened, results, paid = play(
        WORDLE, "train/0007", [guess("crane"), guess("no"), guess(word), "I am done."]
    )
    assert opened.prompt[0].role == "user"
    assert opened.prompt[0].text.startswith("Find the hidden")
    assert [tool.name for tool in opened.tools] == ["guess"]
    assert opened.tools[0].parameters["additionalProperties"] is False
    first, second, third, last = [result.observation for result in results]
    assert json.loads(first.text)["observation"].splitlines()[1] == " ".join(score(word, "crane"))
    assert json.loads(second.text)["observation"].startswith("A guess has 5 letters")
    assert json.loads(third.text)["done"] is True
    assert last.text == ""
    assert [result.cause for result in results] == [None, None, None, Cause.SUBMITTED]
    assert [result.reward for result in results] == [0.0, 0.0, 0.0, 1.0]
    assert paid == 1.0


def test_a_rollout_that_is_cut_off_is_verified_as_it_is():
    async def main():
        async with lifted(WORDLE) as source, source.connect() as session:
            await session.open("test/0003", 0)
            await session.step(guess(SPLITS["test"][3]))
            paid = await session.reported_return()
            assert paid == await session.reported_return()
            with pytest.raises(SessionError, match="over"):
                await session.step(guess("crane"))
            return paid

    assert asyncio.run(main()) == 1.0


@pytest.mark.parametrize(
    ("parts", "kept"),
    [
        ({"a": -1.5, "n": 0.5}, True),
        ({"a": -1, "b": 0}, True),
        ({"a": -1.0, "n": "many"}, False),
        ({"a": -1.0, "none": None}, False),
        ({"a": -1.0, "deep": {"b": 0.0}}, False),
        ({"a": -2.0, "flag": True}, False),
        ({"a": 5.0}, False),
        ({"a": float("nan")}, False),
        ([-1.0], False),
        (None, False),
    ],
)
def test_a_reward_is_paid_whatever_a_server_says_of_its_parts(tmp_path, parts, kept):
    """Only parts that are numbers and sum to the reward are its components."""
    (tmp_path / "app.py").write_text(
        "from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer\n"
        "class Answer(BaseVerifyResponse):\n"
        "    reward_components: object = None\n"
        "class Server(SimpleResourcesServer):\n"
        "    async def verify(self, body: BaseVerifyRequest) -> Answer:\n"
        f"        parts = {parts!r}\n".replace("nan", "float('nan')")
        + "        return Answer(**body.model_dump(), reward=-1.0, reward_components=parts)\n"
    )
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"id": "one", "responses_create_params": {"input": "Say something."}}) + "\n")
    _, results, paid = play(str(tmp_path), "train/one", ["something"], LiftOptions(data=str(rows)))
    assert (results[0].cause, results[0].reward, paid) == (Cause.SUBMITTED, -1.0, -1.0)
    assert dict(results[0].components) == (parts if kept else {})


def test_what_the_framework_refuses_is_marked_and_keeps_its_words():
    _, results, paid = play(WORDLE, "train/0000", [ToolCall("guess", {}), ToolCall("peek", {}), "done"])
    assert [result.observation.error for result in results] == [
        ErrorCode.INVALID_ARGUMENTS,
        ErrorCode.TOOL_ERROR,
        None,
    ]
    assert "Field required" in results[0].observation.text
    assert paid == 0.0


def test_sessions_at_the_same_time_are_those_that_come_one_after_the_other():
    def actions(number):
        words = SPLITS["train"]
        return [guess(words[number * 3 + turn]) for turn in range(1 + number % 5)] + ["done"]

    async def main():
        async with lifted(WORDLE) as source:
            tasks = [source.facts.tasks[number].id for number in range(64)]
            alone = [await episode(source, task, actions(number)) for number, task in enumerate(tasks)]
            together = await asyncio.gather(
                *(episode(source, task, actions(number)) for number, task in enumerate(tasks))
            )
            assert list(together) == alone
            assert len({str(results) for _, results, _ in alone}) > 32

    asyncio.run(main())


def test_the_facts_of_a_source_hold_no_key_of_a_row_but_its_id():
    async def main():
        async with lifted("resources_servers/example_session_state_mgmt", LiftOptions()) as source:
            return source.facts

    facts = asyncio.run(main())
    assert facts.aggregation is Aggregation.TERMINAL
    assert "expected_count" not in json.dumps(facts.to_json()["tasks"])
    assert {loss.piece for loss in facts.losses} >= {
        PieceName.TASKS,
        PieceName.INITIAL_STATE,
        PieceName.EPISODE_END,
        PieceName.REWARD,
    }


def test_a_shipped_server_with_state_counts_from_its_row():
    read, add = ToolCall("get_counter_value", {}), ToolCall("increment_counter", {"count": 3})
    reference = "resources_servers/example_session_state_mgmt"
    _, results, paid = play(reference, "example/0", [read, add, read, "done"], LiftOptions())
    texts = [result.observation.text for result in results]
    assert texts == ['{"count":3}', '{"success":true}', '{"count":6}', ""]
    assert paid == 1.0
    _, _, paid = play(reference, "example/0", [add, add, "done"], LiftOptions())
    assert paid == 0.0


def test_a_shipped_server_that_reads_the_whole_rollout_reads_every_call():
    reference = "resources_servers/example_tool_call_multireward"
    call = ToolCall("get_weather", {"city": "San Francisco"})

    async def main():
        async with lifted(reference, LiftOptions()) as source, source.connect() as session:
            opened = await session.open(source.facts.tasks[0].id, 0)
            results = [await session.step(call), await session.step("done")]
            return opened, results, await session.public_state()

    opened, results, state = asyncio.run(main())
    assert opened.prompt[0].role == "system"
    # The server has no route for the tool of its rows, and the text at the end is one too many for it.
    assert results[0].observation.error is ErrorCode.TOOL_ERROR
    assert results[1].components == {"correctness": 1.0, "schema_valid": 1.0, "format": 0.0}
    assert results[1].reward == 2.0
    assert state["verified"]["correctness"] == 1.0


def test_a_gymnasium_server_pays_by_step_and_says_when_it_is_over():
    async def main():
        async with lifted("resources_servers/blackjack", LiftOptions()) as source:
            assert source.facts.aggregation is Aggregation.SUM
            return await episode(source, "example/0", ["<action>stand</action>"])

    opened, results, paid = asyncio.run(main())
    assert opened.prompt[-1].text.startswith("Your hand:")
    assert results[-1].cause is Cause.SUBMITTED
    assert paid == results[-1].reward
    assert paid in {-1.0, 0.0, 1.0}


def test_pictures_of_a_row_stay_pictures():
    opened, results, _ = play(
        "resources_servers/circle_click", "example/0", [ToolCall("click", {"x": 1, "y": 1})], LiftOptions()
    )
    images = [block for message in opened.prompt for block in message.blocks if isinstance(block, Image)]
    assert images[0].media_type.startswith("image/")
    assert results[0].observation.error is None


def test_a_folder_that_this_project_wrote_is_played_by_its_rows(tmp_path):
    folder = write_project(
        load_environment("docs/examples/higher_lower.py"), "docs/examples/higher_lower.py", tmp_path
    )
    _, results, paid = play(
        str(folder),
        "train/0",
        [ToolCall("guess", {"number": 100}), ToolCall("guess", {"number": 1}), "done"],
        LiftOptions(),
    )
    assert [result.observation.text for result in results] == ["Lower.", "Right!", ""]
    assert paid == 1.0


def test_an_address_is_played_like_the_server_that_stands_there_and_its_end_is_an_error():
    actions = [guess("crane"), "done"]

    async def main():
        async with AsyncExitStack() as standing:
            served = await standing.enter_async_context(lifted(WORDLE))
            async with lifted(f"http://{served.connection.place}") as source, source.connect() as session:
                there = await episode(source, "train/0001", actions)
                assert there == await episode(served, "train/0001", actions)
                await session.open("train/0002", 0)
                await standing.aclose()
                async with asyncio.timeout(60):
                    with pytest.raises(SessionError, match="no server answers"):
                        await session.step(guess("crane"))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("reference", "options", "words"),
    [
        ("resources_servers/nowhere", LiftOptions(), "ships no resources_servers/nowhere; its servers are"),
        ("some/folder", LiftOptions(), "there is no folder some/folder"),
        ("no_such_module", LiftOptions(), "no_such_module"),
        ("json", LiftOptions(), "no resources server, no class made of SimpleResourcesServer"),
        (f"{WORDLE}:Nobody", LiftOptions(), "no resources server Nobody"),
        (WORDLE, LiftOptions(), "comes without rows: name them with --data"),
        ("http://127.0.0.1:9", ROWS, "no server answers"),
    ],
)
def test_a_wrong_reference_says_what_is_wrong_and_what_to_do(reference, options, words):
    with pytest.raises(LiftError, match=words):
        play(reference, "train/0", [], options)


def test_a_row_that_is_none_is_named_by_its_number(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        '{"responses_create_params": {"input": "hello"}}\n{"task": "train/0001"}\n', encoding="utf-8"
    )
    with pytest.raises(LiftError, match="row 2 of train is no row of NeMo Gym: responses_create_params"):
        play(WORDLE, "train/0", [], LiftOptions(data=str(rows)))


def test_a_server_that_lacks_a_key_of_its_configuration_says_which(tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "own.yaml").write_text(
        "own:\n  resources_servers:\n    own:\n      entrypoint: app.py\n      domain: games\n      key: ???\n",
        encoding="utf-8",
    )
    (tmp_path / "app.py").write_text(
        "from bench.baselines.nemo_gym.wordle import WordleServer\n", encoding="utf-8"
    )
    with pytest.raises(LiftError, match="key"):
        play(str(tmp_path), "train/0000", [])
    _, _, paid = play(
        str(tmp_path), "train/0000", ["done"], LiftOptions(data=ROWS.data, arguments={"key": "value"})
    )
    assert paid == 0.0
