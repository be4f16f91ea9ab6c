"""A miniature server that speaks OpenEnv's frames, with faults by name.

It prints one line of JSON with its port, and answers `GET /counts` with what it counted itself.
A session's answers depend on its task and its calls only:  `<task> #<turn> <word>`, reward turn/8, done at turn 8.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import http
import json
import sys

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

LAST_TURN = 8


class Sessions:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.accepted = self.open = self.most = self.resets = self.steps = self.pongs = self.closes = 0
        self.states: list[dict] = []
        self.first_reset_open = None
        self.seeds: list[int] = []

    def counts(self) -> dict:
        counted = {name: value for name, value in vars(self).items() if isinstance(value, int | None)}
        return counted | {"seeds": sorted(self.seeds)}

    def answer_http(self, connection, request):
        if request.path == "/counts":
            return connection.respond(http.HTTPStatus.OK, json.dumps(self.counts()))
        if self.options.refuse_after is not None and self.accepted >= self.options.refuse_after:
            return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "full\n")
        return None

    async def session(self, connection) -> None:
        number = self.accepted
        self.accepted += 1
        self.open += 1
        self.most = max(self.most, self.open)
        state = {"task": "", "turn": 0}
        self.states.append(state)
        try:
            if self.options.cap is not None and self.open > self.options.cap:
                await connection.send(error("CAPACITY_REACHED", "no room"))
                return
            if self.options.ping_on_open:
                await (await connection.ping())
                self.pongs += 1
            async for frame in connection:
                if not await self.answer(connection, number, state, json.loads(frame)):
                    return
        except ConnectionClosed:
            pass
        finally:
            self.open -= 1

    async def answer(self, connection, number: int, state: dict, message: dict) -> bool:
        match message["type"]:
            case "reset":
                if self.first_reset_open is None:
                    self.first_reset_open = self.open
                self.resets += 1
                self.seeds.append(message["data"]["seed"])
                state |= {"task": message["data"]["task"], "turn": 0}
                await connection.send(observation(f"play {state['task']}", None, done=False))
            case "step":
                self.steps += 1
                if self.options.drop_every and number % self.options.drop_every == 0 and state["turn"] == 1:
                    connection.transport.abort()
                    return False
                if self.options.wait:
                    await asyncio.sleep(self.options.wait)
                if self.options.crash_on_turn == state["turn"]:
                    await connection.send(error("EXECUTION_ERROR", "the tool crashed"))
                    return True
                source = self.states[(number + 1) % len(self.states)] if self.options.mix else state
                state["turn"] += 1
                word = message["data"]["arguments"]["word"]
                done = state["turn"] >= LAST_TURN
                text = f"{source['task']} #{state['turn']} {word}"
                await connection.send(observation(text, state["turn"] / LAST_TURN, done=done))
            case "close":
                self.closes += 1
                return False
        return True


def observation(text: str, reward: float | None, *, done: bool) -> str:
    return json.dumps(
        {"type": "observation", "data": {"observation": {"text": text}, "reward": reward, "done": done}}
    )


def error(code: str, message: str) -> str:
    return json.dumps({"type": "error", "data": {"message": message, "code": code}})


async def run(options: argparse.Namespace) -> None:
    sessions = Sessions(options)
    async with serve(
        sessions.session,
        "0.0.0.0",  # noqa: S104 - all of 127.0.0.0/8 is wanted, and only in a test
        0,
        process_request=sessions.answer_http,
        compression=None,
        backlog=4096,
    ) as server:
        sys.stdout.write(json.dumps({"port": server.sockets[0].getsockname()[1]}) + "\n")
        sys.stdout.flush()
        gc.freeze()
        gc.set_threshold(50_000, 50, 100)
        await asyncio.sleep(options.lifetime)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lifetime", type=float, default=120, help="seconds after which it ends by itself")
    parser.add_argument("--wait", type=float, default=0, help="seconds that a step takes")
    parser.add_argument("--mix", action="store_true", help="answer with the task of another session")
    parser.add_argument(
        "--drop-every", type=int, default=0, help="hang up on every n-th session in its second step"
    )
    parser.add_argument("--refuse-after", type=int, help="decline the handshake after n sessions")
    parser.add_argument("--cap", type=int, help="answer sessions beyond n with an error frame and close")
    parser.add_argument("--crash-on-turn", type=int, help="answer the step of this turn with an error frame")
    parser.add_argument("--ping-on-open", action="store_true", help="send a ping and wait for the pong")
    asyncio.run(run(parser.parse_args()))
