"""An environment of ORS as a source: what its server showed and paid, and nothing else."""

from __future__ import annotations

import asyncio
import base64

import pytest

from adapters.ors.framework import HAS_OPENREWARD, Message
from adapters.ors.lifter import LIFTER
from bench.baselines.ors.wordle import PROMPT, SPLITS
from canonical.adapter import SessionError
from canonical.bridge.source import TEXT_TOOL, LiftError, LiftOptions
from canonical.catalogue import load_environment
from canonical.content import ErrorCode, Image, Text
from canonical.reference import ReferenceSession
from canonical.step import Cause
from canonical.tool import ToolCall

WORDLE = "bench.baselines.ors.wordle"
PIXEL = base64.b64encode(b"\x89PNG").decode()

try:
    from openreward.environments import terminal
except ImportError:
    terminal = None

EASEL = f'''
from pydantic import BaseModel
try:
    from openreward.environments import Environment, ImageBlock, Server, TextBlock, ToolOutput, tool
except ModuleNotFoundError:
    from ors import Environment, ImageBlock, Server, TextBlock, ToolOutput, tool


class Nothing(BaseModel):
    pass


class Easel(Environment):
    @classmethod
    def list_splits(cls):
        return ["train", "held/out"]
    @classmethod
    def list_tasks(cls, split):
        return [{{"goal": f"{{split}} {{index}}", "answer": 42}} for index in range(2)]
    def get_prompt(self):
        return [TextBlock(text=self.task_spec["goal"]), ImageBlock(data="{PIXEL}", mimeType="image/png")]
    @tool
    async def look(self) -> ToolOutput:
        """Look at the easel."""
        blocks = [TextBlock(text="see", detail={{"size": 1}}), ImageBlock(data="{PIXEL}", mimeType="image/png")]
        return ToolOutput(blocks=blocks, metadata={{"looks": 1}}, reward=0.5)
    @tool
    async def tear(self) -> ToolOutput:
        """Tear the canvas."""
        raise RuntimeError("the canvas is gone")


class Other(Easel):
    pass


server = Server([Easel, Other])
'''

TALK = '''
from pydantic import BaseModel
from openreward.environments import Environment, TextBlock, ToolOutput, terminal, tool
from openreward.environments.types import Message


class Said(BaseModel):
    text: str


class Talk(Environment):
    @classmethod
    def list_splits(cls):
        return ["train"]
    @classmethod
    def list_tasks(cls, split):
        raise NotImplementedError
    @classmethod
    async def num_tasks(cls, split):
        return 1000
    @classmethod
    async def get_task(cls, split, index):
        return {"number": index}
    def get_messages(self):
        number = self.task_spec["number"]
        return [Message(role=role, blocks=[TextBlock(text=f"{role} {number}")]) for role in ("system", "user")]
    @terminal
    @tool
    async def submit(self, said: Said) -> ToolOutput:
        """Submit."""
        right = said.text == str(self.task_spec["number"])
        return ToolOutput(blocks=[TextBlock(text="bye")], reward=float(right), finished=True)
'''


def call(name, **arguments):
    return ToolCall(name, arguments)


@pytest.fixture(scope="module")
def easel(tmp_path_factory):
    place = tmp_path_factory.mktemp("easel") / "lifted_easel.py"
    place.write_text(EASEL)
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
    """Its tasks are listed, what it refuses is an error, the solution pays 1, and after the end it pays nothing."""
    answer = SPLITS["validation"][3]
    actions = [
        call("guess", word="crane"),
        call("guess", wrong=1),
        call("guess", word=answer),
        call("guess", word=answer),
    ]
    facts, opened, results, reported = lift_and_play(WORDLE, "validation/0003", actions)
    assert [task.id for task in facts.tasks] == [
        f"{split}/{place:04d}" for split, words in SPLITS.items() for place in range(len(words))
    ]
    assert (facts.name, facts.seeds_are_tasks, facts.text_tool) == ("wordle", False, None)
    assert [(message.role, message.text) for message in opened.prompt] == [("user", PROMPT)]
    assert [tool.name for tool in facts.tools] == ["guess"]
    assert facts.tools[0].parameters["required"] == ["word"]
    assert results[0].observation.text.startswith("C R A N E\n")
    assert results[1].observation.error is ErrorCode.INVALID_ARGUMENTS
    assert [result.reward for result in results] == [0.0, 0.0, 1.0, 0.0]
    assert [result.cause for result in results] == [None, None, Cause.SUBMITTED, Cause.SUBMITTED]
    assert reported == 1.0


def test_interleaved_sessions_see_what_sequential_ones_see():
    async def main():
        async with LIFTER.lift(f"{WORDLE}:Wordle", LiftOptions()) as source:
            words = [call("guess", word=word) for word in ("crane", "moist", "slate")]
            tasks = [task.id for task in source.facts.tasks][:64]
            alone = [await play(source, task, words) for task in tasks]
            assert await asyncio.gather(*(play(source, task, words) for task in tasks)) == alone
            assert len({str(one) for one in alone}) > 32

    asyncio.run(main())


@pytest.mark.skipif(not HAS_OPENREWARD, reason="ors-sdk holds no template")
def test_the_environment_that_orwd_init_writes_is_lifted_as_it_is(tmp_path):
    """A real one, whose specifications hold the solutions, which the tasks of the source do not."""
    from bench.baselines.ors.template import write_template

    write_template(tmp_path / "sum_server.py")
    where = str(tmp_path / "sum_server.py")
    facts, opened, results, reported = lift_and_play(where, "test/test-0", [call("answer", answer="8")])
    assert [(task.id, dict(task.inputs)) for task in facts.tasks] == [
        ("train/train-0", {}),
        ("test/test-0", {}),
    ]
    assert opened.prompt[0].text == "What is 2*4?"
    assert (results[0].observation.text, results[0].reward, reported) == ("Correct!", 1.0, 1.0)
    _facts, _opened, results, reported = lift_and_play(where, "train/train-0", [call("answer", answer="8")])
    assert (results[0].observation.text, results[0].cause, reported) == ("Wrong!", Cause.SUBMITTED, 0.0)


def test_images_are_images_and_rewards_come_when_they_are_paid(easel):
    facts, opened, results, _reported = lift_and_play(
        f"{easel}:Easel", "held_out/1", [call("look"), call("look")]
    )
    assert [task.id for task in facts.tasks] == ["train/0", "train/1", "held_out/0", "held_out/1"]
    assert opened.prompt[0].blocks == (Text("held/out 1"), Image(b"\x89PNG", "image/png"))
    assert facts.tools[0].parameters["type"] == "object"
    assert results[1].observation.blocks == (Text("see"), Image(b"\x89PNG", "image/png"))
    assert [(result.reward, result.total) for result in results] == [(0.5, 0.5), (0.5, 1.0)]


def test_rows_become_specifications_of_tasks(easel, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": "mine", "goal": "paint"}\n')
    facts, opened, _results, _reported = lift_and_play(f"{easel}:Easel", "train/mine", [], data=str(rows))
    assert [task.id for task in facts.tasks] == ["train/mine"]
    assert opened.prompt[0].blocks[0] == Text("paint")


def test_one_of_several_environments_of_a_server_is_chosen_by_name(easel):
    async def main():
        async with LIFTER.lift(f"{easel}:server", LiftOptions()) as first:
            assert first.facts.name == "easel"
            async with LIFTER.lift(f"{first.url}/other", LiftOptions()) as other:
                assert other.facts.name == "other"
                assert (await play(other, "train/0", [call("look")]))[1][0].reward == 0.5
            with pytest.raises(LiftError, match="no server of ORS that answers"):
                async with LIFTER.lift(f"{first.url}/third", LiftOptions()):
                    pass

    asyncio.run(main())


def test_what_a_tool_raises_ends_the_session_with_an_error(easel):
    async def main():
        async with LIFTER.lift(f"{easel}:Easel", LiftOptions()) as source, source.connect() as session:
            await session.open("train/0", 0)
            with pytest.raises(SessionError, match="the canvas is gone"):
                await session.step(call("tear"))
            assert (await session.open("train/1", 0)).prompt[0].blocks[0] == Text("train 1")
            with pytest.raises(SessionError, match="no task"):
                await session.open("train/none", 0)

    asyncio.run(main())


@pytest.mark.skipif(
    terminal is None or Message is None, reason="this release has no terminal tools or no messages"
)
def test_text_goes_to_the_terminal_tool_and_tasks_too_many_to_list_are_counted(tmp_path):
    (tmp_path / "lifted_talk.py").write_text(TALK)
    facts, opened, results, reported = lift_and_play(str(tmp_path / "lifted_talk.py"), "train/7", ["7"])
    assert (len(facts.tasks), facts.text_tool) == (1000, TEXT_TOOL)
    assert [tool.name for tool in facts.tools] == [TEXT_TOOL]
    assert [(message.role, message.text) for message in opened.prompt] == [
        ("system", "system 7"),
        ("user", "user 7"),
    ]
    assert (results[0].observation.text, results[0].cause, reported) == ("bye", Cause.SUBMITTED, 1.0)


@pytest.mark.parametrize("by_name", [True, False])
def test_a_compiled_environment_comes_back_as_it_was(standing_wordle, by_name):
    """With its tasks, causes, error codes and components, as the reference plays it."""
    environment = load_environment("wordle")
    task = next(iter(environment.tasks())).id
    solution = environment.oracle(environment.tasks().get(task))
    actions = [call("guess", word="crane"), call("guess", wrong=1), "no call", *solution]

    async def main():
        reference = "compiled:wordle" if by_name else standing_wordle.url
        async with LIFTER.lift(reference, LiftOptions()) as source:
            assert [one.id for one in source.facts.tasks] == [one.id for one in environment.tasks()]
            opened, results, reported = await play(source, task, actions, seed=3)
        reference_session = ReferenceSession(environment)
        assert await reference_session.open(task, 3) == opened
        assert [await reference_session.step(action) for action in actions] == results
        assert await reference_session.reported_return() == reported

    asyncio.run(main())


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("nowhere.to_be_found", "no module 'nowhere.to_be_found'"),
        ("/nowhere/server.py", "there is no file /nowhere/server.py"),
        (f"{WORDLE}:Missing", "has no Missing"),
        (f"{WORDLE}:GuessInput", "is neither a class of environments of ORS nor a Server"),
        ("canonical.step", "has not one class of environments"),
    ],
)
def test_a_wrong_reference_says_what_is_wrong(reference, says):
    with pytest.raises(LiftError, match=says):
        lift_and_play(reference, "train/0", [])


def test_constructors_take_no_arguments():
    with pytest.raises(LiftError, match="take no arguments"):
        lift_and_play(WORDLE, "train/0000", [], arguments={"words": 3})
