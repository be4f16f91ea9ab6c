"""HAProxy before a fleet: its configuration, how it is started, and what it tells of itself."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Mapping
from pathlib import Path

from bench.serving.plan import FleetPlan
from bench.serving.proxies.protocol import Variant, ask, render_template

CONFIG = "haproxy.cfg"
DRAINING = "draining.map"
_ADMIN = "admin.sock"
_HERE = Path(__file__).parent


class HAProxy:
    """Be HAProxy."""

    name = "haproxy"
    title = "HAProxy"
    how_to_get = "apt-get install haproxy, or your system's own package"
    image_commands = (
        "apt-get update && apt-get install --yes --no-install-recommends haproxy && rm -rf /var/lib/apt/lists/*",
    )
    image_extra = ""
    version_option = "-v"
    shares_port = True

    def find(self) -> Path | None:
        """Return the program on PATH, or where Debian keeps it for root."""
        found = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
        return Path(found) if found else None

    def render(self, plan: FleetPlan, folder: Path, variant: Variant) -> Mapping[str, str]:
        """Return its configuration, and the file whose one word says whether it drains."""
        text = render_template(
            _HERE / f"{variant}.cfg.j2", plan, folder, admin=folder / _ADMIN, draining_map=folder / DRAINING
        )
        return {CONFIG: text, **({DRAINING: "draining off\n"} if variant == "derived" else {})}

    def check(self, binary: Path, folder: Path) -> list[str]:
        """Return the command that validates."""
        return [str(binary), "-c", "-f", str(folder / CONFIG)]

    def run(self, binary: Path, folder: Path, plan: FleetPlan, variant: Variant) -> list[str]:  # noqa: ARG002 - as `drain`
        """Return the command that runs it."""
        return [str(binary), "-db", "-f", str(folder / CONFIG)]

    async def drain(self, plan: FleetPlan, binary: Path, folder: Path) -> None:  # noqa: ARG002 - the port asks for it
        """Change the word that says whether it drains."""
        await ask(folder / _ADMIN, f"set map {folder / DRAINING} draining on\n".encode())

    async def rest(self, plan: FleetPlan, binary: Path, folder: Path, names: frozenset[str]) -> None:  # noqa: ARG002 - as `run`
        """Set the state of every replica in the backend that deals new sessions out."""
        for replica in plan.replicas:
            state = "drain" if replica.name in names else "ready"
            await ask(folder / _ADMIN, f"set server replicas/{replica.name} state {state}\n".encode())

    async def counters(self, folder: Path) -> dict[str, int]:
        """Return what its socket shows: sessions, and what was refused, queued or not answered."""
        table = (await ask(folder / _ADMIN, b"show stat\n")).removeprefix("# ")
        info = dict(
            line.split(": ", 1)
            for line in (await ask(folder / _ADMIN, b"show info\n")).splitlines()
            if ": " in line
        )
        rows = list(csv.DictReader(io.StringIO(table)))
        front = [row for row in rows if row["svname"] == "FRONTEND"]
        back = [row for row in rows if row["svname"] == "BACKEND"]
        return {
            "connections": int(info["CurrConns"]),
            "connections_limit": int(info["Maxconn"]),
            "connections_total": int(info["CumConns"]),
            "sessions": _sum(front, "scur"),
            "sessions_most": _sum(front, "smax"),
            "queued_most": _sum(back, "qmax"),
            "connect_failures": _sum(back, "econ"),
            "retries": _sum(back, "wretr"),
            "answers_5xx": _sum(front, "hrsp_5xx"),
        }


def _sum(rows: list[dict[str, str]], column: str) -> int:
    return sum(int(row[column] or 0) for row in rows)


PROXY = HAProxy()
