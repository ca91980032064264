"""Our schedules issue what the real frameworks issued: one test per recording."""

from itertools import islice

import pytest

from tests.recorded.recording import ours, recordings
from tests.recorded.systems import programs

FOUND = recordings()


@pytest.mark.parametrize("recording", FOUND, ids=lambda item: item.path.stem)
def test_same_collectives_in_the_same_order(recording):
    """Kind, element counts, type, ranks, phase - and which collectives share a communicator."""
    steps = recording.steps()
    played = list(islice(programs(recording), max(steps) + 1))
    for number, events in steps.items():
        expected, found = recording.issued(events), ours(played[number])
        assert [issued for issued, _ in found] == [issued for issued, _ in expected], f"step {number}"
        names = {(group.name, communicator) for (_, group), (_, communicator) in zip(found, expected, strict=True)}
        assert len(names) == len({name for name, _ in names}) == len({identity for _, identity in names})


def test_there_are_recordings():
    assert FOUND
