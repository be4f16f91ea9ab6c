"""A session over the rollout of releases before 0.4, one turn at a time, with the session in place of the model."""

from __future__ import annotations

import json
from importlib import import_module
from itertools import zip_longest
from typing import Any, ClassVar

from adapters.verifiers.environment_target import CompiledEnvironment, types, vf
from adapters.verifiers.messages import (
    TEXT_KEY,
    clean,
    read_answer,
    read_message,
    read_result,
    read_tool,
    write_action,
)
from canonical.adapter import Opened, SessionError
from canonical.content import JSON
from canonical.step import StepResult
from canonical.task import UnknownTaskError
from canonical.transcript import Action


class SilentClient(vf.Client):  # type: ignore[misc]
    """Be the client that a rollout's state holds; the session answers in its place, so nothing is ever asked of it."""

    def __init__(self) -> None:
        super().__init__(None)

    def setup_client(self, config: Any) -> Any:  # noqa: ARG002 - as Verifiers declares it
        """Return nothing: there is no endpoint."""
        return None

    async def to_native_tool(self, tool: Any) -> Any:
        """Return a tool as it is."""
        return tool

    async def to_native_prompt(self, messages: Any) -> Any:
        """Return a prompt as it is."""
        return messages, {}

    async def get_native_response(self, *_: Any, **__: Any) -> Any:
        """Refuse.

        Raises:
            SessionError: Always.
        """
        raise SessionError("this rollout has no model behind it")

    async def raise_from_native_response(self, response: Any) -> None:
        """Do nothing."""

    async def from_native_response(self, response: Any) -> Any:
        """Return a response as it is."""
        return response

    async def close(self) -> None:
        """Do nothing."""


class EnvironmentSession:
    """Be one rollout: the calls of Verifiers' own loop, in its order, except for the call of the model.

    Args:
        compiled: The environment.
    """

    seed_chooses: ClassVar[bool] = False

    def __init__(self, compiled: CompiledEnvironment) -> None:
        self._compiled = compiled
        self._client = SilentClient()
        self._state: Any = None
        self._messages: Any = None
        self._begun: tuple[str, int] = ("", 0)
        self._shown: list[Any] = []
        self._completed: int | None = None
        self._tools: list[Any] = []
        self._calls = 0

    async def open(self, task: str, seed: int) -> Opened:
        """Start a rollout; one that is still open is cleaned up first.

        Raises:
            SessionError: There is no such task, or the environment could not start.
        """
        await self.close()
        environment = self._compiled
        state = self._state = await self._begin(environment.row(task, seed))
        try:
            await environment.setup_state(state)
            self._messages = await environment.get_prompt_messages(state)
        except vf.Error as error:
            await self.close()
            raise SessionError(str(error)) from error
        self._begun, self._completed = (task, seed), None
        self._shown, self._tools = _plainly(self._messages), _plainly(state["tool_defs"])
        try:
            return Opened(tuple(map(read_message, self._shown)), tuple(map(read_tool, self._tools)))
        except (KeyError, TypeError, ValueError) as error:
            raise SessionError(
                f"the rollout does not begin as a compiled environment does: {error}"
            ) from error

    async def open_at(self, _compiled: Any, split: str, index: int | None, seed: int, /) -> Opened:
        """Start a rollout of the row at a place of a data set, for training or for evaluation in turn.

        Raises:
            SessionError: There is no such row, or the environment could not start.
        """
        place = index or 0
        name = "eval_split" if place % 2 else "split"
        try:
            made = CompiledEnvironment(self._compiled.environment, seed=seed, **{name: split})
            row = (made.get_eval_dataset() if place % 2 else made.get_dataset())[place]
            info = json.loads(row["info"])
            named = (info["task_id"], info["seed"])
        except (IndexError, KeyError, ValueError, UnknownTaskError) as error:
            raise SessionError(f"row {index} of split {split} cannot be played: {error}") from error
        return await self.open(*named)

    async def _begin(self, row: dict[str, Any]) -> Any:
        return await self._compiled.init_state(row, self._client, "none", {})

    async def step(self, action: Action) -> StepResult:
        """Take a turn: the action stands in the place of the model's response.

        Raises:
            SessionError: There is no rollout, or no valid reward could be computed.
        """
        environment, state = self._compiled, self._state
        if state is None:
            raise SessionError("open an episode before stepping")
        before = len(self._messages)
        await environment.add_model_response(state, self._messages, self._response(action))
        turn = state["trajectory"][-1]
        if isinstance(action, str) and clean(action) != action:
            turn["extras"][TEXT_KEY] = action
        try:
            is_over = await environment.is_completed(state)
            self._messages = await environment.get_prompt_messages(state)
            if state["final_env_response"] is not None:
                is_over = await environment.is_completed(state)
            if is_over and state["reward"] is None:
                await environment.render_completion(state)
                await environment.rubric.score_rollout(state)
        except vf.Error as error:
            raise SessionError(str(error)) from error
        try:
            (public,) = turn["extras"]["results"]
            response, *answers = self._messages[before:]
            content = read_answer(answers, response)
            self._shown += _plainly([response, *answers])
            if is_over and self._completed is None:
                self._completed = len(self._shown)
            return read_result(content, turn["reward"], state["reward"] if is_over else None, public)
        except (KeyError, TypeError, ValueError) as error:
            raise SessionError(f"the turn is not what a compiled environment gives: {error}") from error

    def _response(self, action: Action) -> Any:
        written = write_action(action)
        calls = None
        if not isinstance(written, str):
            self._calls += 1
            calls = [
                types.ToolCall(
                    id=f"call_{self._calls}", name=written.name, arguments=json.dumps(dict(written.arguments))
                )
            ]
        return types.Response(
            id="response",
            created=0,
            model="none",
            usage=None,
            message=types.ResponseMessage(
                content=clean(written) if isinstance(written, str) else None,
                tool_calls=calls,
                finish_reason="tool_calls" if calls else "stop",
                is_truncated=False,
            ),
        )

    async def reread(self, _compiled: Any, /) -> None:
        """Look at the whole conversation once more, in each place that has it, and begin another rollout from the data set.

        Raises:
            SessionError: They do not show what was shown.
        """
        state = self._state
        if state is None or not self._shown:
            return
        shown = self._shown
        began = len(shown) - 2 * len(state["trajectory"])
        places = {
            "the conversation at the end": (self._messages, shown),
            "what a row of the data set begins with": (await self._from_data_set(), shown[:began]),
        }
        for number, turn in enumerate(state["trajectory"]):
            places[f"the prompt of turn {number}"] = (turn["prompt"], shown[: began + 2 * number])
        if self._completed is not None:
            places["prompt and completion"] = (
                [*state["prompt"], *state["completion"]],
                shown[: self._completed],
            )
        for place, (messages, expected) in places.items():
            for index, (now, before) in enumerate(zip_longest(_plainly(messages), expected)):
                if now != before:
                    raise SessionError(f"{place}: message {index} is {now!r}, and was {before!r}")
        if _plainly(state["tool_defs"]) != self._tools:
            raise SessionError(
                f"the tools at the end are {state['tool_defs']!r}, which were not shown before"
            )

    async def _from_data_set(self) -> Any:
        environment = self._compiled
        task, seed = self._begun
        (row,) = environment.rows([environment.environment.tasks().get(task)], seed)
        state = await self._begin(row)
        try:
            await environment.setup_state(state)
            return list(await environment.get_prompt_messages(state))
        except vf.Error as error:
            raise SessionError(f"the row of task {task} cannot be played: {error}") from error
        finally:
            await environment.cleanup(state)

    async def public_state(self) -> JSON:
        """Return the output of the rollout, as trainers and files get it, and the whole state, of which they choose.

        Raises:
            SessionError: There is no rollout.
        """
        state = self._state
        if state is None:
            raise SessionError("open an episode first")
        output = import_module("verifiers.utils.save_utils").state_to_output(state, ["episode"])
        shown = {"output": output, "state": {**state, "client": None}}
        value: JSON = json.loads(json.dumps(shown, default=_plain))
        return value

    async def reported_return(self) -> float:
        """Return the reward that the rubric left in the state of the rollout.

        Raises:
            SessionError: The episode is not over.
        """
        if self._state is None or self._state["reward"] is None:
            raise SessionError("the episode is not over, so that it has no return yet")
        return float(self._state["reward"])

    async def close(self) -> None:
        """Clean the rollout up, which frees its episode."""
        state, self._state, self._messages = self._state, None, None
        if state is not None:
            await self._compiled.cleanup(state)
            await self._compiled.rubric.cleanup(state)


def _plainly(values: Any) -> list[Any]:
    return [value.model_dump(exclude_none=True) for value in values]


def _plain(value: Any) -> Any:
    return value.model_dump() if hasattr(value, "model_dump") else str(value)


def make_session(compiled: CompiledEnvironment) -> EnvironmentSession:
    """Return a session over a compiled environment."""
    return EnvironmentSession(compiled)
