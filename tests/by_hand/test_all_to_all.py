"""All-to-all between hosts: with and without PXN, and in two hops, on rails by hand."""

from dataclasses import replace

import pytest

from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.direct import Direct
from simulator.laws.collectives.fabric import ClassFabric, FullFabric
from simulator.laws.collectives.hierarchical import Hierarchical
from simulator.world.mesh import Mesh
from simulator.world.topology.cluster import load_cluster
from simulator.world.topology.fabrics import FabricSection, with_fabric

GIGA = 1e9


def rails(hosts=4, **fabric):
    section = FabricSection(kind="rail_optimised", **fabric)
    return load_cluster("dgx-h100", hosts=hosts, on_fabric=lambda cluster: with_fabric(cluster, section))


def carried(cluster, algorithm, fabric=ClassFabric):
    """Bytes on each link of a kind of an all-to-all of 1 GB from each rank, all phases together."""
    world = Mesh(hosts=cluster.hosts, devices_per_host=cluster.accelerators_per_host).world()
    collective = Collective(kind="all_to_all", elements=GIGA, bytes_per_element=1, group=world, role="test")
    built = fabric(cluster)
    ranks = () if fabric is ClassFabric else world.members(0)
    found = {}
    for exchange in algorithm.exchanges(collective):
        phase = built.phase(exchange, ranks)
        for link, share in phase.usage:
            name = built.links[link].name if fabric is ClassFabric else built.links[link].kind
            found[name] = found.get(name, 0.0) + share * phase.payload
    return found


def test_with_pxn_rails_never_meet_in_the_network():
    """Of 1 GB 24/32 leave the host; 7/8 of that and 7/32 of the whole cross NVLink first."""
    found = carried(rails(), Direct())
    assert found["network:nic>leaf"] == pytest.approx(24 / 32 * GIGA)
    assert found["nvlink:device>nvswitch"] == pytest.approx((7 / 32 + 24 / 32 * 7 / 8) * GIGA)
    assert "uplink:leaf>spine" not in found


def test_without_pxn_seven_of_eight_messages_change_rails():
    """4 x 8 devices send 24/32 GB, 7/8 of it over the 32 uplinks of each of 8 leaves."""
    found = carried(rails(), Direct(pxn=False))
    assert found["nvlink:device>nvswitch"] == pytest.approx(7 / 32 * GIGA)
    assert found["network:nic>leaf"] == pytest.approx(24 / 32 * GIGA)
    assert found["uplink:leaf>spine"] == pytest.approx(32 * 24 / 32 * 7 / 8 / (8 * 32) * GIGA)


def test_two_hops_move_the_array_twice():
    """7/8 of it inside the host, 3/4 of it along the rails."""
    found = carried(rails(), Hierarchical(Direct(), Direct()))
    assert found["nvlink:device>nvswitch"] == pytest.approx(7 / 8 * GIGA)
    assert found["network:nic>leaf"] == pytest.approx(3 / 4 * GIGA)


@pytest.mark.parametrize("pxn", [True, False])
def test_all_links_of_a_kind_carry_what_every_single_one_does(pxn):
    cluster = replace(rails(radix=8), placement="packed")
    whole, single = carried(cluster, Direct(pxn=pxn)), carried(cluster, Direct(pxn=pxn), FullFabric)
    built = FullFabric(cluster)
    for kind in single:
        members = sum(link.kind == kind for link in built.links) / 2
        assert sum(amount for name, amount in whole.items() if name.startswith(f"{kind}:")) / 2 == pytest.approx(
            single[kind] / members / 2
        )
