"""The one command line: `rosetta` or `python -m rosetta`."""

from __future__ import annotations

import sys

import click

from bench.client import WorkerError
from bench.records import RunError
from bench.scenarios import ScenarioError
from bench.stacks import StackError
from canonical.adapter import AdapterFactsError, SessionError
from canonical.catalogue import UnknownEnvironmentError
from canonical.chat import ChatError
from canonical.environment import NoOracleError
from canonical.task import TaskLoadError, UnknownTaskError
from canonical.tool import ToolDefinitionError
from canonical.transcript import TranscriptError
from rosetta import author, frameworks
from rosetta.console import CANNOT_RUN, INTERRUPTED, Console

EXPECTED = (
    AdapterFactsError,
    NoOracleError,
    ChatError,
    RunError,
    ScenarioError,
    SessionError,
    StackError,
    TaskLoadError,
    ToolDefinitionError,
    TranscriptError,
    UnknownEnvironmentError,
    UnknownTaskError,
    WorkerError,
    OSError,
)
"""What a person can meet without a fault of this program: each is one clear line, not a traceback."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="rosetta-environments", prog_name="rosetta")
def cli() -> None:
    r"""Define an RL environment for language models once; run, prove and measure it under every framework.

    \b
    Start here:
      rosetta envs                       which environments there are
      rosetta play wordle                play one yourself
      rosetta doctor                     which frameworks are ready, and what is missing
      rosetta conformance openenv        prove that a framework shows the same behaviour
      rosetta bench openenv --plan quick measure it, and write a report

    Exit codes: 0 all is well; 1 a check failed (a divergence, a broken promise); 2 the command was wrong;
    3 something outside is missing or broke down; 130 interrupted.
    """


for command in (*author.COMMANDS, *frameworks.COMMANDS):
    cli.add_command(command)


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Exit as wanted:
        code = wanted.exit_code
    except click.UsageError as error:
        error.show()
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = CANNOT_RUN
    except (click.Abort, KeyboardInterrupt):
        Console().error("interrupted")
        code = INTERRUPTED
    except EXPECTED as error:
        Console().error(str(error))
        code = CANNOT_RUN
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
