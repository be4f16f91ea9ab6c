"""Golden sets: episodes as they were when a person last agreed that they are right, in a file beside the environment.

The first line of the file says which environment it is, and its usual prompt and tools. Every further line is an episode
(its name, task and seed, and its prompt where that is another one) or a step of the episode above it, so that a change of
one step changes one line.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from canonical.catalogue import definition_path
from canonical.content import JSON, Message
from canonical.environment import Environment
from canonical.episode import Episode
from canonical.transcript import (
    Action,
    Transcript,
    TranscriptStep,
    action_from_json,
    digest_of,
    first_difference,
    message_from_json,
    result_from_json,
    spec_from_json,
)

EPISODES = "episodes.jsonl"
"""The file of a golden set, in the folder that `golden_folder` names."""

WIDTH = 8
"""How many episodes are recorded at the same time; nobody sees it where an episode waits for nothing."""


class GoldenError(ValueError):
    """Report a golden set that is missing or cannot be read: the file, the line, the reason."""


class Case(NamedTuple):
    """Hold what an episode of a golden set is made of.

    Attributes:
        name: Its name; what stands before the first `-` is the group that it is counted in.
        task: The id of the task.
        seed: The seed of the episode.
        actions: All actions, also those after the end.
    """

    name: str
    task: str
    seed: int
    actions: Sequence[Action]


class GoldenEpisode(NamedTuple):
    """Hold the name of an episode, and its transcript."""

    name: str
    transcript: Transcript


@dataclass(frozen=True, slots=True)
class GoldenSet:
    """Hold the episodes of one environment, in order."""

    episodes: tuple[GoldenEpisode, ...]

    @property
    def steps(self) -> int:
        """How many actions the episodes have together."""
        return sum(len(episode.transcript.steps) for episode in self.episodes)

    @property
    def groups(self) -> dict[str, int]:
        """The number of episodes of each group, in order of appearance."""
        return dict(Counter(episode.name.partition("-")[0] for episode in self.episodes))

    def digest(self) -> str:
        """Return one SHA-256 for all transcripts."""
        return digest_of(episode.transcript for episode in self.episodes)

    def to_text(self) -> str:
        """Return the content of the file."""
        first = self.episodes[0].transcript
        prompts = [[message.to_json() for message in e.transcript.prompt] for e in self.episodes]
        usual = Counter(map(_line, prompts)).most_common(1)[0][0]
        heading: dict[str, JSON] = {
            "environment": first.environment,
            "version": first.version,
            "prompt": json.loads(usual),
            "tools": [tool.to_json() for tool in first.tools],
        }
        lines = [_line(heading)]
        for (name, transcript), prompt in zip(self.episodes, prompts, strict=True):
            episode: dict[str, Any] = {"episode": name, "task": transcript.task, "seed": transcript.seed}
            if _line(prompt) != usual:
                episode["prompt"] = prompt
            lines.append(_line(episode))
            lines.extend(_line(step.to_json()) for step in transcript.steps)
        return "".join(f"{line}\n" for line in lines)

    @classmethod
    def from_text(cls, text: str) -> GoldenSet:
        """Read what `to_text` wrote.

        Raises:
            GoldenError: The text is no golden set; the line and the reason are named.
        """
        lines = list(enumerate(text.splitlines(), 1))
        if len(lines) < 2:
            raise GoldenError("a golden set has a heading and at least one episode")
        rows = iter(lines)
        heading = _checked(*next(rows), _heading)
        found: list[tuple[dict[str, Any], list[TranscriptStep]]] = []
        for number, line in rows:
            row = _checked(number, line, _row)
            if isinstance(row, dict):
                found.append((row, []))
            elif found:
                found[-1][1].append(row)
            else:
                raise GoldenError(f"line {number}: a step stands before the first episode")
        return cls(
            tuple(
                GoldenEpisode(row.pop("name"), Transcript(**{**heading, **row}, steps=tuple(steps)))
                for row, steps in found
            )
        )

    @classmethod
    def read(cls, path: Path) -> GoldenSet:
        """Read a file.

        Raises:
            GoldenError: There is no such file, or it is no golden set.
        """
        try:
            return cls.from_text(path.read_text(encoding="ascii"))
        except (OSError, UnicodeError) as error:
            raise GoldenError(f"{path}: {error}") from error
        except GoldenError as error:
            raise GoldenError(f"{path}: {error}") from error


def golden_folder(environment: Environment[Any]) -> Path:
    """Return where the golden set of an environment lies: the folder `golden` beside its `environment.py`.

    Beside a single file `name.py` it is the folder `name.golden`.
    """
    place = definition_path(environment)
    return place.parent / ("golden" if place.name == "environment.py" else f"{place.stem}.golden")


async def record(environment: Environment[Any], cases: Iterable[Case]) -> GoldenSet:
    """Play cases in canonical episodes, a few at the same time, and keep what happened, in the order of the cases.

    Raises:
        GoldenError: Two cases have one name, or there is none.
    """
    gate = asyncio.Semaphore(WIDTH)

    async def play(case: Case) -> GoldenEpisode:
        async with gate:
            return GoldenEpisode(case.name, await _play(environment, case.task, case.seed, case.actions))

    episodes = tuple(await asyncio.gather(*map(play, cases)))
    names = Counter(episode.name for episode in episodes)
    if not episodes or max(names.values()) > 1:
        twice = ", ".join(name for name, count in names.items() if count > 1)
        raise GoldenError(f"every case has a name of its own; these have not: {twice or 'there is no case'}")
    return GoldenSet(episodes)


def difference(golden: GoldenSet, recorded: GoldenSet) -> str | None:
    """Say in words where two golden sets first differ, or return None."""
    for old, new in zip(golden.episodes, recorded.episodes, strict=False):
        if old.name != new.name:
            return f"episode {old.name!r} of the file is {new.name!r} in the new recording"
        found = first_difference(old.transcript, new.transcript)
        if found is not None:
            return f"episode {old.name!r} (left is the file, right the new recording): {found}"
    counts = len(golden.episodes), len(recorded.episodes)
    if counts[0] != counts[1]:
        return f"the file holds {counts[0]} episodes, the new recording {counts[1]}"
    return None


async def _play(environment: Environment[Any], task: str, seed: int, actions: Iterable[Action]) -> Transcript:
    episode = await Episode.open_async(environment, task, seed=seed)
    prompt = episode.prompt
    steps = [TranscriptStep(action, await episode.step_async(action)) for action in actions]
    await episode.close_async()
    return Transcript(
        environment=environment.name,
        version=environment.version,
        task=task,
        seed=seed,
        prompt=prompt,
        tools=tuple(tool.spec for tool in environment.tools),
        steps=tuple(steps),
    )


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _checked(number: int, line: str, read: Any) -> Any:
    try:
        return read(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise GoldenError(f"line {number}: {reason}") from error


def _heading(value: dict[str, Any]) -> dict[str, Any]:
    return {
        "environment": str(value["environment"]),
        "version": str(value["version"]),
        "prompt": _prompt(value),
        "tools": tuple(spec_from_json(tool) for tool in value["tools"]),
    }


def _row(value: dict[str, Any]) -> dict[str, Any] | TranscriptStep:
    if "episode" not in value:
        return TranscriptStep(action_from_json(value["action"]), result_from_json(value["result"]))
    row: dict[str, Any] = {"name": value["episode"], "task": value["task"], "seed": value["seed"]}
    if "prompt" in value:
        row["prompt"] = _prompt(value)
    return row


def _prompt(value: dict[str, Any]) -> tuple[Message, ...]:
    return tuple(message_from_json(message) for message in value["prompt"])


def cases_of(golden: GoldenSet) -> Iterator[Case]:
    """Yield what the episodes of a golden set are made of, without what they led to."""
    for name, transcript in golden.episodes:
        yield Case(name, transcript.task, transcript.seed, [step.action for step in transcript.steps])
