"""Drawings of clusters: what is shown, where it stands, and that all of it is legible."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from simulator.cli import main
from simulator.readings.plots import topology_figure
from simulator.readings.plots.captions import footnotes, link_captions
from simulator.readings.plots.excerpt import excerpt
from simulator.readings.plots.places import ARCS, placed
from simulator.readings.standing import narrowing, standing
from simulator.world.scenario import load_scenario
from simulator.world.topology.cluster import load_cluster, shipped_clusters
from simulator.world.topology.fabrics import read_fabric, with_fabric

SHIPPED = [path.stem for path in shipped_clusters()]

FABRICS = {
    "single switch": (4, "single_switch"),
    "fat tree": (16, {"kind": "fat_tree", "oversubscription": 4}),
    "three tiers": (320, {"kind": "fat_tree", "tiers": 3, "oversubscription": 2, "core_oversubscription": 2}),
    "rail-optimised": (64, "rail_optimised"),
    "rails of three tiers": (256, {"kind": "rail_optimised", "tiers": 3}),
    "rails only": (4, "rail_only"),
    "dragonfly+": (1024, {"kind": "dragonfly_plus", "routing": "minimal"}),
    "torus": (32, {"kind": "torus", "axes": [4, 4, 2]}),
    "small switches": (9, {"kind": "fat_tree", "radix": 16}),
}


def on_fabric(name, hosts, fabric, placement="packed"):
    section = read_fabric(fabric, None)
    cluster = load_cluster(name, hosts=hosts, on_fabric=lambda loaded: with_fabric(loaded, section))
    return replace(cluster, placement=placement)


def drawn_boxes(figure, name):
    return [patch for patch in figure.axes[0].patches if patch.get_label() == name]


def drawn_lines(figure, name):
    (found,) = [lines for lines in figure.axes[0].collections if lines.get_label() == name]
    return found


def texts(figure):
    return [text.get_text() for text in [*figure.texts, *figure.axes[0].texts] if text.get_text()]


def text_boxes(figure):
    """Where each text stands [pixel]."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.legends[0].draw(renderer)  # it has its place only then
    found = [*figure.texts, *figure.axes[0].texts, *figure.legends[0].get_texts()]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in found if text.get_text()]


def assert_legible(figure):
    width, height = figure.get_size_inches() * figure.dpi
    boxes = text_boxes(figure)
    for text, box in boxes:
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= width, text
        assert box.y1 <= height, text
    for (one, here), (other, there) in combinations(boxes, 2):
        assert not here.overlaps(there), (one, other)


# legible


@pytest.mark.parametrize("name", SHIPPED)
def test_no_text_is_cut_off_or_covers_another(name):
    assert_legible(topology_figure(load_cluster(name, hosts=64)))


@pytest.mark.parametrize("name", ["gb200-nvl72", "dgx-1v", "flat"])
def test_in_a_picture_of_one_host_neither(name):
    assert_legible(topology_figure(load_cluster(name, hosts=1)))


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("name", ["dgx-h100", "gb200-nvl72"])
def test_nor_on_a_fabric(name, fabric):
    assert_legible(topology_figure(on_fabric(name, *FABRICS[fabric], "scattered")))


@pytest.mark.parametrize(("name", "hosts"), [("dgx-a100-80gb", 1), ("dgx-h100", 64), ("cloud-100gbe", 3), ("flat", 5)])
def test_no_two_boxes_overlap_and_hosts_stand_apart(name, hosts):
    shown = excerpt(load_cluster(name, hosts=hosts))
    places = placed(shown)
    for row in set(places.rows.values()):
        boxes = sorted((place.x - place.half, place.x + place.half) for place in places.of.values() if place.y == row)
        assert all(one[1] < other[0] for one, other in pairwise(boxes))
    edges = [places.spans["host", host] for host in shown.hosts]
    assert len(edges) == min(hosts, 4)
    assert all(one[1] < other[0] for one, other in pairwise(edges))


# rows


def test_devices_are_below_the_network_and_the_nvswitch_below_them():
    rows = placed(excerpt(load_cluster("dgx-a100-80gb", hosts=2))).rows
    assert rows == {"device": 0.0, "nvswitch": -1.0, "nic": 1.0, "leaf": 2.0, "spine": 3.0}


def test_ports_of_a_card_stand_in_the_host():
    places = placed(excerpt(load_cluster("oci-h100", hosts=2)))
    assert places.rows["device"] < places.rows["card"] < places.rows["port"] < places.inside[1] < places.rows["fabric"]


# pairs


@pytest.mark.parametrize(("name", "pairs"), [("dgx-1v", 16), ("mi300x", 28), ("hgx-a100-4gpu", 6), ("aws-p3dn", 16)])
def test_devices_joined_in_pairs_have_one_arc_each_below_them(name, pairs):
    cluster = load_cluster(name, hosts=2)
    places = placed(excerpt(cluster))
    arcs = drawn_lines(topology_figure(cluster), cluster.direct.name).get_segments()
    assert len(arcs) == 2 * pairs
    for arc in arcs:
        assert arc[:, 1].max() <= -next(iter(places.of.values())).tall + 1e-9
        assert arc[:, 1].min() >= -ARCS - 1e-9
    assert min(arc[:, 1].min() for arc in arcs) == pytest.approx(-ARCS)


def test_arcs_end_below_their_devices_each_at_a_point_of_its_own():
    cluster = load_cluster("mi300x", hosts=1)
    places = placed(excerpt(cluster))
    ends = [point[0] for arc in drawn_lines(topology_figure(cluster), "xgmi").get_segments() for point in arc[[0, -1]]]
    assert len({round(end, 6) for end in ends}) == len(ends) == 8 * 7
    devices = [place for box, place in places.of.items() if box.name == "device"]
    below = Counter(index for end in ends for index, it in enumerate(devices) if abs(end - it.x) < it.half)
    assert below == dict.fromkeys(range(8), 7)


def test_two_links_between_a_pair_are_a_wider_arc():
    """Each V100 has six NVLinks, 24 in all: with 16 pairs, eight have two."""
    figure = topology_figure(load_cluster("dgx-1v", hosts=1))
    widths = sorted(Counter(drawn_lines(figure, "nvlink").get_linewidths()).items())
    assert [count for _, count in widths] == [8, 8]
    assert widths[1][0] > 1.3 * widths[0][0]
    assert {"nvlink 1 x 22.5 GB/s", "nvlink 2 x 22.5 GB/s"} <= set(texts(figure))


def test_a_host_of_which_one_device_is_used_has_no_arcs():
    figure = topology_figure(load_cluster("mi300x", hosts=2, accelerators_per_host=1))
    assert {lines.get_label() for lines in figure.axes[0].collections} == {"pcie", "network"}


# torus


def test_links_of_a_torus_are_arcs_above_the_hosts():
    """Of 4 x 4 hosts a square is drawn, two along each axis: four of the links, and each host has four."""
    cluster = on_fabric("dgx-h100", 16, {"kind": "torus", "axes": [4, 4]})
    places = placed(excerpt(cluster))
    figure = topology_figure(cluster)
    arcs = drawn_lines(figure, "axis").get_segments()
    assert excerpt(cluster).hosts == (0, 1, 4, 5)
    assert len(arcs) == 4
    assert all(arc[:, 1].min() >= places.rows["router"] for arc in arcs)
    assert max(arc[:, 1].max() for arc in arcs) == pytest.approx(places.top)
    assert {"axis 96 GB/s", "4 from each router"} <= set(texts(figure))  # 8 x 48 / 4


# what is shown


@pytest.mark.parametrize(("cluster", "hosts"), [
    (load_cluster("dgx-h100", hosts=2), (0, 1)),
    (load_cluster("dgx-h100", hosts=64), (0, 1, 32, 33)),  # pods of 32
    (replace(load_cluster("dgx-h100", hosts=64), placement="scattered"), (0, 2, 1, 3)),  # even ones in pod 0
    (on_fabric("dgx-h100", 256, {"kind": "fat_tree", "tiers": 3}), (0, 4, 128, 132)),  # 32 / 8 in a pod, 32 pods
    (on_fabric("aws-p5", 8, "fat_tree"), (0, 1, 2, 3)),  # 32 cards fill a leaf
    (load_cluster("gb200-nvl72", hosts=100), (0, 1)),
])  # fmt: skip
def test_hosts_are_taken_from_different_pods_and_zones(cluster, hosts):
    assert excerpt(cluster).hosts == hosts


def test_of_many_alike_switches_the_first_and_the_last_are_drawn():
    cluster = on_fabric("dgx-h100", 8, "fat_tree")  # half of 64 ports go up
    shown = excerpt(cluster)
    assert [(box.first, box.nodes) for box in shown.boxes if box.name == "spine"] == [
        (0, 1), (1, 1), (2, 1), (3, 28), (31, 1)
    ]  # fmt: skip
    figure = topology_figure(cluster)
    assert len(drawn_boxes(figure, "spine")) == 5
    assert len(drawn_lines(figure, "uplink").get_segments()) == 2 * 5
    assert {"… 28 more", "spine\n32 in all", "32 from each leaf"} <= set(texts(figure))


def test_a_rack_of_72_is_cut_alike_in_every_row():
    shown = excerpt(load_cluster("gb200-nvl72", hosts=2))
    boxes = {name: [box[1:] for box in shown.boxes if box.name == name] for name in ("device", "nic")}
    assert boxes["device"] == boxes["nic"]
    assert sum(box[2] for box in boxes["device"]) == 2 * 72
    assert sum(line.link == "pcie" for line in shown.lines) == 2 * 5


def test_pods_and_zones_stand_below_their_hosts():
    found = texts(topology_figure(on_fabric("dgx-h100", 200, {"kind": "fat_tree", "tiers": 3})))
    assert {"host 132", "pod 33: 4 hosts", "zone 0: 128 hosts", "zone 1: 72 hosts, room for 128"} <= set(found)


MIXED = """
name: mixed
model: {sequence_length: 1, layers: [{name: layer, parameters: 1e9}]}
training: {micro_batch: 1}
topology:
  cluster: dgx-a100-80gb
  hosts: 40
  others: [{hosts: 4, accelerator: h100-sxm-80gb, links: {nvlink: {bandwidth: 450 GB/s, efficiency: 0.8}}}]
variants: [{name: zero3, zero_stage: 3}]
"""


def test_of_mixed_hosts_each_type_is_drawn_with_its_own_links(tmp_path):
    (tmp_path / "mixed.yaml").write_text(MIXED)
    figure = topology_figure(load_scenario(tmp_path / "mixed.yaml").cluster)
    expected = {"host 20: a100-sxm-80gb", "host 36: h100-sxm-80gb", "nvlink 240 GB/s", "nvlink 360 GB/s"}
    assert expected <= set(texts(figure))
    assert len(set(drawn_lines(figure, "nvlink").get_linewidths())) == 2
    assert_legible(figure)


# what is said


def test_each_kind_of_link_has_its_bandwidth_beside_it():
    cluster = load_cluster("dgx-a100-80gb", hosts=2)
    assert [caption.text for link in cluster.links for caption in link_captions(cluster, link)] == [
        "nvlink 240 GB/s",
        "pcie 24 GB/s",
        "network 24 GB/s",
        "uplink 24 GB/s",
        "20 from each leaf",
        "oversubscription 1:1",
    ]


@pytest.mark.parametrize("kind", ["fat_tree", "rail_optimised"])
@pytest.mark.parametrize("ratio", [1.0, 1.5, 2.0, 3.0, 4.0, 7.0])
@pytest.mark.parametrize("tiers", [2, 3])
def test_a_fabric_narrows_by_its_oversubscription(kind, ratio, tiers):
    fabric = {"kind": kind, "tiers": tiers, "oversubscription": ratio, "core_oversubscription": 2.5}
    cluster = on_fabric("dgx-h100", 64, fabric)
    found = {link.name: narrowing(cluster, link) for link in cluster.links}
    assert found.pop("uplink") == pytest.approx(ratio)
    assert found.pop("core_uplink", 2.5) == pytest.approx(2.5)
    assert set(found.values()) == {None}


@pytest.mark.parametrize(("hosts", "placement", "expected"), [
    (32, "scattered", ""),
    (64, "packed", "packed into 2 pods of up to 32 hosts"),
    (65, "scattered", "scattered over 3 pods of up to 32 hosts"),
])  # fmt: skip
def test_where_hosts_stand_in_words(hosts, placement, expected):
    assert standing(replace(load_cluster("dgx-h100", hosts=hosts), placement=placement)) == expected


def test_the_title_counts_and_the_notes_say_how_a_fabric_was_sized():
    figure = topology_figure(on_fabric("dgx-h100", 16, {"kind": "fat_tree", "oversubscription": 4}, "scattered"))
    assert figure.get_suptitle().endswith("on a fat tree of 2 tiers, 4:1: 16 hosts, 128 devices")
    assert any(text.startswith("Hosts: scattered over 3 pods of up to 6 hosts; 4 are drawn.") for text in texts(figure))
    (note,) = footnotes(on_fabric("dgx-h100", 256, "dragonfly_plus"))
    assert note.startswith("global: 128 hosts in a group")


# the command


def zerosim(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["zerosim", "topology", *map(str, arguments)])
    try:
        main()
        code = 0
    except SystemExit as leave:
        code = leave.code
    return code, capsys.readouterr()


@pytest.mark.parametrize("options", [
    (),
    ("--hosts", 64, "--placement", "scattered"),
    ("--fabric", "dragonfly_plus"),
    ("--fabric", "{kind: torus, axes: [4, 2]}"),
    ("--fabric", "{kind: fat_tree, oversubscription: 4}", "--hosts", 16),
])  # fmt: skip
def test_a_cluster_is_drawn_as_asked(options, tmp_path, monkeypatch, capsys):
    code, _ = zerosim(monkeypatch, capsys, "draw", "dgx-h100", *options, "-o", tmp_path / "x.svg")
    assert code == 0
    assert (tmp_path / "x.svg").stat().st_size > 1000


def test_a_fabric_is_drawn_with_two_pods_unless_hosts_are_given(tmp_path, monkeypatch, capsys):
    zerosim(monkeypatch, capsys, "draw", "dgx-h100", "--fabric", "fat_tree", "-o", tmp_path / "x.svg")
    assert "on a fat tree of 2 tiers, 1:1: 8 hosts" in (tmp_path / "x.svg").read_text()


def test_a_fabric_is_shown_as_asked(monkeypatch, capsys):
    arguments = ("dgx-h100", "--hosts", 16, "--fabric", "{kind: fat_tree, oversubscription: 4}")
    code, said = zerosim(monkeypatch, capsys, "show", *arguments, "--placement", "scattered")
    assert code == 0
    assert "hosts scattered over 3 pods of up to 6 hosts" in said.out
    assert "spine" in said.out


@pytest.mark.parametrize("command", ["show", "draw"])
@pytest.mark.parametrize(("fabric", "expected"), [
    ("fat_tre", "did you mean 'fat_tree'?"),
    ("{kind: fat_tree, oversubscripton: 4}", "did you mean 'oversubscription'?"),
    ("{kind: fat_tree, oversubscription: 0.5}", "--fabric.oversubscription: 0.5"),
    ("{kind: rail_only, tiers: 3}", "--fabric.tiers: 3"),
    ("{tiers: 3}", "--fabric: the key 'kind' is missing"),
    ("{kind: torus, axes: [1]}", "--fabric.axes: [1]"),
    ("{kind", "--fabric: not valid YAML"),
    ("", "--fabric: expected a mapping"),
])  # fmt: skip
def test_a_wrong_fabric_is_told_in_one_line(command, fabric, expected, tmp_path, monkeypatch, capsys):
    output = ("-o", tmp_path / "x.png") if command == "draw" else ()
    code, said = zerosim(monkeypatch, capsys, command, "dgx-h100", "--fabric", fabric, *output)
    assert (code, said.out) == (2, "")
    assert len(said.err.splitlines()) == 1
    assert expected in said.err
    assert list(tmp_path.iterdir()) == []


ISLANDS = """
name: islands
title: Hosts that nothing joins
accelerator: a100-sxm-80gb
nodes: [{name: device, kind: device, per: host, count: 2}]
links:
  - name: nvlink
    ends: [device, device]
    wiring: pairs
    bandwidth: {value: 100 GB/s, basis: chosen, source: simulator}
    latency: {value: 1 us, basis: chosen, source: simulator}
"""


def test_hosts_without_a_network_are_drawn_but_have_no_place_on_a_fabric(tmp_path, monkeypatch, capsys):
    (tmp_path / "islands.yaml").write_text(ISLANDS)
    drawn = ("draw", tmp_path / "islands.yaml", "-o", tmp_path / "x.png")
    assert zerosim(monkeypatch, capsys, *drawn)[0] == 0
    code, said = zerosim(monkeypatch, capsys, *drawn, "--fabric", "fat_tree")
    assert code == 2
    assert said.err.startswith("zerosim: --fabric: 'islands': no link leaves the hosts;")
