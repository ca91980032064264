"""NCCL's tuner: its published equations worked out by hand, and predictions that NCCL itself printed.

Bandwidths are algorithmic (payload per time); a tree's stand before the correction for its size, as NCCL's table has
them.  Graphs are written channels x GB/s.
"""

import pytest

from simulator.errors import InputError
from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.doubling import RecursiveDoubling
from simulator.laws.collectives.nccl.bandwidth import algorithmic_bandwidth
from simulator.laws.collectives.nccl.graphs import AMPERE, BLACKWELL, GIGA, HOPPER, VOLTA, Graph, System
from simulator.laws.collectives.nccl.latency import latency
from simulator.laws.collectives.nccl.library import NcclCollectives, NcclDirect
from simulator.laws.collectives.nccl.measured import cost
from simulator.laws.collectives.nccl.search import host_graph, network_graph, nvls_graph, tree_graph
from simulator.laws.collectives.nccl.system import SystemReader
from simulator.laws.collectives.nccl.tuning import candidates, estimate, estimates
from simulator.laws.collectives.ring import Ring
from simulator.laws.collectives.rings import host_rings
from simulator.world.catalog import Number
from simulator.world.mesh import Mesh
from simulator.world.topology.cluster import Forced, LinkKind, load_cluster
from simulator.world.topology.graph import pair_count

MIB, GIB = 2**20, 2**30
QUARTER = 256 * MIB


def graph(channels, intra, inter=None, balanced=True):
    return Graph(
        channels=channels, intra=intra * GIGA, inter=(intra if inter is None else inter) * GIGA, balanced=balanced
    )


def system(ranks, hosts, generation, *, ring=None, **others):
    names = ("tree", "nvls", "nvls_tree", "pat", "collnet_direct")
    graphs = {name: others.pop(name) for name in names if name in others} | ({"ring": ring} if ring else {})
    return System(ranks=ranks, hosts=hosts, generation=generation, graphs=graphs, **others)


SYSTEMS = {
    "8 x H100": system(8, 1, HOPPER, ring=graph(12, 30), tree=graph(12, 30), nvls=graph(8, 40, 60)),
    "8 x A100": system(8, 1, AMPERE, ring=graph(12, 20), tree=graph(12, 20)),
    "8 x B200": system(8, 1, BLACKWELL, ring=graph(16, 45), nvls=graph(8, 80, 90)),
    "DGX-1V": system(8, 1, VOLTA, ring=graph(6, 20)),
    "8 x 4090": system(8, 1, AMPERE, ring=graph(1, 5), hop="pci"),
    "2 DGX A100": system(
        16, 2, AMPERE, ring=graph(8, 24), tree=graph(8, 30, 24), network_overhead=2.0, amd_cpu=True
    ),
    "2 p4d": system(16, 2, AMPERE, ring=graph(4, 12), nic_latency=75e-6),
    "8 DGX H100": system(64, 8, HOPPER, ring=graph(8, 48), tree=graph(8, 48), nvls_tree=graph(8, 40, 48)),
    "64 DGX H100": system(512, 64, HOPPER, ring=graph(8, 48), tree=graph(8, 48), nvls_tree=graph(8, 40, 48)),
    "64 x 1 H100": system(64, 64, HOPPER, ring=graph(1, 48), pat=graph(1, 48)),
}  # fmt: skip

VECTORS = [
    # system, kind, algorithm, protocol, payload, latency [us], algorithmic bandwidth [GB/s], time [us]
    ("8 x H100", "all_gather", "ring", "ll", MIB, 10.80, 161.143, 17.31),
    ("8 x H100", "all_gather", "ring", "ll128", 16 * MIB, 27.30, 378.514, 71.62),
    ("8 x H100", "all_gather", "ring", "ll", QUARTER, 10.80, 161.143, 1676.62),
    ("8 x H100", "all_gather", "ring", "ll128", QUARTER, 27.30, 378.514, 736.48),
    ("8 x H100", "all_gather", "ring", "simple", QUARTER, 32.20, 411.429, 684.65),
    ("8 x H100", "reduce_scatter", "ring", "simple", QUARTER, 32.20, 411.429, 684.65),
    ("8 x H100", "all_gather", "nvls", "simple", QUARTER, 25.00, 208.250, 1314.01),
    ("8 x H100", "all_reduce", "ring", "simple", QUARTER, 56.00, 205.714, 1360.89),
    ("8 x H100", "all_reduce", "tree", "simple", QUARTER, 64.40, 165.600, 1865.50),
    ("8 x H100", "all_reduce", "nvls", "simple", QUARTER, 25.00, 272.000, 1011.90),
    ("8 x A100", "all_gather", "ring", "ll", QUARTER, 10.80, 100.229, 2689.03),
    ("8 x A100", "all_gather", "ring", "ll128", QUARTER, 27.30, 252.343, 1091.07),
    ("8 x A100", "all_gather", "ring", "simple", QUARTER, 32.20, 274.286, 1010.87),
    ("8 x A100", "all_reduce", "ring", "simple", QUARTER, 56.00, 137.143, 2013.34),
    ("8 x B200", "all_gather", "ring", "simple", QUARTER, 32.20, 822.857, 358.42),
    ("8 x B200", "all_reduce", "nvls", "simple", QUARTER, 25.00, 411.429, 677.45),
    ("DGX-1V", "all_gather", "ring", "simple", QUARTER, 32.20, 137.143, 1989.54),
    ("8 x 4090", "all_gather", "ring", "simple", QUARTER, 48.30, 5.714, 47024.50),
    ("2 DGX A100", "all_gather", "ring", "ll", QUARTER, 37.30, 24.000, 11222.11),
    ("2 DGX A100", "all_gather", "ring", "ll128", QUARTER, 46.00, 170.667, 1618.86),
    # 15 steps, one of them between hosts: 14 x max(3.4, 3 x 2) + 14 + 8.4; 8 x 24 x 16/15
    ("2 DGX A100", "all_gather", "ring", "simple", QUARTER, 106.40, 204.800, 1417.12),
    ("2 DGX A100", "reduce_scatter", "ring", "simple", QUARTER, 106.40, 204.800, 1417.12),
    ("2 DGX A100", "all_reduce", "ring", "simple", QUARTER, 204.40, 102.400, 2907.60),
    ("2 DGX A100", "all_reduce", "tree", "simple", QUARTER, 92.40, 94.400, 3251.95),
    ("2 p4d", "all_gather", "ring", "simple", QUARTER, 220.00, 51.200, 5462.88),
    ("8 DGX H100", "all_gather", "ring", "ll128", QUARTER, 148.40, 298.260, 1048.40),
    ("8 DGX H100", "all_gather", "ring", "simple", QUARTER, 296.80, 390.095, 984.93),
    ("8 DGX H100", "all_gather", "ring", "simple", GIB, 296.80, 390.095, 3049.31),
    ("8 DGX H100", "all_reduce", "ring", "simple", GIB, 585.20, 195.048, 6324.30),
    ("8 DGX H100", "all_reduce", "nvls_tree", "simple", GIB, 150.40, 184.889, 5957.90),
    ("64 DGX H100", "all_gather", "ring", "ll128", QUARTER, 1117.20, 294.175, 2029.70),
    ("64 DGX H100", "all_gather", "ring", "simple", QUARTER, 2413.60, 384.751, 3111.29),
    ("64 DGX H100", "all_gather", "ring", "simple", GIB, 2413.60, 384.751, 5204.34),
    ("64 DGX H100", "all_reduce", "ring", "simple", GIB, 4818.80, 192.376, 12327.80),
    ("64 DGX H100", "all_reduce", "tree", "simple", GIB, 232.40, 144.000, 7688.94),
    ("64 DGX H100", "all_reduce", "nvls_tree", "simple", GIB, 275.80, 182.356, 6163.96),
    ("64 x 1 H100", "all_gather", "pat", "simple", 64 * MIB, 211.20, 36.000, 2075.34),
    ("64 x 1 H100", "all_gather", "ring", "simple", 64 * MIB, 890.40, 48.762, 2266.66),
]


@pytest.mark.parametrize(("name", "kind", "algorithm", "protocol", "payload", "wait", "bandwidth", "time"), VECTORS)
def test_a_call_as_worked_out_from_nccls_equations(name, kind, algorithm, protocol, payload, wait, bandwidth, time):
    """To the printed digits; the time of a ring's all-reduce between hosts includes the plateau factor."""
    on = SYSTEMS[name]
    assert latency(kind, on, algorithm, protocol) * 1e6 == pytest.approx(wait, abs=0.005)
    assert algorithmic_bandwidth(kind, on, algorithm, protocol) / GIGA == pytest.approx(bandwidth, abs=0.0005)
    found = estimate(kind, payload, on, algorithm, protocol)
    assert found.time(payload) * 1e6 == pytest.approx(time, abs=0.0051)


FOUR_OF_ONE = system(4, 4, HOPPER, ring=graph(1, 12), nic_latency=75e-6)
PLAIN_TREE = system(24, 3, HOPPER, tree=graph(8, 24, 24, balanced=False))


@pytest.mark.parametrize(("on", "kind", "algorithm", "protocol", "payload", "printed"), [
    (SYSTEMS["8 x H100"], "all_reduce", "ring", "simple", 805306368, 3970.683594),  # NVIDIA/nccl#1595
    (FOUR_OF_ONE, "all_gather", "ring", "simple", 37756928, 2860.208008),  # awsome-distributed-training, slinky
    (PLAIN_TREE, "all_reduce", "tree", "ll", 65536, 37.798233),  # NVIDIA/nccl#1453
    (PLAIN_TREE, "all_reduce", "tree", "ll128", 131072, 51.603912),
    (PLAIN_TREE, "all_reduce", "tree", "ll128", 262144, 54.707825),
])  # fmt: skip
def test_a_prediction_that_nccl_printed(on, kind, algorithm, protocol, payload, printed):
    """NCCL reckons in single precision, so six digits agree."""
    assert estimate(kind, payload, on, algorithm, protocol).time(payload) * 1e6 == pytest.approx(printed, rel=1e-6)


def test_choice_of_an_all_gather_on_eight_h100():
    """LL below about 4.6 MB, LL128 to about 23 MB, Simple above."""
    on = SYSTEMS["8 x H100"]

    def chosen(payload):
        best = estimates("all_gather", payload, on)[0]
        return f"{best.algorithm}/{best.protocol}"

    assert [chosen(size) for size in (1e3, 1e6, 4.5e6)] == ["ring/ll"] * 3
    assert [chosen(size) for size in (4.7e6, 1e7, 22.5e6)] == ["ring/ll128"] * 3
    assert [chosen(size) for size in (23.5e6, 1e9)] == ["ring/simple"] * 2


@pytest.mark.parametrize(("generation", "bandwidth", "channels", "speed"), [
    (VOLTA, 120, 6, 20),
    (AMPERE, 240, 12, 20),
    (AMPERE, 160, 8, 20),  # A800
    (HOPPER, 370.8, 12, 30),
    (HOPPER, 160, 8, 20),  # H800
    (BLACKWELL, 721.8, 16, 45),
])  # fmt: skip
def test_rings_of_one_host(generation, bandwidth, channels, speed):
    assert host_graph(bandwidth * GIGA, generation) == graph(channels, speed)


@pytest.mark.parametrize(("generation", "slots", "card", "device", "speed"), [
    (AMPERE, 8, 25, 240, 24),
    (AMPERE, 4, 12.5, 240, 12),
    (VOLTA, 8, 12.5, 120, 12),
    (HOPPER, 8, 50, 370.8, 48),
    (HOPPER, 8, 25, 370.8, 24),
    (BLACKWELL, 8, 50, 721.8, 48),
])  # fmt: skip
def test_rings_between_hosts_take_a_channel_per_card(generation, slots, card, device, speed):
    assert network_graph(slots, card * GIGA, device * GIGA, generation) == graph(slots, speed)


def test_rings_between_hosts_fit_the_links_inside():
    """Two cards, eight devices: most devices pass on both channels, which then share their link."""
    assert network_graph(2, 24 * GIGA, 20 * GIGA, AMPERE, passing=2) == graph(2, 10)


def test_trees_between_hosts_use_up_to_twice_the_card_inside():
    assert tree_graph(graph(8, 24), 240 * GIGA, AMPERE) == graph(8, 30, 24)
    assert tree_graph(graph(4, 12), 240 * GIGA, AMPERE) == graph(4, 24, 12)
    assert tree_graph(graph(8, 48), 370.8 * GIGA, HOPPER) == graph(8, 48)


def test_channels_of_nvls():
    """The device that leads a channel uses its link twice: (8 + 1) x 40 <= 370.8, 9 x 80 <= 721.8."""
    assert nvls_graph(8, 370.8 * GIGA, HOPPER, None) == graph(8, 40, 60)
    assert nvls_graph(8, 721.8 * GIGA, BLACKWELL, None) == graph(8, 80, 90)


@pytest.mark.parametrize(("channels", "found"), [(4, graph(4, 30)), (12, graph(12, 30)), (24, graph(24, 15))])
def test_channels_that_a_user_prescribes_share_the_links(channels, found):
    cluster, group = world("dgx-h100", 1)
    assert SystemReader(cluster, channels=channels).system(group).graphs["ring"] == found


def world(name, hosts):
    cluster = load_cluster(name, hosts=hosts)
    return cluster, Mesh(hosts=hosts, devices_per_host=cluster.accelerators_per_host).world()


def read(name, hosts):
    cluster, group = world(name, hosts)
    return SystemReader(cluster).system(group)


@pytest.mark.parametrize(("name", "hosts", "algorithm", "found"), [
    ("dgx-a100-80gb", 1, "ring", graph(12, 20)),
    ("dgx-a100-80gb", 2, "ring", graph(8, 24)),
    ("dgx-a100-80gb", 2, "tree", graph(8, 30, 24)),
    ("aws-p4d", 1, "ring", graph(12, 20)),
    ("aws-p4d", 2, "ring", graph(4, 12)),
    ("aws-p4d", 2, "tree", graph(4, 24, 12)),
    ("dgx-h100", 1, "ring", graph(12, 30)),
    ("dgx-h100", 1, "nvls", graph(8, 40, 60)),
    ("dgx-h100", 8, "ring", graph(8, 48)),
    ("dgx-h100", 8, "nvls_tree", graph(8, 40, 48)),
    ("gcp-a3-mega", 2, "ring", graph(8, 24)),
    ("dgx-b200", 1, "ring", graph(16, 45)),
    ("dgx-b200", 1, "nvls", graph(8, 80, 90)),
    ("dgx-b200", 8, "ring", graph(8, 48)),
    ("rtx-4090-pcie", 1, "ring", graph(1, 5)),
    ("l40s-pcie", 2, "ring", graph(2, 10)),  # both rings pass through each device: 20 GB/s of it
    ("dgx-1v", 1, "ring", graph(6, 20)),
    ("dgx-1v", 2, "ring", graph(4, 12)),  # six links of 20 have room for four rings of 12
    ("mi300x", 1, "ring", graph(7, 48)),
    ("mi300x", 2, "ring", graph(8, 48)),  # eight cards; seven links of 48 carry the seven rings that stay
])  # fmt: skip
def test_graphs_of_the_catalogue(name, hosts, algorithm, found):
    assert read(name, hosts).graphs[algorithm] == found


def test_what_the_tuner_knows_of_hosts_of_the_catalogue():
    two = read("dgx-a100-80gb", 2)
    assert (two.ranks, two.hosts, two.generation, two.hop, two.ll128) == (16, 2, AMPERE, "nvlink", True)
    assert (two.network_overhead, two.amd_cpu, two.nic_latency) == (2.0, True, 0.0)
    assert read("aws-p4d", 2).nic_latency == pytest.approx(75e-6)
    assert (read("rtx-4090-pcie", 1).hop, read("rtx-4090-pcie", 1).ll128) == ("pci", False)


@pytest.mark.parametrize(("name", "kind", "time"), [
    ("dgx-a100-80gb", "all_gather", 1417.12),
    ("aws-p4d", "all_gather", 5462.88),
])  # fmt: skip
def test_a_cluster_of_the_catalogue_gives_the_time_worked_out_by_hand(name, kind, time):
    assert estimate(kind, QUARTER, read(name, 2), "ring", "simple").time(QUARTER) * 1e6 == pytest.approx(time, abs=0.01)


def algorithms(kind, on):
    return {algorithm for algorithm, _ in candidates(kind, on)}


def test_pairs_that_exist():
    """All-gathers: rings, NVLS on one host, PAT with one rank per host; broadcasts nothing but rings."""
    one, eight = read("dgx-h100", 1), read("dgx-h100", 8)
    cluster, _ = world("dgx-h100", 8)
    rail = SystemReader(cluster).system(Mesh(hosts=8, devices_per_host=8).group("rail", 8, stride=8))
    assert algorithms("all_gather", one) == algorithms("reduce_scatter", one) == {"ring", "nvls"}
    assert algorithms("all_gather", eight) == algorithms("reduce_scatter", eight) == {"ring"}
    assert algorithms("all_gather", rail) == algorithms("reduce_scatter", rail) == {"ring", "pat"}
    assert algorithms("all_reduce", one) == {"ring", "tree", "nvls"}
    assert algorithms("all_reduce", eight) == {"ring", "tree", "nvls_tree"}
    assert algorithms("all_reduce", rail) == {"ring", "tree"}
    for kind in ("broadcast", "reduce"):
        assert all(algorithms(kind, on) == {"ring"} for on in (one, eight, rail))


def test_sharp_adds_what_reduces_in_the_network():
    cluster, group = world("dgx-h100", 8)
    on = SystemReader(cluster, in_network=True).system(group)
    assert algorithms("all_gather", on) == {"ring", "nvls", "collnet_direct"}
    assert algorithms("all_reduce", on) == {"ring", "tree", "nvls", "nvls_tree", "collnet_direct", "collnet_chain"}


def test_ampere_has_no_nvls():
    assert algorithms("all_reduce", read("dgx-a100-80gb", 1)) == {"ring", "tree"}
    assert algorithms("all_reduce", read("dgx-a100-80gb", 2)) == {"ring", "tree"}


def test_only_rings_and_trees_have_protocols():
    assert set(candidates("all_reduce", SYSTEMS["8 x H100"])) == {
        (algorithm, protocol) for algorithm in ("ring", "tree") for protocol in ("ll", "ll128", "simple")
    } | {("nvls", "simple")}


def test_machines_without_nvlink_have_no_ll128():
    for name, hosts in [("rtx-4090-pcie", 1), ("l40s-pcie", 1), ("cloud-100gbe", 2)]:
        assert "ll128" not in {protocol for _, protocol in candidates("all_gather", read(name, hosts))}


def test_a_rank_per_host_of_a_machine_with_nvlink_has_ll128():
    """LL128 depends on paths inside hosts only where there are any (``ncclTopoTuneModel``: typeIntra <= NVB)."""
    rail = Mesh(hosts=8, devices_per_host=8).group("rail", 8, stride=8)
    on = SystemReader(load_cluster("dgx-h100", hosts=8)).system(rail)
    assert ("ring", "ll128") in set(candidates("all_gather", on))
    off = SystemReader(load_cluster("cloud-100gbe", hosts=8)).system(rail)
    assert ("ring", "ll128") not in set(candidates("all_gather", off))


def test_a15_rings_wait_for_each_rank_and_pat_for_levels():
    """1,024 hosts of one rank: 8.4 + 1,023 x 14 us against 8 + 10 x 14 / 3.5 + 2.8 us x 1,024."""
    on = system(1024, 1024, HOPPER, ring=graph(1, 48), pat=graph(1, 48))
    ring, pat = (latency("all_gather", on, algorithm, "simple") for algorithm in ("ring", "pat"))
    assert ring == pytest.approx(14330.4e-6)
    assert pat == pytest.approx(2915.2e-6)


@pytest.mark.parametrize("ranks", [2, 8, 100, 1024])
def test_a15_ring_and_pat_move_the_same_bytes(ranks):
    group = Mesh(hosts=ranks, devices_per_host=1).world()
    asked = Collective(kind="all_gather", elements=1e9, bytes_per_element=1, group=group, role="")
    ring, pat = (
        sum(send.amount for exchange in algorithm.exchanges(asked) for send in exchange.sends)
        for algorithm in (Ring(), RecursiveDoubling())
    )
    assert ring == pytest.approx(pat, rel=1e-12)


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("kind", ["all_to_all", "reduce_scatter"])
def test_direct_messages_of_one_rank_are_none(hosts, kind):
    cluster = load_cluster("dgx-h100", hosts=hosts)
    alone = Mesh(hosts=hosts, devices_per_host=8).group("alone", 1)
    asked = Collective(kind=kind, elements=1e6, bytes_per_element=2, group=alone, role="")
    assert NcclDirect(NcclCollectives(cluster, Forced())).exchanges(asked) == ()


@pytest.mark.parametrize(("name", "per_channel"), [("dgx-h100", 32), ("l40s-pcie", 2)])
def test_direct_messages_take_ll_up_to_16_kib_on_each_channel(name, per_channel):
    """To a peer lead 32 channels over NVLink, 2 over PCIe."""
    cluster, group = world(name, 1)
    direct = NcclDirect(NcclCollectives(cluster, Forced()))

    def protocol(to_a_peer):
        payload = to_a_peer * group.size
        asked = Collective(kind="all_to_all", elements=payload, bytes_per_element=1, group=group, role="")
        return direct.exchanges(asked)[0].protocol

    assert protocol(per_channel * 16 * 1024) == "ll"
    assert protocol(per_channel * 16 * 1024 + 1) == "simple"


def test_what_does_not_exist_is_refused_with_what_does():
    cluster, group = world("dgx-h100", 8)
    asked = Collective(kind="all_gather", elements=1e6, bytes_per_element=2, group=group, role="")
    with pytest.raises(InputError, match="ring/simple"):
        NcclCollectives(cluster, Forced(algorithm="nvls")).exchanges(asked)


@pytest.mark.parametrize(("payload", "protocol", "hosts", "inside", "between"), [
    # 4 MiB pass 240 GB/s inside a host and 8 cards of 24 GB/s between hosts; 3.4 and 14 us a message
    (GIB, "simple", 2, 14 * (3.4 + 2**22 / 240e3), 2**22 / 192e3),
    (GIB, "simple", 20, 140 * (3.4 + 2**22 / 240e3), 18 * 14 + 19 * 2**22 / 192e3),
    # a message that is smaller than the slots passes as a whole
    (MIB, "simple", 20, 140 * (3.4 + 2**20 / 240e3), 18 * 14 + 19 * 2**20 / 192e3),
    # lines are passed on at once
    (MIB, "ll128", 20, 140 * 1.9, 18 * 4.0),
    (1024, "ll", 20, 140 * 0.6, 18 * 2.7),
])  # fmt: skip
def test_the_first_chunk_of_a_chain_passes_every_rank(payload, protocol, hosts, inside, between):
    """17 us a call and 3 us a message of protocol Simple on A100, of which NCCL counts one, between hosts."""
    adjustment = NcclCollectives(load_cluster("dgx-a100-80gb"), Forced()).adjustment
    on = read("dgx-a100-80gb", hosts)
    for kind in ("broadcast", "reduce"):
        chosen = estimate(kind, payload, on, "ring", protocol)
        found = cost(kind, payload, on, chosen, adjustment).latency - chosen.latency
        calls = {"simple": 17 + 3, "ll128": 2, "ll": 4 + 0.3}[protocol]
        assert found == pytest.approx((calls + inside + between) * 1e-6, rel=1e-9)


def test_a_chain_on_one_host_has_a_slot_per_channel():
    """Twelve channels of half a MiB over 240 GB/s, seven times; NCCL counts one of the seven messages."""
    adjustment = NcclCollectives(load_cluster("dgx-a100-80gb"), Forced()).adjustment
    on = read("dgx-a100-80gb", 1)
    chosen = estimate("broadcast", GIB, on, "ring", "simple")
    found = cost("broadcast", GIB, on, chosen, adjustment).latency - chosen.latency
    assert found == pytest.approx((17 + 3 + 6 * 3.4 + 7 * 12 * 2**19 / 240e3) * 1e-6, rel=1e-9)


@pytest.mark.parametrize("hosts", [1, 2, 8, 64])
def test_what_was_measured_on_sixteen_ranks_is_not_carried_on_to_hundreds(hosts):
    """LL128 on Blackwell is late by 7 us a message on eight devices; 64 times eight would be 3.6 ms."""
    on, adjustment = read("dgx-b200", hosts), NcclCollectives(load_cluster("dgx-b200"), Forced()).adjustment
    chosen = estimate("all_gather", MIB, on, "ring", "ll128")
    found = cost("all_gather", MIB, on, chosen, adjustment).latency - chosen.latency
    assert found == pytest.approx(min(8 * hosts - 1, 15) * adjustment.ll128_message.value, rel=1e-9)


def pairs(*listed):
    number = Number(value=20e9, name="", unit="B/s", basis="chosen")
    return LinkKind(
        name="nvlink", technology="nvlink", ends=("device", "device"), wiring="pairs", pairs=listed, nominal=number,
        efficiency=None, latency=number,
    )  # fmt: skip


def steps(rings):
    return dict(rings.shares)


def test_two_devices_have_a_ring_per_link_of_the_pair():
    rings = host_rings(pairs((0, 1, 3)), (0, 1))
    assert rings.channels == 3
    assert steps(rings) == {(0, 1): 1.0, (1, 0): 1.0}


def test_a_circle_of_links_carries_a_ring_in_each_direction():
    """0 - 1 - 2 - 3 - 0, one link each: both directions of each link are used once."""
    rings = host_rings(pairs((0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 0, 1)), (0, 1, 2, 3))
    assert rings.channels == 2
    assert steps(rings) == {
        pair: 0.5 for a, b in [(0, 1), (1, 2), (2, 3), (3, 0)] for pair in [(a, b), (b, a)]
    }  # fmt: skip


@pytest.mark.parametrize(("devices", "channels"), [(2, 1), (3, 2), (5, 4), (8, 7)])
def test_a_full_mesh_of_n_divides_into_n_minus_1_rings(devices, channels):
    rings = host_rings(pairs(), tuple(range(devices)))
    assert rings.channels == channels
    assert len(rings.shares) == devices * (devices - 1)
    assert set(steps(rings).values()) == {1 / channels}


@pytest.mark.parametrize("devices", [4, 6])
def test_full_meshes_of_four_and_six_do_not_divide(devices):
    """Tillson 1980: the complete directed graph divides into Hamilton circles except for 4 and 6."""
    rings = host_rings(pairs(), tuple(range(devices)))
    assert devices // 2 <= rings.channels < devices - 1


def test_the_cube_mesh_of_a_dgx_1_carries_six_rings_of_20():
    """Six links a device, three rings in both directions (NCCL's 6 x 20)."""
    cube = [(0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 1), (2, 6, 2),
            (3, 7, 2), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 1)]  # fmt: skip
    rings = host_rings(pairs(*cube), tuple(range(8)))
    links = {(a, b): count for first, second, count in cube for a, b in [(first, second), (second, first)]}
    assert rings.channels == 6
    for step, share in rings.shares:
        assert share * rings.channels <= links[step] + 1e-9


def test_the_ring_of_a_part_of_the_mesh_uses_its_links_only():
    square = pairs((0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 0, 1))
    assert steps(host_rings(square, (1, 2))) == {(1, 2): 1.0, (2, 1): 1.0}


def test_five_devices_of_a_cube_mesh_need_one_that_passes_on():
    """Devices 0 to 3 are a quad, 4 is linked to 0 alone, twice: 0-1-2-3-(0)-4-0 and the way back use its links up."""
    direct = load_cluster("dgx-1v").direct
    found = host_rings(direct, (0, 1, 2, 3, 4))
    shares = dict(found.shares)
    assert found.channels == 2
    assert shares[0, 4] == shares[4, 0] == 1.0
    assert all(share * 2 <= pair_count(direct, *step) for step, share in shares.items())
