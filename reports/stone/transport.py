"""Server or in process."""

from __future__ import annotations

from bench.facts import Facts
from reports.stone.table import Table, tabulate


def render(facts: Facts) -> Table:
    """Return what an episode is on the wire, what is installed beside the trainer, and who is let in."""
    return tabulate(
        facts,
        "transport",
        "Server or in process",
        "One episode of Wordle, three wrong guesses and the right one, through the framework's own client and server, with a relay between "
        "them that keeps every byte. It holds everything that the client says from connecting to leaving, such as asking for the tools. "
        "Messages are requests and answers of HTTP, and what a WebSocket carries, without keepalives. Bytes are rounded to two "
        "digits, and compression is not spoken. Who is let in was tried with each of the client's own requests, with its "
        "credentials taken away, and with wrong ones. Installed counts the distributions of a fresh installation of the release alone. "
        "What can be stepped in process is stepped there, and what is on the wire is of that; where a framework takes whole "
        "rollouts by itself, the first row says what these start, and the servers through which they reach model and tools are not "
        "of this episode.",
        (
            "where it runs",
            "spoken in an episode",
            "calls of the episode",
            "connections of the client",
            "messages of an episode",
            "bytes of an episode",
            "installed beside the trainer",
            "authentication",
            "what a client says of itself",
        ),
    )
