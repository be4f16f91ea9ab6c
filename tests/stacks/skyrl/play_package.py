"""Play an episode of an installed package with `skyrl_gym.make`, where this project is not: prints what was seen, as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module

import skyrl_gym


def main():
    asked = json.load(sys.stdin)
    for shown in asked["readme"]:
        exec(shown, {})  # noqa: S102 - what it tells a reader to run
    name = import_module(asked["module"]).ENV_ID
    split = asked["task"].partition("/")[0]
    written = subprocess.run(
        [sys.executable, "-m", f"{asked['module']}.dataset", "--split", split],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [json.loads(line) for line in written.stdout.splitlines()]
    row = next(row for row in rows if row["extra_info"]["task"] == asked["task"])
    assert row["env_class"] == name
    row["extra_info"]["seed"] = asked["seed"]
    env = skyrl_gym.make(name, env_config={}, extras={"extra_info": row["extra_info"], "max_turns": 1000})
    conversation, _ = env.init(row["prompt"])
    steps = []
    for text in asked["texts"]:
        output = env.step(text)
        (seen,) = output["observations"]
        said = output["metadata"]
        steps.append([seen["content"], output["reward"], said["total"], said["cause"]])
        assert output["done"] == (said["cause"] is not None)
    metrics = env.get_metrics()
    env.close()
    prompt = "\n\n".join(message["content"] for message in conversation)
    print(json.dumps({"prompt": prompt, "as_text": True, "steps": steps, "return": metrics["return"]}))


if __name__ == "__main__":
    main()
