"""The part of the multiprocessors' time that a matrix product uses."""

from hypothesis import given
from hypothesis import strategies as st

from simulator.laws.tiles import utilisation
from simulator.world.catalog import Tiles, tiles

SHORTEST = 1024

ONE = Tiles(sizes=((256, 128),), operand_cost=12.0, shortest_sum=SHORTEST)
SHORT = 512
"""Too few terms to be split."""

sizes = st.integers(1, 20_000)
multiprocessors = st.integers(1, 300)


def test_whole_tiles_on_as_many_multiprocessors_waste_nothing():
    assert utilisation(512, 256, SHORT, 4, ONE) == 1.0


def test_a_tile_that_hangs_over_is_worked_out_whole():
    """One row more than two tiles: three tiles on four multiprocessors, of which 513 / 768 of the rows count."""
    assert utilisation(513, 128, SHORT, 4, ONE) == 513 / 768 * 3 / 4


def test_one_tile_too_many_takes_a_second_wave():
    """Five tiles on four multiprocessors: two waves, eight tiles' time."""
    assert utilisation(5 * 256, 128, SHORT, 4, ONE) == 5 / 8


def test_long_sums_are_split_where_there_are_few_tiles():
    """One tile on four multiprocessors: a quarter; with the sum in four parts all of them work."""
    assert utilisation(256, 128, 3 * SHORTEST, 4, ONE) == 1 / 2
    assert utilisation(256, 128, 4 * SHORTEST, 4, ONE) == 1.0


def test_products_that_run_as_one_kernel_share_its_waves():
    """Experts of one tile each: six fill one wave and a half."""
    assert utilisation(256, 128, SHORT, 4, ONE, count=6) == 6 / 8


def test_a_smaller_tile_fills_more_multiprocessors_and_is_slower_itself():
    """64 x 64 on one multiprocessor: an eighth of the large tile, or all of a small one at its lower rate."""
    both = Tiles(sizes=((256, 128), (64, 64)), operand_cost=12.0, shortest_sum=SHORTEST)
    assert utilisation(64, 64, SHORT, 1, both) == (1 + 12 * 384 / 32768) / (1 + 12 * 128 / 4096)


@given(sizes, sizes, sizes, multiprocessors, st.integers(1, 64))
def test_it_is_a_part_of_the_time(m, n, k, available, count):
    assert 0 < utilisation(m, n, k, available, tiles(), count) <= 1


@given(sizes, sizes, sizes, multiprocessors)
def test_products_have_no_direction(m, n, k, available):
    """The shipped tiles come in both directions."""
    assert utilisation(m, n, k, available, tiles()) == utilisation(n, m, k, available, tiles())


@given(st.integers(1, 64), st.integers(1, 64), multiprocessors)
def test_whole_waves_waste_nothing(rows, columns, available):
    assert utilisation(256 * rows * available, 128 * columns, SHORT, available, ONE) == 1.0
