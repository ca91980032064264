"""Laws of the Pareto front."""

from hypothesis import given
from hypothesis import strategies as st

from simulator.readings.front import front

rows = st.integers(1, 3).flatmap(
    lambda columns: st.lists(st.lists(st.integers(-3, 3), min_size=columns, max_size=columns), max_size=30)
)


def dominates(one, other):
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


@given(rows)
def test_the_front_is_what_no_row_dominates(found):
    assert front(found) == [at for at, row in enumerate(found) if not any(dominates(other, row) for other in found)]


@given(rows)
def test_whatever_is_not_on_the_front_is_dominated_by_a_member(found):
    members = front(found)
    beaten = [row for at, row in enumerate(found) if at not in members]
    assert all(any(dominates(found[member], row) for member in members) for row in beaten)


@given(rows, st.randoms())
def test_the_order_of_rows_does_not_matter(found, random):
    shuffled = random.sample(found, len(found))
    assert sorted(shuffled[at] for at in front(shuffled)) == sorted(found[at] for at in front(found))


@given(rows, st.integers(1, 5), st.integers(-5, 5))
def test_units_do_not_matter(found, factor, offset):
    assert front([[factor * value + offset for value in row] for row in found]) == front(found)


@given(rows)
def test_the_front_of_the_front_is_the_front(found):
    members = [found[at] for at in front(found)]
    assert front(members) == list(range(len(members)))
