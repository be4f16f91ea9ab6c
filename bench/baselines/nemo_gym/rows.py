"""The rows of the hand-written Wordle: what the JSONL files of its data sets would hold."""

from __future__ import annotations

from typing import Any

from bench.baselines.nemo_gym.wordle import PROMPT, SPLITS, TOOLS


def rows(split: str) -> list[dict[str, Any]]:
    """Return a row for each word of a split."""
    return [
        {
            "responses_create_params": {"input": [{"role": "user", "content": PROMPT}], "tools": TOOLS},
            "id": f"{split}/{number:04d}",
            "task": f"{split}/{number:04d}",
        }
        for number in range(len(SPLITS[split]))
    ]
