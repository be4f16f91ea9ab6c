"""Record the golden transcripts of the miniatures: what the core answered when a person last agreed that it was right.

    python tests/golden/record.py           # compares the files with a new recording; exit code 1 on a difference
    python tests/golden/record.py --write   # overwrites them; look at every line that changes before committing it

Each line of a file is one transcript. The recording is deterministic: it depends on the code and on nothing else.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from canonical.environment import Environment
from canonical.tool import ToolCall
from canonical.transcript import Action, Transcript, TranscriptError, first_difference
from tests.canonical import miniatures
from tests.canonical.playing import play

FOLDER = Path(__file__).parent


class Scenario(NamedTuple):
    """Hold what an episode is made of, and the name under which a test speaks of it."""

    name: str
    environment: Environment[Any]
    task: str
    seed: int
    actions: Sequence[Action]


def miniature_scenarios() -> Iterator[Scenario]:
    """Cover what Wordle does not use: generators, dense and latest rewards, trajectories, images, free errors."""
    for seed in (0, 1, 2**64, -3):
        rolls = [ToolCall("roll", {"sides": sides}) for sides in (6, 20, 100, 0, 2, 6)]
        yield Scenario(f"dice-{seed}", miniatures.Dice(), "train/1", seed, [*rolls, "?"])
    heights = (1.5, -2, 0.1, 0.2, 1e-9)
    climb: list[Action] = [
        *(ToolCall("move", {"height": height}) for height in heights),
        "?",
        ToolCall("fly"),
    ]
    for environment in (
        miniatures.Climb(),
        miniatures.DenseClimb(),
        miniatures.LatestClimb(),
        miniatures.TwoPartClimb(),
    ):
        for name, end in (("stopped", ToolCall("stop")), ("spent", "?")):
            yield Scenario(f"{environment.name}-{name}", environment, "train/hill", 0, [*climb, end, end])
    looks = [ToolCall("look", {"angle": angle}) for angle in (0, 90, 255, 256)]
    yield Scenario(
        "gallery", miniatures.Gallery(), "train/hall", 0, [*looks, "?", ToolCall("leave"), looks[0]]
    )
    actions: list[Action] = [
        "?",
        ToolCall("add"),
        ToolCall("refuse"),
        ToolCall("nothing"),
        ToolCall("add", {"amount": 0}),
    ]
    for counter in (miniatures.Counter(), miniatures.ForgivingCounter(), miniatures.SilentCounter()):
        yield Scenario(counter.name, counter, "train/6", 0, [*actions, *actions])
        yield Scenario(f"{counter.name}-solved", counter, "train/1", 0, actions)
    draws = [ToolCall("draw", {"rank": rank}) for rank in (3, 14, 15, 9, 26)]
    for store in miniatures.STORES:
        yield Scenario(store.name, store(), "train/other", 11, draws)


GOLDEN: dict[str, Callable[[], Iterator[Scenario]]] = {
    "miniatures.jsonl": miniature_scenarios,
}
"""The name of each golden file, and what is in it, in order."""


def record(scenarios: Iterator[Scenario]) -> str:
    """Return the text of a golden file."""
    lines = [
        play(environment, task, seed, actions).to_line() for _, environment, task, seed, actions in scenarios
    ]
    return "".join(f"{line}\n" for line in lines)


def difference(path: Path, text: str) -> str | None:
    """Say in words where a golden file first differs from a new recording, or return None."""
    if not path.is_file():
        return f"{path} does not exist"
    golden, recorded = path.read_text(encoding="ascii").splitlines(), text.splitlines()
    for number, (old, new) in enumerate(zip(golden, recorded, strict=False), start=1):
        if old != new:
            try:
                found = first_difference(Transcript.from_line(old), Transcript.from_line(new))
            except TranscriptError as error:
                return f"{path}, line {number}: {error}"
            return f"{path}, line {number} (left is the file, right the new recording): {found}"
    if len(golden) != len(recorded):
        return f"{path} holds {len(golden)} transcripts, the new recording {len(recorded)}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the golden transcripts with a new recording.")
    parser.add_argument("--write", action="store_true", help="overwrite the files with the new recording")
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="where the files lie (default: beside this script)"
    )
    options = parser.parse_args()
    differs = False
    for name, scenarios in GOLDEN.items():
        path, text = options.folder / name, record(scenarios())
        found = difference(path, text)
        if found is not None and options.write:
            path.write_text(text, encoding="ascii", newline="\n")
            sys.stdout.write(f"{path} written, {text.count(chr(10))} transcripts\n")
        elif found is not None:
            differs = True
            sys.stderr.write(f"{found}\n")
    if differs:
        sys.stderr.write("nothing was written; --write overwrites the files\n")
    return int(differs)


if __name__ == "__main__":
    raise SystemExit(main())
