"""A server's socket speaks TCP, and a port that cannot be had is explained."""

from __future__ import annotations

import socket

import pytest

from canonical.listening import listen, url_of


def test_the_socket_says_that_it_speaks_tcp_so_that_answers_leave_at_once() -> None:
    with listen("127.0.0.1", 0, 8) as listener:
        assert listener.proto == socket.IPPROTO_TCP
        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        assert url_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_port_in_use_is_named_with_what_to_do() -> None:
    with listen("127.0.0.1", 0, 8) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(
            OSError, match=f"cannot serve on 127.0.0.1, port {port}: address already in use; choose another"
        ):
            listen("127.0.0.1", port, 8)


def test_what_is_no_port_or_no_host_is_named() -> None:
    with pytest.raises(OSError, match="ports go from 0 to 65535"):
        listen("127.0.0.1", 65_536, 8)
    for host in ("nowhere.invalid", "192.0.2.1"):
        for port in (0, 8000):
            with pytest.raises(
                OSError, match=rf"cannot serve on {host}, port {port}: .*; {host} is no address"
            ) as refused:
                listen(host, port, 8)
            assert "choose another port" not in str(refused.value)
