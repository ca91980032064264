"""The schedule that answers for these recordings, set up from what was passed to the library."""

from collections.abc import Iterator

import pytest

from simulator.schedules.program import Program
from tests.recorded.recording import Recording


def programs(recording: Recording) -> Iterator[Program]:
    """Our programs, step after step."""
    pytest.skip(f"{recording.system} has no schedule yet")
