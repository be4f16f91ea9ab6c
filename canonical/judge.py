"""Judge: a rubric that asks a model for the score."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from typing import TypeVar

from canonical.chat import ChatError, ChatModel
from canonical.reward import Exchanges, Rubric, Score, ScoringError
from canonical.strict_json import InvalidJSONError, read_json

StateT = TypeVar("StateT")
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL)


class Judge(Rubric[StateT]):
    """Score with the answer of a model behind an OpenAI-compatible endpoint.

    The model must answer with exactly one JSON object, `{"score": NUMBER}`, alone or in a fence. Any other answer, and
    any failure of the endpoint, is a `ScoringError`, never a score. Its text quotes neither question nor answer, since
    both may hold secrets.

    Args:
        name: The name of the component.
        model: The name that the endpoint knows the model by.
        prompt: A function `(state, exchanges) -> str` that returns the question. How to answer is added to it.
        base_url: See `ChatModel`, as for `api_key_variable`, `timeout` (seconds) and `retries`.
        low: The lowest number that the model may answer. The answer is the score, not rescaled.
        high: The highest number that the model may answer.
        temperature: Sent with the question; None for models that refuse it.
        uses_exchanges: Whether the prompt reads the exchanges, so that the episode has to keep them.

    Raises:
        ValueError: The scale is not finite or empty, or timeout or retries make no sense.
    """

    is_async = True

    def __init__(
        self,
        name: str,
        *,
        model: str,
        prompt: Callable[[StateT, Exchanges], str],
        base_url: str | None = None,
        api_key_variable: str = "OPENAI_API_KEY",
        low: float = 0.0,
        high: float = 1.0,
        temperature: float | None = 0.0,
        timeout: float = 60.0,
        retries: int = 2,
        uses_exchanges: bool = True,
    ) -> None:
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"judge {name!r}: the scale [{low}, {high}] must be finite and not empty")
        self.name = name
        self.uses_exchanges = uses_exchanges
        self._prompt, self._low, self._high, self._temperature = prompt, low, high, temperature
        self._chat = ChatModel(
            model=model,
            base_url=base_url,
            api_key_variable=api_key_variable,
            timeout=timeout,
            retries=retries,
        )

    async def evaluate(self, state: StateT, exchanges: Exchanges) -> Score:
        """Return the model's answer as the only part.

        Raises:
            ScoringError: The model gave no valid score.
        """
        # Without an event loop this is where the call fails, with the sentence that names the async variant.
        await asyncio.sleep(0)
        rule = (
            'Answer with one JSON object and nothing else: {"score": NUMBER}, '
            f"where NUMBER is at least {self._low:g} and at most {self._high:g}."
        )
        question = self._prompt(state, exchanges)
        try:
            reply = await self._chat.ask(
                [{"role": "system", "content": rule}, {"role": "user", "content": question}],
                options={"temperature": self._temperature},
            )
        except ChatError as error:
            raise ScoringError(f"judge {self.name!r}: {error.reason}") from None
        return Score({self.name: self._read(reply.text)})

    def _read(self, answer: str) -> float:
        text = answer.strip()
        fenced = _FENCED.fullmatch(text)
        try:
            value = read_json(fenced[1] if fenced else text)
        except InvalidJSONError as error:
            quotes = '"' in error.reason
            reason = "a key appears twice or a number is too large" if quotes else error.reason
            raise self._error(f"is not one JSON object: {reason}") from None
        if not isinstance(value, dict) or value.keys() != {"score"}:
            raise self._error('is not an object with the one key "score"')
        score = value["score"]
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise self._error("has a score that is not a number")
        if not self._low <= score <= self._high:
            raise self._error(f"has a score outside [{self._low:g}, {self._high:g}]")
        return float(score)

    def _error(self, fault: str) -> ScoringError:
        return ScoringError(f"judge {self.name!r}: the answer of the model {fault}")
