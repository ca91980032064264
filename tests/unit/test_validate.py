"""Rows of tables to clusters, errors by hand, and reasons for what cannot be predicted."""

import csv
import json
import os
from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.validate import Unmapped, Verdict, sources, unmapped_reasons, validate, worst
from simulator.validate.collectives import orders
from simulator.validate.systems import place
from simulator.world.measurements.collectives import Measurement
from simulator.world.topology.cluster import load_cluster
from tests.command import zerosim

MIB = 2**20
GBIT = 1e9 / 8

ONE_HOST = "system,nccl_version,device,op_name,num_gpus,bytes,time_us"
BETWEEN = "system,nics_per_node,nodes,gpus,op,in_place,bytes,time_us,source"
PUBLISHED = (
    "source,source_file_or_section,system,gpu,n_gpus,n_nodes,gpus_per_node,inter_bw_gbps_per_node,collective,"
    "algo_or_settings,tool,dtype,size_bytes,time_us,algbw_gbs,busbw_gbs,in_place,value_origin,notes"
)


def table(tmp_path, header, *rows):
    file = tmp_path / "table.csv"
    file.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return file


def published(tmp_path, **cells):
    row = {
        "system": "DGX H100", "gpu": "H100", "n_gpus": 8, "n_nodes": 1, "collective": "all_reduce",
        "size_bytes": 2**30, "time_us": 3900, "tool": "nccl-tests",
    } | cells  # fmt: skip
    return table(tmp_path, PUBLISHED, ",".join(f'"{row.get(name, "")}"' for name in PUBLISHED.split(",")))


def measured(system, gpu="", ranks=16, nodes=2, **more):
    return Measurement(
        system=system, gpu=gpu, ranks=ranks, nodes=nodes, collective="all_reduce", payload=2**30, time=0.01, **more
    )


@pytest.mark.parametrize(("system", "gpu", "cluster"), [
    ("2x p4d.24xlarge EFA", "A100-40GB", "aws-p4d"),
    ("2x p4de.24xlarge EFA", "A100-80GB", "aws-p4de"),
    ("2x p5.48xlarge EFA", "H100", "aws-p5"),
    ("aws_p5en", "H200", "aws-p5en"),
    ("p6-b200.48xlarge", "B200", "aws-p6-b200"),
    ("2x ND96asr_v4 (8x200 Gb HDR)", "A100", "azure-ndv4"),
    ("ND96amsr_A100_v4", "A100", "azure-ndmv4"),
    ("Standard_ND96isr_H100_v5", "H100", "azure-ndv5"),
    ("gcp_a3_mega_h100", "", "gcp-a3-mega"),
    ("a3-megagpu-8g", "H100", "gcp-a3-mega"),
    ("A3 Ultra", "H200", "gcp-a3-ultra"),
    ("oci_b4_a100", "", "oci-a100"),
    ("BM.GPU.H100.8 on OCI", "H100", "oci-h100"),
    ("DGX H100 SuperPOD", "", "dgx-h100"),
    ("DGX-A100", "A100-40GB", "dgx-a100-40gb"),
])  # fmt: skip
def test_a_named_machine_is_found_in_the_catalogue(system, gpu, cluster):
    found = place(measured(system, gpu))
    assert (found.cluster, found.hosts, found.per_host, found.network, found.assumed) == (cluster, 2, 8, 1.0, ())


@pytest.mark.parametrize(("system", "gpu", "ranks", "cluster"), [
    ("a100_sxm", "NVIDIA A100-SXM4-80GB", 8, "dgx-a100-80gb"),
    ("h100_sxm", "NVIDIA H100 80GB HBM3", 4, "dgx-h100"),
    ("h200_sxm", "NVIDIA H200", 8, "hgx-h200"),
    ("b200_sxm", "NVIDIA B200", 8, "dgx-b200"),
    ("gb200", "NVIDIA GB200", 4, "gb200-nvl72"),
    ("gb300", "NVIDIA GB300", 4, "gb200-nvl72"),
    ("MIT ORCD 8xH200", "H200", 8, "hgx-h200"),
    ("l40s", "NVIDIA L40S", 2, "l40s-pcie"),
    ("box", "NVIDIA GeForce RTX 4090", 8, "rtx-4090-pcie"),
])  # fmt: skip
def test_a_gpu_is_enough_on_one_host(system, gpu, ranks, cluster):
    found = place(measured(system, gpu, ranks=ranks, nodes=1))
    assert (found.cluster, found.hosts, found.per_host, found.accelerator) == (cluster, 1, ranks, None)


def test_a_pcie_card_goes_into_a_host_of_such_cards():
    found = place(measured("a100_pcie", "NVIDIA A100-PCIE-80GB", ranks=8, nodes=1))
    assert (found.cluster, found.accelerator) == ("cloud-100gbe", "a100-pcie-80gb")
    found = place(measured("h100_pcie", "NVIDIA H100 PCIe", ranks=2, nodes=1))
    assert found.accelerator == "h100-pcie-80gb"
    slot = load_cluster(found.cluster).links[0]
    assert (slot.technology, slot.nominal.value) == ("pcie", pytest.approx(63e9))  # gen5 x16


@pytest.mark.parametrize(("system", "gpu", "ranks", "nodes", "cards", "hosts", "per_host", "network"), [
    ("rack", "GB200", 72, 18, "NVL72", 1, 72, 1),
    ("2 racks", "GB200", 144, 36, "NVL72+4x400G IB", 2, 72, 1),
    ("2 racks", "GB300", 144, 36, "NVL72+4x800G IB", 2, 72, 2),
    ("two trays", "GB200", 8, 2, "", 1, 8, 1),
    ("20 racks", "GB200", 1440, 360, "NVL72+4x400G IB", 20, 72, 1),
])  # fmt: skip
def test_a_rack_is_one_host_though_tables_count_trays(system, gpu, ranks, nodes, cards, hosts, per_host, network):
    found = place(measured(system, gpu, ranks=ranks, nodes=nodes, cards=cards))
    assert (found.cluster, found.hosts, found.per_host) == ("gb200-nvl72", hosts, per_host)
    assert found.network == network


@pytest.mark.parametrize(("cards", "bandwidth"), [
    ("8x200G", 8 * 200), ("8x200 Gb HDR", 8 * 200), ("4x HDR", 4 * 200), ("8x NDR", 8 * 400), ("8 x 400 Gbit/s", 3200),
    ("1x100GbE RoCE", 100), ("16x200G RoCE", 3200),
])  # fmt: skip
def test_the_row_wins_over_the_catalogue(cards, bandwidth):
    """The cards of all nodes together have what the row says."""
    cluster = place(measured("H100 nodes", "H100", cards=cards)).load()
    uplink = next(link for link in cluster.links if link.name == "network")
    assert uplink.nominal.value * cluster.node(uplink.ends[0]).count == pytest.approx(bandwidth * GBIT)


def test_a_faster_network_is_not_held_back_by_the_slot():
    cluster = place(measured("H100 nodes", "H100", network=6400 * GBIT)).load()
    rates = {link.name: link.nominal.value for link in cluster.links}
    assert rates["pcie"] > rates["network"] == pytest.approx(800 * GBIT)
    assert rates["nvlink"] == 450e9


@pytest.mark.parametrize(("row", "reason"), [
    ({"gpu": "H100", "n_gpus": 16, "n_nodes": 2, "system": "H100 nodes"}, "network between hosts not stated"),
    ({"size_bytes": ""}, "size not stated"),
    ({"n_gpus": ""}, "number of GPUs not stated"),
    ({"n_gpus": 16, "n_nodes": "", "gpus_per_node": ""}, "number of hosts not stated"),
    ({"n_gpus": 15, "n_nodes": 2}, "GPUs do not divide among the hosts"),
    ({"gpu": "", "system": "PCI Gen5"}, "GPU not stated"),
    ({"gpu": "Gaudi 3", "system": ""}, "Gaudi 3 is not in the catalogue"),
    ({"n_gpus": 24}, "no host with 24 H100 in the catalogue"),
    ({"time_us": "", "busbw_gbs": "0.00"}, "neither time nor bus bandwidth stated"),
    ({"collective": "sendrecv"}, "not a collective that is modelled: sendrecv"),
    ({"n_gpus": 16, "n_nodes": 2, "system": "2x ND96asr_v4 over IPoIB (TCP)", "gpu": "A100"},
     "over TCP sockets, which no cluster of the catalogue describes"),
    ({"gpu": "NVIDIA H100 NVL", "system": ""},
     "cards with NVLink bridges, which no cluster of the catalogue describes"),
    ({"system": "p5 EFA (misconfigured)"}, "misconfigured, says the source"),
    ({"n_gpus": 16, "n_nodes": 2, "notes": "congested shared fabric"},
     "on a network shared with others, says the source"),
    ({"value_origin": "min over 20 rank-trials"}, "an extreme of several trials; their median is judged"),
    ({"algo_or_settings": "PAT"}, "PAT: NCCL has no such all_reduce on 8 ranks of 1 hosts"),
])  # fmt: skip
def test_what_cannot_be_predicted_says_why(tmp_path, row, reason):
    comparison = validate([published(tmp_path, **row)])
    assert comparison.verdicts == ()
    assert [item.reason for item in comparison.unmapped] == [reason]


def test_assumptions_are_named(tmp_path):
    row = {"n_gpus": 16, "n_nodes": 2, "system": "H100 nodes", "size_bytes": "", "time_us": "", "busbw_gbs": 450}
    (verdict,) = validate([published(tmp_path, **row)], assume=True).verdicts
    assert verdict.details["assumed"] == ["network", "size"]
    assert (verdict.metric, verdict.measured, verdict.payload) == ("busbw", 450e9, 8 * 2**30)
    (known,) = validate([published(tmp_path)], assume=True).verdicts
    assert known.details["assumed"] == []


@pytest.mark.parametrize(("settings", "hosts", "algorithms", "sharp"), [
    ("", 2, [None], False),
    ("NCCL_ALGO=NVLSTree", 4, ["nvls_tree"], False),
    ("Ring", 1, ["ring"], False),
    ("NVLS", 1, ["nvls"], False),
    ("SHARP", 1, ["nvls"], False),
    ("SHARP", 2, [None], True),
    ("NCCL_ALGO=Ring,Tree", 2, ["ring", "tree"], False),
    ("NCCL_NVLS_ENABLE=0", 1, ["ring", "tree"], False),
    ("NCCL_IB_HCA=mlx5 NCCL_ALGO=Tree", 2, ["tree"], False),
    ("-g 8 -n 50", 1, [None], False),
])  # fmt: skip
def test_orders_to_nccl(settings, hosts, algorithms, sharp):
    given = orders(settings, hosts)
    assert [order.algorithm for order in given] == algorithms
    assert {order.sharp for order in given} == {sharp}


def test_a_forced_algorithm_is_used(tmp_path):
    (verdict,) = validate([published(tmp_path, algo_or_settings="Ring")]).verdicts
    assert verdict.details["algorithm"] == "ring"


def verdict(measured, predicted, payload, source="a"):
    return Verdict(
        row=1, file="f", source=source, metric="time", measured=measured, predicted=predicted, payload=payload
    )


def test_errors_by_hand():
    """Errors 0, +50 % and -25 %, of which two are of 16 MiB and more, one of 128 MiB."""
    rows = [verdict(2, 2, MIB), verdict(2, 3, 16 * MIB), verdict(4, 3, 128 * MIB), verdict(1, 1, MIB - 1, "b")]
    first, second = sources(rows)
    assert (first["source"], first["runs"]) == ("a", 3)
    assert (first["mean_absolute_error"], first["median_absolute_error"], first["bias"]) == (0.25, 0.25, 0.25 / 3)
    assert {name: part["runs"] for name, part in first["sizes"].items()} == {
        "1-16 MiB": 1, ">= 16 MiB": 2, ">= 128 MiB": 1,
    }  # fmt: skip
    assert first["sizes"][">= 16 MiB"]["bias"] == 0.125
    assert list(second["sizes"]) == ["< 1 MiB"]
    assert [row.error for row in worst(rows, 2)] == [0.5, -0.25]


def test_reasons_are_counted():
    rows = [Unmapped(row=1, file="f", source="a", reason=reason) for reason in "xyy"]
    assert unmapped_reasons(rows) == [("y", 2), ("x", 1)]


def test_json_has_the_promised_keys(tmp_path):
    file = table(tmp_path, ONE_HOST, *(
        f"h100_sxm,2.29.2,NVIDIA H100 80GB HBM3,{op},8,536870912,1400" for op in ("all_gather", "alltoall", "sendrecv")
    ))  # fmt: skip
    done = zerosim("validate", file, "--json")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert set(content) == {"sources", "rows", "unmapped"}
    (source,) = content["sources"]
    assert set(source) >= {"source", "metric", "runs", "mean_absolute_error", "median_absolute_error", "bias"}
    assert (source["source"], source["metric"], source["runs"]) == ("h100_sxm", "time", 2)
    for row in content["rows"]:
        assert set(row) >= {"row", "source", "measured", "predicted", "error"}
        assert row["measured"] == 1.4e-3
        assert row["error"] == pytest.approx(row["predicted"] / 1.4e-3 - 1)
    assert [(row["row"], row["source"]) for row in content["unmapped"]] == [(3, "h100_sxm")]


def test_gpus_that_share_a_name_are_told_apart(tmp_path):
    rows = [f"x,y,lookup table,{gpu},8,1,8,,all_reduce,,,,1073741824,9000,,,,," for gpu in ("A100", "H100")]
    comparison = validate([table(tmp_path, PUBLISHED, *rows)])
    assert [row.source for row in comparison.verdicts] == ["lookup table, A100", "lookup table, H100"]


def test_a_host_is_as_large_as_its_largest_row(tmp_path):
    """Two of eight A100 behind a switch are not two of a host of four."""
    rows = [f"a100_sxm,2,NVIDIA A100-SXM4-80GB,all_gather,{count},536870912,2288" for count in (4, 8)]
    comparison = validate([table(tmp_path, ONE_HOST, *rows)])
    assert {row.details["cluster"] for row in comparison.verdicts} == {"dgx-a100-80gb"}


def test_tables_and_a_picture(tmp_path):
    file = table(tmp_path, BETWEEN, "gcp_a3_mega_h100,8x200G TCPXO,2,16,all_gather,0,1073741824,5531,x")
    done = zerosim("validate", file, "--plot", tmp_path / "parity.png")
    assert done.returncode == 0, done.stderr
    for word in ("gcp_a3_mega_h100", ">= 128 MiB", "worst", "Not predicted: 0 of 1 rows"):
        assert word in done.stdout
    assert (tmp_path / "parity.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_predicted_is_no_failure(tmp_path):
    done = zerosim("validate", published(tmp_path, size_bytes=""), "--plot", tmp_path / "parity.png")
    assert (done.returncode, "Not predicted: 1 of 1 rows" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize(("content", "words"), [
    ("a,b\n1,2\n", ["known table", "collectives on one host", "published collectives", "num_gpus"]),
    ("", ["empty"]),
    (f"{ONE_HOST}\n1,2,3,4,5,6,7,8\n", ["row 1", "more cells"]),
    (f"{ONE_HOST}\n", ["no row"]),
    (f"{ONE_HOST},bytes\n1,2,3,4,5,6,7,8\n", ["'bytes'", "twice"]),
    (ONE_HOST.replace(",time_us", "") + "\n1,2,3,4,5,6\n", ["collectives on one host", "without the column time_us"]),
    (f"{ONE_HOST}\nx,2,H100,all_gather,8,512 MiB,1400\n", ["row 1, bytes", "'512 MiB'", "bare number", "blank"]),
    (f"{BETWEEN}\nx,8x200G,2,16,all_gather,0,1024,1.4 ms,x\n", ["row 1, time_us", "'1.4 ms'", "bare number"]),
    (f"{ONE_HOST}\nx,2,H100,all_gather,8,1024,1e400\n", ["row 1, time_us", "'1e400'", "bare number"]),
    (b"\xff\xfe\x00", ["cannot be read", "UTF-8"]),
    (None, ["cannot be read", "No such file"]),
])  # fmt: skip
def test_a_file_that_is_no_table_gets_one_line(tmp_path, content, words):
    file = tmp_path / "table.csv"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = zerosim("validate", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert all(word in done.stderr for word in ["table.csv", *words]), done.stderr


@pytest.mark.parametrize(("place", "words"), [
    ("nowhere/parity.png", ["--plot", "no such folder"]),
    ("table.csv/parity.png", ["--plot", "no such folder"]),
    ("parity.gif", ["--plot", ".png"]),
    ("/proc/parity.png", ["/proc/parity.png", "cannot be written"]),
])  # fmt: skip
def test_a_picture_that_cannot_be_written_is_told_in_one_line(tmp_path, place, words):
    done = zerosim("validate", published(tmp_path), "--plot", tmp_path / place)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert all(word in done.stderr for word in words), done.stderr


def test_a_folder_without_write_permission_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)  # whoever runs the tests may write everywhere
    done = zerosim("validate", tmp_path / "nowhere.csv", "--plot", tmp_path / "parity.png")
    assert done.returncode == 2
    assert "cannot be written to" in done.stderr


def test_every_shared_row_gets_a_verdict_or_a_reason():
    shared = Path(os.environ.get("ZEROSIM_SHARED", Path(__file__).parents[2] / "shared")) / "data"
    files = [*sorted((shared / "nccl_measured").glob("*.csv")), shared / "measured" / "nccl_tests.csv"]
    if not all(file.is_file() for file in files) or len(files) < 3:
        pytest.skip("the shared measurements are not here; set ZEROSIM_SHARED")
    comparison = validate(files)
    judged = {(item.file, item.row) for item in (*comparison.verdicts, *comparison.unmapped)}
    for file in files:
        with file.open(encoding="utf-8", newline="") as text:
            count = sum(1 for _ in csv.DictReader(text))
        assert {row for name, row in judged if name == file.name} == set(range(1, count + 1))
    assert len(judged) == len(comparison.verdicts) + len(comparison.unmapped)


def test_a_row_without_gpus_has_no_place():
    with pytest.raises(InputError, match="number of GPUs not stated"):
        place(measured("DGX H100", ranks=None))


@pytest.mark.parametrize(("kind", "copied"), [("all_gather", 2**30 / 8), ("all_reduce", 0.0)])
def test_a_call_in_place_does_not_copy_its_own_part(tmp_path, kind, copied):
    """By hand: one eighth of 1 GiB at the 500 GB/s at which an A100 copies; an all-reduce has nothing to copy."""
    row = {"system": "8 x A100", "gpu": "A100", "collective": kind}
    out, inside = (
        validate([published(tmp_path, **row, in_place=word)]).verdicts[0].predicted for word in ("out", "in")
    )
    assert out - inside == pytest.approx(copied / 500e9, abs=1e-12)
