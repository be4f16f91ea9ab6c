"""Show the result of a load run, and turn its samples into one Parquet file: `python -m bench.load FOLDER`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.load.engine import LoadFailed, read_load
from bench.load.summary import LoadSummary, shift_ns
from bench.records import write_samples

SAMPLES_FILE = "samples.parquet"


def main(arguments: list[str] | None = None) -> int:
    """Read the output folder of a run; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("folder", type=Path, help="the output folder that the plan names")
    folder: Path = parser.parse_args(arguments).folder
    try:
        result = read_load(folder)
        write_samples(folder / SAMPLES_FILE, *result.samples)
    except LoadFailed as e:
        sys.stderr.write(f"{e}\n")
        return 1
    except OSError as e:
        sys.stderr.write(f"{folder / SAMPLES_FILE} cannot be written: {e.strerror}\n")
        return 1
    summary = result.summary
    sys.stdout.write(
        f"sessions   {summary.sessions} planned, {summary.opened} opened, {summary.peak_open} open at the same time, "
        f"{summary.succeeded} succeeded\n"
        f"ended by   {summary.ended_by}{f' ({summary.failure})' if summary.failure else ''}\n"
        f"{_travel(summary)}{_clocks(summary)}"
        f"generator  {summary.cores} process(es), {summary.cpu_s:.2f} CPU s in {summary.wall_s:.2f} s\n"
        f"samples    {summary.samples} in {folder / SAMPLES_FILE}\n"
    )
    for text, count in summary.errors.items():
        sys.stdout.write(f"{count:>9}x {text}\n")
    return 0


def _clocks(summary: LoadSummary) -> str:
    shifted = [(share.rank + 1, shift_ns(share), share.clock_error_ns or 0) for share in summary.shares]
    return "".join(
        f"clocks     worker {number}: {ns / 1e6:+.3f} ms added to its times, \N{PLUS-MINUS SIGN}{error / 1e6:.3f} ms\n"
        for number, ns, error in shifted
        if ns
    )


def _travel(summary: LoadSummary) -> str:
    if summary.transport != "http":
        return ""
    whose = "one per session" if summary.connection == "session" else "a pool that the sessions share"
    return f"transport  HTTP over {summary.connections} TCP connections, {whose}\n"


if __name__ == "__main__":
    sys.exit(main())
