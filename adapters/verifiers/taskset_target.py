"""The target of releases from 0.3.1 on: an environment becomes a task set, with a harness that plays it in process.

One rollout is one episode. Verifiers' usual way is a tool server in a process of its own for every rollout, and a chat
program in another. `EpisodeHarness` is the chat program without the processes: it asks the model through Verifiers'
interception server, as every harness does, and carries the calls out where it stands. With `served`, the tools are in a
tool server instead, for Verifiers' own harnesses.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, ClassVar

import aiohttp
import verifiers.v1 as vf
from pydantic import Field
from verifiers.v1.graph import prepare_turn

from adapters.verifiers.live import LiveEpisode, RolloutError
from adapters.verifiers.messages import read_action, read_content, write_content
from canonical.catalogue import load_environment
from canonical.content import Message, project_text
from canonical.environment import Environment
from canonical.episode import Episode, Snapshot, StartError
from canonical.reward import finish
from canonical.step import Cause, Ending
from canonical.task import Task

__all__ = ["EpisodeEnv", "EpisodeHarness", "EpisodeTaskset"]


class EpisodeData(vf.TaskData):
    """Say which episode to play; nothing that the task keeps secret."""

    environment: str
    """Name or path of the environment."""
    task: str
    """The id of the task."""
    seed: int = 0
    """The seed of the episode."""


class EpisodeState(vf.State):
    """Hold what everybody may know of the episode, for stops and rewards."""

    total: float = 0.0
    """The return so far."""
    is_over: bool = False
    """Whether the episode has ended."""
    cause: str | None = None
    """Why it has ended."""
    ending: str | None = None
    """How it has ended: `terminated` by the task or `truncated` from outside."""
    turn: int = 0
    """How many turns are charged."""
    failure: str | None = None
    """Why no valid reward could be computed, if so."""
    books: dict[str, Any] = Field(default_factory=dict)
    """What a tool server says of the episode."""
    results: list[dict[str, Any]] = Field(default_factory=list)
    """What a tool server says of each action."""
    stored: str | None = None
    """The episode itself, as a tool server stores it: with its secrets, and therefore in no record of the rollout."""


class EpisodeTaskConfig(vf.TaskConfig):
    """Choose where the tools of an episode are."""

    served: bool = False
    """Whether a tool server in a process of its own holds the episode, for harnesses that speak MCP."""
    tools: vf.ToolsetConfig = vf.ToolsetConfig()
    """Where the tool server runs, if there is one."""


class EpisodeTask(vf.Task[EpisodeData, EpisodeState, EpisodeTaskConfig]):
    """Play one episode; its return is the reward."""

    @property
    def key(self) -> str:
        """The id of the task and the seed, which stay the same whatever else the row holds."""
        return f"{self.data.environment}/{self.data.task}/{self.data.seed}"

    @classmethod
    def toolsets(cls, config: EpisodeTaskConfig) -> list[Any]:
        """Return the tool server of a rollout; none when the harness holds the episode."""
        if not config.served:
            return []
        # Loaded only where it is wanted: it takes the MCP library along.
        from adapters.verifiers.toolset import EpisodeToolset  # noqa: PLC0415

        return [EpisodeToolset(config.tools)]

    @vf.stop
    async def episode_over(
        self,
        request: vf.Request,  # noqa: ARG002 - the annotations choose when Verifiers asks
        trace: vf.Trace,  # type: ignore[type-arg]
    ) -> bool:
        """End the rollout with its episode. A stop of requests, unlike one of traces, keeps the last answer."""
        state: Any = trace.state
        return bool(state.is_over)

    def hooks(self, attr: str) -> list[Any]:
        """Return the hooks of a kind; without `episode_over` where the harness knows the end before anybody asks.

        A stop of requests costs a copy of the whole conversation at every turn.
        """
        found = super().hooks(attr)
        config: Any = self.config
        return found if config.served else [hook for hook in found if hook.__name__ != "episode_over"]

    async def finalize(self, trace: Any, runtime: Any) -> None:  # noqa: ARG002 - Verifiers asks for it
        """Take over what the tool server knows of the episode, if there is one.

        An episode that still goes on is truncated: it is restored from what the server stored of it.
        """
        config: Any = self.config
        state: EpisodeState = trace.state
        if not config.served:
            return
        if not state.is_over:
            await self._truncate(state)
        trace.info["episode"] = state.books
        trace.info["results"] = state.results

    async def _truncate(self, state: EpisodeState) -> None:
        data = self.data
        live = await LiveEpisode.open(_environment(data.environment), data.task, data.seed, set())
        try:
            if state.stored is not None:
                live.episode.restore(Snapshot.from_json(state.stored))
            elif state.results:
                state.failure = (
                    "the episode was stopped, and its state is not plain data, so it cannot be scored"
                )
        finally:
            with suppress(RolloutError):
                await live.end(Cause.BUDGET)
            if state.failure is None:
                keep_books(state, live)
                state.books = live.books()

    @vf.reward(weight=1.0)
    async def episode_return(self, trace: Any) -> float:
        """Pay the return of the episode.

        Raises:
            RolloutError: There is none. Verifiers then marks the trace as failed, instead of paying 0.
        """
        state: EpisodeState = trace.state
        if state.failure is not None:
            raise RolloutError(state.failure)
        return state.total

    @vf.metric
    async def solved(self, trace: Any) -> float:
        """Say whether the task was solved."""
        return float(trace.state.cause == Cause.SOLVED)

    @vf.metric
    async def truncated(self, trace: Any) -> float:
        """Say whether something outside the task ended the episode, such as its budget of turns."""
        return float(trace.state.ending == Ending.TRUNCATED)

    @vf.metric
    async def turns(self, trace: Any) -> float:
        """Count the turns that the episode charged."""
        return float(trace.state.turn)


class EpisodeTasksetConfig(vf.TasksetConfig):
    """Choose the environment, and which of its tasks to play."""

    environment: str = "wordle"
    """Name of the catalogue, or path of an `environment.py`."""
    split: str | None = None
    """The split; by default the first."""
    seed: int = 0
    """The seed of the episodes."""
    task: EpisodeTaskConfig = EpisodeTaskConfig()


class EpisodeTaskset(vf.Taskset[EpisodeTask, EpisodeTasksetConfig]):  # type: ignore[type-var]
    """All tasks of a split."""

    def load(self) -> Iterator[EpisodeTask]:
        """Yield the tasks in their order."""
        config = self.config
        environment = load_environment(config.environment)
        tasks = environment.tasks()
        for task in tasks.split(tasks.training_split if config.split is None else config.split):
            yield EpisodeTask(make_data(environment, config.environment, task, config.seed), config.task)


def make_data(environment: Environment[Any], source: str, task: Task, seed: int) -> EpisodeData:
    """Return the row that plays a task.

    The prompt is the one that the episode will begin with, or the description of an environment that has to wait for its
    beginning; there, only the harness in process can show the prompt.
    """
    prompt: Any = inspect.getdoc(type(environment)) or environment.name
    system: str | None = None
    if not (inspect.iscoroutinefunction(environment.start) or inspect.iscoroutinefunction(environment.close)):
        try:
            episode = Episode.open(environment, task, seed=seed)
        except StartError:
            pass
        else:
            finish(episode.close_async())
            messages = episode.prompt
            if messages and messages[0].role == "system":
                system, messages = messages[0].text, messages[1:]
            is_plain = len(messages) == 1 and messages[0].role == "user"
            prompt = messages[0].text if is_plain else [make_message(message) for message in messages]
    return EpisodeData(
        name=task.id, prompt=prompt, system_prompt=system, environment=source, task=task.id, seed=seed
    )


def make_text(content: Any) -> str:
    """Return the text form of the content of a message."""
    return project_text(read_content(content))


def make_message(message: Message) -> Any:
    """Return a message of a prompt as Verifiers holds it."""
    match message.role:
        case "system":
            return vf.SystemMessage(content=write_content(message.blocks))
        case "assistant":
            return vf.AssistantMessage(content=message.text)
        case "tool":
            return vf.ToolMessage(tool_call_id="prompt", content=message.text)
        case "user":
            return vf.UserMessage(content=write_content(message.blocks))


class Conversation:
    """Be the side of the environment in one rollout: what the model reads, and what its answers lead to.

    Attributes:
        opening: The messages that the model reads first.
        tools: The tools that it is told of.
    """

    def __init__(self, trace: Any, live: LiveEpisode) -> None:
        self._trace = trace
        self._live = live
        self.opening: list[Any] = [make_message(message) for message in live.episode.prompt]
        self.tools: list[Any] = [
            vf.Tool(name=tool.name, description=tool.spec.description, parameters=dict(tool.spec.parameters))
            for tool in live.episode.environment.tools
        ]
        self._note()

    @property
    def is_over(self) -> bool:
        """Whether the episode has ended."""
        return self._live.is_over

    async def answer(self, message: Any, exact: str | None = None) -> list[Any]:
        """Carry out the calls of a message, in order, or its text when it has none, and return what the model reads next.

        Args:
            message: What the model wrote.
            exact: Its text, when the message cannot hold it.

        Raises:
            RolloutError: No valid reward could be computed.
        """
        live = self._live
        answers: list[Any] = []
        try:
            for call in message.tool_calls or ():
                result = await live.step(read_action(call.name, call.arguments))
                answers.append(
                    vf.ToolMessage(tool_call_id=call.id, content=write_content(result.observation.blocks))
                )
            if not answers:
                result = await live.step((message.content or "") if exact is None else exact)
                answers.append(vf.UserMessage(content=write_content(result.observation.blocks)))
        finally:
            self._note()
        return answers

    def conclude(self, answers: list[Any]) -> None:
        """Put what the last turn led to into the trace, and stop it: no request of a model will carry it there."""
        trace = self._trace
        said = [*trace.branches[-1].messages, *answers]
        prepare(trace, said, getattr(trace.nodes[0], "tools", None)).commit_prompt()
        trace.stop("episode_over")

    async def end(self, cause: Cause | None) -> None:
        """Free the episode; one that still goes on is truncated first, unless nobody will look at its return.

        Raises:
            RolloutError: No valid reward could be computed.
        """
        try:
            await self._live.end(cause)
        finally:
            self._note()

    def _note(self) -> None:
        keep_books(self._trace.state, self._live)
        self._trace.info["episode"] = self._live.books()
        self._trace.info["results"] = self._live.results


def prepare(trace: Any, messages: list[Any], tools: list[Any] | None) -> Any:
    """Return a turn of a trace that is not committed yet, as Verifiers' interception server makes it."""
    # 0.3.1 keeps the tools elsewhere.
    turn: Any = prepare_turn
    return turn(trace, messages, tools) if _KEEPS_TOOLS else turn(trace, messages)


_KEEPS_TOOLS = "tools" in inspect.signature(prepare_turn).parameters


def keep_books(state: EpisodeState, live: LiveEpisode) -> None:
    """Write into the state of a rollout how far its episode is."""
    cause = live.episode.cause
    state.total = live.episode.total
    state.is_over = live.is_over
    state.cause = None if cause is None else cause.value
    state.ending = None if cause is None else cause.ending.value
    state.turn = live.episode.turn
    state.failure = None if live.failure is None else str(live.failure)


class EpisodeHarnessConfig(vf.HarnessConfig):
    """Settings of the harness."""

    timeout: float = Field(default=3600.0, gt=0)
    """Seconds that one answer of the model may take."""


class EpisodeHarness(vf.Harness[EpisodeHarnessConfig]):
    """Play an episode without leaving the process: ask the model, carry out its calls, and so on.

    Attributes:
        live: The episodes that harnesses play right now.
    """

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MESSAGE_PROMPT = True
    SUPPORTS_MCP = False
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False
    live: ClassVar[set[LiveEpisode]] = set()

    async def launch(  # noqa: PLR0917 - as Verifiers declares it
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,  # noqa: ARG002 - Verifiers asks for it
        endpoint: str,
        secret: str,
        mcp_urls: Any,  # noqa: ARG002
        data: Any,
    ) -> Any:
        """Play the episode of a row to its end, through Verifiers' interception server.

        Raises:
            RolloutError: There is no such task, the environment could not start, or no valid reward could be computed.
        """
        environment = _environment(data.environment)
        conversation = Conversation(
            trace, await LiveEpisode.open(environment, data.task, data.seed, self.live)
        )
        # Why the episode ends if it still goes on below. Only a time limit or an abandoned rollout leaves by this one.
        cause: Cause | None = Cause.TIMEOUT
        opening = with_system(conversation.opening, data.system_prompt)
        try:
            result = await self._play(ctx, endpoint, secret, opening, conversation)
            # Verifiers' own limits refuse the next request, as a stop of the task does; anything else is a failure.
            cause = Cause.ERROR if trace.stop_condition is None else Cause.BUDGET
        except Exception:
            cause = Cause.ERROR
            raise
        finally:
            # What cannot be scored is a reward that raises, later and where Verifiers asks for it.
            with suppress(RolloutError):
                await conversation.end(cause)
        return result

    async def _play(
        self, ctx: Any, endpoint: str, secret: str, opening: list[Any], conversation: Conversation
    ) -> Any:
        messages = [wire_message(message) for message in opening]
        tools = [wire_tool(tool) for tool in conversation.tools]
        headers = {"Authorization": f"Bearer {secret}"}
        limit = aiohttp.ClientTimeout(total=self.config.timeout)
        async with aiohttp.ClientSession(headers=headers, timeout=limit) as http:
            while True:
                body = {"model": ctx.model, "messages": messages, "tools": tools}
                async with http.post(f"{endpoint}/chat/completions", json=body) as reply:
                    if reply.status != 200:
                        # A limit of Verifiers refuses the request, or the model failed.
                        return vf.ProgramResult(1, "", await reply.text())
                    said = (await reply.json())["choices"][0]["message"]
                # As it came: what else the message holds, such as reasoning, belongs to what the model has said.
                messages.append(said)
                answers = await conversation.answer(_read(said))
                if conversation.is_over:
                    conversation.conclude(answers)
                    return vf.ProgramResult(0, "", "")
                messages += [wire_message(answer) for answer in answers]


@cache
def _environment(source: str) -> Environment[Any]:
    return load_environment(source)


def with_system(opening: list[Any], system: str | None) -> list[Any]:
    """Return the opening with the system prompt of the row, which settings of a run may have replaced."""
    if system is None:
        return opening
    own = opening[:1] if opening and opening[0].role == "system" else []
    if own and make_text(own[0].content) == system:
        return opening
    return [vf.SystemMessage(content=system), *opening[len(own) :]]


def _read(said: dict[str, Any]) -> Any:
    calls = [
        vf.ToolCall(id=call["id"], name=call["function"]["name"], arguments=call["function"]["arguments"])
        for call in said.get("tool_calls") or ()
    ]
    return vf.AssistantMessage(content=said.get("content"), tool_calls=calls or None)


def wire_message(message: Any) -> dict[str, Any]:
    """Return a message as the harness sends it to the model."""
    value: dict[str, Any] = message.model_dump(exclude_none=True)
    if value.get("tool_calls"):
        value["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in value["tool_calls"]
        ]
    return value


def wire_tool(tool: Any) -> dict[str, Any]:
    """Return a tool as the harness sends it to the model."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


class EpisodeEnvConfig(vf.EnvConfig):
    """Choose the tasks and who plays them."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """The one agent, on this machine: Verifiers' own default is a runtime elsewhere."""


class EpisodeEnv(vf.Env[EpisodeEnvConfig]):
    """Play a task with one agent, as Verifiers' own `SingleAgentEnv` does."""

    async def run(self, task: Any, agents: Any) -> None:
        """Play a task."""
        await agents.agent.run(task)


def task_ids(environment: Environment[Any], split: str) -> list[str]:
    """Return the ids of the tasks of a split, from the task set that plays it.

    Raises:
        canonical.task.UnknownTaskError: There is no such split.
    """
    # A task set is made from a config, which names the environment by a text.
    config = EpisodeTasksetConfig(environment=inspect.getfile(type(environment)), split=split)
    return [task.data.task for task in EpisodeTaskset(config)]


class CompiledTaskset:
    """Hold an environment as Verifiers plays it in process.

    Attributes:
        environment: The environment.
        agent: What traces say of who plays.
        live: The episodes of rollouts that go on right now.
    """

    def __init__(self, environment: Environment[Any]) -> None:
        self.environment = environment
        self.live: set[LiveEpisode] = set()
        self.agent: Any = vf.AgentConfig(runtime=vf.SubprocessConfig())
        # A task set holds its tasks; rollouts do not make them anew.
        self._made = lru_cache(maxsize=4_096)(self._make)

    def task(self, task: str, seed: int) -> EpisodeTask:
        """Return the task of an episode."""
        return self._made(task, seed)

    def _make(self, task: str, seed: int) -> EpisodeTask:
        name = self.environment.name
        return EpisodeTask(
            EpisodeData(name=task, prompt=name, environment=name, task=task, seed=seed), EpisodeTaskConfig()
        )


def compile_environment(environment: Environment[Any]) -> CompiledTaskset:
    """Return the environment as Verifiers plays it in process."""
    return CompiledTaskset(environment)
