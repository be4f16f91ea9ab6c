"""Write a folder with which other machines run a fleet: containers, a Space, a Slurm job, a proxy's configuration."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import jinja2

from bench.serving.fleet import plan_fleet
from bench.serving.plan import FleetPlan, Replica
from bench.serving.proxies.protocol import Proxy
from bench.serving.running import validate, write_configuration
from bench.stacks import ROOT, Stack

SPACE_PORT = 7860
"""The port that a Space shows to the world unless it says otherwise."""
_REPLICA_PORT = 8000
_TEMPLATES = Path(__file__).parent / "deployment"
_SOURCES = (
    "adapters", "bench", "canonical", "libraries", "reports", "rosetta",
    "pyproject.toml", "hatch_build.py", "constraints.txt", "README.md", "LICENSE",
)  # fmt: skip
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "published", "*.pyc")
_IN_CONTAINER = Path("/proxy")


@dataclass(frozen=True, slots=True)
class Deployment:
    """Say what is to be run elsewhere.

    Attributes:
        stack: The framework release.
        environment: Name of the environment, or the path of its file or folder.
        replicas: How many server processes, per machine.
        proxy: The proxy before them.
        port: Where clients find it.
        target_sessions: Sessions that are to be held at the same time.
        drain_s: How long sessions may take to end when it is stopped, in seconds.
    """

    stack: Stack
    environment: str
    replicas: int
    proxy: Proxy
    port: int
    target_sessions: int
    drain_s: int

    @property
    def name(self) -> str:
        """What containers and jobs are called."""
        return f"{re.sub('[^a-z0-9]+', '-', Path(self.environment).stem.lower()).strip('-')}-{self.stack.adapter.replace('_', '-')}"

    @property
    def source(self) -> str:
        """The environment as the command line takes it, seen from the project's folder."""
        return (
            f"environments/{Path(self.environment).name}"
            if Path(self.environment).exists()
            else self.environment
        )


async def write_deployment(deployment: Deployment, folder: Path) -> bool:
    """Write the folder, and return whether the proxy has validated its configuration, which takes its program.

    Raises:
        bench.serving.proxies.ProxyError: The proxy refuses its configuration.
        OSError: The folder cannot be written.
    """
    replicas = tuple(
        Replica(name=f"r{number}", host=f"r{number}", port=_REPLICA_PORT)
        for number in range(1, deployment.replicas + 1)
    )
    plan = plan_fleet(
        deployment.stack, replicas, host="0.0.0.0", port=deployment.port,  # noqa: S104 - inside a container
        target_sessions=deployment.target_sessions,
    )  # fmt: skip
    validated = await _validate(deployment.proxy, plan)
    for path, text in _texts(deployment, plan, validated=validated).items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    await asyncio.to_thread(_copy_project, deployment, folder / "project")
    return validated


def _texts(deployment: Deployment, plan: FleetPlan, *, validated: bool) -> dict[str, str]:
    stack, proxy = deployment.stack, deployment.proxy
    one = ["rosetta", "serve", deployment.source, "--as", stack.adapter, "--release", stack.release.version]
    fleet = [
        *one, "--replicas", str(deployment.replicas), "--proxy", proxy.name, "--host", "0.0.0.0",  # noqa: S104 - as above
        "--port", str(SPACE_PORT), "--target-sessions", str(deployment.target_sessions),
        "--drain", str(deployment.drain_s),
    ]  # fmt: skip
    balance = [
        "rosetta", "balance", "--as", stack.adapter, "--release", stack.release.version, "--proxy", proxy.name,
        *(word for replica in plan.replicas for word in ("--at", replica.address)), "--host", "0.0.0.0",  # noqa: S104 - as above
        "--port", str(plan.port), "--target-sessions", str(deployment.target_sessions), "--drain", str(deployment.drain_s),
    ]  # fmt: skip
    known = {
        "name": deployment.name,
        "environment": Path(deployment.environment).stem,
        "source": deployment.source,
        "title": stack.facts.title,
        "framework": stack.adapter,
        "release": stack.release.version,
        "python": stack.release.python,
        "proxy": proxy,
        "plan": plan,
        "drain_s": deployment.drain_s,
        "space_port": SPACE_PORT,
        "serve": fleet,
        "serve_one": [
            *one,
            "--host",
            "0.0.0.0",  # noqa: S104 - as above
            "--port",
            str(_REPLICA_PORT),
            "--drain",
            str(deployment.drain_s),
        ],
        "balance": balance,
        "validated": validated,
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - none of it is HTML
    )
    written = {
        target: environment.get_template(template).render(known)
        for target, template in (
            ("README.md", "README.md.j2"),
            ("Dockerfile", "Dockerfile.j2"),
            ("compose.yaml", "compose.yaml.j2"),
            ("slurm/serve.sbatch", "serve.sbatch.j2"),
        )
    }
    configuration = proxy.render(plan, _IN_CONTAINER, "derived")
    return {**written, **{f"proxy/{name}": text for name, text in configuration.items()}}


async def _validate(proxy: Proxy, plan: FleetPlan) -> bool:
    binary = proxy.find()
    if binary is None:
        return False
    # Names of containers mean nothing here, and some proxies look them up while they validate.
    local = plan.model_copy(
        update={
            "host": "127.0.0.1",
            "replicas": tuple(
                replica.model_copy(update={"host": "127.0.0.1", "port": replica.port + number})
                for number, replica in enumerate(plan.replicas)
            ),
        }
    )
    with tempfile.TemporaryDirectory(prefix="rosetta-") as place:
        write_configuration(proxy, local, Path(place), "derived")
        await validate(proxy, binary, Path(place))
    return True


def _copy_project(deployment: Deployment, target: Path) -> None:
    for name in _SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=_LEFT_OUT, dirs_exist_ok=True)
        elif source.is_file():
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)
    own = Path(deployment.environment)
    if own.exists():
        place = target / deployment.source
        place.parent.mkdir(parents=True, exist_ok=True)
        if own.is_dir():
            shutil.copytree(own, place, ignore=_LEFT_OUT, dirs_exist_ok=True)
        else:
            shutil.copy2(own, place)
