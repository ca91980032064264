"""What communication does to kernels beside it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.laws.interference import ABSENT, MOST, Contention, Measured, Occupancy

shares = st.floats(0, 1)
occupancies = st.lists(st.builds(Occupancy, st.integers(0, 64), st.floats(0, 4e12)), min_size=1, max_size=4)
LAWS = [ABSENT, Measured(1.76), Contention(multiprocessors=128, memory=2e12)]


def test_channels_take_multiprocessors_from_arithmetic():
    """32 of 128 multiprocessors: what was bound by arithmetic takes 4/3 as long, what was bound by memory does not."""
    law = Contention(multiprocessors=128, memory=2e12)
    beside = [Occupancy(32, 0.0)]
    assert law.stretch(0.0, beside) == 4 / 3
    assert law.stretch(1.0, beside) == 1.0
    assert law.stretch(0.25, beside) == 0.75 * 4 / 3 + 0.25


def test_copies_take_bandwidth_from_memory_traffic():
    """H100 of network.md 7.3: 335 GB/s gathered, twice through a memory of 3350 GB/s: a fifth of it, 1.25 times."""
    law = Contention(multiprocessors=132, memory=3350e9)
    assert law.stretch(1.0, [Occupancy(0, 2 * 335e9)]) == pytest.approx(1.25)


def test_collectives_side_by_side_add_up():
    law = Contention(multiprocessors=128, memory=2e12)
    assert law.stretch(0.5, [Occupancy(16, 1e11), Occupancy(16, 3e11)]) == law.stretch(0.5, [Occupancy(32, 4e11)])


def test_something_is_always_left_for_kernels():
    law = Contention(multiprocessors=4, memory=1e9)
    assert law.stretch(0.5, [Occupancy(64, 1e12)]) == 1 / (1 - MOST)


@pytest.mark.parametrize("law", LAWS)
@given(movement=shares, beside=occupancies)
def test_nothing_gets_faster(law, movement, beside):
    assert law.stretch(movement, beside) >= 1


@pytest.mark.parametrize("law", LAWS)
@given(movement=shares, beside=occupancies, more=st.builds(Occupancy, st.integers(0, 64), st.floats(0, 4e12)))
def test_more_communication_never_helps(law, movement, beside, more):
    assert law.stretch(movement, [*beside, more]) >= law.stretch(movement, beside)
