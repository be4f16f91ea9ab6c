"""Scripts of held sessions say what a framework that scores an episode must say when it is left after the last call."""

from __future__ import annotations

import asyncio

import pytest

from bench.conformance import TOUCHSTONE
from bench.plan import PLANS
from bench.recording import make_scripts, shorten
from bench.trials import load_script
from canonical.catalogue import load_environment
from canonical.episode import Episode
from canonical.step import Cause
from canonical.transcript import action_from_json


@pytest.mark.parametrize("name", ["wordle", TOUCHSTONE])
def test_the_total_of_a_script_is_the_return_of_an_episode_that_is_left_there(name):
    environment = load_environment(name)
    plan = PLANS["quick"].model_copy(update={"scripts": 2})

    async def left(script):
        episode = Episode.open(environment, script.task, seed=script.seed)
        for call in script.calls:
            await episode.step_async(action_from_json(call))
        if episode.cause is None:
            await episode.truncate(Cause.CANCELLED)
        return episode.total

    scripts = asyncio.run(make_scripts(environment, plan))
    for turns in (1, plan.held.turns):
        for script in shorten(scripts, turns):
            loaded = load_script(script)
            assert loaded.expected_total(turns) == loaded.total == asyncio.run(left(script))
