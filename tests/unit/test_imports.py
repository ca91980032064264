"""Topologies of other tools: every rule on a small sample, every file of the field if it is there."""

import json
from collections import Counter
from pathlib import Path

import networkx as nx
import pytest

from simulator.cli.imports import import_
from simulator.cli.topology import topology
from simulator.errors import InputError
from simulator.laws.collectives.fabric import ClassFabric
from simulator.laws.collectives.rings import host_rings
from simulator.world.topology.cluster import load_cluster, shipped_clusters
from simulator.world.topology.graph import device, graph, routes
from simulator.world.topology.imported.cluster_file import to_cluster_yaml
from simulator.world.topology.imported.formats import detect, read_topology
from simulator.world.topology.imported.inventory import with_hints
from simulator.world.topology.imported.links import PciLink, cpu_interconnect, nvlink, xgmi
from simulator.world.topology.imported.node_link import node_link
from tests.unit.test_command import refused, zerosim

GB = 1e9


@pytest.fixture(autouse=True, scope="module")
def _registered():
    topology.add_command(import_)


@pytest.fixture
def read(tmp_path):
    """Read *text* as if it were a file."""

    def reading(text, name="sample.txt", **hints):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return read_topology(path, **hints)

    return reading


@pytest.fixture
def cluster(tmp_path):
    """The cluster that an inventory becomes."""

    def loading(inventory, part=None, *, hosts=None, **hints):
        path = tmp_path / "cluster.yaml"
        path.write_text(to_cluster_yaml(inventory, part, **hints), encoding="utf-8")
        return load_cluster(str(path), hosts=hosts)

    return loading


def link(cluster, name):
    return next(each for each in cluster.links if each.name == name)


def way(cluster, rank):
    """Kinds of nodes on every shortest route from the first device to *rank*."""
    found = routes(graph(cluster), device(cluster, 0), device(cluster, rank))
    return {tuple(tail[0] for tail, _ in path[1:]) for path in found}


# --- NCCL and RCCL XML ----------------------------------------------------------------------------------------------


def pci(bus, kind, inner="", speed="16 GT/s", more=""):
    return f'<pci busid="{bus}" class="{kind}" link_speed="{speed}" link_width="16" {more}>{inner}</pci>'


def gpu(bus, dev, links="", sm=80, more=""):
    return pci(bus, "0x030200", f'<gpu dev="{dev}" sm="{sm}" rank="{dev}" gdr="1">{links}</gpu>', more=more)


def nic(bus, *nets):
    inner = "".join(f'<net name="mlx5_{dev}" dev="{dev}" speed="{speed}" gdr="1"/>' for dev, speed in nets)
    return pci(bus, "0x020700", f"<nic>{inner}</nic>" if nets else "")


def system(*cpus, vendor='vendor="AuthenticAMD" familyid="23" modelid="49"'):
    inner = "".join(
        f'<cpu numaid="{index}" arch="x86_64" {vendor}>{content}</cpu>' for index, content in enumerate(cpus)
    )
    return f'<system version="1">{inner}</system>'


def to_switch(*counts):
    return "".join(f'<nvlink target="00:{index}" count="{n}" tclass="0x068000"/>' for index, n in enumerate(counts))


def to_gpu(**counts):
    return "".join(f'<nvlink target="{bus}" count="{n}" tclass="0x030200"/>' for bus, n in counts.items())


def test_links_to_all_chips_of_nvswitch_add_up(read):
    found = read(system(gpu("a", 0, to_switch(2, 4, 6)) + gpu("b", 1, to_switch(6, 6))))
    assert (found.scale_up, found.nvlinks, found.sm, found.accelerators) == ("nvswitch", (12, 12), 80, 2)


def test_a_switch_in_the_tree_is_a_target_and_no_node(read):
    chips = pci("0000:C4:00.0", "0x068000") + pci("0000:c5:00.0", "0x068000")
    links = '<nvlink target="0000:c4:00.0" count="6"/><nvlink target="0000:C5:00.0" count="6"/>'
    found = read(system(gpu("a", 0, links) + gpu("b", 1, links) + chips))
    assert (found.scale_up, found.nvlinks, found.switches) == ("nvswitch", (12, 12), ())


def test_direct_links_that_both_ends_list_count_once(read):
    links = {name: to_gpu(**{other: 4 for other in "abcd" if other != name}) for name in "abcd"}
    found = read(system("".join(gpu(name, dev, links[name]) for dev, name in enumerate("abcd"))))
    assert (found.scale_up, found.nvlinks) == ("mesh", (12, 12, 12, 12))
    assert found.pairs[0] == (0, 1, 4)
    assert len(found.pairs) == 6


def test_a_link_that_one_end_lists_counts_too(read):
    assert read(system(gpu("a", 0, to_gpu(b=4)) + gpu("b", 1))).nvlinks == (4, 4)


def test_links_that_end_at_themselves_or_nowhere_are_ignored_and_said(read):
    found = read(system(gpu("a", 0, to_gpu(a=12, zz=3)) + gpu("b", 1)))
    assert (found.scale_up, found.nvlinks) == ("pcie", (0, 0))
    assert ["12 links end at the GPU" in found.notes[0], "3 links" in found.notes[1]] == [True, True]


def test_pairs_that_differ_are_a_partial_mesh_and_written_as_they_are(read, cluster):
    found = read(system(gpu("a", 0, to_gpu(b=2, c=1)) + gpu("b", 1, to_gpu(c=1)) + gpu("c", 2)))
    assert (found.scale_up, found.nvlinks) == ("partial mesh", (3, 3, 2))
    wired = cluster(found, "a100-sxm-80gb")
    assert (wired.direct.pairs, wired.direct.technology) == (((0, 1, 2), (0, 2, 1), (1, 2, 1)), "nvlink")
    assert wired.direct.bandwidth == 20 * GB
    assert graph(wired).edges[("device", 0, 0), ("device", 0, 1)]["bandwidth"] == 40 * GB


def test_devices_that_no_link_joins_reach_each_other_over_a_third(read, cluster):
    chain = gpu("a", 0, to_gpu(b=4)) + gpu("b", 1, to_gpu(c=4)) + gpu("c", 2)
    wired = cluster(read(system(chain + nic("n", (0, 100000)))), "a100-sxm-80gb", hosts=2)
    assert (way(wired, 1), way(wired, 2)) == ({()}, {("device",)})


def test_bridges_join_groups_and_pcie_joins_the_groups(read, cluster):
    bridged = gpu("a", 0, to_gpu(b=12)) + gpu("b", 1) + gpu("c", 2, to_gpu(d=12)) + gpu("d", 3)
    wired = cluster(read(system(pci("s", "0x060400", bridged))), "a100-pcie-80gb")
    assert wired.direct.pairs == ((0, 1, 12), (2, 3, 12))
    assert [way(wired, rank) for rank in (1, 2, 3)] == [{()}, {("pcie_switch",)}, {("pcie_switch",)}]
    ClassFabric(wired).check_routes()


@pytest.mark.parametrize(("links", "words"), [
    ({"a": {"b": 1}, "b": {"c": 1}, "c": {"d": 1}, "d": {"e": 1}}, ["more than three links apart", "by hand"]),
    ({"a": {"b": 1}, "b": {"c": 1}, "d": {"e": 1}}, ["joined in groups", "by hand"]),
])  # fmt: skip
def test_links_that_pcie_would_compete_with_are_refused(read, links, words):
    text = system("".join(gpu(name, dev, to_gpu(**links.get(name, {}))) for dev, name in enumerate("abcde")))
    with pytest.raises(InputError) as caught:
        to_cluster_yaml(read(text), "a100-sxm-80gb")
    assert [word for word in words if word not in str(caught.value)] == []


def test_gpus_with_unequal_ports_to_the_switch_are_refused(read):
    with pytest.raises(InputError, match=r"\[12, 11\].*unequal numbers of NVLinks.*all links are up"):
        to_cluster_yaml(read(system(gpu("a", 0, to_switch(12)) + gpu("b", 1, to_switch(11)))), "a100-sxm-80gb")


PARTIAL = system(
    pci("ffff:ff:01.0", "0x060400", pci("A0", "0x030200") + pci("a1", "0x030200") + nic("n0") + nic("n1"))
    + pci("ffff:ff:02.0", "0x060400", pci("a2", "0x030200") + pci("a3", "0x030200") + nic("n2") + nic("n3"))
)


def test_a_file_of_pci_only_is_unknown_until_the_part_is_named(read):
    found = read(PARTIAL)
    assert (found.scale_up, found.nvlinks, found.model, found.rails) == ("unknown", (), None, 4)
    assert found.switches == ((0, 1), (2, 3))
    assert [port.near for port in found.nics] == [(0, 1), (0, 1), (2, 3), (2, 3)]
    with pytest.raises(InputError, match=r"which accelerator\?.*a100-sxm-40gb"):
        to_cluster_yaml(found)
    named = read(PARTIAL, accelerator="a100-sxm-40gb")
    assert (named.scale_up, named.nvlinks, named.sm) == ("mesh", (12,) * 4, 80)
    assert any("holds no NVLinks: 12 per GPU" in note for note in named.notes)


def test_port_speeds_can_be_given_and_are_asked_for(read, cluster):
    with pytest.raises(InputError, match=r"how fast the network ports are; give their speed.*--nic-speed"):
        to_cluster_yaml(read(PARTIAL), "a100-sxm-40gb")
    found = cluster(read(PARTIAL), "a100-sxm-40gb", nic_speed=25 * GB)
    assert link(found, "network").nominal.value == 25 * GB
    assert link(found, "network").nominal.basis == "chosen"
    assert found.direct.pairs == ((0, 1, 4), (0, 2, 4), (0, 3, 4), (1, 2, 4), (1, 3, 4), (2, 3, 4))
    assert found.direct.nominal.at == "One link; pairs as a100-sxm-40gb has"


@pytest.mark.parametrize(("part", "count", "scale_up", "nvlinks"), [
    ("v100-sxm-32gb", 8, "partial mesh", 6),
    ("v100-sxm-32gb", 16, "nvswitch", 6),
    ("a100-sxm-80gb", 8, "nvswitch", 12),
    ("h100-sxm-80gb", 8, "nvswitch", 18),
    ("h100-sxm-80gb", 1, "none", 0),
    ("a100-pcie-80gb", 4, "pcie", 0),
    ("mi300x-192gb", 8, "mesh", 7),
])  # fmt: skip
def test_what_hosts_of_a_part_usually_have(read, part, count, scale_up, nvlinks):
    text = system("".join(pci(f"{bus:02x}", "0x030200") for bus in range(count)))
    found = with_hints(read(text), part)
    assert (found.scale_up, found.nvlinks) == (scale_up, (nvlinks,) * count)


def test_a_pci_device_tells_the_part(read):
    text = system(pci("a", "0x030200", more='vendor="0x10DE" device="0x20B0"') + pci("b", "0x030200"))
    assert read(text).model == "a100-sxm-40gb"


def test_missing_class_is_told_from_children_and_vendor(read):
    text = system(
        '<pci busid="a" vendor="0x10de" device="0x2237" link_speed="" link_width="0"/>'
        '<pci busid="b" vendor="0x10de" device="0x2237"/><pci busid="n" vendor="0x1d0f" device="0xefa0"/>'
        '<pci busid="s"><pci busid="c"><gpu dev="0" sm="86"/></pci></pci>'
    )
    found = read(text)
    assert (found.accelerators, len(found.nics), found.model, found.scale_up) == (3, 1, "a10g-24gb", "pcie")


def test_comments_blank_lines_and_upper_case_hex_are_survived(read):
    text = "\n\n<!-- `cloud` -- file\n-->\n" + system(gpu("0000:0F:00.0", 0, to_gpu(**{"0000:1F:00.0": 2})))
    text = text.replace("0000:1F", "0000:1f").replace("</cpu>", "<!-- x -->" + gpu("0000:1F:00.0", 1) + "</cpu>")
    assert read(text).pairs == ((0, 1, 2),)


def test_gpus_stand_in_the_order_of_dev_else_of_the_bus(read):
    ordered = read(system(pci("s", "0x060400", gpu("9", 1) + nic("n", (0, 100000))) + gpu("1", 0)))
    assert ordered.nics[0].near == (1,)
    by_bus = read(system(pci("s", "0x060400", pci("9", "0x030200") + nic("n")) + pci("1", "0x030200")))
    assert by_bus.nics[0].near == (1,)


def test_ports_have_the_speed_of_their_net_and_nets_without_dev_do_not_exist(read):
    ghost = '<nic><net name="ghost" speed="100000"/></nic>'
    found = read(system(gpu("a", 0) + nic("n", (1, 180000), (0, 200000)) + ghost))
    assert [(port.name, port.speed) for port in found.nics] == [("mlx5_0", 25 * GB), ("mlx5_1", 22.5 * GB)]
    assert "1 net without dev" in found.notes[0]


def test_a_net_without_speed_is_10_gbit_as_nccl_takes_it(read):
    found = read(system(gpu("a", 0) + nic("n", (0, 0))))
    assert found.nics[0].speed == 1.25 * GB
    assert "no speed" in found.notes[0]


def test_a_nic_below_a_cpu_serves_the_gpus_of_that_cpu(read):
    net = '<nic><net name="eth0" dev="0" speed="100000" gdr="0"/></nic>'
    found = read(system(gpu("a", 0) + net, gpu("b", 1)))
    assert (found.nics[0].near, found.nics[0].technology, found.cpus, found.rails) == ((0,), "tcp", 2, 1)


@pytest.mark.parametrize(("kind", "more", "name", "gdr", "technology"), [
    ("0x020700", "", "mlx5_0", 1, "infiniband"),
    ("0x020000", "", "mlx5_0", 1, "roce"),
    ("0x020000", 'vendor="0x1d0f"', "rdmap0s6", 1, "efa"),
    ("0x020000", "", "eth0", 0, "tcp"),
    ("", 'vendor="0x15b3"', "mlx5_bond_0", 1, "roce"),
])  # fmt: skip
def test_class_vendor_and_name_tell_the_network(read, cluster, kind, more, name, gdr, technology):
    card = pci("n", kind, f'<nic><net name="{name}" dev="0" speed="100000" gdr="{gdr}"/></nic>', more=more)
    found = read(system(gpu("a", 0) + card))
    assert found.nics[0].technology == technology
    assert link(cluster(found, "a100-sxm-80gb"), "network").technology == technology


def test_latency_that_the_plugin_tells_is_added_to_that_of_the_wire(read, cluster):
    card = pci("n", "0x020000", '<nic><net name="efa0" dev="0" speed="100000" latency="75.0"/></nic>')
    wired = cluster(read(system(gpu("a", 0) + card)), "a100-sxm-80gb")
    assert link(wired, "network").latency.value == pytest.approx(76e-6)
    with pytest.raises(InputError, match=r"net.latency.*'slow'"):
        read(system(gpu("a", 0) + card.replace("75.0", "slow")))


@pytest.mark.parametrize(("vendor", "cpu"), [
    ('vendor="AuthenticAMD"', "amd"), ('vendor="GenuineIntel"', "intel"), ("", "intel"),
])  # fmt: skip
def test_the_cpu_of_the_file_is_that_of_the_cluster(read, cluster, vendor, cpu):
    assert cluster(read(system(gpu("a", 0) + nic("n", (0, 100000)), vendor=vendor)), "a100-sxm-80gb").cpu == cpu


def test_an_arm_cpu_is_told_by_its_architecture(read):
    text = system(gpu("a", 0), vendor="").replace("x86_64", "arm64")
    assert read(text).cpu == "arm"


def test_ports_away_from_all_switches_are_not_for_gpus_where_others_are_near(read):
    found = read(system(pci("s", "0x060400", gpu("a", 0) + nic("n", (0, 200000))) + nic("m", (1, 100000))))
    assert [port.near for port in found.nics] == [(0,), ()]
    assert found.rails == 1


def broadcom(bus, inner, speed="32 GT/s"):
    return pci(bus, "0x060400", inner, speed, 'vendor="0x1000" device="0xc030"')


def test_stacked_broadcom_bridges_are_one_switch_and_their_speed_is_bogus(read, cluster):
    inner = broadcom("d", gpu("a", 0, to_switch(18), 90)) + broadcom("e", nic("n", (0, 400000)))
    other = broadcom("h", gpu("b", 1, to_switch(18), 90)) + broadcom("i", nic("m", (1, 400000)))
    text = system(broadcom("c", inner, "5.0 GT/s PCIe") + broadcom("g", other, "5.0 GT/s PCIe"))
    found = read(text.replace("16 GT/s", "32.0 GT/s PCIe"))
    assert (found.switches, [port.near for port in found.nics]) == (((0,), (1,)), [(0,), (1,)])
    assert found.pcie == PciLink(generation=5, width=16)
    assert link(cluster(found, "h100-sxm-80gb"), "pcie").bandwidth == pytest.approx(48 * GB, rel=1e-3)


def test_stacked_bridges_of_others_are_two_switches(read):
    inner = pci("d", "0x060400", gpu("a", 0)) + pci("e", "0x060400", nic("n", (0, 200000)))
    found = read(system(pci("c", "0x060400", inner + gpu("b", 1) + nic("m", (1, 200000)))))
    assert [port.near for port in found.nics] == [(0, 1), (1,)]  # PXB to both, PIX to one


def test_xgmi_of_rccl(read, cluster):
    names = ["a", "b", "c"]
    text = system(*[
        pci(
            name,
            "0x120000",
            f'<gpu dev="{dev}" sm="304" gcn="gfx942">'
            + "".join(f'<xgmi target="{other}" count="1" tclass="0x120000"/>' for other in names if other != name)
            + "</gpu>",
        )
        for dev, name in enumerate(names)
    ])  # fmt: skip
    found = read(text)
    assert (found.scale_up, found.gcn, found.sm, found.nvlinks) == ("mesh", "gfx942", None, (2, 2, 2))
    wired = cluster(found, "mi300x-192gb")
    assert (wired.library, wired.direct.technology) == ("rccl", "xgmi")
    assert wired.direct.pairs == ((0, 1, 1), (0, 2, 1), (1, 2, 1))
    assert (wired.direct.nominal.value, wired.direct.bandwidth) == (64 * GB, 48 * GB)


@pytest.mark.parametrize(("speed", "width", "payload"), [
    ("2.5 GT/s", "16", 3), ("5.0 GT/s PCIe", "16", 6), ("8 GT/s", "16", 12), ("16.0 GT/s PCIe", "8", 12),
    ("32 GT/s", "16", 48), ("64.0 GT/s PCIe", "16", 96), ("", "0", 12), ("unknown", "", 12),
])  # fmt: skip
def test_pcie_as_nccl_reckons_it(speed, width, payload):
    assert PciLink.parse(speed, width).rate.payload == payload * GB


@pytest.mark.parametrize(("vendor", "family", "model", "arch", "between"), [
    ("GenuineIntel", 6, 0x4F, "x86_64", 6), ("GenuineIntel", 6, 0x55, "x86_64", 10),
    ("GenuineIntel", 6, 0x8F, "x86_64", 22), ("GenuineIntel", 6, 0xCF, "x86_64", 40),
    ("AuthenticAMD", 23, 49, "x86_64", 16), ("", 0, 0, "x86_64", 10), ("", 0, 0, "ppc64", 32), ("", 0, 0, "arm64", 6),
    ("  Shanghai  ", 7, 0x5B, "x86_64", 9), ("  Shanghai  ", 7, 0x1B, "x86_64", 6),
])  # fmt: skip
def test_cpus_as_nccl_reckons_them(vendor, family, model, arch, between):
    assert cpu_interconnect(vendor, family, model, arch) == between * GB


def test_links_as_nccl_and_rccl_reckon_them():
    assert [nvlink(sm).payload / GB for sm in (60, 70, 80, 86, 89, 90, 100, 103)] == [
        18,
        20,
        20,
        12,
        12,
        20.6,
        40.1,
        40.1,
    ]
    assert [xgmi(gcn).payload / GB for gcn in ("gfx942", "gfx950", "gfx90a", "gfx908")] == [48, 48, 36, 24]


@pytest.mark.parametrize(("text", "words"), [
    ("<graphs version='1'><graph id='0'/></graphs>", ["graph file", "NCCL_TOPO_DUMP_FILE"]),
    ("<system version='1'><cpu>", ["not valid XML"]),
    ("<html></html>", ["<html>", "expected the root <system>"]),
    ("<system version='1'><cpu/></system>", ["no GPU"]),
    (system(gpu("a", "x")), ["gpu.dev", "'x'", "whole number"]),
])  # fmt: skip
def test_bad_xml_gets_a_line_that_helps(read, text, words):
    with pytest.raises(InputError) as caught:
        read(text)
    assert [word for word in words if word not in str(caught.value)] == []


# --- nvidia-smi topo -m ---------------------------------------------------------------------------------------------


def matrix(gpus, entries, affinity=True):
    """A matrix in which GPU a reaches GPU b over entries[a][b]."""
    names = [f"GPU{index}" for index in range(gpus)]
    head = "\t".join(["", *names, *(["CPU Affinity", "NUMA Affinity"] if affinity else [])])
    rows = [
        "\t".join([name, *entries[index], *(["0-31", "0"] if affinity else [])]) for index, name in enumerate(names)
    ]
    return "\n".join([head, *rows])


def equal(gpus, entry):
    return [[" X " if a == b else entry for b in range(gpus)] for a in range(gpus)]


@pytest.mark.parametrize(("gpus", "entry", "scale_up", "nvlinks"), [
    (8, "NV12", "nvswitch", 12),
    (8, "NV18", "nvswitch", 18),
    (8, "NV8", "nvswitch", 8),
    (16, "NV6", "nvswitch", 6),
    (4, "NV12", "nvswitch", 12),
    (4, "NV4", "mesh", 12),
    (4, "NV6", "mesh", 18),
    (2, "NV12", "mesh", 12),
    (4, "PHB", "pcie", 0),
])  # fmt: skip
def test_a_matrix_means_a_switch_or_a_mesh_by_the_sum_of_links(read, gpus, entry, scale_up, nvlinks):
    found = read(matrix(gpus, equal(gpus, entry)))
    assert (found.scale_up, found.nvlinks, found.accelerators) == (scale_up, (nvlinks,) * gpus, gpus)


def test_one_gpu_has_no_scale_up(read):
    assert read(matrix(1, [[" X "]])).scale_up == "none"


BRIDGED = """$ nvidia-smi topo -m
\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tSYS\tPIX\tPXB\tNODE\t0-15\t0\t\tN/A
GPU1\tSYS\t X \tSYS\tSYS\tNODE\t16-31\t1\t\tN/A
NIC0\tPIX\tSYS\t X \tPXB\tNODE

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
  NIC2: mlx5_bond_0
"""


def test_escapes_legend_missing_rows_and_odd_columns_of_a_matrix(read):
    found = read(BRIDGED)
    assert [(port.name, port.near) for port in found.nics] == [("mlx5_0", (0,)), ("mlx5_1", (0,)), ("mlx5_bond_0", ())]
    assert (found.accelerators, found.cpus, found.switches, found.scale_up) == (2, 2, ((0,),), "pcie")


@pytest.mark.parametrize(("change", "words"), [
    (("NV12\t X ", "NV4\t X "), ["GPU0 reaches GPU1 over NV12", "over NV4"]),
    (("GPU1\tNV12\t X ", "GPU1\tNVx\t X "), ["GPU1", "'NVx'", "expected X, NV"]),
    (("\nGPU1\tNV12\t X \t0-31\t0", ""), ["GPU1", "row is missing"]),
    (("GPU1\tNV12\t X \t0-31\t0", "GPU1\tNV12"), ["expected 2 entries, found 1"]),
])  # fmt: skip
def test_a_bad_matrix_gets_a_line_that_helps(read, change, words):
    text = matrix(2, equal(2, "NV12"))
    assert change[0] in text
    with pytest.raises(InputError) as caught:
        read(text.replace(*change))
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_mesh_is_wired_in_pairs_and_two_gpus_have_their_own_links(read, cluster):
    wired = cluster(read(matrix(4, equal(4, "NV4"))), "a100-sxm-80gb")
    assert (wired.library, wired.direct.technology, wired.direct.bandwidth) == ("nccl", "nvlink", 20 * GB)
    assert [host_rings(wired.direct, tuple(range(n))).channels for n in (2, 4)] == [4, 12]


@pytest.mark.parametrize(("name", "technology"), [
    ("mlx5_0", "infiniband"), ("mlx5_bond_0", "roce"), ("rocep1s0", "roce"), ("rdmap16s27", "efa"), ("eth0", "tcp"),
])  # fmt: skip
def test_the_name_of_a_port_tells_its_network(read, name, technology):
    assert read(BRIDGED.replace("NIC0: mlx5_0", f"NIC0: {name}")).nics[0].technology == technology


def test_pcie_hosts_hang_on_one_node_as_narrow_as_the_way_between_cpus(read, cluster):
    entries = [[" X " if a == b else "PIX" if a // 2 == b // 2 else "SYS" for b in range(4)] for a in range(4)]
    text = matrix(4, entries).replace("GPU2\tSYS\tSYS\t X \tPIX\t0-31\t0", "GPU2\tSYS\tSYS\t X \tPIX\t32-63\t1")
    wired = cluster(read(text), "l40s-48gb")
    assert link(wired, "pcie").bandwidth == 10 * GB
    one = cluster(read(matrix(4, equal(4, "PIX"))), "l40s-48gb")
    assert link(one, "pcie").bandwidth == pytest.approx(24 * GB, rel=1e-3)


def test_shared_cards_do_not_carry_traffic_between_gpus(read, cluster):
    wired = cluster(
        read(PARTIAL.replace(nic("n1"), "").replace(nic("n3"), "")), "a100-sxm-40gb", nic_speed=25 * GB, hosts=2
    )
    assert way(wired, 1) == {()}
    assert way(wired, 4) == {("pcie_port", "nic", "switch", "nic", "pcie_port")}
    ClassFabric(wired).check_routes()


def test_a_gpu_with_several_cards_shares_its_lanes(read, cluster):
    ports = [nic("n", (0, 100000), (1, 100000)), nic("m", (2, 100000), (3, 100000))]
    pairs = [pci(f"s{i}", "0x060400", gpu(f"g{i}", i, to_switch(12)) + port) for i, port in enumerate(ports)]
    wired = cluster(read(system(*pairs)), "a100-sxm-80gb", hosts=2)
    assert link(wired, "pcie").nominal.value == 31.5 * GB / 2
    assert wired.node("nic").count == 4


@pytest.mark.parametrize(("text", "words"), [
    (system(pci("s", "0x060400", gpu("a", 0, to_switch(12)) + nic("n", (0, 100000))) +
            pci("t", "0x060400", gpu("b", 1, to_switch(12)) + nic("m", (1, 200000)))), ["different speed: 12.5"]),
    (system(pci("s", "0x060400", "".join(gpu(str(dev), dev, to_switch(12)) for dev in range(3)) +
                nic("n", (0, 100000)) + nic("m", (1, 100000)))), ["3 GPUs and 2 network ports", "by hand"]),
    (system(pci("s", "0x060400", gpu("a", 0, to_switch(12)) + gpu("b", 1, to_switch(12)) + nic("n", (0, 100000))) +
            pci("t", "0x060400", gpu("c", 2, to_switch(12)) + nic("m", (1, 100000)) + nic("o", (2, 100000)) +
                nic("p", (3, 100000))) + gpu("d", 3, to_switch(12))), ["GPU 1 is nearest to mlx5_0, not to mlx5_1"]),
    (system(gpu("a", 0)), ["nothing to wire", "'flat'"]),
])  # fmt: skip
def test_what_a_cluster_file_cannot_hold_is_said(read, text, words):
    with pytest.raises(InputError) as caught:
        to_cluster_yaml(read(text), "a100-sxm-80gb")
    assert [word for word in words if word not in str(caught.value)] == []


# --- ASTRA-sim, SimAI, node-link ------------------------------------------------------------------------------------

ASTRA = (
    "topology: [ Switch, Switch ]\nnpus_count: [ 8, 4 ]\nbandwidth: [400, 50]  # GB/s\nlatency: [936.25, 1000]  # ns\n"
)


def test_astra_sim_counts_gb_in_powers_of_two(read, cluster):
    found = read(ASTRA)
    assert (found.accelerators, found.hosts, found.rails, found.scale_up) == (8, 4, 8, "switch")
    assert {port.speed for port in found.nics} == {50 * 2.0**30}
    wired = cluster(found, "h100-sxm-80gb")
    assert link(wired, "dimension_1").bandwidth == 400 * 2.0**30
    assert link(wired, "dimension_1").latency.value == pytest.approx(936.25e-9)
    assert (wired.hosts, way(wired, 8)) == (4, {("dimension_2",)})


def test_astra_sim_direct_links_of_hosts_are_pairs_and_those_between_hosts_are_merged(read, cluster):
    text = ASTRA.replace("[ Switch, Switch ]", "[FullyConnected, FullyConnected]")
    wired = cluster(read(text), "h100-sxm-80gb")
    assert len(wired.direct.pairs) == 8 * 7 / 2
    assert wired.direct.bandwidth == 400 * 2.0**30
    assert wired.direct.latency.value == pytest.approx(936.25e-9)
    assert link(wired, "dimension_2").bandwidth == 3 * 50 * 2.0**30
    assert link(wired, "dimension_2").latency.value == pytest.approx(1000e-9 / 2)


def test_an_astra_sim_ring_in_a_host_joins_neighbours(read, cluster):
    wired = cluster(read(ASTRA.replace("[ Switch, Switch ]", "[Ring, Switch]")), "h100-sxm-80gb")
    assert wired.direct.pairs == ((0, 1, 1), (0, 7, 1), *((npu, npu + 1, 1) for npu in range(1, 7)))
    assert host_rings(wired.direct, tuple(range(8))).channels == 2  # one in each direction
    assert way(wired, 2) == {("device",)}


def test_formats_carry_what_they_take_for_granted(read, cluster):
    made = [cluster(read(text), "h100-sxm-80gb") for text in (ASTRA, simai(), matrix(8, equal(8, "NV18")))]
    assert [each.library for each in made] == ["ring", "nccl", "nccl"]
    technologies = [{link.name: link.technology for link in each.links} for each in made]
    assert technologies == [
        {"dimension_1": "other", "dimension_2": "other"},
        {"nvlink": "nvlink", "pcie": "pcie", "network": "roce", "uplink": "roce"},
        {"nvlink": "nvlink"},
    ]


@pytest.mark.parametrize(("change", "words"), [
    (("[ 8, 4 ]", "[ 8 ]"), ["different length", "npus_count 1"]),
    (("Switch, Switch", "Switch, Swich"), ["'Swich'", "did you mean 'Switch'?"]),
    (("[400, 50]", "[400, -50]"), ["bandwidth", "-50", "above zero"]),
    (("[400, 50]", "400"), ["bandwidth", "list"]),
    (("[ 8, 4 ]", "[ 8, 4.5 ]"), ["npus_count", "4.5", "count"]),
    (("latency: ", "delay: "), ["'latency' is missing"]),
])  # fmt: skip
def test_a_bad_astra_sim_file_gets_a_line_that_helps(read, change, words):
    with pytest.raises(InputError) as caught:
        read(ASTRA.replace(*change))
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("topology", "counts", "words"),
    [
        ("[Switch, Ring]", "[8, 4]", "Ring behind the first dimension.*Switch with the same bandwidth"),
        ("[Switch, Switch, Switch]", "[8, 4, 2]", "third dimension.*leave it out"),
    ],
)
def test_what_astra_sim_knows_and_a_cluster_file_does_not(read, topology, counts, words):
    size = counts.count(",") + 1
    numbers = str([100.0] * size)
    found = read(f"topology: {topology}\nnpus_count: {counts}\nbandwidth: {numbers}\nlatency: {numbers}\n")
    assert found.accelerators == 8
    with pytest.raises(InputError, match=words):
        to_cluster_yaml(found, "h100-sxm-80gb")


def simai(hosts=4, pod=2, gpus=2, spines=2, spine_speed="400Gbps"):
    """Rail-optimised: GPU i of every host of a pod on leaf i."""
    total, pods = hosts * gpus, hosts // pod
    chip, leaf = total, total + hosts
    spine = leaf + pods * gpus
    lines = []
    for rank in range(total):
        host, index = divmod(rank, gpus)
        lines.append(f"{rank} {chip + host} 2880Gbps 0.000025ms 0")
        lines.append(f"{rank} {leaf + host // pod * gpus + index} 400Gbps 0.0005ms 0")
    lines += [
        f"{leaf + up} {spine + top} {spine_speed} 0.0005ms 0" for up in range(pods * gpus) for top in range(spines)
    ]
    switches = range(chip, spine + spines)
    head = f"{spine + spines} {gpus} {hosts} {len(switches) - hosts} {len(lines)} H100"
    return "\n".join([head, " ".join(map(str, switches)), *lines])


def test_simai_gives_pods_rails_and_spines(read, cluster):
    found = read(simai())
    assert (found.accelerators, found.hosts, found.rails, found.scale_up) == (2, 4, 2, "nvswitch")
    assert {port.speed for port in found.nics} == {50 * GB}
    wired = cluster(found, "h100-sxm-80gb")
    assert (wired.hosts, wired.hosts_per_pod, wired.node("leaf").count, wired.node("spine").count) == (4, 2, 2, 2)
    assert link(wired, "nvlink").bandwidth == 360 * GB
    assert way(wired, 2) == {("nic", "leaf", "nic")}
    assert way(wired, 4) == {("nic", "leaf", "spine", "leaf", "nic")}


def test_simai_wired_otherwise_is_an_inventory_without_cluster_file(read):
    text = simai()
    crossed = text.replace("\n6 14 ", "\n6 15 ").replace("\n7 15 ", "\n7 14 ")
    found = read(crossed)
    assert found.accelerators == 2
    with pytest.raises(InputError, match="reach their first switches in different ways"):
        to_cluster_yaml(found, "h100-sxm-80gb")
    lopsided = text.replace("12 16 400Gbps", "12 16 100Gbps")
    assert lopsided != text
    with pytest.raises(InputError, match="not two tiers of leaf and spine"):
        to_cluster_yaml(read(lopsided), "h100-sxm-80gb")


@pytest.mark.parametrize(("change", "words"), [
    (("0 8 2880Gbps 0.000025ms 0\n", ""), ["links, but the first line counts", "cut off"]),
    (("0 8 2880Gbps", "0 8 2880"), ["'0 8 2880 0.000025ms 0'", "write it like"]),
    (("0 8 2880Gbps", "0 99 2880Gbps"), ["must end at a switch"]),
    (("0 8 2880Gbps", "0 8 0Gbps"), ["above zero"]),
    (("8 9 10 11 12", "8 9 10 11"), ["ids of switches"]),
])  # fmt: skip
def test_a_bad_simai_file_gets_a_line_that_helps(read, change, words):
    text = simai()
    assert change[0] in text
    with pytest.raises(InputError) as caught:
        read(text.replace(*change, 1))
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize("name", [path.stem for path in shipped_clusters()])
def test_our_own_graph_comes_back_the_same(read, cluster, name):
    there = load_cluster(name, hosts=3)
    found = read(json.dumps(node_link(there)))
    assert (found.accelerators, found.hosts) == (there.accelerators_per_host, 3)
    back = cluster(found, there.accelerator.name)
    assert (back.library, back.cpu, back.hosts_per_pod) == (there.library, there.cpu, there.hosts_per_pod)
    assert [(each.name, each.technology) for each in back.links] == [
        (each.name, each.technology) for each in there.links
    ]
    one, other = graph(there), graph(back)
    assert set(one.nodes) == set(other.nodes)
    for tail, head, data in one.edges(data=True):
        assert other.edges[tail, head]["bandwidth"] == pytest.approx(data["bandwidth"], rel=1e-11)
        assert other.edges[tail, head]["latency"] == pytest.approx(data["latency"], rel=1e-11)


def test_a_graph_without_scopes_and_with_links_is_read_too(read, cluster):
    content = node_link(load_cluster("dgx-a100-80gb", hosts=2))
    content["links"] = content.pop("edges")
    content["graph"] = {}
    for node in content["nodes"]:
        del node["per"]
    found = read(json.dumps(content))
    assert (found.scale_up, found.rails, found.obstacle) == ("nvswitch", 8, "")
    assert len(cluster(found, "a100-sxm-80gb").links) == 4


@pytest.mark.parametrize(("name", "scale_up"), [
    ("dgx-1v", "partial mesh"), ("hgx-a100-4gpu", "mesh"), ("mi300x", "mesh"),
])  # fmt: skip
def test_pairs_of_devices_come_back(read, cluster, name, scale_up):
    there = load_cluster(name, hosts=2)
    found = read(json.dumps(node_link(there)))
    every = tuple((a, b, 1) for a in range(8) for b in range(a + 1, 8))
    assert (found.scale_up, found.pairs) == (scale_up, there.direct.pairs or every)
    back = cluster(found, there.accelerator.name)
    assert host_rings(back.direct, tuple(range(4))) == host_rings(there.direct, tuple(range(4)))


def test_a_dump_by_networkx_itself_counts_links_by_the_narrowest(read, cluster):
    there = load_cluster("dgx-1v", hosts=2)
    found = read(json.dumps(nx.node_link_data(graph(there), edges="edges")))
    assert (found.accelerators, found.hosts, found.rails, found.pairs) == (8, 2, 4, there.direct.pairs)
    back = cluster(found, "v100-sxm-32gb")
    assert back.direct.bandwidth == pytest.approx(22.5 * GB)
    assert (back.direct.technology, link(back, "network").technology) == ("nvlink", "other")


@pytest.mark.parametrize("change", [
    lambda edge: edge["source"] == ["device", 1, 0] and edge.update(links=3),  # hosts differ
    lambda edge: edge["source"] == ["device", 0, 0] and edge.update(bandwidth=1.5 * edge["bandwidth"]),
    lambda edge: edge["source"][0] == edge["target"][0] and edge["source"][1] == 0 and edge.update(
        source=["nic", 0, 0], target=["nic", 0, 1]),
])  # fmt: skip
def test_pairs_that_are_not_alike_have_no_cluster_file(read, change):
    content = node_link(load_cluster("dgx-1v", hosts=2))
    for edge in content["edges"]:
        change(edge)
    assert "unequal or not wired" in read(json.dumps(content)).obstacle


def test_a_graph_that_lost_a_link_has_no_cluster_file(read):
    content = node_link(load_cluster("dgx-a100-80gb", hosts=2))
    content["edges"] = [
        edge for edge in content["edges"] if ["nic", 0, 3] not in (edge["source"], edge["target"])
    ]  # fmt: skip
    with pytest.raises(InputError, match="not wired 'all', 'spread' or in 'pairs'"):
        to_cluster_yaml(read(json.dumps(content)), "a100-sxm-80gb")


@pytest.mark.parametrize(("change", "words"), [
    (('["device", 0, 1]', '"gpu1"'), ["'gpu1'", "write an id like ['device', 0, 3]"]),
    (('"kind": "nic"', '"kind": "card"'), ["'card'", "expected device, switch or nic"]),
    (('"bandwidth": 240000000000.0', '"bandwidth": "fast"'), ["bandwidth", "'fast'"]),
    (('"nodes"', '"nodez"'), ["not a topology"]),
    (('"edges": [', '"edges": [['), ["not valid JSON"]),
])  # fmt: skip
def test_a_bad_graph_gets_a_line_that_helps(read, change, words):
    text = json.dumps(node_link(load_cluster("dgx-a100-80gb", hosts=1)))
    assert change[0] in text
    with pytest.raises(InputError) as caught:
        read(text.replace(*change))
    assert [word for word in words if word not in str(caught.value)] == []


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def smi(tmp_path):
    path = tmp_path / "topo.txt"
    path.write_text(matrix(8, equal(8, "NV12")))
    return path


def test_import_prints_a_table_or_json_and_writes_a_cluster(smi, tmp_path):
    done = zerosim("topology", "import", smi)
    assert done.returncode == 0, done.stderr
    assert "nvswitch" in done.stdout
    place = tmp_path / "mine.yaml"
    done = zerosim("topology", "import", smi, "--accelerator", "a100-sxm-80gb", "-o", place, "--json")
    content = json.loads(done.stdout)
    assert (content["accelerators"], content["nvlinks"], content["sm"], content["written"]) == (
        8,
        [12] * 8,
        80,
        str(place),
    )
    assert load_cluster(str(place)).name == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.yaml", "topo.txt"]


def test_import_prints_ports_with_a_speed_given(tmp_path):
    path = tmp_path / "cloud.xml"
    path.write_text(PARTIAL)
    arguments = ("topology", "import", path, "--format", "nccl-xml", "--accelerator", "a100-sxm-40gb")
    done = zerosim(*arguments, "--nic-speed", "200 Gbit/s", "-o", tmp_path / "cloud.yaml")
    assert "25 GB/s (200 Gbit/s)" in done.stdout
    assert "written to" in done.stdout


@pytest.mark.parametrize(("arguments", "words"), [
    (("nowhere.txt",), ["nowhere.txt", "no such file"]),
    (("topo.txt", "-o", "x.yaml"), ["which accelerator?", "a100-sxm-80gb"]),
    (("topo.txt", "--accelerator", "a100"), ["'a100'", "unknown accelerator"]),
    (("topo.txt", "--format", "smi"), ["'smi'", "unknown format", "nvidia-smi"]),
    (("topo.txt", "--format", "simai"), ["topo.txt", "expected a first line"]),
    (("topo.txt", "--nic-speed", "200"), ["unit is missing", "Gbit/s"]),
    (("topo.txt", "--accelerator", "a100-sxm-80gb", "-o", "no/x.yaml"), ["no: cannot be written"]),
    (("other.txt",), ["not a topology that can be read", "nccl-xml, nvidia-smi, astra-sim, simai, node-link"]),
])  # fmt: skip
def test_import_refuses_in_one_line(smi, arguments, words):
    (smi.parent / "other.txt").write_text("hello\n")
    line = refused("topology", "import", *arguments, cwd=smi.parent)
    assert [word for word in words if word not in line] == []
    assert not (smi.parent / "x.yaml").exists()


def test_formats_are_told_apart():
    texts = {
        "nccl-xml": system(gpu("a", 0)), "nvidia-smi": BRIDGED, "astra-sim": ASTRA, "simai": simai(),
        "node-link": json.dumps(node_link(load_cluster("flat"))),
    }  # fmt: skip
    assert {detect(text, "x") for text in texts.values()} == set(texts)
    assert [name for name, text in texts.items() if detect(text, "x") != name] == []


# --- files of the field ---------------------------------------------------------------------------------------------

XML = {  # GPUs, scale-up, NVLinks, ports, speed [Gbit/s], rails, CPUs
    "aws_p4d_8xA100.xml": (8, "nvswitch", 12, 4, None, 4, 2),
    "azure_ncv4_4xA100_pcie.xml": (4, "pcie", 0, 1, 100, 1, 4),
    "azure_ndv2_8xV100.xml": (8, "partial mesh", 6, 1, None, 1, 2),
    "azure_ndv4_8xA100.xml": (8, "nvswitch", 12, 8, None, 8, 4),
    "azure_ndv5_8xH100.xml": (8, "nvswitch", 18, 8, None, 8, 2),
    "oci_bm_8xH100_16x200G.xml": (8, "nvswitch", 18, 16, 180, 16, 2),
}
SMI = {
    "nvidia_smi_topo/a100_4gpu_nv4_2nic.txt": (4, "mesh", 12, 2, None, 2, 4),
    "nvidia_smi_topo/dgx1v_8xV100_4xCX4.txt": (8, "partial mesh", 6, 4, None, 4, 2),
    "nvidia_smi_topo/dgx_a100_8xA100_12nic.txt": (8, "nvswitch", 12, 12, None, 8, 4),
    "nvidia_smi_topo/hpe_xd670_8xH100_12nic.txt": (8, "nvswitch", 18, 12, None, 8, 2),
    "nvidia_smi_topo/rtx4090_8gpu_pcie.txt": (8, "pcie", 0, 1, None, 1, 2),
    "topologies/nvidia_smi_topo_a100_nv12.txt": (8, "nvswitch", 12, 0, None, 0, 2),
}
HINTS = {"azure_ndv2_8xV100.xml": "v100-sxm-32gb", "azure_ndv4_8xA100.xml": "a100-sxm-40gb",
         "azure_ndv5_8xH100.xml": "h100-sxm-80gb"}  # fmt: skip
REFUSED = {
    "nccl_graph_azure_ncv4.xml": "NCCL_TOPO_DUMP_FILE",
    "astrasim_system_hgx_h100_32gpu.json": "import the network file",
    "calculon_a100_80g.json": "Calculon",
    "galvatron_allreduce_bw_2nodes_8gpus.json": "no topology",
    "galvatron_overlap_coefficient.json": "no topology",
    "galvatron_p2p_bw_2nodes_8gpus.json": "no topology",
    "llm_analysis_a100_sxm_80gb.json": "topologies/parts",
    "phantora_netsim_allreduce.toml": "cluster file",
}
OTHERS = {  # GPUs per host, hosts, rails
    "astrasim_hgx_h100_32gpu.yml": (8, 4, 8),
    "astrasim_hgx_h100_validated.yml": (8, 1, 0),
    "astrasim_ring_fc_switch_3d.yml": (2, 32, 2),
    "astrasim_tpu_v3_32_2dtorus.yml": (4, 8, 4),
    "simai_Spectrum-X_16g_8gps_400Gbps_H100.txt": (8, 2, 8),
}


def facts(found):
    (links,) = set(found.nvlinks)
    speeds = {port.speed and round(port.speed * 8 / GB, 6) for port in found.nics} or {None}
    return (found.accelerators, found.scale_up, links, len(found.nics), *speeds, found.rails, found.cpus)


def test_every_file_of_the_field_is_covered(shared):
    data = shared / "data"
    assert {path.name for path in (data / "nccl_topo_xml").iterdir()} == set(XML)
    named = {Path(name).name for name in SMI} | set(REFUSED) | set(OTHERS)
    there = [path.name for folder in ("nvidia_smi_topo", "topologies") for path in (data / folder).iterdir()]
    assert Counter(there) == Counter(named)


@pytest.mark.parametrize("name", XML)
def test_xml_of_the_field(shared, name):
    assert facts(read_topology(shared / "data" / "nccl_topo_xml" / name, accelerator=HINTS.get(name))) == XML[name]


@pytest.mark.parametrize("name", SMI)
def test_matrices_of_the_field(shared, name):
    assert facts(read_topology(shared / "data" / name)) == SMI[name]


@pytest.mark.parametrize("name", OTHERS)
def test_topologies_of_the_field(shared, name):
    found = read_topology(shared / "data" / "topologies" / name)
    assert (found.accelerators, found.hosts, found.rails) == OTHERS[name]


@pytest.mark.parametrize("name", REFUSED)
def test_files_of_neighbouring_tools_are_refused_with_advice(shared, name):
    with pytest.raises(InputError, match=REFUSED[name]):
        read_topology(shared / "data" / "topologies" / name)


@pytest.mark.parametrize(
    ("name", "part", "scale_up", "speed"),
    [
        ("nccl_topo_xml/aws_p4d_8xA100.xml", None, 240, 12),
        ("nccl_topo_xml/azure_ndv4_8xA100.xml", "a100-sxm-40gb", 240, 24),
        ("nccl_topo_xml/azure_ndv5_8xH100.xml", "h100-sxm-80gb", 370.8, 24),
        ("nccl_topo_xml/oci_bm_8xH100_16x200G.xml", None, 370.8, 21.6),
        ("nccl_topo_xml/azure_ncv4_4xA100_pcie.xml", "a100-sxm-80gb", 12, 10.625),
        ("nvidia_smi_topo/dgx_a100_8xA100_12nic.txt", "a100-sxm-80gb", 240, 24),
        ("nvidia_smi_topo/a100_4gpu_nv4_2nic.txt", "a100-sxm-40gb", 20, 24),  # of one link
        ("nvidia_smi_topo/dgx1v_8xV100_4xCX4.txt", "v100-sxm-32gb", 22.5, 24),
        ("nccl_topo_xml/azure_ndv2_8xV100.xml", "v100-sxm-32gb", 22.5, 24),
        ("nvidia_smi_topo/hpe_xd670_8xH100_12nic.txt", "h100-sxm-80gb", 370.8, 24),
        ("nvidia_smi_topo/rtx4090_8gpu_pcie.txt", "rtx-4090-24gb", 10, 24),
        ("topologies/simai_Spectrum-X_16g_8gps_400Gbps_H100.txt", "h100-sxm-80gb", 360, 50),
    ],
)
def test_clusters_made_of_the_field_carry_what_they_should(shared, cluster, name, part, scale_up, speed):
    nic_speed = 12.5 * GB if "p4d" in name else 25 * GB
    wired = cluster(read_topology(shared / "data" / name), part, nic_speed=nic_speed, hosts=2)
    assert wired.links[0].bandwidth == pytest.approx(scale_up * GB, rel=1e-3)
    assert link(wired, "network").bandwidth == pytest.approx(speed * GB, rel=1e-3)
    ClassFabric(wired).check_routes()


def test_the_shipped_dgx_1v_is_wired_as_its_source(shared):
    (path,) = (shared / "data" / "nvidia_smi_topo").glob("dgx1v*")
    there, found = load_cluster("dgx-1v"), read_topology(path)
    assert found.pairs == there.direct.pairs
    near = {gpu: number for number, port in enumerate(found.compute_nics()) for gpu in port.near}
    assert [near[gpu] for gpu in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_cards_without_peer_to_peer_are_noted_once(read):
    found = read(matrix(2, equal(2, "PIX")), accelerator="rtx-4090-24gb")
    assert to_cluster_yaml(found, "rtx-4090-24gb").count("has no peer-to-peer") == 1
