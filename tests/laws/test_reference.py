"""What holds for messages one by one, and how far the aggregated transfers are from them."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.clock.reference import aggregated, compared, everywhere, reference, reference_time
from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.channels import layout, rings
from simulator.laws.collectives.direct import Direct
from simulator.laws.collectives.doubling import RecursiveDoubling
from simulator.laws.collectives.hierarchical import Hierarchical
from simulator.laws.collectives.messages import messages
from simulator.laws.collectives.ring import Ring
from simulator.laws.collectives.tree import Tree
from simulator.world.mesh import Mesh
from simulator.world.topology.cluster import load_cluster

LEVELS = Hierarchical(Ring(), Ring())
TWO_HOPS = Hierarchical(Direct(), Direct())
MEMBERS = [
    Ring(),
    RecursiveDoubling(),
    Direct(),
    Direct(pxn=False),
    LEVELS,
    TWO_HOPS,
    Hierarchical(RecursiveDoubling(), Ring()),
    Tree(),
]
PAIRS = [
    (member, kind)
    for member in MEMBERS
    for kind in sorted(member.supports)
    if not isinstance(member, Hierarchical) or kind in member.inside.supports & member.between.supports
]
EXACT = [(member, kind) for member in (Ring(), LEVELS) for kind in ("all_gather", "reduce_scatter", "all_reduce")]
EXACT += [(member, "all_to_all") for member in (Direct(), Direct(pxn=False), TWO_HOPS)]
GIGABYTE = 2.0**30


def cluster_of(name, hosts, devices=None, *, latency=False, pod=None, **bandwidths):
    """A shipped cluster with links of other *bandwidths* [B/s]; without latency unless it is asked for."""
    loaded = load_cluster(name, hosts=hosts, accelerators_per_host=devices)
    links = tuple(
        replace(
            link,
            latency=link.latency if latency else replace(link.latency, value=0.0),
            nominal=replace(link.nominal, value=bandwidths.get(link.name, link.bandwidth)),
            efficiency=None,
        )
        for link in loaded.links
    )
    return replace(loaded, links=links, hosts_per_pod=pod or loaded.hosts_per_pod)


def meshed(hosts, devices):
    """Hosts whose devices are joined in pairs, with a card each."""
    cluster = cluster_of("dgx-h100", hosts, devices)
    mesh = replace(cluster.links[0], ends=("device", "device"), wiring="pairs", nominal=replace(
        cluster.links[0].nominal, value=48e9))  # fmt: skip
    return replace(cluster, links=(mesh, *cluster.links[1:]))


def asked(kind, cluster, group=None, payload=GIGABYTE):
    whole = Mesh(hosts=cluster.hosts, devices_per_host=cluster.accelerators_per_host).world()
    return Collective(kind=kind, elements=payload, bytes_per_element=1, group=group or whole, role="test")


@st.composite
def clusters(draw, hosts=(1, 2, 4), *, latency=False):
    name = draw(st.sampled_from(["dgx-h100", "cloud-100gbe", "gcp-a3-high", "flat"]))
    devices = 1 if name == "flat" else draw(st.sampled_from([1, 2, 4]))
    links = [link.name for link in load_cluster(name).links]
    speeds = {link: draw(st.sampled_from([1e9, 12.5e9, 40e9, 333e9])) for link in links}
    found = draw(st.sampled_from(hosts))
    return cluster_of(name, found, devices, latency=latency, pod=draw(st.sampled_from([1, 2, found])), **speeds)


@st.composite
def groups(draw, cluster):
    hosts, devices = cluster.hosts, cluster.accelerators_per_host
    mesh = Mesh(hosts=hosts, devices_per_host=devices)
    return draw(st.sampled_from([mesh.world(), mesh.group("host", devices), mesh.group("rail", hosts, stride=devices)]))


@given(pair=st.sampled_from(PAIRS), cluster=clusters((1, 2, 3)), pieces=st.integers(1, 3), data=st.data())
def test_messages_are_what_the_algorithm_says_each_rank_sends(pair, cluster, pieces, data):
    """Their bytes over all ranks are those of the exchanges; every rank passes on only what it has got."""
    algorithm, kind = pair
    collective = asked(kind, cluster, data.draw(groups(cluster)))
    found = messages(collective, algorithm, layout(cluster, collective.group), pieces=pieces)
    sent = sum(send.amount for exchange in algorithm.exchanges(collective) for send in exchange.sends)
    crossed = sum(item.amount * (len(item.path) - 1) for item in found)  # the aggregate counts what is handed on, too
    assert crossed == pytest.approx(sent * collective.group.size)
    for number, item in enumerate(found):
        assert all(other < number and item.path[0] in found[other].path for other in item.after)
        assert item.behind is None or (item.behind < number and found[item.behind].path[0] == item.path[0])


@given(pair=st.sampled_from(PAIRS), cluster=clusters((1, 2, 3)), data=st.data())
def test_every_rank_gets_its_part_from_elsewhere(pair, cluster, data):
    algorithm, kind = pair
    collective = asked(kind, cluster, data.draw(groups(cluster)))
    laid = layout(cluster, collective.group)
    got: Counter[int] = Counter()
    for item in messages(collective, algorithm, laid):
        got[item.path[-1]] += item.amount
    n, root = collective.group.size, laid.ranks[0]
    missing = GIGABYTE * (n - 1) / n
    for rank in laid.ranks if n > 1 else ():
        if kind == "broadcast":
            assert got[rank] == pytest.approx(0.0 if rank == root else GIGABYTE)
        elif kind == "all_reduce" or algorithm == TWO_HOPS:  # partial sums, or the bytes of others, come on top
            assert got[rank] >= missing * (1 - 1e-9)
        elif kind != "reduce":
            assert got[rank] == pytest.approx(missing)
    if kind == "reduce" and n > 1:
        assert got[root] == pytest.approx(GIGABYTE)


@given(cluster=clusters((1, 2, 3, 4)))
def test_every_device_is_the_exit_of_as_many_rings_as_any_other(cluster):
    laid = layout(cluster, asked("all_gather", cluster).group)
    host_of = {rank: number for number, host in enumerate(laid.hosts) for rank in host}
    exits = Counter(path[0] for ring in rings(laid) for path in ring if host_of[path[0]] != host_of[path[-1]])
    assert len(set(exits.values())) <= 1
    for ring in rings(laid):
        assert sorted(path[0] for path in ring) == sorted(laid.ranks)
        assert [path[-1] for path in ring] == [*[path[0] for path in ring[1:]], ring[0][0]]


@settings(max_examples=25)
@given(pair=st.sampled_from(PAIRS), cluster=clusters((1, 2, 3), latency=True), data=st.data())
def test_links_carry_the_bytes_of_the_messages_and_never_too_many(pair, cluster, data):
    algorithm, kind = pair
    collective = asked(kind, cluster, data.draw(groups(cluster)))
    run = reference_time(cluster, collective, algorithm)
    left: Counter[int] = Counter()
    for item in messages(collective, algorithm, layout(cluster, collective.group)):
        left[item.path[0]] += item.amount
    out = dict.fromkeys(range(cluster.ranks), 0.0)
    for link, amount in zip(run.links, run.carried, strict=True):
        tail = link.name.split(" > ")[0]
        if tail.startswith("device"):
            host, index = tail.removeprefix("device[").removesuffix("]").split(".")
            out[int(host) * cluster.accelerators_per_host + int(index)] += amount
    assert all(out[rank] >= amount * (1 - 1e-9) for rank, amount in left.items())  # more if it hands on
    assert all(run.time >= amount / link.bandwidth * (1 - 1e-9)
               for link, amount in zip(run.links, run.carried, strict=True))  # fmt: skip


@given(pair=st.sampled_from(EXACT), cluster=clusters(), by_class=st.booleans(), data=st.data())
def test_without_latency_transfers_take_what_their_messages_take(pair, cluster, by_class, data):
    """Even numbers of hosts: rings close on the rail they started on."""
    algorithm, kind = pair
    found = compared(cluster, asked(kind, cluster, data.draw(groups(cluster))), algorithm, by_class=by_class)
    assert found.reference.time == pytest.approx(found.aggregated.time, rel=1e-6)


@given(pair=st.sampled_from(EXACT), cluster=clusters((3,)), by_class=st.booleans())
def test_odd_hosts_differ_by_the_bytes_of_the_step_that_changes_the_rail(pair, cluster, by_class):
    found = compared(cluster, asked(pair[1], cluster), pair[0], by_class=by_class)
    assert found.difference * found.aggregated.time == pytest.approx(found.counted + found.waiting)
    assert abs(found.waiting) <= 0.01 * found.aggregated.time


SHAPES = {
    "one host of 8": lambda: cluster_of("dgx-h100", 1),
    "8 on one switch": lambda: cluster_of("flat", 8),
    "two hosts of 8": lambda: cluster_of("dgx-h100", 2),
    "two hosts of 8 A100": lambda: cluster_of("dgx-a100-80gb", 2),
    "two devices to a card": lambda: cluster_of("gcp-a3-high", 2),
    "eight devices to a card": lambda: cluster_of("cloud-100gbe", 2),
    "slow links inside": lambda: cluster_of("dgx-h100", 2, nvlink=100e9),
    "pods of one host, slow uplinks": lambda: cluster_of("dgx-h100", 2, pod=1, uplink=1e9),
    "a mesh of 8": lambda: meshed(1, 8),
    "two meshes of 4": lambda: meshed(2, 4),
    "three hosts of 4": lambda: cluster_of("dgx-h100", 3, 4),
}
LARGE = {
    "four hosts of 8 on one card each": lambda: cluster_of("cloud-100gbe", 4),
    "four hosts of 8": lambda: cluster_of("dgx-h100", 4),
    "pods of two hosts, slow uplinks": lambda: cluster_of("dgx-h100", 4, pod=2, uplink=1e9),
}
CASES = [(shape, *pair) for shape in (*SHAPES, *LARGE) for pair in EXACT]
SLOW = {(shape, *pair) for shape in LARGE for pair in EXACT if pair[0] not in (LEVELS, TWO_HOPS)}
"""Thousands of messages, over a second each."""


@pytest.mark.parametrize(
    ("shape", "algorithm", "kind"),
    [pytest.param(*case, marks=[pytest.mark.slow] if case in SLOW else []) for case in CASES],
)
def test_transfers_are_within_one_percent_of_their_messages(shape, algorithm, kind):
    """8 to 32 GPUs, no latency: both fabrics."""
    cluster = (SHAPES | LARGE)[shape]()
    jobs = everywhere(cluster, asked(kind, cluster), algorithm)
    found = reference(cluster, jobs)
    for by_class in (False, True):
        assert found.time == pytest.approx(aggregated(cluster, jobs, by_class=by_class).time, rel=0.01)


@given(kind=st.sampled_from(["all_gather", "all_reduce"]), payload=st.sampled_from([1e3, 1e6, 1e9]))
def test_latency_of_symmetric_steps_adds_up(kind, payload):
    """All messages of a step cross links of one kind: each step pays the latency once, as the aggregate counts."""
    for cluster, algorithm in (
        (cluster_of("dgx-h100", 1, latency=True), Ring()),
        (cluster_of("dgx-h100", 2, latency=True), LEVELS),
    ):
        found = compared(cluster, asked(kind, cluster, payload=payload), algorithm)
        assert found.reference.time == pytest.approx(found.aggregated.time)


def latencies(cluster):
    """Of a message inside a host and of one between hosts [s]."""
    at = {link.name: link.latency.value for link in cluster.links}
    return 2 * at["nvlink"], 2 * (at["pcie"] + at["network"])


@pytest.mark.parametrize(("hosts", "devices"), [(2, 2), (2, 4), (2, 8), (4, 2), (4, 4)])
@pytest.mark.parametrize("payload", [1e3, 1e6, 1e8])
def test_a_ring_over_hosts_pays_the_latency_of_the_network_in_every_step(hosts, devices, payload):
    r"""A card sends n - 1 messages one after another; the aggregate follows one chunk, which crosses m - 1 cards.

    .. math:: T - T_{aggregated} = (n - m)(\alpha_{network} - \alpha_{host})
    """
    cluster = cluster_of("dgx-h100", hosts, devices, latency=True)
    inside, between = latencies(cluster)
    found = compared(cluster, asked("all_gather", cluster, payload=payload), Ring())
    extra = (cluster.ranks - hosts) * (between - inside)
    assert found.reference.time - found.aggregated.time == pytest.approx(extra)
    assert found.waiting == pytest.approx(extra)


@pytest.mark.parametrize(("hosts", "devices"), [(2, 2), (2, 4), (4, 2), (4, 4)])
def test_a_ring_that_prepares_messages_ahead_pays_latency_or_bytes(hosts, devices):
    """Small messages: the longest way of a chunk, over all m cards.  Large ones: the first message, then only bytes."""
    cluster = cluster_of("dgx-h100", hosts, devices, latency=True)
    inside, between = latencies(cluster)
    tiny = compared(cluster, asked("all_gather", cluster, payload=1e-3), Ring(), ahead=True)
    assert tiny.reference.time == pytest.approx(hosts * between + (cluster.ranks - 1 - hosts) * inside)
    assert tiny.reference.time - tiny.aggregated.time == pytest.approx(between - inside)
    huge = compared(cluster, asked("all_gather", cluster, payload=1e10), Ring(), ahead=True)
    assert huge.reference.time == pytest.approx(between + huge.reference.bound)


def test_an_all_to_all_starts_on_the_card_while_others_cross_the_host():
    """What is on its rail already needs no step inside the host, so the card starts by that latency earlier."""
    cluster = cluster_of("dgx-h100", 2, latency=True)
    found = compared(cluster, asked("all_to_all", cluster), Direct())
    assert found.aggregated.time - found.reference.time == pytest.approx(latencies(cluster)[0])


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_a_chain_takes_the_payload_and_the_time_to_fill_it(kind):
    """All but one rank send S; in k pieces the last of n - 1 hops starts (n - 2)/k of that later."""
    for ranks in (2, 4, 8):
        cluster = cluster_of("flat", ranks)
        found = compared(cluster, asked(kind, cluster), Ring(), pieces=512)
        assert found.aggregated.time == pytest.approx(found.reference.bound)
        assert found.reference.bound == pytest.approx(GIGABYTE / 50e9)
        assert found.difference == pytest.approx((ranks - 2) / 512)


@pytest.mark.parametrize("hosts", [2, 3, 4, 5, 6, 7, 8, 12, 16])
def test_the_busiest_host_of_a_tree_sends_what_the_aggregate_says(hosts):
    """From four hosts on host 2 has two children in one tree and is a leaf of the other; three send up to 3/2 S."""
    cluster = cluster_of("flat", hosts)
    found = compared(cluster, asked("all_reduce", cluster), Tree(), pieces=8)
    assert found.counted == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
@pytest.mark.parametrize(
    ("name", "hosts"), [("flat", 2), ("flat", 3), ("flat", 7), ("flat", 12), ("dgx-h100", 1), ("cloud-100gbe", 3)]
)
def test_doubling_takes_what_its_steps_take_where_no_card_is_idle(name, hosts, kind):
    """One switch, or one card for all devices of a host.  On one switch all messages of a step pay one latency."""
    cluster = cluster_of(name, hosts, latency=name != "cloud-100gbe")
    for by_class in (False, True):
        found = compared(cluster, asked(kind, cluster), RecursiveDoubling(), by_class=by_class)
        assert found.difference == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("hosts", "pod"), [(3, 2), (5, 2), (5, 3), (7, 2), (7, 3)])
def test_the_fullest_pod_of_an_all_to_all_sets_the_pace(hosts, pod):
    """Slow uplinks; a pod of k of m hosts sends k (m - k), and the last pod is filled only in part."""
    cluster = cluster_of("dgx-h100", hosts, 2, pod=pod, uplink=1e9)
    assert compared(cluster, asked("all_to_all", cluster), Direct()).difference == pytest.approx(0.0, abs=1e-6)


def test_hsdp_gathers_and_reduces_over_one_card_as_the_kinds_share_it():
    """Gathers over 16 ranks on two hosts, all-reduces over the replicas, one card per host."""
    cluster = cluster_of("cloud-100gbe", 4)
    mesh = Mesh(hosts=4, devices_per_host=8)
    gathers = everywhere(cluster, asked("all_gather", cluster, mesh.group("shard", 16)), Ring())
    replicas = mesh.group("replicate", 2, stride=16)
    reductions = everywhere(cluster, asked("all_reduce", cluster, replicas, GIGABYTE / 16), Ring())
    found = reference(cluster, [*gathers, *reductions])
    shared = aggregated(cluster, [*gathers, *reductions], by_class=True)
    assert max(found.ends[: len(gathers)]) == pytest.approx(shared.ends[0], rel=0.01)
    assert max(found.ends[len(gathers) :]) == pytest.approx(shared.ends[1], rel=0.01)
