"""A miniature server that speaks two dialects of HTTP, with faults by name.

`/stream/...`: a session id in a header, answers to calls as server-sent events. `/cookie/...`: a signed cookie, a POST
per tool, `/cookie/verify` in the end. It prints one line of JSON with its port, and answers `GET /counts` with what it
counted itself. A session's answers depend on its task and its calls only: `<task> #<turn> <word>`, reward turn/8.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
from dataclasses import dataclass, field

LAST_TURN = 8


class HangUp(Exception):  # noqa: N818 - what it is told to do
    pass


@dataclass
class Session:
    number: int
    task: str = ""
    turn: int = 0
    total: float = 0.0


@dataclass
class Answer:
    status: str = "200 OK"
    value: object = None
    cookie: str = ""
    events: list[tuple[str, str]] = field(default_factory=list)


class Server:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.connections = self.connected = self.most = self.steps = self.closes = 0
        self.first_reset_connected = None
        self.seeds: list[int] = []
        self.open: dict[str, Session] = {}
        self.sessions: list[Session] = []
        self.announced: set[str] = set()

    def counts(self) -> dict:
        counted = {name: value for name, value in vars(self).items() if isinstance(value, int | None)}
        return counted | {"open": len(self.open), "seeds": sorted(self.seeds)}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.connected += 1
        try:
            while True:
                patience = self.options.keep_alive or None
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), patience)
                lines = head.decode().split("\r\n")
                method, path, _ = lines[0].split(" ")
                headers = {
                    n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines[1:] if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                await self.write(writer, await self.answer(method, path, headers, body))
        except (asyncio.IncompleteReadError, TimeoutError, ConnectionError):
            pass
        except HangUp:
            writer.transport.abort()
        finally:
            self.connected -= 1
            writer.close()

    async def write(self, writer: asyncio.StreamWriter, answer: Answer) -> None:
        cookie = f"set-cookie: {answer.cookie}; Path=/; HttpOnly\r\n" if answer.cookie else ""
        head = f"HTTP/1.1 {answer.status}\r\n{cookie}"
        if not answer.events:
            content = json.dumps(answer.value).encode()
            head += f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
            writer.write(head.encode() + content)
            return
        head += "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        for name, data in answer.events:
            part = f": ping\r\n\r\nevent: {name}\r\ndata: {data}\r\n\r\n".encode()
            writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            await writer.drain()
        if self.options.linger:
            await asyncio.sleep(self.options.linger)
        writer.write(b"0\r\n\r\n")

    async def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        message = json.loads(body) if body else {}
        match method, path:
            case "GET", "/counts":
                return Answer(value=self.counts())
            case "POST", "/stream/announce":
                key = f"s{len(self.announced)}"
                self.announced.add(key)
                return Answer(events=[("session", key), ("end", "")])
            case "POST", "/stream/create":
                key = headers["x-session-id"]
                assert key in self.announced
                return self.create(key, message)
            case "POST", "/cookie/seed":
                return self.create(f"c{len(self.sessions)}", message)
        key = headers.get("x-session-id") or headers.get("cookie", "").removeprefix("miniature=")
        session = self.open.get(key)
        if session is None:
            return Answer("404 Not Found", {"detail": "no such session"})
        match path:
            case "/stream/prompt":
                return Answer(value=f"play {session.task}")
            case "/stream/delete" | "/cookie/verify":
                del self.open[key]
                self.closes += 1
                return Answer(value={"reward": session.total * (2 if self.options.double else 1)})
        return await self.step(session, path, message)

    def create(self, key: str, message: dict) -> Answer:
        if self.first_reset_connected is None:
            self.first_reset_connected = self.connected
        session = Session(len(self.sessions), message["task"])
        self.sessions.append(session)
        if self.befalls("redirect", session):
            return Answer("308 Permanent Redirect", "elsewhere")
        if self.options.cap is not None and len(self.open) >= self.options.cap:
            return Answer("503 Service Unavailable", {"detail": "no room"})
        self.open[key] = session
        self.most = max(self.most, len(self.open))
        self.seeds.append(message["seed"])
        return Answer(value=f"play {message['task']}", cookie=f"miniature={key}")

    def befalls(self, fault: str, session: Session) -> bool:
        faults = self.options.faults.split(",")
        return fault in faults and session.number % 25 == faults.index(fault)

    async def step(self, session: Session, path: str, message: dict) -> Answer:
        self.steps += 1
        if session.turn == 1:
            if self.befalls("drop", session):
                raise HangUp
            if self.befalls("hang", session):
                await asyncio.sleep(1000)
            if self.befalls("crash", session):
                return Answer("500 Internal Server Error", "RuntimeError('boom')")
        if self.options.wait:
            await asyncio.sleep(self.options.wait)
        source = self.sessions[max(session.number - 1, 0)] if self.options.mix else session
        session.turn += 1
        session.total += session.turn / LAST_TURN
        word = (message["input"] if path == "/stream/call" else message)["word"]
        result = {
            "text": f"{source.task} #{session.turn} {word}",
            "reward": session.turn / LAST_TURN,
            "ended": session.turn >= LAST_TURN,
        }
        if path != "/stream/call":
            return Answer(value=result)
        text = json.dumps(result)
        return Answer(events=[("task_id", "1"), ("chunk", text[:10]), ("end", text[10:])])


async def run(options: argparse.Namespace) -> None:
    miniature = Server(options)
    server = await asyncio.start_server(miniature.serve, "0.0.0.0", 0, backlog=4096)  # noqa: S104 - all of 127.0.0.0/8, in a test
    sys.stdout.write(json.dumps({"port": server.sockets[0].getsockname()[1]}) + "\n")
    sys.stdout.flush()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    await asyncio.sleep(options.lifetime)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lifetime", type=float, default=120, help="seconds after which it ends by itself")
    parser.add_argument("--wait", type=float, default=0, help="seconds that a step takes")
    parser.add_argument("--mix", action="store_true", help="answer with the task of the session made before")
    parser.add_argument("--double", action="store_true", help="verify with twice the reward")
    parser.add_argument("--cap", type=int, help="refuse sessions beyond n with status 503")
    parser.add_argument(
        "--faults",
        default="",
        help="of drop, hang, crash (in the second step) and redirect (at the creation): each befalls 4 %% of the sessions",
    )
    parser.add_argument(
        "--keep-alive", type=float, help="close connections that are idle for so many seconds"
    )
    parser.add_argument(
        "--linger", type=float, default=0, help="seconds that a stream stays open after its last event"
    )
    asyncio.run(run(parser.parse_args()))
