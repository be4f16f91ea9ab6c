"""The one command line: `rosetta` or `python -m rosetta`."""

from __future__ import annotations

import signal
import sys

import click

from bench.stacks import UnknownStackError
from canonical.catalogue import UnknownEnvironmentError
from canonical.task import UnknownTaskError
from rosetta import (
    author,
    capacity,
    endurance,
    frameworks,
    gauntlet,
    parity,
    porting,
    sandboxes,
    serving,
    sources,
    tables,
    versions,
)
from rosetta.console import CANNOT_RUN, INTERRUPTED, WRONG_COMMAND, Console, print_anything

OWN = {"adapters", "bench", "canonical", "libraries", "reports", "rosetta"}
UNKNOWN_NAMES = (UnknownEnvironmentError, UnknownTaskError, UnknownStackError)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="rosetta-environments", prog_name="rosetta")
def cli() -> None:
    """Define an RL environment for language models once; run, prove and measure it under every framework.

    \b
    Start here:
      rosetta envs                         which environments there are
      rosetta play wordle                  play one yourself
      rosetta doctor                       which frameworks are ready, and what is missing
      rosetta conformance openenv --build  prove that a framework shows the same behaviour
      rosetta certify wordle --build       prove it of all frameworks at once, and write a certificate
      rosetta bench openenv --build        measure it, and write a report

    Exit codes: 0 all is well; 1 a check failed (a divergence, a broken promise); 2 the command was wrong;
    3 something outside is missing or broke down; 130 interrupted.
    """  # noqa: D301 - the backspace is click's mark for a paragraph that keeps its lines


for command in (
    *author.COMMANDS,
    *frameworks.COMMANDS,
    *serving.COMMANDS,
    *sources.COMMANDS,
    *capacity.COMMANDS,
    *endurance.COMMANDS,
    *parity.COMMANDS,
    *porting.COMMANDS,
    *sandboxes.COMMANDS,
    *gauntlet.COMMANDS,
    *tables.COMMANDS,
    *versions.COMMANDS,
):
    cli.add_command(command)


def _end_as_if_interrupted(*_: object) -> None:
    """Let SIGTERM, which batch systems and containers send, keep what was measured as Ctrl-C does."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As a shell starts what it puts into the background.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, with the arguments of the process unless others are given, and leave with its exit code."""
    print_anything()
    signal.signal(signal.SIGTERM, _end_as_if_interrupted)
    try:
        code = cli.main(arguments, prog_name="rosetta", standalone_mode=False)
    except click.exceptions.Exit as wanted:
        code = wanted.exit_code
    except click.exceptions.NoArgsIsHelpError as asked:
        click.echo(asked.format_message())
        code = WRONG_COMMAND
    except click.UsageError as error:
        if error.ctx is not None:
            click.echo(error.ctx.get_usage(), err=True)
        Console().error(error.format_message())
        code = WRONG_COMMAND
    except click.ClickException as error:
        Console().error(error.format_message())
        code = CANNOT_RUN
    except (click.Abort, KeyboardInterrupt):
        Console().error("interrupted")
        code = INTERRUPTED
    except Exception as raised:
        reason = _first_cause(raised)
        # Exceptions of this project, and what the system refuses, are sentences for a person. Others are faults of ours.
        if type(reason).__module__.partition(".")[0] not in OWN and not isinstance(reason, OSError):
            raise
        Console().error(str(reason))
        code = WRONG_COMMAND if isinstance(reason, UNKNOWN_NAMES) else CANNOT_RUN
    sys.exit(code if isinstance(code, int) else 0)


def _first_cause(error: BaseException) -> BaseException:
    """Return what stopped work that went on side by side: the first failure of the group."""
    return _first_cause(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


if __name__ == "__main__":
    main()
