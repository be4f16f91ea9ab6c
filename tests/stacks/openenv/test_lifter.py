"""An environment of OpenEnv as a source: what its server showed and paid, and nothing else."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import uvicorn
from openenv.core.env_server import interfaces

from adapters.openenv.lifter import ACT_TOOL, LIFTER
from bench.baselines.openenv.template import write_template
from bench.baselines.openenv.wordle import PROMPT, SPLITS
from bench.baselines.openenv.wordle import app as wordle_app
from canonical.adapter import SessionError
from canonical.bridge.beside import serve_beside
from canonical.bridge.source import TEXT_TOOL, LiftError, LiftOptions
from canonical.catalogue import load_environment
from canonical.content import ErrorCode, Image, Text
from canonical.listening import listen
from canonical.reference import ReferenceSession
from canonical.step import Cause
from canonical.stone import Concern
from canonical.tool import ToolCall

WORDLE = "bench.baselines.openenv.wordle"
PIXEL = base64.b64encode(b"\x89PNG").decode()

DICE = f'''
import random
from fastmcp import FastMCP
from mcp.types import ImageContent, TextContent
from openenv.core.env_server import Environment, MCPEnvironment, create_app
from openenv.core.env_server.types import Action, Observation, State


class Roll(Action):
    text: str
    times: int = 1


class Seen(Observation):
    line: str = ""


class Dice(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    def __init__(self, sides=6):
        super().__init__()
        self.sides = sides
    def list_splits(self):
        return ["train", {{"name": "held/out", "type": "test"}}]
    def list_tasks(self, split):
        return [{{"id": f"{{split}}-{{index}}", "goal": index}} for index in range(3)]
    def num_tasks(self, split):
        return 3 if split == "train" else 1000
    def get_task(self, split, index):
        return self.list_tasks(split)[index]
    def reset(self, seed=None, episode_id=None, split=None, index=0, **_):
        self.place, self.generator = (split, index), random.Random(seed)
        return Seen(line=f"{{split}} {{index}} {{seed}}", reward=0.25)
    def step(self, action: Roll, timeout_s=None, **_) -> Seen:
        if action.text == "raise":
            raise RuntimeError("the dice fell off the table")
        rolls = [self.generator.randint(1, self.sides) for _ in range(action.times)]
        return Seen(line=f"{{action.text}} {{rolls}}", reward=None, done=action.text == "stop", metadata={{"rolls": 1}})
    @property
    def state(self):
        return State()


class Lonely(Dice):
    SUPPORTS_CONCURRENT_SESSIONS = False
    list_splits = list_tasks = num_tasks = get_task = None


class Board(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    def __init__(self):
        mcp = FastMCP("board")

        @mcp.tool
        def picture() -> list:
            """Look at the board."""
            return [TextContent(type="text", text="see"), ImageContent(type="image", data="{PIXEL}", mimeType="image/png")]

        @mcp.tool
        def nothing() -> None:
            """Do nothing."""

        super().__init__(mcp)
    def reset(self, seed=None, episode_id=None, **_):
        return Observation(metadata={{"status": "ready"}})
    def _step_impl(self, action, timeout_s=None, **_):
        return Observation()
    @property
    def state(self):
        return State()


app = create_app(Dice, Roll, Seen, env_name="dice", max_concurrent_envs=100)
'''


def call(name, **arguments):
    return ToolCall(name, arguments)


@pytest.fixture(scope="module")
def dice(tmp_path_factory):
    place = tmp_path_factory.mktemp("dice") / "lifted_dice.py"
    place.write_text(DICE)
    return str(place)


async def play(source, task, actions, seed=0):
    async with source.connect() as session:
        opened = await session.open(task, seed)
        results = [await session.step(action) for action in actions]
        over = bool(results) and results[-1].cause is not None
        return opened, results, await session.reported_return() if over else None


def lift_and_play(reference, task, actions, seed=0, **options):
    async def main():
        async with LIFTER.lift(reference, LiftOptions(**options)) as source:
            return source.facts, *await play(source, task, actions, seed)

    return asyncio.run(main())


def test_the_hand_written_wordle_shows_and_pays_what_it_does_by_itself():
    """Tasks are seeds, observations and errors are those of the tool, and the solution pays 1."""
    answer = SPLITS["train"][3]
    actions = [call("guess", word="crane"), call("guess", word="zzzzz"), call("guess", word=answer)]
    facts, opened, results, reported = lift_and_play(WORDLE, "train/3", actions, tasks=5)
    assert [task.id for task in facts.tasks] == [f"train/{seed}" for seed in range(5)]
    assert (facts.seeds_are_tasks, facts.text_tool) == (True, None)
    assert [message.text for message in opened.prompt] == [PROMPT]
    assert [tool.name for tool in facts.tools] == ["guess"]
    assert facts.tools[0].parameters["required"] == ["word"]
    assert results[0].observation.text.startswith("C R A N E\n")
    assert results[1].observation.error is ErrorCode.TOOL_ERROR
    assert "not in the word list" in results[1].observation.text
    assert [result.reward for result in results] == [0.0, 0.0, 1.0]
    assert [result.cause for result in results] == [None, None, Cause.SUBMITTED]
    assert reported == 1.0


def test_interleaved_sessions_see_what_sequential_ones_see():
    async def main():
        async with LIFTER.lift(f"{WORDLE}:WordleEnvironment", LiftOptions(tasks=64)) as source:
            words = [call("guess", word=word) for word in ("crane", "moist", "slate")]
            tasks = [task.id for task in source.facts.tasks]
            alone = [await play(source, task, words) for task in tasks]
            assert await asyncio.gather(*(play(source, task, words) for task in tasks)) == alone
            assert len({str(one) for one in alone}) > 32

    asyncio.run(main())


def test_the_environment_that_openenv_init_writes_is_lifted_as_it_is(tmp_path):
    """A real one, which admits one session: its record is JSON, its one text is a tool too, and others wait for its end."""
    write_template(tmp_path / "parrot_env")

    async def main():
        async with LIFTER.lift(str(tmp_path / "parrot_env"), LiftOptions()) as source:
            facts = source.facts
            assert [tool.name for tool in facts.tools] == [ACT_TOOL, TEXT_TOOL]
            assert facts.text_tool == TEXT_TOOL
            assert facts.tools[0].parameters["properties"].keys() == {"message"}
            assert any(loss.concern is Concern.CONCURRENCY for loss in facts.losses)
            actions = ["hello", call(ACT_TOOL, message="hey"), call(ACT_TOOL, massage="hey")]
            alone = await play(source, "train/0", actions)
            _opened, results, _reported = alone
            assert json.loads(results[0].observation.text) == {"echoed_message": "hello", "message_length": 5}
            assert [result.reward for result in results] == pytest.approx([0.5, 0.3, 0.0])
            assert results[2].observation.error is ErrorCode.INVALID_ARGUMENTS
            assert await asyncio.gather(*(play(source, "train/0", actions) for _ in range(3))) == [alone] * 3

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(interfaces, "TaskProvider"), reason="this release lists no tasks")
def test_listed_tasks_keep_their_splits_and_their_seed_stays_free(dice):
    """Tasks are chosen by split and place; a list that is short of its count, and a reward of reset, are losses."""
    facts, opened, results, reported = lift_and_play(
        dice, "held_out/held/out-2", [call(ACT_TOOL, text="go", times=2), "stop"], seed=7
    )
    assert [task.id for task in facts.tasks][2:4] == ["train/train-2", "held_out/held/out-0"]
    assert not facts.seeds_are_tasks
    assert not any(task.inputs for task in facts.tasks)  # what of them is secret is not known
    assert opened.prompt[0].text == "held/out 2 7"
    assert results[0].observation.text.startswith("go [")
    assert (results[0].reward, results[1].cause, reported) == (0.0, Cause.SUBMITTED, 0.0)
    notes = [loss.note for loss in facts.losses]
    assert "split held/out has 1000 tasks and lists 3 of them" in notes
    assert "reset pays, here 0.25, which no step does" in notes


def test_rows_become_keywords_of_reset_and_arguments_reach_the_constructor(dice, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": "a", "index": 5}\n{"id": "b", "index": 8, "split": "test"}\n')
    facts, opened, results, _reported = lift_and_play(
        f"{dice}:Dice", "test/b", [call(ACT_TOOL, text="x", times=9)], data=str(rows), arguments={"sides": 1}
    )
    assert [task.id for task in facts.tasks] == ["train/a", "test/b"]
    assert opened.prompt[0].text == "test 8 0"
    assert results[0].observation.text == f"x {[1] * 9}"


def test_images_of_tools_are_images_and_nothing_is_nothing(dice):
    _facts, opened, results, _reported = lift_and_play(
        f"{dice}:Board", "train/0", [call("picture"), call("nothing"), call("nobody")]
    )
    assert opened.prompt[0].text in {"ready", "{}"}  # older releases leave metadata on the server
    assert results[0].observation.blocks == (Text("see"), Image(b"\x89PNG", "image/png"))
    assert results[1].observation.text == ""
    assert results[2].observation.error is ErrorCode.UNKNOWN_TOOL


def test_what_the_environment_raises_is_an_error_of_the_session_which_goes_on(dice):
    async def main():
        async with (
            LIFTER.lift(f"{dice}:Lonely", LiftOptions()) as source,
            source.connect() as session,
        ):
            await session.open("train/1", 0)
            with pytest.raises(SessionError, match="fell off the table"):
                await session.step("raise")
            assert (await session.step("go")).observation.text.startswith("go")
            with pytest.raises(SessionError, match="no task"):
                await session.open("train/none", 0)

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(interfaces, "TaskProvider"), reason="this release lists no tasks")
def test_a_compiled_environment_comes_back_as_it_was(standing_wordle):
    """With its tasks, causes, error codes and components, as the reference plays it."""
    environment = load_environment("wordle")
    task = next(iter(environment.tasks())).id
    actions = [
        call("guess", word="crane"),
        call("guess", wrong=1),
        *environment.oracle(environment.tasks().get(task)),
    ]

    async def main():
        async with LIFTER.lift(standing_wordle.url.replace("http", "ws"), LiftOptions()) as source:
            assert [one.id for one in source.facts.tasks] == [one.id for one in environment.tasks()]
            opened, results, reported = await play(source, task, actions, seed=3)
        reference = ReferenceSession(environment)
        assert await reference.open(task, 3) == opened
        assert [await reference.step(action) for action in actions] == results
        assert await reference.reported_return() == reported

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(interfaces, "TaskProvider"), reason="this release lists no tasks")
def test_an_environment_of_ours_is_compiled_and_lifted_by_its_name():
    facts, opened, _results, _reported = lift_and_play("compiled:wordle", "train/0001", [])
    assert (facts.name, len(facts.tasks)) == ("wordle", len(load_environment("wordle").tasks()))
    assert opened.prompt


def test_a_server_that_dies_is_an_error_in_every_open_session():
    async def main():
        listener = listen("127.0.0.1", 0, 16)
        async with AsyncExitStack() as server, AsyncExitStack() as played:
            config = uvicorn.Config(wordle_app, log_level="critical", timeout_graceful_shutdown=1)
            url = await server.enter_async_context(serve_beside(uvicorn.Server(config), listener))
            source = await played.enter_async_context(LIFTER.lift(url, LiftOptions()))
            sessions = [await played.enter_async_context(source.connect()) for _ in range(3)]
            for session in sessions:
                await session.open("train/0", 0)
            await server.aclose()
            for session in sessions:
                with pytest.raises(SessionError, match="connection is lost"):
                    await session.step(call("guess", word="crane"))
            with pytest.raises(SessionError, match=r"lost|connect"):
                await played.enter_async_context(source.connect())

    asyncio.run(main())


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("http://127.0.0.1:9", "no server of OpenEnv that answers"),
        ("nowhere.to_be_found", "no module 'nowhere.to_be_found'"),
        ("/nowhere/app.py", "there is no file /nowhere/app.py"),
        (f"{WORDLE}:Missing", "has no Missing"),
        (f"{WORDLE}:WordleReset", "is no ASGI app"),
        (f"{WORDLE}:score", "cannot be made: TypeError"),
        ("canonical.step", "has no app"),
    ],
)
def test_a_wrong_reference_says_what_is_wrong(reference, says):
    with pytest.raises(LiftError, match=says):
        lift_and_play(reference, "train/0", [])


def test_a_running_server_takes_no_arguments():
    with pytest.raises(LiftError, match="is running already"):
        lift_and_play("http://127.0.0.1:9", "train/0", [], arguments={"sides": 2})


def test_an_app_that_is_no_server_of_openenv_is_refused(tmp_path: Path):
    (tmp_path / "plain_app.py").write_text("from fastapi import FastAPI\napp = FastAPI()\n")
    with pytest.raises(LiftError, match="no server of OpenEnv that answers: HTTP Error 404"):
        lift_and_play(str(tmp_path / "plain_app.py"), "train/0", [])
