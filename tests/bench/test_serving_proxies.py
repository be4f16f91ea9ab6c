"""Real proxies before small HTTP servers: whose request goes where, what a loss looks like, dying, draining, resting."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bench.serving.fleet import free_port
from bench.serving.plan import BUSY, LOST, FleetPlan, Replica, read_affinity
from bench.serving.proxies import load_proxy, proxy_names
from bench.serving.running import RunningProxy, start_proxy
from canonical.listening import DRAINING

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("name", proxy_names())]
REPLICAS = ("r1", "r2", "r3")


@contextmanager
def server(name: str) -> Iterator[ThreadingHTTPServer]:
    """Serve answers that say who gives them, and set a cookie of their own each time, as NeMo Gym does."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = name.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Set-Cookie", "session=abc; path=/")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        serving.daemon_threads = True
        thread = threading.Thread(target=serving.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield serving
        finally:
            serving.shutdown()
            thread.join()


class Client:
    """Ask as NeMo Gym's agents do: with the cookies of the last answer only."""

    def __init__(self, port: int, **headers: str) -> None:
        self.port, self.headers, self.cookies = port, headers, ""

    def ask(self) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            headers = {**self.headers, **({"Cookie": self.cookies} if self.cookies else {})}
            connection.request("GET", "/", headers=headers)
            answer = connection.getresponse()
            body = answer.read().decode()
            self.cookies = "; ".join(
                value.partition(";")[0] for key, value in answer.getheaders() if key.lower() == "set-cookie"
            )
            return answer.status, body
        finally:
            connection.close()


def play(
    name: str, fact: str, story: Callable[[RunningProxy, dict[str, ThreadingHTTPServer]], Awaitable[None]]
) -> None:
    proxy = load_proxy(name)
    if proxy.find() is None:
        pytest.skip(f"{proxy.title} is not installed; get it with: {proxy.how_to_get}")
    affinity, header = read_affinity(fact)

    async def run() -> None:
        with ExitStack() as running:
            folder = running.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))
            servers = {one: running.enter_context(server(one)) for one in REPLICAS}
            plan = FleetPlan(
                port=free_port("127.0.0.1"), affinity=affinity, header=header, target_sessions=64, health="/",
                replicas=tuple(
                    Replica(name=one, host="127.0.0.1", port=serving.server_port) for one, serving in servers.items()
                ),
            )  # fmt: skip
            async with start_proxy(proxy, plan, Path(folder)) as (proxying, _):
                await settle(plan.port, affinity)
                await story(proxying, servers)

    asyncio.run(run())


async def settle(port: int, affinity: str) -> None:
    """Wait until the proxy has seen that its replicas are there."""
    for _ in range(100):
        status, _body = await asyncio.to_thread(Client(port).ask)
        if status == 200:
            break
        await asyncio.sleep(0.1)
    if affinity != "header":
        await asyncio.sleep(1)


async def ask(client: Client) -> tuple[int, str]:
    return await asyncio.to_thread(client.ask)


@pytest.mark.parametrize("fact", ["cookie", "header:x-session-id"])
def test_all_requests_of_a_session_reach_the_replica_of_the_first(name: str, fact: str) -> None:
    async def story(proxy: RunningProxy, _: object) -> None:
        clients = [
            Client(proxy.plan.port, **({"X-Session-ID": f"session-{number}"} if fact != "cookie" else {}))
            for number in range(24)
        ]
        seen: list[set[str]] = [set() for _ in clients]
        for _round in range(4):
            for number, client in enumerate(clients):
                status, who = await ask(client)
                assert status == 200
                seen[number].add(who)
        assert [len(replicas) for replicas in seen] == [1] * len(clients)
        assert set().union(*seen) == set(REPLICAS)

    play(name, fact, story)


def test_a_session_whose_replica_is_gone_is_told_so_and_never_sent_elsewhere(name: str) -> None:
    async def story(proxy: RunningProxy, servers: dict[str, ThreadingHTTPServer]) -> None:
        clients = [Client(proxy.plan.port) for _ in range(12)]
        owners = [(await ask(client))[1] for client in clients]
        victim = owners[0]
        servers[victim].shutdown()
        servers[victim].server_close()
        # A connection that rested until now may still be answered by a thread of the server that was closed.
        await asyncio.sleep(5)
        for client, owner in zip(clients, owners, strict=True):
            expected = (503, f"{LOST}\n") if owner == victim else (200, owner)
            assert await ask(client) == expected
        for _ in range(6):
            status, who = await ask(Client(proxy.plan.port))
            assert (status, who != victim) == (200, True)

    play(name, "cookie", story)


def test_without_any_replica_a_new_session_is_told_to_try_again(name: str) -> None:
    async def story(proxy: RunningProxy, servers: dict[str, ThreadingHTTPServer]) -> None:
        for serving in servers.values():
            serving.shutdown()
            serving.server_close()
        await asyncio.sleep(5)
        assert await ask(Client(proxy.plan.port)) == (503, f"{BUSY}\n")

    play(name, "none", story)


def test_a_proxy_that_dies_serves_again_and_still_drains(name: str) -> None:
    async def story(proxy: RunningProxy, _: object) -> None:
        os.kill(next(iter(proxy.processes.values())).pid, signal.SIGKILL)
        await asyncio.sleep(2)
        assert proxy.deaths == 1
        await settle(proxy.plan.port, "cookie")
        old = Client(proxy.plan.port)
        _, who = await ask(old)
        await proxy.drain()
        await asyncio.sleep(1)
        assert await ask(old) == (200, who)
        assert await ask(Client(proxy.plan.port)) == (503, f"{DRAINING}\n")

    play(name, "cookie", story)


def test_a_replica_that_rests_keeps_its_sessions_and_gets_no_new_ones(name: str) -> None:
    async def story(proxy: RunningProxy, _: object) -> None:
        old = Client(proxy.plan.port)
        _, resting = await ask(old)
        await proxy.rest(resting)
        await asyncio.sleep(1.5)
        assert resting not in {(await ask(Client(proxy.plan.port)))[1] for _ in range(12)}
        assert await ask(old) == (200, resting)
        await proxy.rest()
        await asyncio.sleep(1.5)
        assert resting in {(await ask(Client(proxy.plan.port)))[1] for _ in range(36)}

    play(name, "cookie", story)
