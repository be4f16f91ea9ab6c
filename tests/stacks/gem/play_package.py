"""Play an episode of an installed package with `gem.make`, where this project is not: prints what was seen, as JSON."""

from __future__ import annotations

import json
import sys
from importlib import import_module

import gem


def main():
    asked = json.load(sys.stdin)
    for shown in asked["readme"]:
        exec(shown, {})  # noqa: S102 - what it tells a reader to run
    env = gem.make(import_module(asked["module"]).ENV_ID)
    observation, _ = env.reset(task=asked["task"], seed=asked["seed"])
    steps = []
    for text in asked["texts"]:
        seen, reward, terminated, truncated, info = env.step(text)
        steps.append([seen, reward, info["total"], info.get("cause")])
        assert (terminated or truncated) == ("cause" in info)
    env.close()
    print(
        json.dumps(
            {"prompt": observation, "as_text": True, "steps": steps, "return": sum(step[1] for step in steps)}
        )
    )


if __name__ == "__main__":
    main()
