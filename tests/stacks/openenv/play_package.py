"""Play an episode of an installed package with its own client and server, where this project is not; prints what was seen.

`openenv validate` looks at the folder, and at the running server.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

PORT = 18431
URL = f"http://127.0.0.1:{PORT}"
OPENENV = Path(sys.executable).parent / "openenv"


def validate(*arguments):
    done = subprocess.run(
        [OPENENV, "validate", *arguments, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def main():
    asked = json.load(sys.stdin)
    validate(asked["folder"])
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", f"{asked['module']}.server.app", "--port", str(PORT)], stdout=sys.stderr
    )
    try:
        for _ in range(600):
            assert server.poll() is None
            try:
                with urlopen(f"{URL}/health", timeout=5):  # noqa: S310 - an address of its own
                    break
            except URLError:
                time.sleep(0.1)
        assert validate("--url", URL, "--timeout", "60")["passed"]
        for shown in asked["readme"]:
            exec(shown.replace("http://127.0.0.1:8000", URL), {})  # noqa: S102 - what it tells a reader to run
        seen = play(asked)
    finally:
        server.terminate()
        server.wait(30)
    print(json.dumps(seen))


def play(asked):
    package = import_module(asked["module"])
    client = next(value for name, value in vars(package).items() if name.endswith("Env"))
    with client(base_url=URL, message_timeout_s=300.0).sync() as env:
        start = env.reset(split=asked["split"], index=asked["index"], seed=asked["seed"])
        assert start.observation["task"] == asked["task"]
        steps = []
        for call in asked["calls"]:
            result = env.step(package.call(call["name"], **call["arguments"]))
            shown = result.observation
            steps.append([shown["result"], result.reward, shown["total"], shown["cause"]])
            assert result.done == (shown["cause"] is not None)
    prompt = "\n\n".join(message["content"] for message in start.observation["prompt"])
    return {"prompt": prompt, "steps": steps, "return": sum(step[1] for step in steps)}


if __name__ == "__main__":
    main()
