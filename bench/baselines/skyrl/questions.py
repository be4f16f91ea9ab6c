"""Rows for the environments of arithmetic that SkyRL Gym ships without any."""

from __future__ import annotations

from typing import Any

_QUESTIONS = {
    "train": [
        ("A box holds 12 pencils. How many pencils are in 7 boxes?", "84"),
        ("Mara reads 15 pages a day. How many days does she need for 180 pages?", "12"),
        ("A train leaves at 9:40 and arrives at 11:05. How many minutes does it take?", "85"),
        ("Of 240 seats, three eighths are free. How many are taken?", "150"),
    ],
    "validation": [
        ("The sum of three consecutive whole numbers is 72. Which is the greatest?", "25"),
        (
            "A rectangle is 3 times as long as wide, and its edges measure 64 together. What is its area?",
            "192",
        ),
    ],
}
_FORMS = {
    "gsm8k": "End with a line of four number signs, a space and the number.",
    "gsm8k_multi_turn": "End with a line of four number signs, a space and the number.",
    "aime": "End with a line that begins with Answer: and the number in \\boxed{}.",
}


def rows(split: str) -> list[dict[str, Any]]:
    """Return the rows of a split for each of the environments, in the columns that they read."""
    return [
        {
            "data_source": "questions",
            "prompt": [{"role": "user", "content": f"{question} {form}"}],
            "env_class": env_class,
            "reward_spec": {"method": "rule", "ground_truth": answer},
            "reward_model": {"style": "rule", "ground_truth": answer},
            "extra_info": {"split": split, "index": index},
        }
        for env_class, form in _FORMS.items()
        for index, (question, answer) in enumerate(_QUESTIONS[split])
    ]
