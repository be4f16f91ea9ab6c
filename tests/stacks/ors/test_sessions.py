"""What ORS's own server and client do with sessions, beside what every adapter promises."""

from __future__ import annotations

import asyncio

from canonical.content import ErrorCode
from canonical.tool import ToolCall
from tests.stacks.suite.secrets import state_after


def test_no_name_that_a_model_can_write_is_the_channel_of_texts(lab):
    names = ["assistant action", "action_channel", f"assistant action {'0' * 32}"]
    steps = lab.compare("train/0", 0, [ToolCall(name, {"text": "crash"}) for name in names]).steps
    assert {step.result.observation.error for step in steps} == {ErrorCode.UNKNOWN_TOOL}


def test_calls_of_one_session_at_once_are_carried_out_one_after_the_other(lab):
    async def at_once():
        async with lab.connect() as session:
            await session.open("train/0", 0)
            drawn = await asyncio.gather(*(session.step(ToolCall("draw")) for _ in range(16)))
            return [result.observation.text for result in drawn]

    one_by_one = asyncio.run(lab.play("train/0", 0, [ToolCall("draw")] * 16)).steps
    assert set(asyncio.run(at_once())) == {step.result.observation.text for step in one_by_one}


def test_a_server_that_stops_frees_the_episodes_of_clients_that_are_gone_without_a_word(lab, raw):
    for _ in range(3):
        gone = raw(lab)
        assert gone.create(id="train/0")[0] == 200
        gone.close()
    assert lab.becomes(3)
    lab.stop()
    assert lab.live == 0
    assert lab.closes(3)


def test_the_last_answer_is_what_a_client_can_read(lab):
    pay = ToolCall("pay", {"amount": 2.0})
    assert state_after(lab, pay)["metadata"] == {"total": 2.0, "components": {"count": 2.0}}
    assert state_after(lab, pay, ToolCall("finish"))["metadata"]["cause"] == "submitted"
