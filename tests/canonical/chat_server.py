"""A real HTTP server that plays an OpenAI-compatible endpoint by a script."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """Hold one answer of the endpoint.

    Attributes:
        body: The body: an object, or text to send as it is.
        status: The HTTP status.
        drip: Seconds between the bytes of the body; the first byte comes at once.
    """

    body: Any
    status: int = 200
    drip: float = 0.0


def says(content: Any, *, calls: list[Any] | None = None, **message: Any) -> Answer:
    """Return the answer of a model."""
    message = {"role": "assistant", "content": content, **message}
    if calls is not None:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return Answer(
        {"id": "1", "object": "chat.completion", "created": 1, "model": "tiny", "choices": [choice]}
    )


def calling(name: str, arguments: Any, identity: str | None = "a") -> dict[str, Any]:
    """Return one tool call of an answer."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": text}}


@dataclass
class ChatServer:
    """Hold the script of an endpoint and what it was asked. The last answer is repeated."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    clients: set[tuple[str, int]] = field(default_factory=set)
    stopping: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serve_chat(*answers: Answer) -> Iterator[ChatServer]:
    """Serve a script on a free port of the loopback interface."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            server.requests.append({"path": self.path, **json.loads(self.rfile.read(length))})
            server.clients.add(self.client_address)
            server.headers.append({name.lower(): value for name, value in self.headers.items()})
            answer = server.answers[min(len(server.requests), len(server.answers)) - 1]
            body = (answer.body if isinstance(answer.body, str) else json.dumps(answer.body)).encode()
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if not answer.drip:
                self.wfile.write(body)
                return
            try:
                for byte in body:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    if server.stopping.wait(answer.drip):
                        return
            except OSError:
                return  # the client has had enough

        def log_message(self, *_: Any) -> None:
            return

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    server = ChatServer(f"http://127.0.0.1:{http.server_address[1]}/v1", list(answers))
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.stopping.set()
        http.shutdown()
        http.server_close()
        thread.join()


def free_port() -> int:
    """Return a port on which nothing listens."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as http:
        return int(http.server_address[1])
