"""Where lines cross and which one leads, with numbers that are exact in binary."""

from math import nan

from hypothesis import given
from hypothesis import strategies as st

from simulator.readings.crossings import Change, Crossing, Scale, changes, crossings

LOG = Scale(logarithmic=True)


def test_lines_cross_where_their_difference_vanishes():
    """On a linear axis at x = 1: the differences are -2 and 6, so a quarter of the way.

    8 |              a
    2 |  b-- x ------b
    0 |  a
      +--0---1-------4
    """
    lines = {"a": [0.0, 8.0], "b": [2.0, 2.0]}
    assert crossings([0.0, 4.0], lines) == [Crossing(at=1.0, height=2.0, lines=("a", "b"))]


def test_on_a_logarithmic_axis_a_share_of_the_way_is_a_share_of_the_ratio():
    """Half the way from 1 to 16 is 4; on a linear axis it would be 8.5.

    6 |  a       b
    4 |      x
    2 |  b       a
      +--1---4---16
    """
    lines = {"a": [6.0, 2.0], "b": [2.0, 6.0]}
    assert crossings([1.0, 16.0], lines, LOG) == [Crossing(at=4.0, height=4.0, lines=("a", "b"))]
    assert crossings([1.0, 16.0], lines)[0].at == 8.5


def test_heights_on_a_logarithmic_axis_cross_where_the_lines_as_drawn_do():
    """From 1 to 16 and from 16 to 1 the lines meet at 4 = sqrt(16), not at 8.5."""
    (meeting,) = crossings([0.0, 1.0], {"a": [1.0, 16.0], "b": [16.0, 1.0]}, y=LOG)
    assert (meeting.at, meeting.height) == (0.5, 4.0)


def test_lines_that_meet_at_a_point_and_part_in_the_other_order_cross_there():
    """
    3 |  a       b
    2 |    2---2          both run together from x = 1 to x = 2
    1 |  b       a
      +--0-1---2-3
    """
    lines = {"a": [3.0, 2.0, 2.0, 1.0], "b": [1.0, 2.0, 2.0, 3.0]}
    assert crossings([0.0, 1.0, 2.0, 3.0], lines) == [Crossing(at=1.0, height=2.0, lines=("a", "b"))]


def test_lines_that_only_touch_or_begin_together_do_not_cross():
    assert crossings([0.0, 1.0, 2.0], {"a": [3.0, 2.0, 3.0], "b": [1.0, 2.0, 1.0]}) == []
    assert crossings([0.0, 1.0, 2.0], {"a": [2.0, 2.0, 3.0], "b": [2.0, 2.0, 1.0]}) == []


def test_across_a_hole_nothing_is_known():
    assert crossings([0.0, 1.0, 2.0], {"a": [0.0, nan, 4.0], "b": [1.0, 1.0, 1.0]}) == []


def test_the_lead_changes_hands_more_than_once_between_two_points():
    """b overtakes a at 1 (4 = 3 + 1) and c overtakes b at 2, both between the same points.

    8 |          c     c = -4 + 4.5x   a = 4
      |        b       b =  3 + x
    4 |  a-x-----a
    3 |  b
      +--0-1-2---4     c - b = -7 + 3.5x
    """
    lines = {"a": [4.0, 4.0], "b": [3.0, 7.0], "c": [-4.0, 14.0]}
    assert changes([0.0, 4.0], lines) == [
        Change(at=1.0, height=4.0, before="a", after="b", met=True),
        Change(at=2.0, height=5.0, before="b", after="c", met=True),
    ]


def test_less_may_be_better():
    lines = {"a": [1.0, 3.0], "b": [2.0, 2.0]}
    assert changes([0.0, 2.0], lines, upward=False) == [Change(at=1.0, height=2.0, before="a", after="b", met=True)]
    assert changes([0.0, 2.0], lines) == [Change(at=1.0, height=2.0, before="b", after="a", met=True)]


def test_a_line_that_ends_hands_the_lead_over_at_the_next_point():
    """
    2 |  a   a             no longer fits in memory from x = 4 on
    1 |  b   b   b   b
      +--1---2---4---8
    """
    lines = {"a": [2.0, 2.0, nan, nan], "b": [1.0, 1.0, 1.0, 1.0]}
    expected = Change(at=4.0, height=1.0, before="a", after="b", met=False)
    assert changes([1.0, 2.0, 4.0, 8.0], lines, LOG) == [expected]


def test_a_line_that_begins_takes_the_lead_where_it_begins():
    lines = {"a": [nan, 2.0, 2.0], "b": [1.0, 1.0, 1.0]}
    assert changes([1.0, 2.0, 3.0], lines) == [Change(at=2.0, height=2.0, before="b", after="a", met=False)]


def test_of_equals_the_one_that_will_lead_leads_from_the_start():
    assert changes([0.0, 1.0], {"a": [1.0, 1.0], "b": [1.0, 2.0]}) == []


heights = st.lists(st.integers(1, 6).map(float) | st.just(nan), min_size=5, max_size=5)
places = [1.0, 2.0, 4.0, 8.0, 16.0]


@given(st.dictionaries(st.sampled_from("abc"), heights, min_size=1), st.booleans(), st.booleans(), st.booleans())
def test_after_each_change_the_line_that_leads_is_the_best_at_the_next_points(lines, upward, log_x, log_y):
    """Law: between changes, the leader is at least as good as every line at every point where anything is known."""
    x, y = Scale(logarithmic=log_x), Scale(logarithmic=log_y)
    found = changes(places, lines, x, y, upward=upward)
    assert [turn.at for turn in found] == sorted(turn.at for turn in found)
    assert [turn.before for turn in found[1:]] == [turn.after for turn in found[:-1]]
    best = max if upward else min
    for number, place in enumerate(places):
        known = {name: line[number] for name, line in lines.items() if line[number] == line[number]}
        past = [turn.after for turn in found if turn.at <= place]
        if known and past:
            leaders = {past[-1], *(turn.before for turn in found if turn.at == place)}
            assert best(known.values()) in {known.get(name) for name in leaders}


@given(heights, heights, st.booleans())
def test_crossings_do_not_depend_on_the_order_of_the_lines(one, other, log_y):
    y = Scale(logarithmic=log_y)
    ahead, back = (
        [(meeting.at, meeting.height) for meeting in crossings(places, lines, y=y)]
        for lines in ({"a": one, "b": other}, {"b": other, "a": one})
    )
    assert len(ahead) == len(back)
    assert all(abs(a - b) < 1e-9 for one, two in zip(ahead, back, strict=True) for a, b in zip(one, two, strict=True))
