"""The one command line: `rosetta` or `python -m rosetta`."""

from __future__ import annotations

import sys

import click

from rosetta import author, frameworks
from rosetta.console import CANNOT_RUN, INTERRUPTED, Console

OWN = {"adapters", "bench", "canonical", "reports", "rosetta"}


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


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, with the arguments of the process unless others are given, and leave with its exit code."""
    try:
        code = cli.main(arguments, prog_name="rosetta", standalone_mode=False)
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
    except Exception as error:
        # Exceptions of this project, and what the system refuses, are sentences for a person. Others are faults of ours.
        if type(error).__module__.partition(".")[0] not in OWN and not isinstance(error, OSError):
            raise
        Console().error(str(error))
        code = CANNOT_RUN
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
