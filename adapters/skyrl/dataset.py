"""Write the data set of an environment as SkyRL's trainer reads it: `python -m adapters.skyrl.dataset wordle --split train`."""

from __future__ import annotations

import argparse
import json
import sys

from adapters.skyrl.compiler import compile_environment
from canonical.catalogue import UnknownEnvironmentError, load_environment
from canonical.episode import StartError
from canonical.task import UnknownTaskError


def main() -> int:
    """Write one row per line to standard output."""
    parser = argparse.ArgumentParser(prog="python -m adapters.skyrl.dataset", description=__doc__)
    parser.add_argument("environment", help="a name of the catalogue, or the path of an environment.py")
    parser.add_argument("--split", help="the split to write; all of them when left out")
    parser.add_argument("--seed", type=int, default=0, help="the seed of every episode (default 0)")
    options = parser.parse_args()
    try:
        compiled = compile_environment(load_environment(options.environment))
        for row in compiled.rows(options.split, seed=options.seed):
            sys.stdout.write(json.dumps(row) + "\n")
    except (UnknownEnvironmentError, UnknownTaskError, StartError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
