"""The command ``zerosim``: parses, calls, prints.  Nothing else in the package prints."""

from __future__ import annotations

import gc
import sys

import click

from simulator import __version__
from simulator.cli.answers import ladder, rent
from simulator.cli.calibrate import calibrate
from simulator.cli.collective import collective
from simulator.cli.compare import compare
from simulator.cli.imports import import_
from simulator.cli.new import new
from simulator.cli.require import require
from simulator.cli.review import report
from simulator.cli.sweep import sweep
from simulator.cli.topology import topology
from simulator.cli.tune import tune
from simulator.cli.validate import validate
from simulator.cli.variants import memory, plot, program, run, show, trace, volume
from simulator.cli.whatif import whatif
from simulator.errors import BrokenLawError, InputError

__all__ = ["main"]

BAD_INPUT, OUR_BUG, INTERRUPTED = 2, 70, 130
"""Exit codes: what the user wrote is wrong; a law was broken (``EX_SOFTWARE``); Ctrl-C."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="%(version)s")
def zerosim() -> None:
    """Say how long a training step takes, how much communication is exposed, and why."""


topology.add_command(import_)
topology.add_command(calibrate)
for command in (new, run, show, program, volume, memory, trace, plot, topology, collective):
    zerosim.add_command(command)
for command in (sweep, compare, whatif, require, tune, ladder, rent, report, validate):
    zerosim.add_command(command)


def main() -> None:
    """Run the command line; errors become one line and an exit code."""
    gc.set_threshold(1_000_000, 20, 20)  # a simulation makes many small objects that all stay: a third of the time
    try:
        zerosim(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(_told("interrupted", INTERRUPTED))
    except KeyboardInterrupt:
        sys.exit(_told("interrupted", INTERRUPTED))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        sys.exit(_told(error.format_message(), error.exit_code))
    except click.exceptions.Exit as leave:
        sys.exit(leave.exit_code)
    except InputError as error:
        sys.exit(_told(str(error), BAD_INPUT))
    except OSError as error:  # what is read raises InputError, so this was written
        sys.exit(_told(f"{error.filename}: cannot be written: {error.strerror}", BAD_INPUT))
    except BrokenLawError as error:
        sys.exit(_told(f"this is a bug of zerosim, please report it: {error}", OUR_BUG))


def _told(message: str, code: int) -> int:
    print(f"zerosim: {message}", file=sys.stderr)
    return code
