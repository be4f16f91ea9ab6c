"""Scenarios: what conformance plays, from files and from a seeded fuzzer, with every action spelled out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from canonical.dialect import TextForm, write_calls
from canonical.environment import Environment, NoOracleError
from canonical.malformed import first_problem
from canonical.sampling import random_call
from canonical.task import Task
from canonical.tool import ToolCall
from canonical.transcript import Action, action_from_json

GENERAL = Path(__file__).parent / "scenarios.yaml"


class ScenarioError(ValueError):
    """Report a scenario file that cannot be used: the file, the scenario, the reason."""


class Operation(NamedTuple):
    """Hold one thing to do in one session; `action` belongs to `step` only."""

    kind: Literal["open", "step", "expose", "close"]
    session: str
    action: Action | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Name a task as frameworks with data sets do: by the place in its split; without an index, the seed decides it."""

    split: str
    index: int | None


@dataclass(frozen=True, slots=True)
class Scenario:
    """Hold what to play, and the promise that it tests.

    Attributes:
        name: Short name.
        promise: What must hold.
        sessions: Session name -> task id and seed.
        rounds: Groups of operations; those of one group are under way at the same time.
        tool_seconds: How long each tool works, in seconds, so that operations really overlap.
        places: Session name -> place at which its task is opened, in place of the id, where the framework can be told.
    """

    name: str
    promise: str
    sessions: dict[str, tuple[str, int]]
    rounds: list[list[Operation]]
    tool_seconds: float = 0.0
    places: Mapping[str, Place] = field(default_factory=dict)


class _SessionRow(BaseModel):
    model_config = ConfigDict(extra="forbid")
    task: int
    seed: int


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    promise: str
    sessions: dict[str, _SessionRow] = Field(min_length=1)
    operations: list[list[Any]] = Field(min_length=1)
    tool_seconds: float = Field(default=0.0, ge=0.0)


def load_scenarios(path: Path, environment: Environment[Any]) -> list[Scenario]:
    """Read a scenario file and spell its actions out for an environment.

    Scenarios whose symbols the environment cannot fill (an oracle that it does not have) are left out.

    Raises:
        ScenarioError: The file is malformed.
    """
    try:
        rows = yaml.safe_load(path.read_text(encoding="utf-8"))
        scenarios = [_Row.model_validate(row) for row in rows]
    except (OSError, yaml.YAMLError, TypeError) as error:
        raise ScenarioError(f"{path}: {error}") from error
    except ValidationError as error:
        raise ScenarioError(f"{path}: {first_problem(error)}") from error
    spelled = []
    for row in scenarios:
        try:
            spelled.append(_spell(row, environment))
        except NoOracleError:
            continue
        except ScenarioError as error:
            raise ScenarioError(f"{path}: scenario {row.name!r}: {error}") from error
    return spelled


def _spell(row: _Row, environment: Environment[Any]) -> Scenario:
    tasks = list(environment.tasks())
    sessions = {name: (tasks[value.task % len(tasks)].id, value.seed) for name, value in row.sessions.items()}
    speller = _Speller(environment, sessions, random.Random(row.name))  # noqa: S311 - reproducible on purpose
    rounds: list[list[Operation]] = []
    for entry in row.operations:
        if entry[0] == "together":
            # Each operation of a group must be a single one, or they would not be under way together.
            group = [list(speller.spell(inner)) for inner in entry[1:]]
            rounds.extend(
                [operation for operations in group for operation in operations[:1]] for _ in range(1)
            )
            rounds.extend([operation] for operations in group for operation in operations[1:])
        else:
            rounds.extend([operation] for operation in speller.spell(entry))
    return Scenario(row.name, row.promise, sessions, rounds, row.tool_seconds)


@dataclass(frozen=True, slots=True)
class _Speller:
    environment: Environment[Any]
    sessions: dict[str, tuple[str, int]]
    rng: random.Random

    def spell(self, entry: Sequence[Any]) -> Iterator[Operation]:
        match entry:
            case ["open" | "expose" | "close" as kind, str(session)] if session in self.sessions:
                yield Operation(kind, session)
            case ["step", str(session), action] if session in self.sessions:
                task = self.environment.tasks().get(self.sessions[session][0])
                for spelled in self._actions(action, task):
                    yield Operation("step", session, spelled)
            case _:
                raise ScenarioError(f"{entry!r} is no operation on a session of this scenario")

    def _actions(self, action: Any, task: Task) -> Iterator[Action]:
        if not (isinstance(action, str) and action.startswith("$")):
            try:
                yield action_from_json(action)
            except ValueError as error:
                raise ScenarioError(f"{action!r}: {error}") from error
            return
        symbol, _, count = action[1:].partition("*")
        longest = self.environment.max_turns + self.environment.free_errors
        for _ in range(longest + 2 if count == "max" else int(count or 1)):
            yield from make_actions(symbol, self.environment, task, self.rng)


def make_actions(
    symbol: str, environment: Environment[Any], task: Task, rng: random.Random
) -> tuple[Action, ...]:
    """Return the actions that a symbol of a scenario file stands for.

    Raises:
        ScenarioError: There is no such symbol.
        NoOracleError: The environment does not know a solution.
    """

    def call() -> ToolCall:
        return random_call(environment, task, rng)

    match symbol:
        case "oracle":
            return tuple(environment.oracle(task))
        case "random":
            return (call(),)
        case "unknown":
            return (ToolCall(rng.choice(("no_such_tool", "Guess", "tool", "__init__", "start")), {}),)
        case "no-arguments":
            return (ToolCall(call().name, {}),)
        case "extra":
            made = call()
            return (ToolCall(made.name, {**made.arguments, "surplus": 1}),)
        case "wrong-types":
            made = call()
            return (ToolCall(made.name, {key: [{"nested": None}] for key in made.arguments}),)
        case "as-text":
            return (write_calls([call()], rng.choice(tuple(TextForm))),)
        case "long-echo":
            return (ToolCall("echo", {"text": "".join(rng.choices(_LONG_ALPHABET, k=_LONG))}),)
        case "two-as-text":
            return (write_calls([call(), call()], TextForm.HERMES),)
        case _:
            raise ScenarioError(f"there is no symbol ${symbol}")


_LONG = 100_000
_LONG_ALPHABET = 'ab \n\t{}"\\\u00e9\u4f60\U0001f9e9'

_FUZZ_WEIGHTS = {
    "random": 52, "oracle": 4, "unknown": 5, "no-arguments": 5, "extra": 4, "wrong-types": 4, "as-text": 8,
    "two-as-text": 3, "odd-text": 5, "odd-call": 10,
}  # fmt: skip
_ODD_PIECES = (
    "", " ", "\u0000", "\u00e9", "e\u0301", "\u4f60\u597d", "\u0627\u0644", "\U0001f9e9", "\u202e", "\u2028", "\ufeff",
    "<tool_call>", "</tool_call>", "{", "}", '"', "\\", "\\u0000", "\n", "\r\n", "\t", "null", "NaN", "1e999", "-0",
    "reset", "close", "state", "verify", "seed_session", "../..", "x" * 200, "{'a': 1}", "<script>", "%s%n", "${HOME}",
)  # fmt: skip


_SEED_BITS = (4, 16, 31, 32, 53, 63, 64, 100)
"""Widths of seeds: those that something between a trainer and an environment may cut a number down to, and beyond."""


def any_seed(rng: random.Random) -> int:
    """Return a seed: small or large, a tenth of them negative. Every integer is one."""
    seed = rng.getrandbits(rng.choice(_SEED_BITS))
    return -seed if rng.random() < 0.1 else seed


def place_scenarios(environment: Environment[Any]) -> Iterator[Scenario]:
    """Yield scenarios that open tasks at places of every split: its ends, its middle and anywhere, with all kinds of seeds.

    A listing may be right, and what is opened at its places another task. Where episodes are dear, fewer places are
    opened, and the first one alone is played to its end.
    """
    tasks = environment.tasks()
    for split in tasks.splits:
        within = tasks.split(split)
        rng = random.Random(f"places of {split}")  # noqa: S311 - reproducible on purpose
        count = len(within)
        chosen = [(count // 2, 2**32 - 5), (count - 1, -3)]
        if not environment.dear:
            chosen += [(0, 0), (1, 1), (rng.randrange(count), 10**30)]
        for number, (place, seed) in enumerate(chosen):
            index = place % count
            # Where the seed decides, it is the one below that leads to the same place.
            sessions = {"a": (within[index].id, seed), "b": (within[index].id, seed - (seed - index) % count)}
            rounds: list[list[Operation]] = []
            for name, (task, _) in sessions.items():
                actions = _some_actions(environment, tasks.get(task), rng)
                if environment.dear and (number, name) != (0, "a"):
                    actions = actions[:1]
                operations = (Operation("open", name), *(Operation("step", name, a) for a in actions))
                rounds += [[operation] for operation in (*operations, Operation("close", name))]
            yield Scenario(
                f"place {index} of {split}",
                "A place in a split names the task that the listing has there.",
                sessions,
                rounds,
                places={"a": Place(split, index), "b": Place(split, None)},
            )


def _some_actions(environment: Environment[Any], task: Task, rng: random.Random) -> tuple[Action, ...]:
    try:
        return make_actions("oracle", environment, task, rng)
    except NoOracleError:
        return make_actions("random", environment, task, rng) * 2


@dataclass(slots=True)
class Fuzzer:
    """Make an endless, seeded stream of scenarios: up to four interleaved sessions, odd actions, early closes.

    Attributes:
        environment: The environment to play.
        seed: Decides everything; scenario i is the same whatever came before it.
        draw_seed: Draws the seed of an episode.
    """

    environment: Environment[Any]
    seed: int
    draw_seed: Callable[[random.Random], int] = any_seed
    _tasks: list[Task] = field(init=False)
    _has_oracle: bool = field(init=False)

    def __post_init__(self) -> None:
        self._tasks = list(self.environment.tasks())
        try:
            tuple(self.environment.oracle(self._tasks[0]))
            self._has_oracle = True
        except NoOracleError:
            self._has_oracle = False

    def scenario(self, index: int) -> Scenario:
        """Return scenario number `index`."""
        rng = random.Random(f"{self.seed}/{index}")  # noqa: S311 - reproducible on purpose
        names = "abcd"[: rng.choice((1, 1, 2, 2, 3, 4))]
        sessions = {name: (rng.choice(self._tasks).id, self.draw_seed(rng)) for name in names}
        longest = self.environment.max_turns + self.environment.free_errors
        lines: list[list[Operation]] = []
        for name in names:
            task = self.environment.tasks().get(sessions[name][0])
            line = [Operation("open", name)]
            for _ in range(rng.randint(0, longest + 3)):
                line.extend(Operation("step", name, action) for action in self._actions(task, rng))
            if rng.random() < 0.2:
                line.insert(rng.randint(1, len(line)), Operation("expose", name))
            line.append(Operation("close", name))
            lines.append(line)
        rounds: list[list[Operation]] = []
        while lines:
            width = rng.randint(1, len(lines)) if rng.random() < 0.3 else 1
            chosen = rng.sample(range(len(lines)), width)
            rounds.append([lines[place].pop(0) for place in chosen])
            lines = [line for line in lines if line]
        return Scenario(
            f"fuzz-{self.seed}-{index}", "Any actions lead to the reference's answers.", sessions, rounds
        )

    def _actions(self, task: Task, rng: random.Random) -> tuple[Action, ...]:
        symbol = rng.choices(tuple(_FUZZ_WEIGHTS), tuple(_FUZZ_WEIGHTS.values()))[0]
        if symbol == "oracle" and not self._has_oracle:
            symbol = "random"
        if symbol == "odd-text":
            return (self._odd_text(rng),)
        if symbol == "odd-call":
            made = random_call(self.environment, task, rng)
            name = made.name if rng.random() < 0.7 else self._odd_text(rng)
            keys = [key if rng.random() < 0.8 else self._odd_text(rng) for key in made.arguments]
            return (ToolCall(name, {key: self._odd_value(rng) for key in keys}),)
        return make_actions(symbol, self.environment, task, rng)

    def _odd_text(self, rng: random.Random) -> str:
        return "".join(rng.choice(_ODD_PIECES) for _ in range(rng.randint(0, 4)))

    def _odd_value(self, rng: random.Random) -> Any:
        match rng.randrange(9):
            case 0:
                return None
            case 1:
                return rng.choice((0, -1, 10**30, 2**53 + 1, True))
            case 2:
                return rng.choice((0.1, -0.0, 1e300))
            case 3:
                return []
            case 4:
                return {"deep": [[[[self._odd_text(rng)]]]]}
            case 5:
                return [self._odd_text(rng)] * 3
            case _:
                return self._odd_text(rng)
