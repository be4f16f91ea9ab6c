"""The baselines behind the port of an adapter, so that a worker measures them as it measures the compiled environment.

Each session makes the calls of Verifiers' own loop in their order and stands in the place of the model, as the sessions of
the adapter do.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from canonical.adapter import Endpoint, Feature, Level, Opened, SessionError, Support
from canonical.content import JSON, ErrorCode, Message, Observation, Text
from canonical.environment import Environment
from canonical.step import Cause, StepResult
from canonical.tool import ToolSpec
from canonical.transcript import Action


def _call(action: Action, number: int) -> dict[str, str]:
    if isinstance(action, str):
        raise SessionError("the baseline takes tool calls only")
    return {
        "id": f"call_{number}",
        "name": action.name,
        "arguments": json.dumps(dict(action.arguments)),
    }


def _result(text: str, error: ErrorCode | None, total: float | None) -> StepResult:
    # The documented style knows that a rollout is over, and neither how nor why; what it pays, it pays at the end.
    cause = None if total is None else Cause.SUBMITTED
    reward = 0.0 if total is None else total
    return StepResult(Observation.of(text, error), reward, reward, cause)


class TasksetSession:
    """Be one rollout of the task set: its stops, its scores, a trace of the turns, and the tools without their server."""

    def __init__(self, tasks: Mapping[str, Any]) -> None:
        self._vf: Any = import_module("verifiers.v1")
        self._prepare_turn: Any = import_module("verifiers.v1.graph").prepare_turn
        self._gate_of: Any = import_module("verifiers.v1.session").RolloutSession
        self._context = self._vf.ModelContext(
            model="none", client=self._vf.EvalClientConfig(base_url="http://127.0.0.1:9/v1")
        )
        self._tasks = tasks
        self._agent = self._vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})
        self._trace: Any = None
        self._number = 0

    async def open(self, task: str, seed: int) -> Opened:  # noqa: ARG002 - nothing is random in Wordle
        """Start a game."""
        vf = self._vf
        self._task = self._tasks[task]
        (self._tools,) = self._task.toolsets(self._task.config)
        self._trace = vf.Trace(
            task=vf.TraceTask(
                type=type(self._task).__name__,
                data=self._task.data,
                key=self._task.key,
                hash=self._task.hash,
            ),
            state=import_module("bench.baselines.verifiers.wordle").WordleState(),
            agent=vf.AgentInfo(config=self._agent),
        )
        # Verifiers' own way to a tool that no server runs: what the state channel would bring and take.
        self._tools._inert_state = self._trace.state  # noqa: SLF001
        await self._tools.setup_task(self._task.data)
        self._gate = self._gate_of(ctx=self._context, trace=self._trace, trace_stops=self._task.hooks("stop"))
        self._messages = [vf.UserMessage(content=self._task.data.prompt)]
        self._specs = (ToolSpec("guess", str(type(self._tools).guess.__doc__), _SCHEMA),)
        self._offered = [vf.Tool(name="guess", description=self._specs[0].description, parameters=_SCHEMA)]
        return Opened((Message("user", (Text(self._task.data.prompt),)),), self._specs)

    async def step(self, action: Action) -> StepResult:
        """Take a turn.

        Raises:
            SessionError: There is no rollout, or the action is a text.
        """
        vf, trace = self._vf, self._trace
        if trace is None:
            raise SessionError("open an episode before stepping")
        self._number += 1
        call = vf.ToolCall(**_call(action, self._number))
        said = vf.AssistantMessage(tool_calls=[call])
        response = vf.Response(id="r", created=0, model="none", message=said, finish_reason="tool_calls")
        request, _, _ = await self._gate.rewrite_request(
            vf.Request(messages=self._messages, tools=self._offered)
        )
        turn = self._prepare_turn(trace, request.messages, request.tools)
        await self._gate.gate_tool_calls(turn.commit(response))
        error = None
        if call.name != "guess":
            text, error = f"error: unknown tool {call.name!r}", ErrorCode.UNKNOWN_TOOL
        else:
            try:
                text = await self._tools.guess(**json.loads(call.arguments))
            except (TypeError, ValueError) as failure:
                text, error = f"Error executing tool guess: {failure}", ErrorCode.TOOL_ERROR
        self._messages += [said, vf.ToolMessage(tool_call_id=call.id, content=text)]
        if await self._gate.refused() is not None:
            if not trace.rewards:
                await self._task.score(trace)
                return _result(text, error, trace.reward)
            return StepResult(Observation.of(text, error), 0.0, trace.reward, Cause.SUBMITTED)
        return _result(text, error, None)

    async def public_state(self) -> JSON:
        """Return the record of the trace.

        Raises:
            SessionError: There is no rollout.
        """
        if self._trace is None:
            raise SessionError("open an episode first")
        value: JSON = json.loads(self._trace.model_dump_json())
        return value

    async def reported_return(self) -> float:
        """Return the reward of the trace."""
        return float(self._trace.reward)

    async def close(self) -> None:
        """Forget the game."""
        self._trace = None


_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
}


class HandWritten:
    """Hold the hand-written environment of releases before 0.4, its rows by task, and a client that is never asked."""

    def __init__(self) -> None:
        wordle: Any = import_module("bench.baselines.verifiers.wordle_environment")
        client: Any = import_module("verifiers").Client
        self.environment: Any = wordle.load_environment()
        self.rows: dict[str, Any] = {}
        for split in wordle.SPLITS:
            other = wordle.load_environment(split=split)
            self.rows.update(
                (json.loads(row["info"])["task_id"], row) for row in other.get_dataset().to_list()
            )
        methods = {
            "setup_client": lambda _self, _config: None,
            **dict.fromkeys(getattr(client, "__abstractmethods__", ()) - {"setup_client"}),
        }
        self.client: Any = type("SilentClient", (client,), methods)(None)


class EnvironmentSession:
    """Be one rollout of the environment: the calls of its own loop, in order, except for the call of the model."""

    def __init__(self, compiled: HandWritten) -> None:
        self._environment = compiled.environment
        self._rows = compiled.rows
        self._types: Any = import_module("verifiers.types")
        self._client = compiled.client
        self._state: Any = None
        self._number = 0

    async def open(self, task: str, seed: int) -> Opened:  # noqa: ARG002 - nothing is random in Wordle
        """Start a game."""
        await self.close()
        environment = self._environment
        state = self._state = await environment.init_state(self._rows[task], self._client, "none", {})
        await environment.setup_state(state)
        self._messages = await environment.get_prompt_messages(state)
        return Opened(
            tuple(Message(message.role, (Text(message.content),)) for message in self._messages),
            tuple(ToolSpec(tool.name, tool.description, tool.parameters) for tool in state["tool_defs"]),
        )

    async def step(self, action: Action) -> StepResult:
        """Take a turn.

        Raises:
            SessionError: There is no rollout, or the action is a text.
        """
        environment, state, types = self._environment, self._state, self._types
        if state is None:
            raise SessionError("open an episode before stepping")
        self._number += 1
        said = types.ResponseMessage(
            content=None,
            tool_calls=[types.ToolCall(**_call(action, self._number))],
            finish_reason="tool_calls",
            is_truncated=False,
        )
        response = types.Response(id="r", created=0, model="none", usage=None, message=said)
        await environment.add_model_response(state, self._messages, response)
        is_over = await environment.is_completed(state)
        self._messages = await environment.get_prompt_messages(state)
        text = self._messages[-1].content
        if state["final_env_response"] is not None:
            is_over = await environment.is_completed(state)
        if is_over and state["reward"] is None:
            await environment.render_completion(state)
            await environment.rubric.score_rollout(state)
            return _result(text, None, state["reward"])
        if is_over:
            return StepResult(Observation.of(text), 0.0, state["reward"], Cause.SUBMITTED)
        return _result(text, None, None)

    async def public_state(self) -> JSON:
        """Return the metrics of the rollout.

        Raises:
            SessionError: There is no rollout.
        """
        if self._state is None:
            raise SessionError("open an episode first")
        value: JSON = json.loads(json.dumps(self._state["metrics"], default=str))
        return value

    async def reported_return(self) -> float:
        """Return the reward of the rollout."""
        return float(self._state["reward"])

    async def close(self) -> None:
        """Clean the rollout up."""
        state, self._state = self._state, None
        if state is not None:
            await self._environment.cleanup(state)
            await self._environment.rubric.cleanup(state)


class VerifiersBaseline:
    """Run the hand-written Wordle of the installed release."""

    name = "verifiers-baseline"

    def packages(self) -> Mapping[str, str]:
        """Return the installed release of Verifiers."""
        return {"verifiers": version("verifiers")}

    def features(self) -> Mapping[Feature, Support]:
        """Return what the documented style carries."""
        native = {
            Feature.TASK_SELECTION,
            Feature.SPLITS,
            Feature.TOOL_CALLS,
            Feature.TOOL_SCHEMAS,
            Feature.CONCURRENT_SESSIONS,
        }
        absent = Support(Level.ABSENT, "not part of the documented style")
        return {feature: Support(Level.NATIVE) if feature in native else absent for feature in Feature}

    def compile(self, environment: Environment[Any], /) -> Any:
        """Return the hand-written environment, or the hand-written tasks by their ids.

        Raises:
            ValueError: The environment is not plain Wordle, the only one that was written by hand.
        """
        if environment.name != "wordle":
            raise ValueError(
                f"the baseline for Verifiers is a hand-written wordle; there is no {environment.name}"
            )
        if "tools" in vars(type(environment)):
            raise ValueError(
                "the baseline for Verifiers has tools that work for no set time; use a workload without one"
            )
        if find_spec("verifiers.types") is not None:
            return HandWritten()
        wordle: Any = import_module("bench.baselines.verifiers.wordle")
        tasks: dict[str, Any] = {}
        for split in wordle.SPLITS:
            config = wordle.WordleConfig(id="bench.baselines.verifiers.wordle", split=split)
            tasks.update((task.data.name, task) for task in wordle.WordleTaskset(config))
        return tasks

    @asynccontextmanager
    async def serve(
        self,
        compiled: Any,  # noqa: ARG002 - the port asks for it
        /,
        *,
        host: str = "127.0.0.1",  # noqa: ARG002
        port: int = 0,  # noqa: ARG002
    ) -> AsyncIterator[Endpoint]:
        """Yield an endpoint without an address."""
        yield Endpoint(None, lambda: 0)

    @asynccontextmanager
    async def connect(
        self, compiled: Any | None, _endpoint: Endpoint, /
    ) -> AsyncIterator[TasksetSession | EnvironmentSession]:
        """Make a session that takes rollouts turn by turn; leaving the context frees it.

        Raises:
            SessionError: Nothing was compiled.
        """
        if compiled is None:
            raise SessionError("Verifiers runs in process, so it needs the compiled environment itself")
        session = TasksetSession(compiled) if isinstance(compiled, dict) else EnvironmentSession(compiled)
        try:
            yield session
        finally:
            await session.close()


ADAPTER = VerifiersBaseline()
