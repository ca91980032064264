"""The command, run inside this process, which saves a second of imports each time."""

import contextlib
import io
import subprocess
import sys
from pathlib import Path

from simulator.cli import main

__all__ = ["zerosim"]

ROOT = Path(__file__).parents[1]


def zerosim(*arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run ``zerosim`` with *arguments* in *cwd*; what it printed, and its exit code."""
    out, err = io.StringIO(), io.StringIO()
    argv, sys.argv = sys.argv, ["zerosim", *map(str, arguments)]
    try:
        with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
        code = 0
    except SystemExit as leave:
        code = int(leave.code or 0)
    finally:
        sys.argv = argv
    return subprocess.CompletedProcess(list(map(str, arguments)), code, out.getvalue(), err.getvalue())
