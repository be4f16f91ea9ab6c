"""nginx before a fleet: its configuration, how it is started, and what it tells of itself."""

from __future__ import annotations

import asyncio
import math
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from bench.machine import RESERVED_DESCRIPTORS
from bench.serving.plan import IMBALANCE, FleetPlan
from bench.serving.proxies.protocol import Variant, ask_http, render_template

CONFIG = "nginx.conf"
_STATUS = "status.sock"
_LOG = "error.log"
_HERE = Path(__file__).parent
_SEEN = {
    "connections_refused": "worker_connections are not enough",
    "descriptors_refused": "Too many open files",
    "no_live_replica": "no live upstreams",
    "connect_failures": "connect() failed",
}


class Nginx:
    """Be nginx, whose one master has as many workers as cores, or more where descriptors ask for it."""

    name = "nginx"
    title = "nginx"
    how_to_get = "apt-get install nginx-light, or your system's own package"
    image_commands = (
        "apt-get update && apt-get install --yes --no-install-recommends nginx-light && rm -rf /var/lib/apt/lists/*",
    )
    image_extra = ""
    version_option = "-v"
    shares_port = False

    def find(self) -> Path | None:
        """Return the program on PATH, or where Debian keeps it for root."""
        found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
        return Path(found) if found else None

    def render(self, plan: FleetPlan, folder: Path, variant: Variant) -> Mapping[str, str]:
        """Return the one file of its configuration."""
        return {CONFIG: self._configuration(plan, folder, variant)}

    def _configuration(
        self,
        plan: FleetPlan,
        folder: Path,
        variant: Variant,
        *,
        is_draining: bool = False,
        resting: frozenset[str] = frozenset(),
    ) -> str:
        workers = max(plan.cores, plan.processes)
        share = 2 * plan.limit * (1.0 if workers == 1 else IMBALANCE) / workers
        connections = min(
            math.ceil(share) + RESERVED_DESCRIPTORS // 2, plan.nofile - RESERVED_DESCRIPTORS // 2
        )
        return render_template(
            _HERE / f"{variant}.conf.j2", plan, folder, status=folder / _STATUS, error_log=folder / _LOG,
            workers=workers, connections=connections, is_draining=is_draining, resting=resting,
        )  # fmt: skip

    def check(self, binary: Path, folder: Path) -> list[str]:
        """Return the command that validates."""
        return [*_command(binary, folder), "-t", "-q"]

    def run(self, binary: Path, folder: Path, plan: FleetPlan, variant: Variant) -> list[str]:  # noqa: ARG002 - the port asks for it
        """Return the command that runs it."""
        return _command(binary, folder)

    async def drain(self, plan: FleetPlan, binary: Path, folder: Path) -> None:
        """Start new workers that refuse new sessions, while the old ones finish the connections that they have.

        Raises:
            OSError: It does not take the new configuration.
        """
        await self._reload(self._configuration(plan, folder, "derived", is_draining=True), binary, folder)

    async def rest(self, plan: FleetPlan, binary: Path, folder: Path, names: frozenset[str]) -> None:
        """Start new workers that know those replicas as down, while the old ones finish the connections that they have.

        Raises:
            OSError: It does not take the new configuration.
        """
        await self._reload(self._configuration(plan, folder, "derived", resting=names), binary, folder)

    async def _reload(self, text: str, binary: Path, folder: Path) -> None:
        await asyncio.to_thread((folder / CONFIG).write_text, text, encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            *_command(binary, folder), "-s", "reload",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, said = await process.communicate()
        if process.returncode:
            raise OSError(
                f"nginx does not take its new configuration: {said.decode(errors='replace').strip()}"
            )

    async def counters(self, folder: Path) -> dict[str, int]:
        """Return what its status page shows, and how often its log names a limit."""
        status = await ask_http(folder / _STATUS, "GET", "/")
        active = re.search(r"Active connections: (\d+)", status)
        totals = re.search(r"^\s*(\d+) (\d+) (\d+)\s*$", status, re.MULTILINE)
        log = await asyncio.to_thread(_read, folder / _LOG)
        return {
            "connections": int(active[1]) if active else 0,
            "connections_accepted": int(totals[1]) if totals else 0,
            "connections_handled": int(totals[2]) if totals else 0,
            "requests": int(totals[3]) if totals else 0,
            **{name: log.count(text) for name, text in _SEEN.items()},
        }


def _command(binary: Path, folder: Path) -> list[str]:
    return [str(binary), "-p", str(folder), "-c", str(folder / CONFIG), "-e", str(folder / _LOG)]


def _read(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


PROXY = Nginx()
