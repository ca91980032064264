"""What holds for every collective algorithm, on every cluster."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simulator.laws.collectives.base import AbstractAlgorithm, Collective, Quantization
from simulator.laws.collectives.direct import Direct
from simulator.laws.collectives.doubling import RecursiveDoubling
from simulator.laws.collectives.fabric import ClassFabric, FullFabric
from simulator.laws.collectives.hierarchical import Hierarchical
from simulator.laws.collectives.nvls import CollNet, Nvls, NvlsTree
from simulator.laws.collectives.quantized import Quantized
from simulator.laws.collectives.ring import Ring
from simulator.laws.collectives.tree import Tree
from simulator.world.mesh import Mesh
from simulator.world.topology.cluster import load_cluster

INT4 = Quantization(bits=4, block=2048)
MEMBERS = [
    Ring(),
    RecursiveDoubling(),
    Direct(),
    Direct(pxn=False),
    Tree(),
    Nvls(),
    NvlsTree(),
    CollNet(),
    CollNet(in_switch=True),
    Hierarchical(Ring(), Ring()),
    Hierarchical(RecursiveDoubling(), Ring()),
    Hierarchical(Direct(), Direct()),
    Quantized(Ring(), INT4),
    Quantized(Hierarchical(Direct(), Direct()), INT4),
]


def carries_out(member, kind):
    """Say whether *member* and what it wraps know *kind*."""
    if kind not in member.supports:
        return False
    if isinstance(member, Quantized):
        return carries_out(member.inner, kind)
    if isinstance(member, Hierarchical):
        of_parts = ("reduce_scatter", "all_gather", "all_reduce") if kind == "all_reduce" else (kind,)
        return all(item in part.supports for part in (member.inside, member.between) for item in of_parts)
    return True


each_pair = pytest.mark.parametrize(("algorithm", "kind"), [
    (member, kind) for member in MEMBERS for kind in sorted(member.supports) if carries_out(member, kind)
])  # fmt: skip

shapes = st.tuples(st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2, 4, 8]))


@st.composite
def groups(draw):
    """A cluster and one of the ways to divide its ranks."""
    hosts, devices = draw(shapes)
    name = draw(st.sampled_from(["dgx-a100-80gb", "cloud-100gbe"]))
    cluster = load_cluster(name, hosts=hosts, accelerators_per_host=devices)
    mesh = Mesh(hosts=hosts, devices_per_host=devices)
    group = draw(st.sampled_from([
        mesh.world(), mesh.group("host", devices), mesh.group("rail", hosts, stride=devices),
    ]))  # fmt: skip
    return cluster, group


def collective(kind, group, elements=1e9):
    return Collective(kind=kind, elements=elements, bytes_per_element=2, group=group, role="test")


def fits(algorithm, group):
    """Say whether *algorithm* is meant for *group*: switches of a host reach no other host."""
    return group.hosts == 1 or not isinstance(algorithm, Nvls)


def sent(algorithm, asked):
    return sum(send.amount for exchange in algorithm.exchanges(asked) for send in exchange.sends)


@each_pair
@given(given_group=groups())
def test_what_a_class_loads_on_a_kind_of_link_is_what_all_groups_load_on_each(algorithm, kind, given_group):
    """Usage of the quotient times its members equals the sum over all groups on the full graph; latency is equal."""
    cluster, group = given_group
    assume(fits(algorithm, group))
    by_class, by_rank = ClassFabric(cluster), FullFabric(cluster)
    communicators = {group.members(rank) for rank in range(cluster.ranks)}
    for exchange in algorithm.exchanges(collective(kind, group)):
        quotient = by_class.phase(exchange)
        full = [by_rank.phase(exchange, members) for members in communicators]
        carried = [0.0] * len(by_rank.links)
        for phase in full:
            for link, share in phase.usage:
                carried[link] += share * phase.payload
        busiest = max((amount / link.bandwidth for amount, link in zip(carried, by_rank.links, strict=True)), default=0)
        assert quotient.payload / quotient.rate == pytest.approx(busiest, rel=1e-12)
        assert [phase.latency for phase in full] == pytest.approx([quotient.latency] * len(full), rel=1e-12)


@each_pair
@given(given_group=groups())
def test_each_rank_sends_at_least_what_the_others_lack(algorithm, kind, given_group):
    """n - 1 shares of S/n must leave every rank once, twice for an all-reduce; algorithms of one hop send no more."""
    _, group = given_group
    assume(fits(algorithm, group))
    asked = collective(kind, group)
    n = group.size
    width = algorithm.quantization.bytes_per_element / 2 if isinstance(algorithm, Quantized) else 1
    least = width * asked.payload * (n - 1) / n * (2 if kind == "all_reduce" else 1)
    found = sent(algorithm, asked)
    if isinstance(algorithm, Nvls | NvlsTree | CollNet):
        least = 0.0  # switches send on what they are sent: see the test of each
    if isinstance(algorithm, Ring | RecursiveDoubling | Tree):
        assert found == pytest.approx(least, rel=1e-12)
    elif isinstance(algorithm, Hierarchical) and kind == "reduce_scatter":
        assert least * (1 - 1e-12) <= found
    assert found >= least * (1 - 1e-12) or isinstance(algorithm, Hierarchical)


@given(given_group=groups(), algorithm=st.sampled_from([Nvls(), NvlsTree(), CollNet(), CollNet(in_switch=True)]))
def test_switches_that_sum_leave_a_rank_one_array_and_its_share(algorithm, given_group):
    """An all-reduce through the host's switch: S for the sum, S/p for the multicast; between hosts S/p for each card.

    Of the tree between m hosts: S/p up and S/p down on all but one of m.
    """
    _, group = given_group
    assume(fits(algorithm, group) and group.size > 1)
    p, m = group.ranks_per_host, group.hosts
    asked = collective("all_reduce", group)
    in_switch = (p + 1) / p if p > 1 else 0.0
    inside = 2 * (p - 1) / p if algorithm == CollNet() else in_switch
    between = 2 * (m - 1) / m / p if isinstance(algorithm, NvlsTree) else (1 / p if m > 1 else 0.0)
    assert sent(algorithm, asked) / asked.payload == pytest.approx(inside + between, rel=1e-12)


@each_pair
@given(given_group=groups(), factor=st.sampled_from([2.0, 10.0]))
def test_bytes_are_proportional_to_the_payload(algorithm, kind, given_group, factor):
    _, group = given_group
    assume(fits(algorithm, group))
    once, more = (sent(algorithm, collective(kind, group, elements)) for elements in (1e6, factor * 1e6))
    assert more == pytest.approx(factor * once, rel=1e-12)


@each_pair
@given(given_group=groups())
def test_alone_it_is_never_slower_on_faster_links(algorithm, kind, given_group):
    cluster, group = given_group
    assume(fits(algorithm, group))
    faster = replace(
        cluster,
        links=tuple(
            replace(link, nominal=replace(link.nominal, value=2 * link.nominal.value)) for link in cluster.links
        ),
    )
    times = [
        sum(ClassFabric(item).phase(exchange).duration for exchange in algorithm.exchanges(collective(kind, group)))
        for item in (cluster, faster)
    ]
    assert times[1] <= times[0]


@each_pair
def test_a_group_of_one_does_nothing(algorithm: AbstractAlgorithm, kind):
    group = Mesh(hosts=1, devices_per_host=1).world()
    assert algorithm.exchanges(collective(kind, group)) == ()


@pytest.mark.parametrize("hosts", [1, 2, 16, 20, 40, 64, 16_384])
def test_the_quotient_does_not_grow_with_the_cluster(hosts):
    cluster = load_cluster("dgx-a100-80gb", hosts=hosts)
    group = Mesh(hosts=hosts, devices_per_host=8).world()
    fabric = ClassFabric(cluster)
    assert len(fabric.links) <= 8
    (exchange,) = Ring().exchanges(collective("all_gather", group))
    assert fabric.phase(exchange).payload > 0
