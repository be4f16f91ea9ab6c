"""Play an episode of an installed package with ORS's server and client, where this project is not; prints what was seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from urllib.error import URLError
from urllib.request import urlopen

PORT = 18432
URL = f"http://127.0.0.1:{PORT}"

os.environ |= {"OPENREWARD_DISABLE_UPDATE_CHECK": "1", "OPENREWARD_API_KEY": "none"}


def main():
    asked = json.load(sys.stdin)
    # As the container starts it, but with what is installed: the folder of the package is not on the path.
    server = subprocess.Popen(
        [sys.executable, "-P", f"{asked['folder']}/server.py", "--port", str(PORT)], stdout=sys.stderr
    )
    try:
        for _ in range(600):
            assert server.poll() is None
            try:
                with urlopen(f"{URL}/health", timeout=5):  # noqa: S310 - an address of its own
                    break
            except URLError:
                time.sleep(0.1)
        for shown in asked["readme"]:
            exec(shown.replace("http://127.0.0.1:8080", URL), {})  # noqa: S102 - what it tells a reader to run
        seen = play(asked)
    finally:
        server.terminate()
        server.wait(30)
    print(json.dumps(seen))


def play(asked):
    from openreward import OpenReward
    from openreward.api.environments.types import Task

    name = asked["name"]
    client = OpenReward(api_key="none")
    environment = client.environments.get(name, variant=name, base_url=URL)
    listed = environment.list_tasks(asked["split"])
    spec = listed[asked["index"]].task_spec
    assert spec["id"] == asked["task"]
    task = Task(
        server_name=name, environment_name=name, task_spec={**spec, "seed": asked["seed"]}, namespace=None
    )
    with environment.session(task=task) as session:
        prompt = "\n\n".join(block.text for block in session.get_prompt())
        steps = []
        for call in asked["calls"]:
            output = session.call_tool(call["name"], call["arguments"])
            said = output.metadata
            steps.append([output.blocks[0].text, output.reward, said["total"], said.get("cause")])
            assert output.finished == ("cause" in said)
    client.close()
    return {"prompt": prompt, "steps": steps, "return": sum(step[1] for step in steps)}


if __name__ == "__main__":
    main()
