"""Compile an environment into GEM's own `Env`, and register it with GEM.

GEM's actions and observations are text, so `step` reads calls out of what the model wrote. They are not offered through
`ToolEnvWrapper`: its tools know no environment, cannot end an episode, and hand what they cannot read to the environment
as an answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import marshal
import os
import random
import sys
import threading
from abc import abstractmethod
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count
from operator import index
from typing import Any, ClassVar, Self, TypeVar
from weakref import WeakSet

import gem

from adapters.gem.content import write_content
from canonical.catalogue import load_environment
from canonical.content import quote
from canonical.dialect import TextForm, describe_tools, write_calls
from canonical.environment import Environment
from canonical.episode import Episode, Snapshot, SnapshotError, StartError
from canonical.reward import ScoringError, finish
from canonical.sampling import random_call
from canonical.schema import SchemaDialect, render_tool
from canonical.step import Ending, StepResult
from canonical.task import Task, UnknownTaskError

ResultT = TypeVar("ResultT")
log = logging.getLogger(__name__)
_numbers = count(1)


class Refusal(RuntimeError):  # noqa: N818 - named for what it is
    """Say why a request cannot be carried out. The text holds nothing secret, and the episode before goes on."""


class CompiledEnvironment(gem.Env):
    """Play an environment under GEM: one object per session, with an episode of its own.

    Which episode comes next is decided by a seed and a count. The global generators of `random` and `numpy`, which GEM's
    own `reset` seeds, are neither read nor changed, so environments of one process do not touch each other.

    Args:
        seed: Where the sequence of episodes begins that `reset()` without a seed walks through.
        split: The split whose tasks are played; by default the first.

    Wrappers of GEM copy every public attribute, and copying a wrapper copies what it copied, so there are few of them.

    Attributes:
        env_id: The id under which GEM makes this object.
        seed: As above.
        split: As above.
        max_turns: How many turns an episode may take.

    Raises:
        Refusal: There is no such split, or the seed is not an integer.
    """

    env_id: str
    _environment: ClassVar[Environment[Any]]
    _live: ClassVar[WeakSet[CompiledEnvironment]]
    _tools_text: ClassVar[str]
    _tools: ClassVar[bytes]

    def __init__(self, seed: int = 0, split: str | None = None) -> None:
        super().__init__()
        self.seed = _integer("seed", seed)
        tasks = self._environment.tasks()
        self.split = tasks.training_split if split is None else split
        self.max_turns = self._environment.max_turns
        try:
            self._tasks = tasks.split(self.split)
        except (UnknownTaskError, TypeError) as error:
            raise Refusal(f"{self._environment.name}: {error}") from None
        self._base, self._drawn = self.seed, 0
        self._episode: Episode[Any] | None = None
        self._last: StepResult | None = None
        self._dice: random.Random | None = None

    # GEM annotates with free type variables, which nothing but a type variable overrides.
    def reset(  # type: ignore[override]
        self, seed: int | None = None, idx: int | None = None, task: str | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode; the one before is closed.

        Args:
            seed: The seed of the episode. Without one, the next seed of a sequence that the last one given (here, or to
                the constructor) decides.
            idx: The place of the task in the split; by default the seed decides.
            task: The id of a task, of any split.

        Returns:
            The prompt with the tools below it, and `info`: `messages` and `tools` as a chat template takes them, `task`
            and `seed`, and after an episode that had ended, `previous`: how it ended.

        Raises:
            Refusal: There is no such task, or the environment failed. The episode before a wrong request goes on.
        """
        number = _next_seed(self._base, self._drawn) if seed is None else _integer("seed", seed)
        chosen = self._choose(number, idx, task)
        previous = self._ending()
        self._run(self._start(chosen, number))
        self._base, self._drawn = (self._base, self._drawn + 1) if seed is None else (number, 0)
        return self._opening(previous)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:  # type: ignore[override]
        """Carry out what the model wrote.

        Returns:
            What the model reads next, the reward, whether the task ended the episode (`terminated`), whether something
            outside it did (`truncated`), and `info`: `turn`, `total`, and where there is one `error`, `components`,
            `ending`, `cause`, and `content` for observations that are more than one text.

        Raises:
            Refusal: There is no episode, or no valid reward could be computed.
        """
        episode = self._episode
        if episode is None:
            raise Refusal("there is no episode here: call reset first")
        if not isinstance(action, str):
            raise Refusal(f"an action is what the model wrote, a text, and not a {type(action).__name__}")
        try:
            result = self._run(episode.step_async(action))
        except ScoringError as error:
            raise Refusal(f"no valid reward could be computed: {error}") from None
        self._last = result
        observation, cause = result.observation, result.cause
        info: dict[str, Any] = {"turn": episode.turn, "total": result.total}
        if observation.error is not None:
            info["error"] = observation.error.value
        if result.components:
            info["components"] = dict(result.components)
        text = write_content(observation.blocks)
        if not isinstance(text, str):
            text, info["content"] = observation.text, text
        if cause is None:
            return text, result.reward, False, False, info
        ending = cause.ending
        info["ending"], info["cause"] = ending.value, cause.value
        terminated = ending is Ending.TERMINATED
        return text, result.reward, terminated, not terminated, info

    def get_state(self) -> dict[str, Any]:
        """Return the episode as plain data. It holds secrets, so it belongs to the trainer and not to the model.

        Raises:
            Refusal: The state of the environment is not plain data.
        """
        episode = self._episode
        if episode is None:
            return {"episode": None}
        try:
            return {"episode": dict(episode.snapshot().value)}
        except SnapshotError as error:
            raise Refusal(str(error)) from None

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on with the episode that `get_state` returned, of this object or another.

        Which episode `reset` starts next stays as it is, so that objects which took over one state do not all go on with
        the same episodes.

        Raises:
            Refusal: This is no such state, or it belongs to another environment. The episode before goes on.
        """
        try:
            stored = state["episode"]
            chosen = None if stored is None else self._environment.tasks().get(stored["task"])
            number = 0 if stored is None else _integer("seed", stored["seed"])
        except (KeyError, TypeError, UnknownTaskError) as error:
            reason = str(error) if isinstance(error, UnknownTaskError) else "it is not what get_state returns"
            raise Refusal(f"this state cannot be set: {reason}") from None
        if chosen is None:
            self._run(self._replace(None))
        else:
            self._run(self._restore(chosen, number, Snapshot(stored)))

    def spawn(self, same_state: bool = False, **kwargs: Any) -> Self:
        """Return another object of this environment.

        Args:
            same_state: Whether it goes on with a copy of this object's episode and, unless it is given a seed of its
                own, with the same episodes after it.
            **kwargs: Arguments of the constructor; by default those of this object.

        Raises:
            Refusal: The arguments are wrong, or the state of the environment is not plain data.
        """
        child = type(self)(**{"seed": self.seed, "split": self.split, **kwargs})
        for name in ("env_id", "entry_point"):
            if name in vars(self):
                setattr(child, name, getattr(self, name))
        if same_state:
            vars(child).update(self._copied(with_sequence="seed" not in kwargs))
            if self._episode is not None:
                self._live.add(child)
        return child

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        memo[id(self)] = child = self.spawn(same_state=True)
        return child

    def sample_random_action(self) -> str:
        """Return a random call that fits a tool, as a model would write it.

        Raises:
            Refusal: There is no episode.
        """
        if self._episode is None:
            raise Refusal("there is no episode here: call reset first")
        if self._dice is None:
            self._dice = random.Random(self.seed)  # noqa: S311 - reproducible, not secret
        return write_calls([random_call(self._environment, self._episode.task, self._dice)], TextForm.XML)

    def close(self) -> None:
        """Free the episode. Closing twice is harmless, and `reset` starts another episode."""
        self._run(self._replace(None))

    def __del__(self) -> None:
        # Trainers of GEM close nothing, and a vector environment has no close at all.
        episode = getattr(self, "_episode", None)
        if episode is not None and not sys.is_finalizing():
            self._abandon(_close(episode))

    @abstractmethod
    def _run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Carry out work of the episode and wait for it."""

    @abstractmethod
    def _abandon(self, work: Coroutine[Any, Any, None]) -> None:
        """Carry out work that nobody waits for."""

    def _choose(self, number: int, idx: object, task: object) -> Task:
        if task is not None:
            if idx is not None:
                raise Refusal("give reset either a task or an idx")
            try:
                return self._environment.tasks().get(task)  # type: ignore[arg-type] # it says what is wrong with others
            except UnknownTaskError as error:
                raise Refusal(str(error)) from None
        if idx is None:
            return self._tasks[number % len(self._tasks)]
        place = _integer("idx", idx)
        if not 0 <= place < len(self._tasks):
            raise Refusal(f"split {self.split} has the tasks 0 to {len(self._tasks) - 1}, not {place}")
        return self._tasks[place]

    async def _start(self, chosen: Task, number: int) -> None:
        if self._episode is not None:
            await self._replace(None)
        await self._replace(await self._open(chosen, number))

    async def _open(self, chosen: Task, number: int) -> Episode[Any]:
        try:
            return await Episode.open_async(self._environment, chosen, seed=number)
        except StartError as error:
            raise Refusal(f"task {chosen.id} cannot be played: {error}") from None

    async def _restore(self, chosen: Task, number: int, snapshot: Snapshot) -> None:
        episode = await self._open(chosen, number)
        try:
            episode.restore(snapshot)
        except SnapshotError as error:
            await _close(episode)
            raise Refusal(f"this state cannot be set: {error}") from None
        await self._replace(episode)

    async def _replace(self, episode: Episode[Any] | None) -> None:
        before, self._episode, self._last = self._episode, episode, None
        if episode is None:
            self._live.discard(self)
        else:
            self._live.add(self)
        if before is not None:
            await _close(before)

    def _copied(self, *, with_sequence: bool) -> dict[str, Any]:
        attributes: dict[str, Any] = {"_last": self._last}
        if with_sequence:
            attributes |= {"_base": self._base, "_drawn": self._drawn}
        if self._episode is not None:
            try:
                (attributes["_episode"],) = self._episode.fork(1)
            except SnapshotError as error:
                raise Refusal(str(error)) from None
        return attributes

    def _opening(self, previous: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
        episode = self._episode
        assert episode is not None  # noqa: S101 - it has just begun
        prompt = episode.prompt
        info: dict[str, Any] = {
            "task": episode.task.id,
            "seed": episode.seed,
            "messages": [
                {"role": message.role, "content": write_content(message.blocks)} for message in prompt
            ],
            # Read anew each time, because a trainer may change what it is given.
            "tools": marshal.loads(self._tools),  # noqa: S302 - written in this process
        }
        if previous is not None:
            info["previous"] = previous
        texts = [*(message.text for message in prompt), self._tools_text]
        return "\n\n".join(texts if self._tools_text else texts[:-1]), info

    def _ending(self) -> dict[str, Any] | None:
        # GEM's vector environments reset in the step that ends an episode, and drop what that step showed.
        episode, last = self._episode, self._last
        if episode is None or episode.cause is None:
            return None
        ending: dict[str, Any] = {
            "task": episode.task.id,
            "seed": episode.seed,
            "turn": episode.turn,
            "total": episode.total,
            "ending": episode.cause.ending.value,
            "cause": episode.cause.value,
        }
        if last is not None:
            ending["observation"] = last.observation.text
            ending["components"] = dict(last.components)
        return ending


class PlainEnvironment(CompiledEnvironment):
    """Play an environment that never waits: everything happens in the thread of the caller."""

    def _run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        return finish(work)

    def _abandon(self, work: Coroutine[Any, Any, None]) -> None:
        finish(work)


class WaitingEnvironment(CompiledEnvironment):
    """Play an environment whose tools, rubric, start or close are coroutines.

    GEM has no coroutines, so they run on an event loop in a thread of its own, and the caller waits, whether it has an
    event loop itself or not. All such environments of a process share that loop, on which their tools wait side by side;
    one that blocks there holds up the others.
    """

    def _run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        return asyncio.run_coroutine_threadsafe(work, _waiting_loop()).result()

    def _abandon(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, _waiting_loop())


_loops: dict[int, asyncio.AbstractEventLoop] = {}
_starting = threading.Lock()


def _waiting_loop() -> asyncio.AbstractEventLoop:
    # A process that was forked has the loop, and not the thread that runs it.
    process = os.getpid()
    with _starting:
        if process not in _loops:
            _loops[process] = asyncio.new_event_loop()
            threading.Thread(target=_loops[process].run_forever, name="gem-waiting", daemon=True).start()
        return _loops[process]


async def _close(episode: Episode[Any]) -> None:
    try:
        await episode.close_async()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the episode is gone either way; the session goes on
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        place = "" if frame is None else f" at {frame.tb_frame.f_code.co_qualname}:{frame.tb_lineno}"
        # Its text may hold the answer, so the log does not get it.
        log.warning("close of %s raised %s%s", episode.environment.name, type(error).__name__, place)


def _integer(name: str, value: object) -> int:
    try:
        if not isinstance(value, bool):
            return index(value)  # type: ignore[arg-type] # it says what is wrong with others
    except TypeError:
        pass
    raise Refusal(f"{name} must be an integer, not {quote(str(value))}")


def _next_seed(base: int, drawn: int) -> int:
    # Seeds that follow each other would let vector environments, whose seeds do so too, play the same episodes.
    return int.from_bytes(hashlib.sha256(f"{base}/{drawn}".encode("ascii")).digest()[:4], "big")


@dataclass(frozen=True, slots=True)
class Compiled:
    """Hold an environment that GEM can make.

    Attributes:
        environment: The environment.
        env_class: The class that plays it.
        env_id: The id under which the class is registered.
        live: The objects of the class that hold an episode right now.
    """

    environment: Environment[Any]
    env_class: type[CompiledEnvironment]
    env_id: str
    live: WeakSet[CompiledEnvironment]


def compile_environment(environment: Environment[Any]) -> Compiled:
    """Make a GEM `Env` class that plays an environment, and register it with GEM.

    Where it runs is decided here, by the environment: plain functions in the thread of the caller, and coroutines on an
    event loop.
    """
    waits = environment.waits
    specs = [tool.spec for tool in environment.described_tools]
    live: WeakSet[CompiledEnvironment] = WeakSet()
    members: dict[str, Any] = {
        "__doc__": inspect.getdoc(type(environment)),
        "__module__": __name__,
        "_environment": environment,
        "_live": live,
        "_tools_text": describe_tools(specs, TextForm.XML) if specs else "",
        "_tools": marshal.dumps([render_tool(spec, SchemaDialect.OPENAI_CHAT) for spec in specs]),
    }
    base = WaitingEnvironment if waits else PlainEnvironment
    env_class: type[CompiledEnvironment] = type(type(environment).__name__, (base,), members)
    env_id = f"{_id(environment)}/{next(_numbers)}"
    gem.register(env_id, env_class)
    return Compiled(environment, env_class, env_id, live)


@cache
def register_environment(source: str) -> str:
    """Register an environment with GEM, for `gem.make` and `gem.make_vec`, and return its id.

    The entry point is a text, so the id can be registered again wherever the environments are made. Registering twice is
    harmless.

    Args:
        source: A name of the catalogue, or the path of an `environment.py`.

    Raises:
        UnknownEnvironmentError: There is no such environment.
    """
    env_id = _id(load_environment(source))
    gem.register(env_id, f"{__name__}:{make_environment.__name__}", environment=source)
    return env_id


def make_environment(environment: str, **kwargs: Any) -> CompiledEnvironment:
    """Return an object of an environment: the entry point that `register_environment` gives to GEM.

    Args:
        environment: A name of the catalogue, or the path of an `environment.py`.
        **kwargs: Arguments of `CompiledEnvironment`.

    Raises:
        Refusal: The arguments are wrong.
        UnknownEnvironmentError: There is no such environment.
    """
    return _compiled(environment).env_class(**kwargs)


@cache
def _compiled(source: str) -> Compiled:
    return compile_environment(load_environment(source))


def _id(environment: Environment[Any]) -> str:
    return f"rosetta:{environment.name}-v{environment.version}"
