"""The steady step that we record after rehearsals is the last step that was recorded of the real framework."""

import pytest

from simulator.schedules.record import steady_step
from tests.recorded.recording import ours, recordings
from tests.recorded.systems import job, policy


@pytest.mark.parametrize("recording", recordings(), ids=lambda item: item.path.stem)
def test_the_steady_step_is_the_recorded_one(recording):
    """One micro-batch teaches a framework as much as all of them."""
    steps = recording.steps()
    expected = [issued for issued, _ in recording.issued(steps[max(steps)])]
    assert [issued for issued, _ in ours(steady_step(job(recording), policy(recording)))] == expected
