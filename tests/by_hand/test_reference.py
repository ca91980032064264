"""Messages one by one, on clusters so small that the Gantt fits into a comment.  Times in seconds, all binary-exact."""

from dataclasses import replace

import pytest

from simulator.clock.reference import Job, aggregated, compared, everywhere, reference, reference_time
from simulator.errors import InputError
from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.channels import Layout, circuits, layout, rings
from simulator.laws.collectives.direct import Direct
from simulator.laws.collectives.doubling import RecursiveDoubling
from simulator.laws.collectives.hierarchical import Hierarchical
from simulator.laws.collectives.messages import Message, messages
from simulator.laws.collectives.nvls import Nvls
from simulator.laws.collectives.ring import Ring
from simulator.laws.collectives.rings import host_rings
from simulator.laws.collectives.tree import Tree
from simulator.units import Bandwidth, Duration
from simulator.world.mesh import Mesh
from simulator.world.topology.cluster import LinkOverride, load_cluster

FREE = 2.0**60


def override(bandwidth, latency=0.0):
    return LinkOverride(bandwidth=Bandwidth(bandwidth), latency=Duration(latency), efficiency=1.0)


def flat(ranks, latency=0.0):
    """One byte per second and rank; a message crosses two links."""
    return load_cluster("flat", hosts=ranks, overrides={"link": override(1.0, latency / 2)})


def two_by_two(hosts=2, *, inside=0.0, between=0.0, nvlink=4.0):
    """Hosts of two: 4 B/s inside, a card of 1 B/s for each device; *inside* and *between* are latencies of messages."""
    return load_cluster("dgx-h100", hosts=hosts, accelerators_per_host=2, overrides={
        "nvlink": override(nvlink, inside / 2), "pcie": override(FREE), "uplink": override(FREE),
        "network": override(1.0, between / 2),
    })  # fmt: skip


def world(cluster):
    return Mesh(hosts=cluster.hosts, devices_per_host=cluster.accelerators_per_host).world()


def asked(kind, payload, cluster, group=None):
    return Collective(kind=kind, elements=payload, bytes_per_element=1, group=group or world(cluster), role="test")


def time(cluster, kind, payload, algorithm, **options):
    return reference_time(cluster, asked(kind, payload, cluster), algorithm, **options).time


def test_a_ring_of_two_swaps_halves():
    """
    0 > 1  ====      2 B of the 4
    1 > 0  ====
    """
    run = reference_time(flat(2), asked("all_gather", 4.0, flat(2)), Ring())
    assert (run.time, run.messages, run.bound, run.still) == (2.0, 2, 2.0, 0.0)
    assert run.carried == (2.0,) * 4


def test_a_ring_of_three_passes_on_what_it_got():
    """
    0 > 1  ==--==    1 B each, then the byte from 2
    1 > 2  ==--==
    2 > 0  ==--==
    """
    cluster = flat(3)
    found = messages(asked("all_gather", 3.0, cluster), Ring(), layout(cluster, world(cluster)))
    assert found == (
        Message((0, 1), 1.0, (), None),
        Message((1, 2), 1.0, (), None),
        Message((2, 0), 1.0, (), None),
        Message((0, 1), 1.0, (2,), 0),
        Message((1, 2), 1.0, (0,), 1),
        Message((2, 0), 1.0, (1,), 2),
    )
    assert time(cluster, "all_gather", 3.0, Ring()) == 2.0
    assert time(cluster, "reduce_scatter", 3.0, Ring()) == 2.0
    assert time(cluster, "all_reduce", 3.0, Ring()) == 4.0


def test_each_message_of_a_ring_pays_its_latency_and_so_does_the_aggregate():
    """
    0 > 1  ..==..==    latency 2 s, 1 B
    """
    cluster = flat(3, latency=2.0)
    run = reference_time(cluster, asked("all_gather", 3.0, cluster), Ring())
    assert (run.time, run.bound, run.still) == (6.0, 2.0, 4.0)
    assert compared(cluster, asked("all_gather", 3.0, cluster), Ring()).difference == 0.0


def test_rings_through_two_hosts_stay_on_a_rail():
    """Ring 0 enters host 0 at rank 0, leaves it at 1 over the card of 1, enters host 1 at 3 and leaves it at 2."""
    laid = layout(two_by_two(), world(two_by_two()))
    assert laid == Layout(hosts=((0, 1), (2, 3)), circuits=((0, 1),))
    assert rings(laid) == (((0, 1), (1, 3), (3, 2), (2, 0)), ((1, 0), (0, 2), (2, 3), (3, 1)))


def test_without_crossing_cards_a_ring_goes_back_to_the_device_of_its_rail():
    laid = layout(two_by_two(), world(two_by_two()), cross_nic=False)
    assert rings(laid)[0] == ((0, 1), (1, 0, 2), (2, 3), (3, 2, 0))


def test_the_card_of_a_ring_never_waits_for_the_faster_link():
    """8 B in two rings, messages of 1 B: 1 s over a card, 0.25 s inside; the other ring is its mirror image.

    1 > 3 (cards)   ========--------========   3 s, as the aggregate says
    0 > 1 (inside)  ==      ==      ==         waits for 2 > 0
    """
    cluster = two_by_two()
    found = compared(cluster, asked("all_gather", 8.0, cluster), Ring())
    assert found.reference.time == found.aggregated.time == found.reference.bound == 3.0
    assert (found.difference, found.counted, found.waiting) == (0.0, 0.0, 0.0)


def test_every_message_of_a_card_pays_the_latency_of_the_card():
    """Latency 2 s between hosts, 0.5 s inside: a chunk crosses a card once, a card sends three chunks.

    1 > 3 (cards)   ..=..=..=    3 x (2 + 1) = 9 s; the aggregate counts 1 x 2 + 2 x 0.5 and 3 s of bytes: 6 s
    """
    cluster = two_by_two(inside=0.5, between=2.0)
    found = compared(cluster, asked("all_gather", 8.0, cluster), Ring())
    assert (found.reference.time, found.aggregated.time) == (9.0, 6.0)
    assert (found.counted, found.waiting) == (0.0, 3.0)
    assert str(found) == "+50.00%: bytes on the busiest link +0 us, waiting +3e+06 us"


def test_latency_passes_while_the_message_before_is_sent():
    """The same; card: first byte at 2, and what arrives inside is on its way through its latency in the meantime.

    0 > 1 (inside)  ends 0.75, 3.75                       own byte; then the one that 2 > 0 brought at 3
    1 > 3 (cards)   ends 3, max(0.75 + 2, 3) + 1 = 4, 3.75 + 2 + 1 = 6.75
    """
    cluster = two_by_two(inside=0.5, between=2.0)
    assert time(cluster, "all_gather", 8.0, Ring(), ahead=True) == 6.75


def test_a_chain_in_pieces_works_on_all_links_at_once():
    """
    0 > 1  ===                ===       3 B at once, or in three pieces of 1 B
    1 > 2     ===              ===
    2 > 3        ===            ===
    """
    assert time(flat(4), "broadcast", 3.0, Ring()) == 9.0
    assert time(flat(4), "broadcast", 3.0, Ring(), pieces=3) == 5.0
    assert time(flat(4), "reduce", 3.0, Ring(), pieces=3) == 5.0


def test_a_reduce_ends_at_the_root_and_a_broadcast_starts_there():
    laid = layout(flat(3), world(flat(3)))
    paths = {kind: [item.path for item in messages(asked(kind, 1.0, flat(3)), Ring(), laid)]
             for kind in ("broadcast", "reduce")}  # fmt: skip
    assert paths == {"broadcast": [(0, 1), (1, 2)], "reduce": [(1, 2), (2, 0)]}


def test_doubling_sends_twice_as_much_in_each_step():
    """
    0 > 1  ==        1 B of the 4
    0 > 2    ====    2 B
    """
    assert time(flat(4), "all_gather", 4.0, RecursiveDoubling()) == 3.0
    assert time(flat(4), "all_reduce", 4.0, RecursiveDoubling()) == 6.0


def test_doubling_sends_on_all_that_has_come():
    """Rank 0 of 8 got chunk 7 from rank 7 in step 1, chunks 5 and 6 from rank 6 in step 2; it sends all to rank 4."""
    found = messages(asked("all_gather", 8.0, flat(8)), RecursiveDoubling(), layout(flat(8), world(flat(8))))
    assert found[16] == Message((0, 4), 4.0, (7, 14), 8)


def test_doubling_over_hosts_of_two_crosses_with_one_card_at_first():
    """8 B.  Step 1: ranks 1 and 3 send 2 B over their cards; step 2: all send 4 B over theirs.

    1 > 2   ====                to the other rail there are 18 shortest routes: over 16 spines or over either host's
                                switch; 17 of them leave on the card of 1, so that it is busy for 2 x 17/18 s
    1 > 3       ========        4 s

    The aggregate spreads the bytes of step 1 over both cards, 1 s, and counts 1 + 4 s.
    """
    found = compared(two_by_two(), asked("all_gather", 8.0, two_by_two()), RecursiveDoubling())
    assert found.aggregated.time == 5.0
    assert found.reference.time == pytest.approx(2 * 17 / 18 + 4)


def test_all_to_all_sends_everything_at_once():
    """
    0 > 1  ====    1 B at half rate
    0 > 2  ====
    """
    assert time(flat(3), "all_to_all", 3.0, Direct()) == 2.0


def test_all_to_all_leaves_on_the_rail_of_the_receiver():
    cluster = two_by_two()
    found = messages(asked("all_to_all", 4.0, cluster), Direct(), layout(cluster, world(cluster)))
    assert {item.path for item in found if item.path[0] == 0} == {(0, 1), (0, 2), (0, 1, 3)}
    assert time(cluster, "all_to_all", 4.0, Direct()) == 2.0  # 1 B each of both ranks of the other host on a card


def test_two_levels_follow_each_other():
    """8 B.  On the rail 2 B at 1 B/s, then inside 4 B at 4 B/s.

    0 > 2  ====
    0 > 1      ==
    """
    cluster = two_by_two()
    assert time(cluster, "all_gather", 8.0, Hierarchical(Ring(), Ring())) == 3.0
    assert time(cluster, "reduce_scatter", 8.0, Hierarchical(Ring(), Ring())) == 3.0
    assert time(cluster, "all_reduce", 8.0, Hierarchical(Ring(), Ring())) == 6.0


def test_two_trees_of_two_hosts_send_half_up_and_half_down():
    """
    1 > 0  ==--    half of 2 B up in the first tree, the sum down in the second
    0 > 1  ==--
    """
    assert time(flat(2), "all_reduce", 2.0, Tree()) == 2.0


def test_the_inner_hosts_of_a_tree_send_twice_the_payload():
    """Four hosts: 0 < 2 < {1, 3} and its mirror image.  Host 1 is inner in one: up, and down to two; it is a leaf in
    the other: up.  Halves of 1 B: 4 x 0.5 B, in many small pieces so that all links work at once.
    """
    found = compared(flat(4), asked("all_reduce", 1.0, flat(4)), Tree(), pieces=256)
    assert found.reference.bound == found.aggregated.time == 2.0
    assert 2.0 < found.reference.time < 2.02


def test_two_rings_over_one_card_get_half_each():
    """Two hosts of two on one card of 1 B/s; each rail swaps halves, of 4 B and of 2 B.

    rail 0  ==== ==== ====    half rate until 2, then full
    rail 1  ==== ====
    """
    cluster = load_cluster("cloud-100gbe", hosts=2, accelerators_per_host=2, overrides={
        "pcie": override(FREE), "host_bridge": override(FREE), "network": override(1.0),
    })  # fmt: skip
    rail = Mesh(hosts=2, devices_per_host=2).group("rail", 2, stride=2)
    jobs = [Job(collective=asked("all_gather", payload, cluster, rail), algorithm=Ring(), rank=rank)
            for rank, payload in enumerate((4.0, 2.0))]  # fmt: skip
    assert reference(cluster, jobs).ends == aggregated(cluster, jobs).ends == (3.0, 2.0)


def test_a_collective_with_more_connections_gets_more_of_a_card():
    """One card of 1 B/s for two devices: a ring over all ranks crosses it with two channels, that of rail 0 with one.

    world   both channels send 3 messages of 1 B: two thirds of the card
    rail 0  1 message of 3 B: one third

    After 9 s the card has carried all 9 B, whatever the shares; the aggregate gives half to each: 6 s for 3 B.
    """
    cluster = load_cluster("cloud-100gbe", hosts=2, accelerators_per_host=2, overrides={
        "pcie": override(FREE), "host_bridge": override(FREE), "network": override(1.0),
    })  # fmt: skip
    rail = Mesh(hosts=2, devices_per_host=2).group("rail", 2, stride=2)
    jobs = [Job(collective=asked("all_gather", 8.0, cluster), algorithm=Ring()),
            Job(collective=asked("all_gather", 6.0, cluster, rail), algorithm=Ring())]  # fmt: skip
    assert reference(cluster, jobs).ends == pytest.approx((9.0, 9.0))
    assert aggregated(cluster, jobs).ends == (9.0, 6.0)


def test_all_groups_at_once_are_one_job_each():
    cluster = two_by_two()
    rail = Mesh(hosts=2, devices_per_host=2).group("rail", 2, stride=2)
    jobs = everywhere(cluster, asked("all_gather", 4.0, cluster, rail), Ring())
    assert [job.rank for job in jobs] == [0, 1]
    assert reference(cluster, jobs).ends == (2.0, 2.0)


def test_counted_steps_are_taken_apart_into_rings():
    """A full mesh of eight: seven rings use each of the 56 directions once (Tillson 1980)."""
    mesh = load_cluster("dgx-h100", hosts=1).links[0]
    pairs = replace(mesh, ends=("device", "device"), wiring="pairs")
    devices = tuple(range(8))
    found = circuits(host_rings(pairs, devices), devices)
    steps = {(a, b) for ring in found for a, b in zip(ring, (*ring[1:], ring[0]), strict=True)}
    assert len(found) == 7
    assert all(sorted(ring) == list(devices) for ring in found)
    assert len(steps) == 56


def test_a_group_of_one_sends_nothing():
    run = reference_time(flat(1), asked("all_gather", 1.0, flat(1)), Ring())
    assert (run.time, run.messages) == (0.0, 0)


def test_too_many_gpus_are_refused():
    cluster = flat(65)
    with pytest.raises(InputError, match=r"ranks: 65: too many GPUs to simulate each message; use at most 64"):
        reference_time(cluster, asked("all_gather", 1.0, cluster), Ring())


def test_sums_in_switches_are_refused():
    with pytest.raises(InputError, match=r"'Nvls': is not made of messages .* use ring"):
        reference_time(flat(2), asked("all_reduce", 1.0, flat(2)), Nvls())


def test_no_pieces_are_refused():
    with pytest.raises(InputError, match=r"pieces: 0: expected at least one"):
        reference_time(flat(2), asked("all_gather", 1.0, flat(2)), Ring(), pieces=0)
