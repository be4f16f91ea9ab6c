"""The generator of an episode gives the numbers of a plain one that is seeded at once, whatever is asked of it first."""

from __future__ import annotations

import copy
import hashlib
import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from canonical.catalogue import load_environment
from canonical.environment import Rng
from canonical.episode import episode_rng

WORDLE = load_environment("wordle")
TASK = next(iter(WORDLE.tasks()))


def eager(seed: int) -> random.Random:
    """Return the same generator by the definition: seeded with the SHA-256 of what names the episode."""
    key = "\0".join((WORDLE.name, WORDLE.version, TASK.id, str(seed)))
    return random.Random(int.from_bytes(hashlib.sha256(key.encode()).digest(), "big"))


def _pick(rng: random.Random) -> Any:
    return rng.choice([*"abcdefghij"])


def _shuffled(rng: random.Random) -> Any:
    items = list(range(60))
    rng.shuffle(items)
    return items


def _by_a_method_taken_before(rng: random.Random) -> Any:
    draw, bits = rng.random, rng.getrandbits
    return [draw(), draw(), bits(70), draw()]


def _seeded_again(rng: random.Random) -> Any:
    rng.seed("again")
    return rng.random()


def _set_to_a_state(rng: random.Random) -> Any:
    rng.setstate(random.Random(7).getstate())
    return rng.random()


USES: dict[str, Callable[[random.Random], Any]] = {
    "random": lambda rng: rng.random(),
    "getrandbits": lambda rng: rng.getrandbits(100),
    "randbytes": lambda rng: rng.randbytes(9),
    "randrange": lambda rng: [rng.randrange(10**30) for _ in range(20)],
    "choice": _pick,
    "choices": lambda rng: rng.choices("abcdef", k=9),
    "shuffle": _shuffled,
    "sample": lambda rng: rng.sample(range(1000), 40),
    "gauss": lambda rng: [rng.gauss(0, 1) for _ in range(3)],
    "normalvariate": lambda rng: rng.normalvariate(0, 1),
    "getstate": lambda rng: rng.getstate(),
    "setstate": _set_to_a_state,
    "seed": _seeded_again,
    "methods taken before the first use": _by_a_method_taken_before,
    "copy": lambda rng: copy.copy(rng).random(),
    "deepcopy": lambda rng: copy.deepcopy({"rng": rng})["rng"].random(),
    "pickle": lambda rng: pickle.loads(pickle.dumps(rng)).random(),  # noqa: S301 - written here
    "a snapshot": lambda rng: TypeAdapter(Rng).dump_python(rng),
}


@pytest.mark.parametrize("use", USES)
def test_the_first_use_and_what_follows_give_the_numbers_of_a_generator_seeded_at_once(use: str) -> None:
    for seed in (0, 1, 2**70):
        lazy, plain = episode_rng(WORDLE, TASK, seed), eager(seed)
        assert isinstance(lazy, random.Random)
        assert USES[use](lazy) == USES[use](plain)
        assert lazy.getstate() == plain.getstate()
        assert [lazy.random(), lazy.gauss(0, 1), _pick(lazy)] == [
            plain.random(),
            plain.gauss(0, 1),
            _pick(plain),
        ]


def test_two_generators_of_one_episode_draw_side_by_side_without_touching_each_other() -> None:
    mine, other, plain = episode_rng(WORDLE, TASK, 5), episode_rng(WORDLE, TASK, 5), eager(5)
    drawn = [(mine.random(), other.random()) for _ in range(5)]
    assert drawn == [(number, number) for number in (plain.random() for _ in range(5))]
