"""The tool server of one rollout, for harnesses that call tools over MCP: `python -m adapters.verifiers.toolset`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Annotated, Any

import verifiers.v1 as vf
from pydantic import WithJsonSchema

from adapters.verifiers.live import LiveEpisode
from adapters.verifiers.taskset_target import EpisodeData, EpisodeState, keep_books
from canonical.catalogue import load_environment
from canonical.content import JSON
from canonical.episode import SnapshotError
from canonical.tool import ToolCall, ToolSpec

_DEPTH = 8
"""How deep references of a schema are written out; deeper ones, of models that contain themselves, say only `object`."""


class EpisodeToolset(vf.Toolset[vf.ToolsetConfig, EpisodeState]):
    """Hold the episode of one rollout, and offer its tools.

    The episode lives in this process; what everybody may know of it goes into the state of the rollout after each call.
    The server checks arguments before the episode sees them: whether there are some missing, and that texts are texts.
    """

    TOOL_PREFIX = None
    _live: LiveEpisode

    async def setup_task(self, task: EpisodeData) -> None:
        """Start the episode of a task.

        Raises:
            RolloutError: There is no such task, or the environment could not start.
        """
        self._live = await LiveEpisode.open(load_environment(task.environment), task.task, task.seed, set())

    def register(self, mcp: Any) -> None:
        """Offer the tools of the environment."""
        for tool in self._live.episode.environment.tools:
            mcp.add_tool(self._function(tool.spec), name=tool.name, description=tool.spec.description)

    def _function(self, spec: ToolSpec) -> Any:
        async def call(**arguments: Any) -> str:
            return await self.call(spec.name, arguments)

        call.__signature__ = _signature(spec)  # type: ignore[attr-defined]
        return self._with_state(call)

    async def call(self, name: str, arguments: Mapping[str, JSON]) -> str:
        """Carry out a call, and return what the model reads. Images are described in words.

        Raises:
            RolloutError: No valid reward could be computed.
        """
        live, state = self._live, self.state
        try:
            given = {key: value for key, value in arguments.items() if value is not _ABSENT}
            result = await live.step(ToolCall(name, given))
        finally:
            keep_books(state, live)
            state.books = live.books()
            state.results = live.results
            try:
                state.stored = live.episode.snapshot().to_json()
            except SnapshotError:
                state.stored = None
        return result.observation.text


_ABSENT: Any = object()


def _signature(spec: ToolSpec) -> inspect.Signature:
    """Return a signature from which the tool server makes the schema of a tool, and checks next to nothing."""
    schema: Any = spec.parameters
    definitions = schema.get("$defs", {})
    required = schema.get("required", ())
    parameters = []
    for name, inner in schema.get("properties", {}).items():
        # A text that looks like JSON would be parsed if it were not declared to be a text.
        kind: Any = str if inner.get("type") == "string" else Any
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if name in required else _ABSENT,
                annotation=Annotated[kind, WithJsonSchema(_written_out(inner, definitions))],
            )
        )
    return inspect.Signature(parameters, return_annotation=str)


def _written_out(schema: Any, definitions: Mapping[str, Any], depth: int = 0) -> Any:
    if isinstance(schema, list):
        return [_written_out(item, definitions, depth) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if depth == _DEPTH:
            return {"type": "object"}
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return _written_out({**definitions[reference.rpartition("/")[2]], **beside}, definitions, depth + 1)
    return {key: _written_out(value, definitions, depth) for key, value in schema.items()}


if __name__ == "__main__":
    EpisodeToolset.run()
