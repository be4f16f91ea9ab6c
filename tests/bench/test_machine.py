"""Provenance is honest: facts are read, gaps stay gaps, and nothing private gets in."""

from __future__ import annotations

import getpass
import os
import platform
import re
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.machine import (
    RESERVED_DESCRIPTORS,
    RESERVED_PORTS,
    Machine,
    Pressure,
    Stretch,
    busy_before,
    disturbances,
    foreign_cpu_share,
    preflight,
    read_revision,
)

never_timed = settings(deadline=None)

SECOND = 1_000_000_000


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def machine(**changes):
    facts = {
        "system": "Linux",
        "kernel": "6",
        "architecture": "x86_64",
        "python": "CPython 3.11.7",
        "python_compiler": "GCC",
        "python_gil": True,
        "nofile_soft": 1_024,
        "nofile_hard": 20_000,
        "port_low": 32_768,
        "port_high": 60_999,
        "somaxconn": 4_096,
    }
    return Machine(**facts | changes)


class TestMachine:
    def test_this_machine_is_described(self):
        found = Machine.read()
        assert found.kernel == platform.release()
        assert found.cores == os.cpu_count()
        assert found.python.endswith(platform.python_version())

    def test_nothing_private_is_in_it(self):
        texts = [value for value in Machine.read().model_dump().values() if isinstance(value, str)]
        assert not {platform.node(), getpass.getuser()} & set(texts)
        assert not [text for text in texts for path in (Path.home(), Path.cwd()) if str(path) in text]

    def test_where_nothing_is_told_the_facts_are_absent(self, tmp_path):
        found = Machine.read(proc=tmp_path / "none", sys=tmp_path / "none")
        told = found.model_dump(exclude_none=True)
        assert not {
            "memory_bytes",
            "boot",
            "somaxconn",
            "port_low",
            "cgroup_cpus",
            "governor",
            "container",
        } & set(told)

    def test_files_of_the_kernel_are_read(self, tmp_path):
        proc = tree(
            tmp_path / "proc",
            {
                "cpuinfo": "processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\nflags\t\t: fpu hypervisor sse\n",
                "meminfo": "MemTotal:       24683116 kB\nMemFree: 1 kB\n",
                "sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
                "sys/net/core/somaxconn": "4096\n",
                "sys/kernel/random/boot_id": "0b9d3ad0-0000-4000-8000-000000000000\n",
                "1/cgroup": "0::/docker/abc\n",
                "self/cgroup": "0::/job/inner\n",
            },
        )
        sys = tree(
            tmp_path / "sys",
            {
                "class/dmi/id/sys_vendor": "QEMU\n",
                "devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
                "fs/cgroup/cgroup.controllers": "cpu memory pids\n",
                "fs/cgroup/job/cpu.max": "150000 100000\n",
                "fs/cgroup/job/inner/cpu.max": "max 100000\n",
                "fs/cgroup/job/memory.max": "1073741824\n",
                "fs/cgroup/job/inner/memory.max": "2147483648\n",
                "fs/cgroup/job/inner/pids.max": "max\n",
            },
        )
        found = Machine.read(proc=proc, sys=sys)
        assert found.cpu_model == "Fast CPU @ 3 GHz"
        assert found.memory_bytes == 24_683_116 * 1024
        assert (found.port_low, found.port_high, found.somaxconn) == (32_768, 60_999, 4_096)
        assert (found.virtualization, found.container, found.clock_source) == ("QEMU", "docker", "tsc")
        assert found.boot is not None
        assert "0b9d" not in found.boot
        # The tightest limit on the way to the root is the one that holds.
        assert (found.cgroup_cpus, found.cgroup_memory_bytes, found.cgroup_pids) == (1.5, 1_073_741_824, None)

    def test_limits_of_the_older_control_groups_are_read(self, tmp_path):
        proc = tree(tmp_path / "proc", {"self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job\n2:pids:/job\n"})
        sys = tree(
            tmp_path / "sys",
            {
                "fs/cgroup/cpu/job/cpu.cfs_quota_us": "50000\n",
                "fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
                "fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
                "fs/cgroup/memory/job/memory.limit_in_bytes": "9223372036854771712\n",
                "fs/cgroup/pids/job/pids.max": "512\n",
            },
        )
        found = Machine.read(proc=proc, sys=sys)
        assert (found.cgroup_cpus, found.cgroup_memory_bytes, found.cgroup_pids) == (0.5, None, 512)

    @never_timed
    @given(text=st.text(max_size=80))
    def test_no_strange_file_stops_a_reading(self, tmp_path_factory, text):
        root = tmp_path_factory.mktemp("strange")
        names = (
            "cpuinfo",
            "meminfo",
            "stat",
            "loadavg",
            "pressure/cpu",
            "self/cgroup",
            "sys/net/core/somaxconn",
        )
        proc = tree(root, dict.fromkeys(names, text.encode("utf-8", "replace").decode()))
        assert Machine.read(proc=proc, sys=root)
        assert Pressure.read(proc=proc)


class TestPressure:
    def test_files_of_the_kernel_are_read(self, tmp_path):
        proc = tree(
            tmp_path,
            {
                "stat": "cpu  1000 100 200 9000 50 30 20 40 7 0\ncpu0 1 1 1 1 1 1 1 1 1 1\ncpu1 1 1 1 1 1 1 1 1 1 1\nintr 5\n",
                "loadavg": "1.25 0.50 0.10 2/300 12345\n",
                "pressure/cpu": "some avg10=12.34 avg60=1.00 avg300=0.50 total=123\nfull avg10=0.00 avg60=0 avg300=0 total=0\n",
            },
        )
        found = Pressure.read(proc=proc)
        ticks = os.sysconf("SC_CLK_TCK")
        assert (found.cpu_some_avg10, found.load_1m, found.cpus) == (12.34, 1.25, 2)
        assert (found.busy_s, found.steal_s) == (1_350 / ticks, 40 / ticks)

    def test_where_nothing_is_told_the_reading_is_empty(self, tmp_path):
        assert Pressure.read(proc=tmp_path).model_dump(exclude_none=True).keys() == {"at_ns"}

    def test_the_clock_is_that_of_the_samples(self):
        before = time.perf_counter_ns()
        assert before <= Pressure.read().at_ns <= time.perf_counter_ns()

    def reading(self, at_s, busy_s, steal_s=0.0, **changes):
        return Pressure(at_ns=at_s * SECOND, busy_s=busy_s, steal_s=steal_s, cpus=2, **changes)

    def test_the_foreign_share_is_what_we_did_not_use(self):
        before, after = self.reading(0, 100.0), self.reading(10, 112.0, 1.0)
        assert foreign_cpu_share(before, after, own_cpu_s=8.0) == pytest.approx(5 / 20)
        assert foreign_cpu_share(before, after, own_cpu_s=50.0) == 0.0

    def test_the_foreign_share_is_absent_where_it_is_not_told(self):
        whole, gap = self.reading(0, 1.0), Pressure(at_ns=SECOND)
        assert foreign_cpu_share(whole, gap, 0.0) is None
        assert foreign_cpu_share(gap, whole, 0.0) is None
        assert foreign_cpu_share(whole, whole, 0.0) is None

    def test_disturbances_are_one_sentence_with_the_worst_and_quiet_is_silent(self):
        quiet = Stretch(self.reading(0, 0.0), self.reading(10, 9.0), 8.0)
        loud = Stretch(self.reading(0, 0.0), self.reading(10, 18.0, load_1m=7.5), 8.0)
        louder = Stretch(self.reading(0, 0.0), self.reading(10, 20.0, load_1m=9.0), 5.0)
        assert disturbances([quiet], "cells") == ()
        (said,) = disturbances([loud, quiet, louder], "cells")
        assert said.startswith("Other processes used 75% of the machine's CPU time (more than 20%)")
        assert said.endswith("a load average of 9.0. So it was in 2 of 3 cells; this is the worst.")

    def test_of_what_is_not_known_nothing_is_said(self):
        before, after = self.reading(0, 0.0), self.reading(10, 20.0)
        unknown = [Stretch(None, after, 1.0), Stretch(before, None, 1.0), Stretch(before, after, None)]
        assert disturbances(unknown, "cells") == ()
        assert busy_before(None) == ()

    def test_a_busy_start_is_told_by_pressure_and_by_load(self):
        assert busy_before(self.reading(0, 0.0, cpu_some_avg10=5.0, load_1m=1.9)) == ()
        assert busy_before(self.reading(0, 0.0, cpu_some_avg10=73.0, load_1m=2.5)) == (
            "Tasks already waited for a CPU in 73 % of the 10 s before the start (30 % or more).",
            "The load average was 2.5 before the start, on 2 processors (one for each, or more).",
        )


class TestPreflight:
    def kinds(self, sessions, *, on=None, **options):
        return [found.kind for found in preflight(sessions, machine=on or machine(), **options)]

    def test_what_fits_raises_nothing(self):
        assert self.kinds(16_000) == []

    def test_each_side_needs_its_descriptors(self):
        limit = 20_000 - RESERVED_DESCRIPTORS
        assert self.kinds(limit) == []
        assert self.kinds(limit + 1) == ["fds", "fds"]
        assert self.kinds(limit + 1, server_processes=2) == ["fds"]
        assert self.kinds(limit + 1, server_processes=2, generator_processes=2) == []
        assert self.kinds(limit // 2 + 1, descriptors_per_session=2) == ["fds", "fds"]

    def test_ports_are_counted_per_destination_address(self):
        ports = 28_232 - RESERVED_PORTS
        roomy = machine(nofile_hard=10**6)
        assert self.kinds(ports, on=roomy) == []
        assert self.kinds(ports + 1, on=roomy) == ["ports"]
        assert self.kinds(ports + 1, on=roomy, addresses=2) == []

    def test_the_accept_queue_must_take_the_handshakes_in_flight(self):
        assert self.kinds(4_096, gate=2_048) == []
        assert self.kinds(4_096, gate=2_049) == ["accept_queue"]
        assert self.kinds(4_096, gate=1_025, generator_processes=2) == ["accept_queue"]
        assert self.kinds(2_000, gate=10_000) == []  # no more handshakes than sessions
        assert self.kinds(4_096, gate=256, on=machine(somaxconn=128)) == ["accept_queue"]

    def test_a_thread_per_session_needs_room_for_threads(self):
        assert self.kinds(4_000, threads_per_session=1, on=machine(cgroup_pids=1_000)) == ["threads"]
        assert self.kinds(4_000, threads_per_session=0, on=machine(cgroup_pids=1_000)) == []

    def test_in_process_nothing_of_the_network_is_needed(self):
        assert self.kinds(100_000, network=False) == []

    def test_a_limit_that_is_not_told_is_not_checked(self):
        silent = machine(nofile_hard=None, port_low=None, port_high=None, somaxconn=None)
        assert self.kinds(10**6, on=silent) == []

    def test_a_sentence_says_what_is_missing_and_what_to_do(self):
        (first, *_) = preflight(30_000, machine=machine())
        assert first.sentence == (
            "30,000 sessions need 30,200 file descriptors in each server process, and the hard limit is 20,000: raise "
            "the hard limit (ulimit -Hn 30200, or LimitNOFILE), use at least 2 server processes, or ask for at most "
            "19,800 sessions."
        )

    @never_timed
    @given(
        sessions=st.integers(1, 10**6),
        processes=st.integers(1, 8),
        addresses=st.integers(1, 8),
        per_session=st.integers(1, 3),
        limit=st.integers(1, 10**6),
    )
    def test_the_advice_helps(self, sessions, processes, addresses, per_session, limit):
        """Asking for as many sessions as the tightest sentence allows meets no obstacle any more."""
        options = {
            "server_processes": processes,
            "addresses": addresses,
            "descriptors_per_session": per_session,
        }
        here = machine(nofile_hard=limit)
        sentences = [found.sentence for found in preflight(sessions, machine=here, **options)]
        advised = [re.search(r"at most ([\d,]+) sessions\.$", sentence) for sentence in sentences]
        if all(advised) and advised:
            fewer = min(int(match[1].replace(",", "")) for match in advised)
            assert 0 < fewer < sessions
            assert preflight(fewer, machine=here, **options) == ()
        else:
            assert not advised or limit < RESERVED_DESCRIPTORS + per_session

    def test_counts_below_one_are_refused(self):
        with pytest.raises(ValueError, match="at least 1"):
            preflight(0, machine=machine())


class TestRevision:
    def git(self, folder, *arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)

    def test_the_commit_and_whether_the_files_differ_from_it(self, tmp_path):
        self.git(tmp_path, "init", "-q")
        assert read_revision(tmp_path) is None
        (tmp_path / "a").write_text("1")
        self.git(tmp_path, "add", "a")
        self.git(tmp_path, "commit", "-q", "-m", "first")
        clean = read_revision(tmp_path)
        assert clean is not None
        assert len(clean.commit) == 40
        assert not clean.dirty
        (tmp_path / "a").write_text("2")
        assert read_revision(tmp_path) == (clean.commit, True)

    def test_outside_a_working_tree_there_is_none(self, tmp_path):
        assert read_revision(tmp_path) is None
        assert read_revision(tmp_path / "nowhere") is None
