"""A session over one rollout of a task set, one turn at a time, with the session in place of the model.

The turns pass through Verifiers' own `RolloutSession` into a real trace, as its interception server puts them there; the
HTTP before and behind that server is left out.
"""

from __future__ import annotations

import inspect
import json
from itertools import islice
from typing import Any, ClassVar

import verifiers.v1 as vf
from verifiers.v1.session import RolloutSession

from adapters.verifiers.live import LiveEpisode, RolloutError
from adapters.verifiers.messages import (
    clean,
    read_answer,
    read_message,
    read_result,
    read_tool,
    write_action,
)
from adapters.verifiers.taskset_target import (
    CompiledTaskset,
    Conversation,
    EpisodeState,
    EpisodeTaskset,
    EpisodeTasksetConfig,
    make_data,
    make_text,
    prepare,
    wire_message,
    wire_tool,
    with_system,
)
from canonical.adapter import Opened, SessionError
from canonical.content import JSON
from canonical.step import Cause, StepResult
from canonical.task import UnknownTaskError
from canonical.transcript import Action

_CONTEXT: Any = vf.ModelContext(
    model="none", client=vf.EvalClientConfig(base_url="http://127.0.0.1:9/v1", api_key_var="UNUSED")
)
"""What a rollout's session asks for; nothing is ever sent there."""


class TasksetSession:
    """Be one rollout: trace, task, stops and scores are Verifiers' own.

    Args:
        compiled: The task set.
    """

    seed_chooses: ClassVar[bool] = False

    def __init__(self, compiled: CompiledTaskset) -> None:
        self._compiled = compiled
        self._task: Any = None
        self._trace: Any = None
        self._gate: Any = None
        self._conversation: Conversation | None = None
        self._messages: list[Any] = []
        self._begun: tuple[str, int, Opened] | None = None
        self._shown: list[Any] = []
        self._calls = 0

    async def open(self, task: str, seed: int) -> Opened:
        """Start a rollout; one that is still open is ended first.

        Raises:
            SessionError: There is no such task, or the environment could not start.
        """
        await self.close()
        compiled = self._compiled
        try:
            live = await LiveEpisode.open(compiled.environment, task, seed, compiled.live)
        except RolloutError as error:
            raise SessionError(str(error)) from error
        row = self._task = compiled.task(task, seed)
        trace = self._trace = vf.Trace(
            task=vf.TraceTask(type=type(row).__name__, data=row.data, key=row.key, hash=row.hash),
            state=EpisodeState(),
            agent=vf.AgentInfo(config=compiled.agent),
        )
        self._gate = RolloutSession(ctx=_CONTEXT, trace=trace, trace_stops=row.hooks("stop"))
        conversation = self._conversation = Conversation(trace, live)
        self._messages = list(conversation.opening)
        # As the harness sends them, and not as the conversation holds them.
        self._shown = list(map(wire_message, self._messages))
        sent = [wire_tool(tool) for tool in conversation.tools]
        try:
            if any(tool.keys() != {"type", "function"} for tool in sent):
                raise ValueError("a tool is a function and nothing more")  # noqa: TRY301 - one way out
            opened = Opened(
                tuple(map(read_message, self._shown)), tuple(read_tool(tool["function"]) for tool in sent)
            )
        except (KeyError, TypeError, ValueError) as error:
            raise SessionError(f"the rollout does not begin as a compiled task does: {error}") from error
        self._begun = (task, seed, opened)
        return opened

    async def open_at(self, _compiled: Any, split: str, index: int | None, seed: int, /) -> Opened:
        """Start a rollout of the task at a place of the task set that a config with the split and the seed loads.

        Raises:
            SessionError: There is no such task, or the environment could not start.
        """
        try:
            # A task set is made from a config, which names the environment by a text.
            source = inspect.getfile(type(self._compiled.environment))
            config = EpisodeTasksetConfig(environment=source, split=split, seed=seed)
            data = next(islice(EpisodeTaskset(config), index, None)).data
        except (StopIteration, UnknownTaskError) as error:
            raise SessionError(f"task {index} of split {split} cannot be played: {error}") from error
        return await self.open(data.task, data.seed)

    async def step(self, action: Action) -> StepResult:
        """Take a turn: the action stands in the place of the model's answer.

        Raises:
            SessionError: There is no rollout, or no valid reward could be computed.
        """
        conversation, trace = self._conversation, self._trace
        if conversation is None:
            raise SessionError("open an episode before stepping")
        await self._gate.refused()
        written = write_action(action)
        response = self._response(written)
        request, _, _ = await self._gate.rewrite_request(
            vf.Request(messages=self._messages, tools=conversation.tools)
        )
        node = prepare(trace, request.messages, request.tools).commit(response)
        if hasattr(self._gate, "gate_tool_calls"):
            await self._gate.gate_tool_calls(node)
        exact = written if isinstance(written, str) and clean(written) != written else None
        try:
            answers = await conversation.answer(response.message, exact)
        except RolloutError as error:
            raise SessionError(str(error)) from error
        self._messages += [response.message, *answers]
        is_over = conversation.is_over
        if is_over and trace.stop_condition is None:
            conversation.conclude(answers)
        public = trace.info["results"][-1]
        # What could not be scored once is over without a reward of Verifiers, and has none to be asked for again.
        has_failed = public.get("cause") == Cause.ERROR
        if is_over and not trace.rewards and not has_failed:
            await self._task.score(trace)
        try:
            total = None if not is_over else public["total"] if has_failed else trace.reward
            sent = list(map(wire_message, answers))
            content = read_answer(sent, response.message)
            if is_over and trace.stop_condition != "episode_over":
                raise ValueError(f"the episode is over, and the trace says {trace.stop_condition}")  # noqa: TRY301
            self._shown += [wire_message(response.message), *sent]
            return read_result(content, public["reward"], total, public)
        except (KeyError, TypeError, ValueError) as error:
            raise SessionError(f"the turn is not what a compiled task gives: {error}") from error

    def _response(self, written: Action) -> Any:
        calls = None
        if not isinstance(written, str):
            self._calls += 1
            arguments = json.dumps(dict(written.arguments))
            calls = [vf.ToolCall(id=f"call_{self._calls}", name=written.name, arguments=arguments)]
        return vf.Response(
            id="response",
            created=0,
            model="none",
            message=vf.AssistantMessage(
                content=clean(written) if isinstance(written, str) else None, tool_calls=calls
            ),
            finish_reason="tool_calls" if calls else "stop",
        )

    async def reread(self, _compiled: Any, /) -> None:
        """Look at the whole conversation once more, in the trace as well, and at the row that trainers have of the task.

        Raises:
            SessionError: They do not show what was shown.
        """
        if self._conversation is None or self._begun is None:
            return
        task, seed, opened = self._begun
        environment = self._compiled.environment
        data = make_data(environment, environment.name, environment.tasks().get(task), seed)
        opening = self._conversation.opening
        traced = self._trace.branches[-1].messages if self._trace.branches else []
        places = {
            "the conversation at the end": self._messages,
            "the trace": traced,
            "the opening with the row's system prompt": with_system(opening, data.system_prompt),
        }
        for place, messages in places.items():
            for index, message in enumerate(map(wire_message, messages)):
                if index >= len(self._shown) or message != self._shown[index]:
                    raise SessionError(f"{place}: message {index} is {message!r}, which was not shown before")
        self._check_row(data, opened)

    def _check_row(self, data: Any, opened: Opened) -> None:
        start, close = self._compiled.environment.start, self._compiled.environment.close
        if inspect.iscoroutinefunction(start) or inspect.iscoroutinefunction(close):
            return  # its row describes the environment, because the prompt is not known yet
        row = [] if data.system_prompt is None else [("system", data.system_prompt)]
        if isinstance(data.prompt, str):
            row.append(("user", data.prompt))
        else:
            row += [(message.role, make_text(message.content)) for message in data.prompt]
        expected = [(message.role, message.text) for message in opened.prompt]
        if [(role, clean(text)) for role, text in expected] != row:
            raise SessionError(f"the row of task {data.task} shows {row!r}, and the episode {expected!r}")

    async def public_state(self) -> JSON:
        """Return the record of the trace, as trainers and files get it, and the state, which neither gets.

        Raises:
            SessionError: There is no rollout.
        """
        if self._trace is None:
            raise SessionError("open an episode first")
        value: JSON = {
            "trace": json.loads(self._trace.model_dump_json()),
            "state": json.loads(self._trace.state.model_dump_json()),
        }
        return value

    async def reported_return(self) -> float:
        """Return the reward of the trace, which is what its task's rewards sum to.

        Raises:
            SessionError: The episode is not over.
        """
        if self._trace is None or not self._trace.rewards:
            raise SessionError("the episode is not over, so that it has no return yet")
        return float(self._trace.reward)

    async def close(self) -> None:
        """End the rollout and free its episode."""
        conversation, self._conversation = self._conversation, None
        self._trace = None
        if conversation is not None:
            await conversation.end(None)


def make_session(compiled: CompiledTaskset) -> TasksetSession:
    """Return a session over a compiled task set."""
    return TasksetSession(compiled)
