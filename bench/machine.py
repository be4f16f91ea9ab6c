"""What the numbers were taken on: the machine, its limits, the pressure on it, and the commit measured.

Everything degrades honestly: a fact that the system does not tell is an absent field, never a guess.
No host name, user name or path is read into a record.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import resource
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

PROC = Path("/proc")
SYS = Path("/sys")

FOREIGN_CPU_LIMIT = 0.20
"""Share of the machine's CPU time that others may use before a trial counts as disturbed."""
QUIET_PSI = 30.0
"""Percent of time in which some task waited for a CPU (PSI avg10) up to which a start counts as quiet."""

RESERVED_DESCRIPTORS = 200
"""Descriptors that a process needs beside its sessions: imports, listeners, logs, the event loop."""
RESERVED_PORTS = 200
"""Ephemeral ports left to everything else on the machine."""


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Machine(_Facts):
    """The machine, its limits and the Python that measures on it."""

    system: str
    """Operating system, such as `Linux`."""
    kernel: str
    architecture: str
    cpu_model: str | None = None
    cores: int | None = None
    """Logical processors that the system has."""
    affinity: tuple[int, ...] | None = None
    """Processors that this process may use."""
    governor: str | None = None
    clock_source: str | None = None
    memory_bytes: int | None = None
    cgroup_cpus: float | None = None
    """CPU quota of the control group, in processors; absent without a quota."""
    cgroup_memory_bytes: int | None = None
    cgroup_pids: int | None = None
    virtualization: str | None = None
    """Hint of a hypervisor: its vendor, or `hypervisor` when only the CPU flag shows it."""
    container: str | None = None
    """Hint of a container, such as `docker`."""
    nofile_soft: int | None = None
    nofile_hard: int | None = None
    """Limits of open file descriptors of one process; absent when unlimited."""
    port_low: int | None = None
    port_high: int | None = None
    """First and last ephemeral port."""
    somaxconn: int | None = None
    """Upper limit of any listener's accept queue."""
    boot: str | None = None
    """Hash of the boot id: equal for runs between two restarts of one machine, and meaning nothing else."""
    python: str
    """Implementation and version of the harness's Python."""
    python_compiler: str
    python_optimized: bool | None = None
    """Whether the build used profile-guided optimisation; absent when the build does not tell."""
    python_gil: bool
    """False for a free-threaded build."""

    @classmethod
    def read(cls, *, proc: Path = PROC, sys: Path = SYS) -> Machine:
        """Read the facts of this machine.

        Args:
            proc: Where procfs is mounted.
            sys: Where sysfs is mounted.
        """
        soft, hard = _descriptor_limits()
        ports = _numbers(proc / "sys/net/ipv4/ip_local_port_range")
        boot = _text(proc / "sys/kernel/random/boot_id")
        return cls(
            system=platform.system(),
            kernel=platform.release(),
            architecture=platform.machine(),
            cpu_model=_cpu_model(proc),
            cores=os.cpu_count(),
            affinity=tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else None,
            governor=_text(sys / "devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            clock_source=_text(sys / "devices/system/clocksource/clocksource0/current_clocksource"),
            memory_bytes=_memory_bytes(proc),
            cgroup_cpus=_cgroup_cpus(proc, sys),
            cgroup_memory_bytes=_cgroup_limit(proc, sys, "memory", ("memory.max", "memory.limit_in_bytes")),
            cgroup_pids=_cgroup_limit(proc, sys, "pids", ("pids.max", "pids.max")),
            virtualization=_virtualization(proc, sys),
            container=_container(proc),
            nofile_soft=soft,
            nofile_hard=hard,
            port_low=ports[0] if len(ports) == 2 else None,
            port_high=ports[1] if len(ports) == 2 else None,
            somaxconn=_number(proc / "sys/net/core/somaxconn"),
            boot=hashlib.sha256(boot.encode()).hexdigest()[:16] if boot else None,
            python=f"{platform.python_implementation()} {platform.python_version()}",
            python_compiler=platform.python_compiler(),
            python_optimized=_optimized(),
            python_gil=not sysconfig.get_config_var("Py_GIL_DISABLED"),
        )


class Pressure(_Facts):
    """One reading of how busy the whole machine is."""

    at_ns: int
    """When it was read, on the clock of `time.perf_counter_ns`."""
    cpu_some_avg10: float | None = None
    """PSI: percent of the last 10 s in which some task waited for a CPU."""
    busy_s: float | None = None
    """CPU seconds since boot spent on anything, over all processors; stolen time not included."""
    steal_s: float | None = None
    """CPU seconds since boot that the hypervisor gave to somebody else."""
    cpus: int | None = None
    """Processors that `busy_s` and `steal_s` are summed over."""
    load_1m: float | None = None

    @classmethod
    def read(cls, *, proc: Path = PROC) -> Pressure:
        """Take a reading now."""
        busy_s, steal_s, cpus = _cpu_seconds(proc)
        return cls(
            at_ns=time.perf_counter_ns(),
            cpu_some_avg10=_cpu_some_avg10(proc),
            busy_s=busy_s,
            steal_s=steal_s,
            cpus=cpus,
            load_1m=_load_1m(proc),
        )


def foreign_cpu_share(before: Pressure, after: Pressure, own_cpu_s: float) -> float | None:
    """Compute the share of the machine's CPU time between two readings that did not go to our processes.

    Stolen time counts as foreign: it was not ours either.

    Args:
        before: Reading at the start.
        after: Reading at the end.
        own_cpu_s: CPU seconds (user and system) that all our own processes used in between.

    Returns:
        A share from 0 to 1; absent where the system does not tell, or where no time passed.
    """
    if (
        before.busy_s is None
        or after.busy_s is None
        or before.steal_s is None
        or after.steal_s is None
        or not after.cpus
    ):
        return None
    capacity_s = (after.at_ns - before.at_ns) / 1e9 * after.cpus
    if capacity_s <= 0:
        return None
    foreign_s = (after.busy_s - before.busy_s) + (after.steal_s - before.steal_s) - own_cpu_s
    return min(1.0, max(0.0, foreign_s / capacity_s))


def busy_before(start: Pressure | None) -> tuple[str, ...]:
    """Say what kept the machine busy before anything of ours ran, one sentence each; nothing when it was quiet.

    Within a run such a reading says nothing: it is the part before that made the machine wait.
    """
    found = []
    if start is not None and start.cpu_some_avg10 is not None and start.cpu_some_avg10 >= QUIET_PSI:
        found.append(
            f"Tasks already waited for a CPU in {start.cpu_some_avg10:.0f} % of the 10 s before the start "
            f"({QUIET_PSI:.0f} % or more)."
        )
    if start is not None and start.load_1m is not None and start.cpus and start.load_1m >= start.cpus:
        found.append(
            f"The load average was {start.load_1m:.1f} before the start, on {start.cpus} processors (one for each, or more)."
        )
    return tuple(found)


class Stretch(NamedTuple):
    """A part of a run, with both readings and the CPU seconds that all our own processes used in between."""

    before: Pressure | None
    after: Pressure | None
    own_cpu_s: float | None


def disturbances(stretches: Iterable[Stretch], unit: str) -> tuple[str, ...]:
    """Say what others did to the machine during parts of a run, in a sentence; nothing when it was quiet.

    Numbers of a disturbed part are never compared with those of a quiet one.

    Args:
        stretches: The parts. Those of which something is not known are passed over.
        unit: What they are called, in the plural.
    """
    known = [(one.before, one.after, one.own_cpu_s) for one in stretches]
    shares = [
        (share, max(before.load_1m or 0.0, after.load_1m or 0.0))
        for before, after, own in known
        if before is not None and after is not None and own is not None
        and (share := foreign_cpu_share(before, after, own)) is not None
    ]  # fmt: skip
    disturbed = [one for one in shares if one[0] > FOREIGN_CPU_LIMIT]
    if not disturbed:
        return ()
    worst, load = max(disturbed)
    return (
        (
            f"Other processes used {worst:.0%} of the machine's CPU time (more than {FOREIGN_CPU_LIMIT:.0%}), with a load average "
            f"of {load:.1f}. So it was in {len(disturbed)} of {len(shares)} {unit}; this is the worst."
        ),
    )


class Revision(NamedTuple):
    """The commit that was measured, and whether the files differed from it."""

    commit: str
    dirty: bool


def read_revision(repository: Path) -> Revision | None:
    """Ask git for the commit of a working tree.

    Returns:
        The revision; nothing where git is not installed or the folder is not a working tree with a commit.
    """
    commit = _git(repository, "rev-parse", "HEAD")
    status = _git(repository, "status", "--porcelain")
    if not commit or status is None:
        return None
    return Revision(commit, bool(status))


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a planned number of sessions cannot work on this machine."""

    kind: Literal["fds", "ports", "accept_queue", "threads"]
    sentence: str
    """What is missing, and what to do."""


def preflight(
    sessions: int,
    *,
    machine: Machine | None = None,
    server_processes: int = 1,
    generator_processes: int = 1,
    descriptors_per_session: int = 1,
    threads_per_session: int = 0,
    addresses: int = 1,
    backlog: int = 2048,
    gate: int = 256,
    network: bool = True,
) -> tuple[Obstacle, ...]:
    """Name what cannot work before a run starts.

    The hard limit of file descriptors is what counts: every process of a run raises its soft limit to it.

    Args:
        sessions: Sessions to be held open at the same time.
        machine: Where; this machine when absent. A limit that it does not tell is not checked.
        server_processes: Server workers that share the sessions.
        generator_processes: Load generator processes that share the sessions.
        descriptors_per_session: Descriptors that a session takes in a process on its way (a proxy takes 2).
        threads_per_session: Threads that the server keeps per session.
        addresses: Destination addresses over which the sessions are spread.
        backlog: Accept queue that the server asks for.
        gate: Handshakes that one generator process keeps in flight.
        network: False for a system that is called in process.

    Returns:
        One obstacle per limit that is too low, none when everything fits.

    Raises:
        ValueError: A count is not positive.
    """
    if min(sessions, server_processes, generator_processes, addresses, backlog, gate) < 1:
        raise ValueError("sessions, processes, addresses, backlog and gate must all be at least 1")
    machine = machine or Machine.read()
    found = []
    if network:
        sides = (("server", server_processes), ("load generator", generator_processes))
        found += [
            obstacle
            for side, processes in sides
            if (obstacle := _too_few_descriptors(machine, sessions, side, processes, descriptors_per_session))
        ]
        found += [o for o in (_too_few_ports(machine, sessions, addresses),) if o]
        found += [o for o in (_too_short_queue(machine, sessions, backlog, gate * generator_processes),) if o]
    found += [o for o in (_too_few_threads(machine, sessions * threads_per_session),) if o]
    return tuple(found)


def _too_few_descriptors(
    machine: Machine, sessions: int, side: str, processes: int, per_session: int
) -> Obstacle | None:
    needed = math.ceil(sessions / processes) * per_session + RESERVED_DESCRIPTORS
    if machine.nofile_hard is None or needed <= machine.nofile_hard:
        return None
    room = (machine.nofile_hard - RESERVED_DESCRIPTORS) // per_session
    way_out = f"raise the hard limit (ulimit -Hn {needed}, or LimitNOFILE)"
    if room > 0:
        way_out += f", use at least {math.ceil(sessions / room)} {side} processes, or ask for at most {room * processes:,} sessions"
    return Obstacle(
        "fds",
        f"{sessions:,} sessions need {needed:,} file descriptors in each {side} process, "
        f"and the hard limit is {machine.nofile_hard:,}: {way_out}.",
    )


def _too_few_ports(machine: Machine, sessions: int, addresses: int) -> Obstacle | None:
    if machine.port_low is None or machine.port_high is None:
        return None
    ports = machine.port_high - machine.port_low + 1 - RESERVED_PORTS
    if math.ceil(sessions / addresses) <= ports:
        return None
    way_out = "widen net.ipv4.ip_local_port_range"
    if ports > 0:
        way_out = (
            f"spread the sessions over at least {math.ceil(sessions / ports)} addresses (127.0.0.1, 127.0.0.2, ...), "
            f"{way_out}, or ask for at most {ports * addresses:,} sessions"
        )
    return Obstacle(
        "ports",
        f"{sessions:,} sessions to {addresses} destination address{'es' if addresses > 1 else ''} need more than the "
        f"{max(ports, 0):,} ephemeral ports that one source has for each: {way_out}.",
    )


def _too_short_queue(machine: Machine, sessions: int, backlog: int, handshakes: int) -> Obstacle | None:
    queue = backlog if machine.somaxconn is None else min(backlog, machine.somaxconn)
    handshakes = min(handshakes, sessions)
    if handshakes <= queue:
        return None
    limits = f"backlog {backlog:,}"
    if machine.somaxconn is not None:
        limits += f", net.core.somaxconn {machine.somaxconn:,}"
    return Obstacle(
        "accept_queue",
        f"Up to {handshakes:,} handshakes in flight meet an accept queue of {queue:,} ({limits}), and the kernel drops what "
        f"does not fit: lower the gate so that at most {queue:,} are in flight, or raise both limits.",
    )


def _too_few_threads(machine: Machine, threads: int) -> Obstacle | None:
    if machine.cgroup_pids is None or threads + RESERVED_DESCRIPTORS <= machine.cgroup_pids:
        return None
    return Obstacle(
        "threads",
        f"The server would keep {threads:,} threads, and the control group allows {machine.cgroup_pids:,} processes and "
        f"threads: raise its pids.max, or ask for fewer sessions.",
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0\n ") or None
    except OSError:
        return None


def _numbers(path: Path) -> tuple[int, ...]:
    words = (_text(path) or "").split()
    return tuple(int(word) for word in words) if all(word.isdecimal() for word in words) else ()


def _number(path: Path) -> int | None:
    numbers = _numbers(path)
    return numbers[0] if len(numbers) == 1 else None


def _descriptor_limits() -> tuple[int | None, int | None]:
    unlimited = resource.RLIM_INFINITY
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (None if soft == unlimited else soft, None if hard == unlimited else hard)


def _cpu_field(proc: Path, *names: str) -> str | None:
    for line in (_text(proc / "cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in names and value.strip():
            return value.strip()
    return None


def _cpu_model(proc: Path) -> str | None:
    return _cpu_field(proc, "model name", "Model", "Processor") or platform.processor() or None


def _memory_bytes(proc: Path) -> int | None:
    for line in (_text(proc / "meminfo") or "").splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "MemTotal:" and words[1].isdecimal() and words[2] == "kB":
            return int(words[1]) * 1024
    return None


def available_bytes(*, proc: Path = PROC) -> int | None:
    """Return the memory that programs could still get without swapping, where the system tells it."""
    for line in (_text(proc / "meminfo") or "").splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "MemAvailable:" and words[1].isdecimal() and words[2] == "kB":
            return int(words[1]) * 1024
    return None


def _cgroup_folders(proc: Path, sys: Path, controller: str) -> tuple[list[Path], bool]:
    """List the control group's folders that may limit a controller, and whether they are of version 2."""
    paths = {}
    for line in (_text(proc / "self/cgroup") or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        paths.update(dict.fromkeys(controllers.split(","), path.strip("/")))
    root = sys / "fs/cgroup"
    if (root / "cgroup.controllers").exists():
        version_2, base, path = True, root, paths.get("", "")
    else:
        version_2, base, path = False, root / controller, paths.get(controller, "")
    # A container often sees its own group mounted at the root: the path that /proc names then leads nowhere.
    folders = [base / path, *(base / path).parents]
    return [folder for folder in folders if folder.is_dir() and folder.is_relative_to(base)], version_2


def _cgroup_limit(proc: Path, sys: Path, controller: str, files: tuple[str, str]) -> int | None:
    folders, version_2 = _cgroup_folders(proc, sys, controller)
    limits = [_number(folder / files[0 if version_2 else 1]) for folder in folders]
    # Version 1 writes "no limit" as the largest page-aligned number of 63 bits.
    return min((limit for limit in limits if limit is not None and limit < 2**62), default=None)


def _cgroup_cpus(proc: Path, sys: Path) -> float | None:
    folders, version_2 = _cgroup_folders(proc, sys, "cpu")
    quotas = []
    for folder in folders:
        if version_2:
            numbers = _numbers(folder / "cpu.max")
        else:
            numbers = _numbers(folder / "cpu.cfs_quota_us") + _numbers(folder / "cpu.cfs_period_us")
        if len(numbers) == 2 and numbers[1] > 0:
            quotas.append(numbers[0] / numbers[1])
    return min(quotas, default=None)


def _virtualization(proc: Path, sys: Path) -> str | None:
    vendor = _text(sys / "class/dmi/id/sys_vendor")
    product = _text(sys / "class/dmi/id/product_name")
    under_hypervisor = "hypervisor" in (_cpu_field(proc, "flags") or "").split()
    told = _text(sys / "hypervisor/type")
    if told:
        return told
    if under_hypervisor:
        return " ".join(word for word in (vendor, product) if word) or "hypervisor"
    return None


def _container(proc: Path) -> str | None:
    for marker, name in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman")):
        if proc == PROC and Path(marker).exists():
            return name
    groups = _text(proc / "1/cgroup") or ""
    for word in ("kubepods", "docker", "containerd", "lxc", "libpod", "machine.slice"):
        if word in groups:
            return word
    if proc == PROC and "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    return None


def _optimized() -> bool | None:
    configured = sysconfig.get_config_var("CONFIG_ARGS")
    return "--enable-optimizations" in configured if isinstance(configured, str) else None


def _cpu_some_avg10(proc: Path) -> float | None:
    for line in (_text(proc / "pressure/cpu") or "").splitlines():
        words = line.split()
        if words and words[0] == "some":
            for word in words[1:]:
                name, _, value = word.partition("=")
                if name == "avg10":
                    return _finite(value)
    return None


def _load_1m(proc: Path) -> float | None:
    words = (_text(proc / "loadavg") or "").split()
    return _finite(words[0]) if words else None


def _finite(word: str) -> float | None:
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _cpu_seconds(proc: Path) -> tuple[float | None, float | None, int | None]:
    """Read busy seconds, stolen seconds and the number of processors from the kernel's own account."""
    lines = [line.split() for line in (_text(proc / "stat") or "").splitlines()]
    total = next((words[1:] for words in lines if words and words[0] == "cpu"), [])
    cpus = sum(1 for words in lines if words and words[0].startswith("cpu") and words[0] != "cpu")
    if len(total) < 8 or not all(word.isdecimal() for word in total) or not cpus:
        return None, None, None
    # Columns: user nice system idle iowait irq softirq steal; guest time is already part of user time.
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(word) for word in total[:8])
    ticks = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq) / ticks, steal / ticks, cpus


def _git(repository: Path, *arguments: str) -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    # Optional locks off: asking must not disturb somebody who works in the same tree.
    command = [git, "--no-optional-locks", "-C", str(repository), *arguments]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
