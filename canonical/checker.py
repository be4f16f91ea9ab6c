"""The self-check of an environment: which promises it keeps, and the smallest example of each that it breaks."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from inspect import iscoroutinefunction
from itertools import cycle, islice
from typing import Any, NamedTuple, TypeAlias

from canonical.content import ErrorCode, Image, Message
from canonical.dialect import TextForm, write_calls
from canonical.environment import Environment, NoOracleError
from canonical.episode import Episode, Snapshot, SnapshotError, StartError
from canonical.reward import OutcomeError, RewardSpec, Rubric, ScoringError, finish
from canonical.sampling import random_call, sample_call
from canonical.sandbox.protocol import BackendUnavailableError
from canonical.spelling import Secret
from canonical.step import Cause, StepResult
from canonical.task import Task, TaskSet
from canonical.tool import ToolCall, ToolDefinitionError
from canonical.transcript import Action, Difference, Transcript, TranscriptStep, first_difference


class Promise(StrEnum):
    """Name what every environment promises to those who train with it, in the order in which it is checked."""

    DEFINITION = "definition"
    TASKS = "tasks"
    TOOLS = "tools"
    START = "start"
    PROMPT = "prompt"
    RANDOMNESS = "randomness"
    DETERMINISM = "determinism"
    ISOLATION = "isolation"
    ENDINGS = "endings"
    REWARD = "reward"
    ORACLE = "oracle"
    SECRETS = "secrets"
    ERRORS = "errors"
    EXCEPTIONS = "exceptions"
    SNAPSHOT = "snapshot"
    CLOSE = "close"


_KEPT = {
    Promise.DEFINITION: "name, version, turns, reward and rubric are declared",
    Promise.TASKS: "every call of tasks gives the same tasks",
    Promise.TOOLS: "every tool and every argument has a type and a description",
    Promise.START: "start depends on the task and the seed alone",
    Promise.PROMPT: "the prompt is not empty, and reading it changes nothing",
    Promise.RANDOMNESS: "the global random generator is left alone",
    Promise.DETERMINISM: "the same task, seed and actions give the same transcript",
    Promise.ISOLATION: "sessions that run at the same time do not disturb each other",
    Promise.ENDINGS: "every episode ends within its turns and free errors, and stays ended",
    Promise.REWARD: "every reward is a finite number, and every return lies in the declared range",
    Promise.ORACLE: "the oracle reaches the top of the declared range",
    Promise.SECRETS: "no secret of a task is shown before the end",
    Promise.ERRORS: "unknown tools, bad arguments and unreadable text are answered, pay nothing and change nothing",
    Promise.EXCEPTIONS: "tools and rules raise nothing but ToolError",
    Promise.SNAPSHOT: "an episode that is stored and restored goes on as before",
    Promise.CLOSE: "an episode can be closed at any time, and twice",
}


class Outcome(StrEnum):
    """Say whether a promise is kept or broken, does not apply to this environment, or could not be checked."""

    PASSED = "passed"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"
    UNCHECKED = "unchecked"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Hold what was found about one promise.

    Attributes:
        promise: The promise.
        outcome: Whether it is kept.
        sentence: What is promised, what is broken, or why it does not apply or was not checked.
        example: The smallest example of a broken promise that was found, as lines of transcripts; two of them when the
            promise is that two plays are equal.
    """

    promise: Promise
    outcome: Outcome
    sentence: str
    example: tuple[str, ...] = ()


_WORDS = {
    Outcome.PASSED: "kept",
    Outcome.FAILED: "BROKEN",
    Outcome.UNSUPPORTED: "does not apply",
    Outcome.UNCHECKED: "not checked",
}
_ALWAYS_COUNTED = (Outcome.PASSED, Outcome.FAILED)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Hold what `check_environment` found: one result for each promise."""

    environment: str
    version: str
    episodes: int
    seed: int
    results: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        """Whether no promise is broken."""
        return not self.broken

    @property
    def broken(self) -> tuple[CheckResult, ...]:
        """The results of the broken promises."""
        return tuple(result for result in self.results if result.outcome is Outcome.FAILED)

    def render(self) -> str:
        """Return the report as text, with the smallest example of each broken promise."""
        numbers = Counter(result.outcome for result in self.results)
        counts = ", ".join(
            f"{numbers[outcome]} {word.lower()}"
            for outcome, word in _WORDS.items()
            if numbers[outcome] or outcome in _ALWAYS_COUNTED
        )
        title = f"{self.environment} (version {self.version}): {counts}; {self.episodes} episodes, seed {self.seed}"
        lines = [title, ""]
        for result in self.results:
            lines.append(f"{_WORDS[result.outcome]:<14}  {result.promise:<11}  {result.sentence}")
            for number, line in enumerate(result.example, start=1):
                label = f" {number} of {len(result.example)}" if len(result.example) > 1 else ""
                lines.extend(f"    {row}" for row in _rows(Transcript.from_line(line), label))
        return "\n".join(lines)


EPISODES, DEAR_EPISODES = 50, 3
"""How many episodes a check plans, and how many where episodes are dear: one of each kind of actions."""

OnPromise: TypeAlias = Callable[[Promise, int], None]
"""Hears which promise is being checked, and on how many episodes that was done."""


def planned_episodes(environment: Environment[Any]) -> int:
    """Return how many episodes a check plans when nobody says how many."""
    return DEAR_EPISODES if getattr(environment, "dear", False) else EPISODES


def check_environment(
    environment: Environment[Any],
    *,
    episodes: int | None = None,
    seed: int = 0,
    on_promise: OnPromise = lambda _promise, _done: None,
) -> CheckReport:
    """Check the promises of an environment by playing episodes. For authors, and for tests.

    The same arguments give the same report, unless the environment itself behaves differently. The time grows with
    `episodes` and with the turns of an episode.

    Args:
        environment: The environment.
        episodes: How many episodes to plan; every promise is checked on each of them. As many as `planned_episodes` says
            when left out.
        seed: The seed of the plans.
        on_promise: Hears how far the check has come.

    Raises:
        ValueError: There is no episode to play.
        BackendUnavailableError: The sandboxes that its episodes need cannot be used here.
        RuntimeError: The environment waits, and an event loop is already running; await `check_environment_async`.
    """
    if not _waits(environment):
        return finish(
            check_environment_async(environment, episodes=episodes, seed=seed, on_promise=on_promise)
        )
    if _loop_is_running():
        raise RuntimeError(
            "the environment waits, and an event loop is running; await check_environment_async instead"
        )
    return asyncio.run(
        check_environment_async(environment, episodes=episodes, seed=seed, on_promise=on_promise)
    )


async def check_environment_async(
    environment: Environment[Any],
    *,
    episodes: int | None = None,
    seed: int = 0,
    on_promise: OnPromise = lambda _promise, _done: None,
) -> CheckReport:
    """Check the promises of an environment from inside a running event loop; see `check_environment`."""
    episodes = planned_episodes(environment) if episodes is None else episodes
    if episodes < 1:
        raise ValueError(f"a check needs at least one episode, not {episodes}")
    before = random.getstate()
    try:
        results = await _check(environment, episodes, seed, on_promise)
    finally:
        random.setstate(before)
    name, version = (str(getattr(environment, key, "?")) for key in ("name", "version"))
    return CheckReport(name, version, episodes, seed, tuple(results))


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _waits(environment: Environment[Any]) -> bool:
    try:
        tools = environment.tools
    except ToolDefinitionError:
        tools = ()
    return (
        any(iscoroutinefunction(method) for method in (environment.start, environment.close))
        or any(tool.is_async for tool in tools)
        or bool(getattr(getattr(environment, "rubric", None), "is_async", False))
    )


class _Finding(NamedTuple):
    """Hold what breaks a promise, with the transcripts that show it."""

    sentence: str
    example: tuple[Transcript, ...] = ()


@dataclass(frozen=True, slots=True)
class _Plan:
    """Hold an episode to play.

    Attributes:
        task: The task.
        seed: The seed of the episode.
        actions: The actions.
        pause: Before which action something may happen: a snapshot, mistakes, an early end.
        turns: After how many actions the episode must have ended.
        other: Another plan, played beside this one.
        controls: Tasks with other secrets, to tell a secret from words that every task shows.
    """

    task: Task
    seed: int
    actions: tuple[Action, ...]
    pause: int
    turns: int
    other: _Plan | None = None
    controls: tuple[Task, ...] = ()

    def without(self, start: int, count: int) -> _Plan:
        """Return the plan without some of its actions; the pause stays where it was among the rest."""
        dropped = sum(index < self.pause for index in range(start, min(start + count, len(self.actions))))
        actions = self.actions[:start] + self.actions[start + count :]
        return replace(self, actions=actions, pause=self.pause - dropped)


_Examine: TypeAlias = Callable[[Environment[Any], _Plan], Awaitable[_Finding | None]]


class _UnsupportedError(Exception):
    """Report that a promise does not apply, and why."""


async def _check(
    environment: Environment[Any], episodes: int, seed: int, on_promise: OnPromise
) -> list[CheckResult]:
    results: list[CheckResult] = []
    for promise, inspect in (
        (Promise.DEFINITION, _definition),
        (Promise.TASKS, _tasks),
        (Promise.TOOLS, _tools),
    ):
        fault = inspect(environment)
        results.append(_result(promise, None if fault is None else _Finding(fault.sentence)))
        if fault is not None and fault.is_fatal:
            reason = f"the promise about {promise} is broken"
            checked = {result.promise for result in results}
            left = [other for other in Promise if other not in checked]
            return [*results, *(CheckResult(other, Outcome.UNCHECKED, reason) for other in left)]
    plans, hint = _plan(environment, environment.tasks(), episodes, random.Random(f"check {seed}"))  # noqa: S311
    flawed = await _flaws(environment, plans)
    if flawed is not None:
        # An episode of such a task shows little, and may cost the time of every hidden test that does not end.
        reason = "a task must be repaired first: see oracle"
        unchecked = {other: CheckResult(other, Outcome.UNCHECKED, reason) for other in _EXAMINATIONS}
        return [*results, *{**unchecked, Promise.ORACLE: flawed}.values()]
    for promise, examine in _EXAMINATIONS.items():
        result = await _examine_all(environment, promise, examine, plans, on_promise)
        if promise is Promise.SECRETS and result.outcome is Outcome.PASSED:
            result = _searched(plans)
        results.append(hint if hint is not None and promise is hint.promise else result)
    return results


def _result(promise: Promise, finding: _Finding | None) -> CheckResult:
    if finding is None:
        return CheckResult(promise, Outcome.PASSED, _KEPT[promise])
    example = tuple(transcript.to_line() for transcript in finding.example)
    return CheckResult(promise, Outcome.FAILED, finding.sentence, example)


async def _flaws(environment: Environment[Any], plans: list[_Plan]) -> CheckResult | None:
    """Return the flaws that an environment finds in the tasks that are planned, or None."""
    found: list[str] = []
    for task in {plan.task.id: plan.task for plan in plans}.values():
        try:
            found += [f"task {task.id!r}: {flaw}" for flaw in await environment.flaws(task)]
        except BackendUnavailableError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the author is told of whatever it is
            found.append(f"task {task.id!r}: flaws failed: {_describe(error)}")
    if not found:
        return None
    lines = "".join(f"\n    {line}" for line in found)
    return CheckResult(
        Promise.ORACLE, Outcome.FAILED, f"known solutions are not paid as they must be:{lines}"
    )


async def _examine_all(
    environment: Environment[Any],
    promise: Promise,
    examine: _Examine,
    plans: list[_Plan],
    on_promise: OnPromise,
) -> CheckResult:
    played = 0
    for number, plan in enumerate(plans):
        on_promise(promise, number)
        try:
            finding = await examine(environment, plan)
        except StartError as error:
            if isinstance(error.failure, BackendUnavailableError):
                raise error.failure from error
            continue
        except _UnsupportedError as reason:
            return CheckResult(promise, Outcome.UNSUPPORTED, str(reason))
        played += 1
        if finding is not None:
            if promise is Promise.ORACLE:  # which plays none of the actions that could be left out
                return _result(promise, finding)
            return _result(promise, await _shrink(environment, examine, plan, finding))
    on_promise(promise, len(plans))
    if not played:
        return CheckResult(promise, Outcome.UNCHECKED, "no episode could be started")
    return _result(promise, None)


async def _shrink(
    environment: Environment[Any], examine: _Examine, plan: _Plan, finding: _Finding
) -> _Finding:
    """Return the finding about the shortest plan that is reached by dropping actions while the promise stays broken."""
    size = max(len(plan.actions) // 2, 1)
    while True:
        length, start = len(plan.actions), 0
        while start < len(plan.actions):
            shorter = plan.without(start, size)
            try:
                found = await examine(environment, shorter)
            except (StartError, _UnsupportedError):
                found = None
            if found is None:
                start += size
            else:
                plan, finding = shorter, found
        if size == 1 and len(plan.actions) == length:
            return finding
        size = max(size // 2, 1)


# --- What can be seen without playing


class _Fault(NamedTuple):
    sentence: str
    is_fatal: bool


def _definition(environment: Environment[Any]) -> _Fault | None:
    wanted: dict[str, tuple[Callable[[Any], bool], str]] = {
        "name": (
            _is_identifier,
            "a text of lower-case letters, digits and underscores that begins with a letter",
        ),
        "version": (lambda value: isinstance(value, str) and bool(value), "a text that is not empty"),
        "max_turns": (lambda value: type(value) is int and value >= 1, "an integer of at least 1"),
        "free_errors": (lambda value: type(value) is int and value >= 0, "an integer of at least 0"),
        "reward": (lambda value: isinstance(value, RewardSpec), "a RewardSpec"),
        "rubric": (lambda value: isinstance(value, Rubric), "a Rubric"),
    }
    for key, (holds, words) in wanted.items():
        value = getattr(environment, key, None)
        if not holds(value):
            given = "is missing" if value is None else f"is {value!r:.60}"
            return _Fault(
                f"{key} must be {words}; it {given}", is_fatal=not (key == "name" and isinstance(value, str))
            )
    return None


def _is_identifier(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[a-z][a-z0-9_]*", value) is not None


def _tasks(environment: Environment[Any]) -> _Fault | None:
    try:
        given: list[Any] = [environment.tasks(), environment.tasks()]
        for one in given:
            if not isinstance(one, TaskSet):
                return _Fault(
                    f"tasks must return a TaskSet; it returned a {type(one).__name__}", is_fatal=True
                )
        first, second = given
        for one, other in zip(first, second, strict=False):
            if one != other:
                what = "ids" if one.id != other.id else "contents"
                return _Fault(f"two calls of tasks differ: the {what} of task {one.id!r}", is_fatal=False)
        if len(first) != len(second):
            return _Fault(
                f"two calls of tasks differ: {len(first)} tasks, then {len(second)}", is_fatal=False
            )
        if first.sha256 != second.sha256:
            return _Fault("two calls of tasks differ: the files of a bundle", is_fatal=False)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the author is told of whatever it is
        return _Fault(f"tasks failed: {_describe(error)}", is_fatal=True)
    return None


def _tools(environment: Environment[Any]) -> _Fault | None:
    try:
        tools = environment.tools
    except ToolDefinitionError as error:
        return _Fault(str(error), is_fatal=True)
    if not tools:
        return _Fault(
            "there is no tool, so the agent can do nothing; mark a method with @tool", is_fatal=True
        )
    for tool in tools:
        properties: Any = tool.spec.parameters.get("properties", {})
        for name, schema in properties.items():
            if not schema.get("description"):
                return _Fault(
                    f"argument {name!r} of tool {tool.name} has no description; describe it under Args: in the docstring",
                    is_fatal=False,
                )
    return None


# --- Plans

_LATER = 3
_LONGEST = 100


def _plan(
    environment: Environment[Any], tasks: TaskSet, episodes: int, rng: random.Random
) -> tuple[list[_Plan], CheckResult | None]:
    """Return the plans, and what is wrong with the hints that an environment gives for making them."""
    listed = list(tasks)
    chosen = (
        rng.sample(listed, episodes) if episodes <= len(listed) else list(islice(cycle(listed), episodes))
    )
    turns = environment.max_turns + environment.free_errors
    plans: list[_Plan] = []
    fault: CheckResult | None = None
    for index, task in enumerate(chosen):
        hinted = fault is None
        try:
            actions = _actions(environment, task, rng, turns + _LATER, kind=index % 3, hinted=hinted)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the author is told of whatever it is
            sentence = f"random_call failed: {_describe(error)}"
            fault = CheckResult(Promise.EXCEPTIONS, Outcome.FAILED, sentence)
            actions = _actions(environment, task, rng, turns + _LATER, kind=index % 3, hinted=False)
        pause = rng.randint(0, min(turns - 1, _LONGEST))
        controls = _controls(task, listed, rng)
        plans.append(_Plan(task, rng.randrange(2**32), tuple(actions), pause, turns, controls=controls))
    return [replace(plan, other=plans[(index + 1) % len(plans)]) for index, plan in enumerate(plans)], fault


def _controls(task: Task, listed: list[Task], rng: random.Random) -> tuple[Task, ...]:
    return tuple(other for other in rng.sample(listed, min(4, len(listed))) if other.id != task.id)


def _actions(
    environment: Environment[Any], task: Task, rng: random.Random, length: int, *, kind: int, hinted: bool
) -> list[Action]:
    """Return good calls (kind 0), good calls with mistakes and texts among them (1), or a part of the oracle first (2)."""
    specs = [tool.spec for tool in environment.tools]

    def good() -> ToolCall:
        return random_call(environment, task, rng) if hinted else sample_call(specs, rng)

    def any_action() -> Action:
        dice = rng.random()
        if kind != 1 or dice < 0.6:
            return good()
        if dice < 0.7:
            return write_calls([good() for _ in range(rng.randint(1, 3))], rng.choice(list(TextForm)))
        return rng.choice(_mistakes(environment, rng)).action

    actions: list[Action] = []
    if kind == 2:
        calls = _oracle_calls(environment, task) or []
        actions.extend(calls[: rng.randint(0, len(calls))])
    actions.extend(any_action() for _ in range(length - len(actions)))
    return actions


def _oracle_calls(environment: Environment[Any], task: Task) -> list[ToolCall] | None:
    try:
        return list(environment.oracle(task))
    except (Exception, SystemExit):  # noqa: BLE001 - reported by the promise about the oracle
        return None


class _Mistake(NamedTuple):
    action: Action
    code: ErrorCode
    name: str


def _mistakes(environment: Environment[Any], rng: random.Random) -> list[_Mistake]:
    tools = environment.tools
    tool = rng.choice(tools)
    unknown = next(name for name in _names("no_such_tool") if all(name != other.name for other in tools))
    properties: Any = tool.spec.parameters.get("properties", {})
    extra = next(name for name in _names("no_such_argument") if name not in properties)
    return [
        _Mistake(ToolCall(unknown, {}), ErrorCode.UNKNOWN_TOOL, "an unknown tool"),
        _Mistake(
            ToolCall(tool.name, {extra: 1}), ErrorCode.INVALID_ARGUMENTS, f"a bad argument of {tool.name}"
        ),
        _Mistake("I am thinking.", ErrorCode.UNPARSABLE, "a text without a call"),
    ]


def _names(stem: str) -> Iterator[str]:
    yield stem
    yield from (f"{stem}_{number}" for number in range(2, 1000))


# --- Playing


class _Session:
    """Play one episode and keep what can be seen of it."""

    def __init__(self, episode: Episode[Any]) -> None:
        self.episode = episode
        self.steps: list[TranscriptStep] = []
        self.trouble: BaseException | None = None
        self.stopped_at: Action | None = None
        self.log: list[str] = []

    async def step(self, action: Action) -> StepResult | None:
        """Carry out an action; None when the environment failed and has ended the episode."""
        try:
            result = await self.episode.step_async(action)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - reported by the promise that it breaks
            self.trouble, self.stopped_at = error, action
            return None
        self.steps.append(TranscriptStep(action, result))
        return result

    async def play(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if await self.step(action) is None:
                return

    @property
    def moment(self) -> str:
        """The action at which the environment failed, as the end of a sentence; such an action has no result to show."""
        return (
            ""
            if self.stopped_at is None
            else f", at action {len(self.steps) + 1}: {_action_row(self.stopped_at)}"
        )

    @property
    def transcript(self) -> Transcript:
        environment = self.episode.environment
        return Transcript(
            environment=environment.name,
            version=environment.version,
            task=self.episode.task.id,
            seed=self.episode.seed,
            prompt=self.episode.prompt,
            tools=tuple(tool.spec for tool in environment.tools),
            steps=tuple(self.steps),
        )

    @property
    def state(self) -> str | None:
        """The episode as text, or None when its state is not plain data."""
        try:
            return self.episode.snapshot().to_json()
        except SnapshotError:
            return None


@asynccontextmanager
async def _opened(environment: Environment[Any], task: Task, seed: int) -> AsyncIterator[_Session]:
    with _logged() as log:
        episode = await Episode.open_async(environment, task, seed=seed)
        session = _Session(episode)
        session.log = log
        try:
            yield session
        finally:
            with suppress(Exception, SystemExit):  # reported by the promise about closing
                await episode.close_async()


class _Listener(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextmanager
def _logged() -> Iterator[list[str]]:
    lines: list[str] = []
    root, listener = logging.getLogger(), _Listener(lines)
    root.addHandler(listener)
    try:
        yield lines
    finally:
        root.removeHandler(listener)


def _describe(error: BaseException) -> str:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = "" if frame is None else f" at {frame.tb_frame.f_code.co_qualname}:{frame.tb_lineno}"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{place}{f': {text:.200}' if text else ''}"


# --- The examinations: each returns what breaks its promise in one plan, and leaves to the others what is theirs


async def _start(environment: Environment[Any], plan: _Plan) -> _Finding | None:
    other = plan.other or plan
    try:
        before = await _begin(environment, plan)
        try:
            async with _opened(environment, other.task, other.seed) as between:
                await between.play(other.actions[: min(plan.pause, len(plan.actions))])
                after = await _begin(environment, plan)
        except StartError:  # perhaps of the other task, which has a plan of its own
            after = await _begin(environment, plan)
    except StartError as error:
        if error.part != "start":
            raise
        return _Finding(f"start failed for task {plan.task.id!r}: {_describe(error.failure)}")
    if before == after:
        return None
    what = "prompts" if before[0] != after[0] else "states"
    return _Finding(
        f"two starts of task {plan.task.id!r} with seed {plan.seed} gave two {what}", (before[0], after[0])
    )


async def _begin(environment: Environment[Any], plan: _Plan) -> tuple[Transcript, str | None]:
    async with _opened(environment, plan.task, plan.seed) as session:
        return session.transcript, session.state


async def _prompt(environment: Environment[Any], plan: _Plan) -> _Finding | None:
    try:
        async with _opened(environment, plan.task, plan.seed) as session:
            example = (session.transcript,)
            first, before = session.episode.prompt, session.state
            second = environment.opening(plan.task, session.episode.state)
            after = session.state
    except StartError as error:
        if error.part != "prompt":
            raise
        return _Finding(f"prompt failed for task {plan.task.id!r}: {_describe(error.failure)}")
    if not _prompt_text(first).strip() and not _pictures(first):
        return _Finding(f"the prompt of task {plan.task.id!r} is empty", example)
    if first != second:
        return _Finding(f"two readings of the prompt of task {plan.task.id!r} differ", example)
    if before != after:
        return _Finding(f"reading the prompt of task {plan.task.id!r} changes the state", example)
    return None


def _prompt_text(prompt: tuple[Message, ...]) -> str:
    return "\n".join(message.text for message in prompt)


async def _randomness(environment: Environment[Any], plan: _Plan) -> _Finding | None:
    random.seed(plan.seed)
    before = random.getstate()
    async with _opened(environment, plan.task, plan.seed) as session:
        if random.getstate() != before:
            where = "start or prompt uses the module random"
        else:
            await session.play(plan.actions[:_LONGEST])
            where = "a tool or a rule uses the module random"
        transcript = session.transcript
    if random.getstate() == before:
        return None
    return _Finding(f"{where} instead of the episode's own generator", (transcript,))


async def _determinism(environment: Environment[Any], plan: _Plan) -> _Finding | None:
    plays = []
    for _ in range(2):
        async with _opened(environment, plan.task, plan.seed) as session:
            begin = (session.episode.prompt, session.state)
            await session.play(plan.actions[:_LONGEST])
            plays.append((begin, session.transcript))
    if plays[0][0] != plays[1][0]:
        return None  # the starts differ already
    difference = first_difference(plays[0][1], plays[1][1])
    if difference is None:
        return None
    sentence = f"the same task, seed and actions gave two transcripts: {_parting(difference)}"
    return _Finding(sentence, (plays[0][1], plays[1][1]))


def _parting(difference: Difference) -> str:
    """Say where two transcripts part, with as much of both sides as a line can show."""
    place = "before the first action" if difference.step is None else f"at action {difference.step + 1}"
    sides = (difference.left, difference.right)
    same = next((i for i, (a, b) in enumerate(zip(*sides, strict=False)) if a != b), min(map(len, sides)))
    begin = max(same - 20, 0)
    one, other = (f"{'...' if begin else ''}{side[begin : same + 40]}" for side in sides)
    return f"{difference.piece} differs {place} ({one} / {other})"


async def _played_alone(environment: Environment[Any], plan: _Plan) -> Transcript | None:
    """Return the transcript of a plan, or None when two plays of it differ even without another session."""
    plays = []
    for _ in range(2):
        async with _opened(environment, plan.task, plan.seed) as session:
            await session.play(plan.actions[:_LONGEST])
            plays.append(session.transcript)
    return plays[0] if plays[0] == plays[1] else None


async def _isolation(environment: Environment[Any], plan: _Plan) -> _Finding | None:
    other = plan.other or plan
    alone = await _played_alone(environment, plan)
    if alone is None:
        return None
    async with (
        _opened(environment, plan.task, plan.seed) as mine,
        _opened(environment, other.task, other.seed) as theirs,
    ):
        beside: Iterator[Action] = iter(other.actions)
        for action in plan.actions[:_LONGEST]:
            following = next(beside, None)
            if following is not None:
                await theirs.step(following)
            if await mine.step(action) is None:
                break
    difference = first_difference(alone, mine.transcript)
    if difference is None:
        return None
    sentence = f"an episode went another way while a second one was played beside it: {_parting(difference)}"
    return _Finding(sentence, (alone, mine.transcript, theirs.transcript))


async def _endings(environment: Environment[Any], plan: _Plan) -> _Finding | None:
    async with _opened(environment, plan.task, plan.seed) as session:
        ended: StepResult | None = None
        for index, action in enumerate(plan.actions, start=1):
            result = await session.step(action)
            if result is None:
                return None  # the environment failed, which others report
            if ended is not None:
                is_over = result.observation.error is ErrorCode.EPISODE_OVER and result.cause is ended.cause
                if not is_over or result.reward != 0 or result.total != ended.total:
                    return _Finding(f"action {index} had an effect after the end", (session.transcript,))
            elif result.cause is not None:
                ended = result
            elif index >= plan.turns:
                sentence = f"after {index} actions the episode still goes on; it declared {plan.turns} turns and free errors"
                return _Finding(sentence, (session.transcript,))
    return None


async def _reward(environment: Environment[Any], plan: _Plan) -> _Finding | None:
    async with _opened(environment, plan.task, plan.seed) as session:
        await session.play(plan.actions[:_LONGEST])
        example = (session.transcript,)
        if isinstance(session.trouble, ScoringError) and not isinstance(session.trouble, OutcomeError):
            failure = session.episode.failure
            what = str(session.trouble) if failure is None else f"the rubric raised {_describe(failure)}"
            return _Finding(f"{what}{session.moment}", example)
        results = [step.result for step in session.steps]
        if any(not math.isfinite(number) for result in results for number in (result.reward, result.total)):
            return _Finding("a reward is not a finite number", example)
        if results:
            paid, total = math.fsum(result.reward for result in results), results[-1].total
            low, high = environment.reward.low, environment.reward.high
            slack = 1e-6 * max(1.0, abs(low), abs(high))
            if results[-1].cause is not None and not low - slack <= total <= high + slack:
                return _Finding(
                    f"the return {total!r} lies outside the declared range [{low}, {high}]", example
                )
            if abs(paid - total) > slack:
                return _Finding(f"the payments sum to {paid!r}, but the return is {total!r}", example)
    return None


async def _oracle(environment: Environment[Any], plan: _Plan) -> _Finding | None:
    try:
        calls = list(environment.oracle(plan.task))
    except NoOracleError:
        raise _UnsupportedError("the environment has no oracle") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the author is told of whatever it is
        return _Finding(f"oracle failed for task {plan.task.id!r}: {_describe(error)}")
    async with _opened(environment, plan.task, plan.seed) as session:
        await session.play(calls)
        total, cause = session.episode.total, session.episode.cause
        example = (session.transcript,)
    if session.trouble is not None:
        return None  # the environment failed, which others report
    high = environment.reward.high
    if cause is None:
        return _Finding(f"the calls of the oracle do not end the episode of task {plan.task.id!r}", example)
    if total < high - 1e-9 * max(1.0, abs(high)):
        return _Finding(f"the oracle reaches {total!r} of {high!r} in task {plan.task.id!r}", example)
    return None


async def _errors(environment: Environment[Any], plan: _Plan) -> _Finding | None:
    mistakes = _mistakes(environment, random.Random(plan.seed))  # noqa: S311 - reproducible
    async with _opened(environment, plan.task, plan.seed) as session:
        await session.play(plan.actions[: plan.pause])
        for mistake in mistakes:
            if session.episode.cause is not None:
                break
            before, failure = _inner_state(session), session.episode.failure
            result = await session.step(mistake.action)
            if result is None or session.episode.failure is not failure:
                return None  # an exception, which others report
            example = (session.transcript,)
            if result.observation.error is not mistake.code or not result.observation.text:
                return _Finding(
                    f"{mistake.name} is not answered with the code {mistake.code} and a text", example
                )
            if result.cause not in {None, Cause.BUDGET}:
                return _Finding(f"{mistake.name} ended the episode with cause {result.cause}", example)
            if result.reward != 0 and result.cause is None:
                return _Finding(f"{mistake.name} was paid {result.reward!r}", example)
            if _inner_state(session) != before:
                return _Finding(f"{mistake.name} changed the state", example)
        if session.episode.cause is not None:
            before = _inner_state(session)
            await session.step(plan.actions[0] if plan.actions else "I am thinking.")
            if _inner_state(session) != before:
                return _Finding("an action after the end changed the state", (session.transcript,))
    return None


def _inner_state(session: _Session) -> Any:
    text = session.state
    return None if text is None else json.loads(text)["state"]


async def _exceptions(environment: Environment[Any], plan: _Plan) -> _Finding | None:
    async with _opened(environment, plan.task, plan.seed) as session:
        for action in plan.actions[:_LONGEST]:
            result = await session.step(action)
            failure = session.episode.failure
            if isinstance(session.trouble, ScoringError) and not isinstance(session.trouble, OutcomeError):
                return None  # the rubric failed, which the promise about rewards reports
            if failure is not None:
                what = session.log[-1].partition(" of ")[0] if session.log else "a tool"
                return _Finding(f"{what} raised {_describe(failure)}{session.moment}", (session.transcript,))
            if result is None:
                error = session.trouble or RuntimeError("unknown")
                return _Finding(f"a step raised {_describe(error)}{session.moment}", (session.transcript,))
    return None


async def _snapshot(environment: Environment[Any], plan: _Plan) -> _Finding | None:
    actions = plan.actions[:_LONGEST]
    before, after = actions[: plan.pause], actions[plan.pause :]
    async with _opened(environment, plan.task, plan.seed) as stored:
        await stored.play(before)
        try:
            text = stored.episode.snapshot().to_json()
        except SnapshotError as error:
            raise _UnsupportedError(str(error)) from None
    alone = await _played_alone(environment, plan)
    if alone is None:
        return None
    async with _opened(environment, plan.task, plan.seed) as restored:
        try:
            restored.episode.restore(Snapshot.from_json(text))
        except SnapshotError as error:
            return _Finding(f"a snapshot cannot be restored: {error}", (stored.transcript,))
        restored.steps = list(stored.steps)
        if stored.trouble is None:
            await restored.play(after)
    difference = first_difference(alone, restored.transcript)
    if difference is None:
        return None
    sentence = f"stored after {len(before)} actions, an episode went another way: {_parting(difference)}"
    return _Finding(sentence, (alone, restored.transcript))


async def _close(environment: Environment[Any], plan: _Plan) -> _Finding | None:
    for count in (min(plan.pause, len(plan.actions)), len(plan.actions)):
        async with _opened(environment, plan.task, plan.seed) as session:
            await session.play(plan.actions[:count])
            when = f"after {count} actions" if session.episode.cause is None else "after the end"
            example = (session.transcript,)
            for time in ("", " a second time"):
                try:
                    await session.episode.close_async()
                except (Exception, SystemExit) as error:  # noqa: BLE001 - the author is told of whatever it is
                    return _Finding(f"close failed {when}{time}: {_describe(error)}", example)
            result = await session.step("I am thinking.")
            if result is None or result.observation.error is not ErrorCode.EPISODE_OVER:
                return _Finding(f"an action after closing {when} is not answered as over", example)
    return None


# --- Secrets

_TOO_SHORT = "shorter than four characters or digits, it would be found by chance"
_SHOWN_BY_TASK = "the public half of the task shows it"
_SAID_BY_AGENT = "the actions that were tried name it"
_NAMED = 5


async def _secrets(environment: Environment[Any], plan: _Plan) -> _Finding | None:
    actions = plan.actions[:_LONGEST]
    secrets, _ = _sought(plan)
    if not secrets:
        return None
    async with _opened(environment, plan.task, plan.seed) as session:
        shown = await _shown(session, actions)
        example = (session.transcript,)
    suspects = {
        (key, part): count
        for key, secret in secrets.items()
        for part, text in shown.items()
        if (count := secret.count(text))
    }
    if not suspects:
        return None
    controls = []
    for task in plan.controls:
        try:
            async with _opened(environment, task, plan.seed) as control:
                hidden = {str(value).casefold() for _, value in _leaves(dict(task.secret))}
                controls.append((hidden, await _shown(control, actions)))
        except StartError:
            continue
    for (key, part), count in suspects.items():
        secret = secrets[key]
        # Words that other tasks show as often are no secret; a task that ended before says nothing about this part.
        other_tasks = [text for hidden, text in controls if str(secret.value).casefold() not in hidden]
        usual = [secret.count(text[part]) for text in other_tasks if part in text]
        if all(count > other for other in usual) and bool(usual) == bool(other_tasks):
            sentence = f"the secret {secret.value!r:.60} of task {plan.task.id!r} is shown in {part}"
            return _Finding(sentence, example)
    return None


def _sought(plan: _Plan) -> tuple[dict[tuple[str, str], Secret], dict[str, str]]:
    """Return the secrets of a task that can be searched, by key and text, and why others cannot, by key."""
    public = json.dumps([plan.task.id, dict(plan.task.inputs)], ensure_ascii=False, default=str)
    written = "\n".join(_action_text(action) for action in plan.actions[:_LONGEST])
    secrets: dict[tuple[str, str], Secret] = {}
    spared: dict[str, str] = {}
    for key, value in _leaves(dict(plan.task.secret)):
        if (key, str(value)) in secrets:
            continue
        secret = (
            Secret(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
        )
        if secret is None or not secret.is_telling:
            spared[key] = _TOO_SHORT
        elif secret.count(public):
            spared[key] = _SHOWN_BY_TASK
        elif secret.count(written):
            spared[key] = _SAID_BY_AGENT
        else:
            secrets[key, str(value)] = secret
    return secrets, spared


def _searched(plans: Iterable[_Plan]) -> CheckResult:
    """Return the result where nothing was found, with what was not searched, and why."""
    seen: set[str] = set()
    spared: dict[str, str] = {}
    for plan in plans:
        secrets, others = _sought(plan)
        seen.update(key for key, _ in secrets)
        spared.update(others)
    reasons: dict[str, list[str]] = {}
    for key, reason in spared.items():
        if key not in seen:
            reasons.setdefault(reason, []).append(key)
    told = "; ".join(f"{_names_of(keys)} not searched: {reason}" for reason, keys in reasons.items())
    if seen:
        return CheckResult(
            Promise.SECRETS, Outcome.PASSED, _KEPT[Promise.SECRETS] + (f" ({told})" if told else "")
        )
    if not spared:
        return CheckResult(Promise.SECRETS, Outcome.UNSUPPORTED, "no task has a secret")
    return CheckResult(Promise.SECRETS, Outcome.UNCHECKED, told)


def _names_of(keys: list[str]) -> str:
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return ", ".join(repr(key) for key in keys[:_NAMED]) + more


def _leaves(secret: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what stands in a secret, with the keys that lead there."""
    if isinstance(secret, dict):
        for name, value in secret.items():
            yield from _leaves(value, f"{key}.{name}" if key else str(name))
    elif isinstance(secret, list | tuple):
        for value in secret:
            yield from _leaves(value, key)
    else:
        yield key, secret


def _action_text(action: Action) -> str:
    return (
        action if isinstance(action, str) else json.dumps(action.to_json(), ensure_ascii=False, default=str)
    )


async def _shown(session: _Session, actions: Iterable[Action]) -> dict[str, str]:
    """Return what an agent, a client or a log sees before the end, by the part in which it stands."""
    specs = [tool.spec.to_json() for tool in session.episode.environment.tools]
    shown = {
        "the prompt": _prompt_text(session.episode.prompt) + _pictures(session.episode.prompt),
        "the description of the tools": json.dumps(specs, ensure_ascii=False),
    }
    for number, action in enumerate(actions, start=1):
        result = await session.step(action)
        if result is None:
            shown["the text of an error"] = str(session.trouble)
            break
        if result.cause is not None:
            break
        text = [result.observation.text, *result.components, _pictures((result.observation,))]
        shown[f"observation {number}"] = "\n".join(text)
    shown["the log"] = "\n".join(session.log)
    return shown


def _pictures(parts: Iterable[Any]) -> str:
    images = [block.data for part in parts for block in part.blocks if isinstance(block, Image)]
    return "".join(image.decode("utf-8", "replace") for image in images)


_EXAMINATIONS: dict[Promise, _Examine] = {
    Promise.START: _start,
    Promise.PROMPT: _prompt,
    Promise.RANDOMNESS: _randomness,
    Promise.DETERMINISM: _determinism,
    Promise.ISOLATION: _isolation,
    Promise.ENDINGS: _endings,
    Promise.REWARD: _reward,
    Promise.ORACLE: _oracle,
    Promise.SECRETS: _secrets,
    Promise.ERRORS: _errors,
    Promise.EXCEPTIONS: _exceptions,
    Promise.SNAPSHOT: _snapshot,
    Promise.CLOSE: _close,
}


def _rows(transcript: Transcript, label: str) -> Iterator[str]:
    yield f"example{label}: task {transcript.task}, seed {transcript.seed}"
    for number, step in enumerate(transcript.steps, start=1):
        result = step.result
        notes = [f"error {result.observation.error}"] if result.observation.error else []
        notes += [f"reward {result.reward:g}"] if result.reward else []
        notes += [f"{result.ending}: {result.cause}"] if result.cause else []
        text = json.dumps(result.observation.text, ensure_ascii=False)
        yield f"{number:>4}. {_action_row(step.action)}"
        yield f"      -> {text:.100}{''.join(f' [{note}]' for note in notes)}"


def _action_row(action: Action) -> str:
    if isinstance(action, str):
        return f"{action!r:.100}"
    arguments = (
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in action.arguments.items()
    )
    return f"{action.name}({', '.join(arguments)})"[:100]
