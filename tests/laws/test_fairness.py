"""Max-min fairness, against its definition and against another implementation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.laws.fairness import max_min_rates

CAPACITY = st.lists(st.floats(0.5, 100), min_size=1, max_size=5)


@st.composite
def networks(draw):
    capacity = draw(CAPACITY)
    links = st.dictionaries(st.integers(0, len(capacity) - 1), st.floats(0.1, 3), min_size=1)
    usage = draw(st.lists(links.map(lambda column: sorted(column.items())), min_size=1, max_size=6))
    return usage, capacity


def load(usage, rates, link):
    return sum(share * rate for column, rate in zip(usage, rates, strict=True) for at, share in column if at == link)


@given(networks())
def test_no_link_is_over_capacity(network):
    usage, capacity = network
    rates = max_min_rates(usage, capacity)
    assert all(load(usage, rates, link) <= capacity[link] * (1 + 1e-9) for link in range(len(capacity)))


@given(networks())
def test_each_transfer_has_a_full_link_on_which_nobody_is_faster(network):
    usage, capacity = network
    rates = max_min_rates(usage, capacity)
    for column, rate in zip(usage, rates, strict=True):
        assert any(
            load(usage, rates, link) >= capacity[link] * (1 - 1e-9)
            and all(
                other <= rate * (1 + 1e-9) for others, other in zip(usage, rates, strict=True) if link in dict(others)
            )
            for link, _ in column
        )


@given(networks(), st.randoms())
def test_the_order_of_transfers_does_not_matter(network, random):
    usage, capacity = network
    order = list(range(len(usage)))
    random.shuffle(order)
    shuffled = max_min_rates([usage[index] for index in order], capacity)
    rates = max_min_rates(usage, capacity)
    assert shuffled == pytest.approx([rates[index] for index in order], rel=1e-9)


def test_more_bandwidth_can_make_a_neighbour_slower():
    """Not a law, though it looks like one: the first link from 2 to 4 lowers the third transfer from 3 to 2."""
    usage = [[(0, 1), (1, 1), (2, 1)], [(0, 1), (1, 1), (2, 1)], [(1, 1)]]
    assert max_min_rates(usage, [2, 5, 3]) == [1, 1, 3]
    assert max_min_rates(usage, [4, 5, 3]) == [1.5, 1.5, 2]


def test_a_transfer_without_links_is_not_held_back():
    assert max_min_rates([[]], [1.0]) == [float("inf")]
