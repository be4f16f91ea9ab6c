"""Packages are installed where this project is not, accepted by their framework, and played through its own tools.

`tests/stacks/<name>/play_package.py` runs in the fresh environment: it reads what to play, and prints what it saw.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.porting.packaging import packaged_frameworks, write_package
from bench.stacks import ROOT, find_python, find_stack, find_uv
from canonical.catalogue import load_environment
from canonical.dialect import TextForm, write_calls
from canonical.episode import Episode
from canonical.tool import ToolCall

STACKS = Path(__file__).parents[1] / "stacks"
ENVIRONMENTS = {
    "wordle": "wordle",
    "coding_agent": "coding_agent",
    "by path": str(ROOT / "docs" / "examples" / "higher_lower.py"),
}
SEED = 7

pytestmark = pytest.mark.slow


class Place:
    """Be a fresh virtual environment, and packages of one framework in it."""

    def __init__(self, framework, folder):
        self.framework, self.folder = framework, folder
        self.stack = find_stack(framework)
        self.python = folder / "venv" / "bin" / "python"
        self.uv(["venv", "--quiet", "--python", find_python(self.stack.release.python), folder / "venv"])

    def install(self, source, name):
        """Write a package, build its wheel, and install that: the folder itself is not on the path."""
        written = write_package(source, self.framework, self.folder / name)
        built = self.folder / f"{name}-dist"
        self.uv(
            ["build", "--quiet", "--wheel", "--python", self.python, "--out-dir", built, written.folder]
        )  # fmt: skip
        (wheel,) = built.glob("*.whl")
        self.uv(
            ["pip", "install", "--quiet", "--python", self.python, "-c", written.folder / "constraints.txt", wheel]
        )  # fmt: skip
        return written

    def uv(self, arguments):
        self.run([find_uv(), *arguments])

    def run(self, command, **more):
        """Run a command of which nothing leads to this project."""
        leading = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
        environment = {key: value for key, value in os.environ.items() if key not in leading}
        environment["PATH"] = f"{self.folder / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [str(word) for word in command], cwd=self.folder, env=environment, text=True, capture_output=True,
            timeout=600, check=False, **more,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
        return done.stdout

    def play(self, written, asked):
        """Play an episode through the framework's own tools, after its validator has had a look and the README was tried."""
        script = STACKS / self.framework / "play_package.py"
        readme = (written.folder / "README.md").read_text(encoding="utf-8")
        asked = {
            **asked,
            "module": written.module,
            "folder": str(written.folder),
            "name": written.environment,
            "readme": re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL),
        }
        said = self.run([self.python, "-P", script], input=json.dumps(asked))
        return json.loads(said.splitlines()[-1])


def actions_of(environment, task):
    solving = list(environment.oracle(task))
    wrong = ToolCall(solving[0].name, {"no_such_argument": 1})
    return [ToolCall("no_such_tool", {}), wrong, *solving]


async def reference(environment, task, actions):
    episode = await Episode.open_async(environment, task, seed=SEED)
    prompt = "\n\n".join(message.text for message in episode.prompt)
    steps = []
    for action in actions:
        result = await episode.step_async(action)
        cause = None if result.cause is None else result.cause.value
        steps.append([result.observation.text, result.reward, result.total, cause])
    await episode.close_async()
    return prompt, steps


@pytest.fixture(scope="module", params=packaged_frameworks())
def place(request, tmp_path_factory):
    return Place(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_installed_package_plays_what_the_reference_plays(place, name):
    environment = load_environment(ENVIRONMENTS[name])
    tasks = environment.tasks()
    task = tasks.split(tasks.training_split)[1]
    calls = actions_of(environment, task)
    texts = [write_calls([call], TextForm.HERMES) for call in calls]
    written = place.install(ENVIRONMENTS[name], environment.name)
    seen = place.play(
        written,
        {
            "task": task.id, "index": 1, "split": task.split, "seed": SEED, "texts": texts,
            "calls": [{"name": call.name, "arguments": dict(call.arguments)} for call in calls],
        },
    )  # fmt: skip
    prompt, steps = asyncio.run(reference(environment, task, texts if seen.get("as_text") else calls))
    assert prompt in seen["prompt"]
    assert seen["steps"] == steps
    assert seen["return"] == steps[-1][2] > 0
    assert steps[-1][3] is not None


def test_nothing_of_this_project_is_installed_there(place):
    found = place.run(
        [
            place.python,
            "-P",
            "-c",
            "import importlib.util as u; print([u.find_spec(n) for n in ('canonical', 'adapters')])",
        ]
    )
    assert found.strip() == "[None, None]"
    assert Path(sys.prefix) != place.folder / "venv"
