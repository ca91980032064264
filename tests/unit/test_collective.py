"""One collective alone: nccl-tests' arithmetic, a ring by hand, and one line for every mistake."""

import json
import time
from dataclasses import replace

import pytest

from simulator.collective import KINDS, Bench, bus_factor, kind_called, sizes
from simulator.errors import InputError
from simulator.units import Bandwidth, Duration
from simulator.world.topology.cluster import Forced, LinkOverride, load_cluster
from simulator.world.topology.measured import MeasuredCollective
from tests.command import zerosim

MIB, GIB = 2**20, 2**30
KEYS = {"topology", "kind", "hosts", "ranks", "payload", "time", "algbw", "busbw", "algorithm", "protocol"}


def rows(*arguments):
    done = zerosim("collective", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["rows"]


@pytest.mark.parametrize(("kind", "factor"), [
    ("all_reduce", 2 * 15 / 16), ("all_gather", 15 / 16), ("reduce_scatter", 15 / 16), ("all_to_all", 15 / 16),
    ("broadcast", 1), ("reduce", 1),
])  # fmt: skip
def test_bus_bandwidth_is_that_of_nccl_tests(kind, factor):
    assert bus_factor(kind, 16) == factor
    row = Bench(load_cluster("dgx-h100", hosts=2)).row(kind, GIB)
    assert row.algbw == GIB / row.time
    assert row.busbw == pytest.approx(factor * GIB / row.time)


@pytest.mark.parametrize("spelling", ["{}", "{}_perf"])
@pytest.mark.parametrize("kind", KINDS)
def test_spellings_of_nccl_tests(kind, spelling):
    assert kind_called(spelling.format(kind)) == kind
    assert kind_called(spelling.format(kind.replace("_", ""))) == kind
    assert kind_called(spelling.format(kind).upper().replace("_PERF", "")) == kind


@pytest.mark.parametrize(("kind", "passes"), [("all_gather", 1), ("reduce_scatter", 1), ("all_reduce", 2)])
def test_a_ring_by_hand(kind, passes):
    """Four hosts of one device on a switch: 3 messages of a quarter of the array, each over two links of 1 us."""
    link = LinkOverride(bandwidth=Bandwidth(128e9), latency=Duration(1e-6))
    flat = load_cluster("flat", hosts=4, accelerators_per_host=1, overrides={"link": link})
    row = Bench(flat, "ring").row(kind, 128e6)
    assert row.time == pytest.approx(passes * (3 * 2e-6 + 0.75 * 1e-3))
    assert (row.algorithm, row.protocol, row.ranks, row.hosts) == ("ring", None, 4, 4)
    assert Bench(flat, "ring").row(kind, 1e15).busbw == pytest.approx(128e9, rel=1e-6)


def test_sizes_are_those_of_nccl_tests():
    assert list(sizes(MIB, 8 * MIB, 2)) == [MIB, 2 * MIB, 4 * MIB, 8 * MIB]
    assert list(sizes(MIB, 20 * MIB, 4)) == [MIB, 4 * MIB, 16 * MIB]
    assert list(sizes(8, 8, 2)) == [8]


def test_json_has_the_promised_rows_in_si_units():
    found = rows("alltoall", "--topology", "dgx-h100", "--topology", "aws-p5", "--hosts", 2, "--max", "4MiB")
    assert [set(row) for row in found] == [KEYS] * 6
    assert [(row["topology"], row["payload"]) for row in found] == [
        (name, size * MIB) for name in ("dgx-h100", "aws-p5") for size in (1, 2, 4)
    ]
    assert {(row["kind"], row["hosts"], row["ranks"]) for row in found} == {("all_to_all", 2, 16)}
    assert all(1e-6 < row["time"] < 1e-2 for row in found)


def test_what_is_prescribed_is_done():
    asked = ("all_reduce", "--topology", "dgx-h100", "--hosts", 4, "--min", "1GiB")
    for algorithm in ("ring", "tree", "NVLSTree"):
        (row,) = rows(*asked, "--algorithm", algorithm, "--protocol", "Simple")
        assert row["algorithm"].replace("_", "") == algorithm.lower()
        assert row["protocol"] == "simple"
    for library in ("ring", "recursive_doubling", "hierarchical"):
        (row,) = rows(*asked, "--library", library)
        assert (row["algorithm"], row["protocol"]) == (library, None)


def test_fewer_channels_are_slower():
    few, many = (Bench(load_cluster("dgx-a100-80gb"), None, Forced(channels=count)) for count in (4, 12))
    assert few.row("all_gather", GIB).time > 2 * many.row("all_gather", GIB).time


def flat(ranks, latency=0.0):
    """One byte per second and rank; a message crosses two links."""
    link = LinkOverride(bandwidth=Bandwidth(1.0), latency=Duration(latency / 2), efficiency=1.0)
    return load_cluster("flat", hosts=ranks, overrides={"link": link})


@pytest.mark.parametrize("library", ["ring", "recursive_doubling", "hierarchical"])
def test_on_one_switch_the_reference_takes_as_long(library):
    """Eight ranks: 7/8 of the array, and a latency in each of 7 steps, or 3 by doubling."""
    row = Bench(flat(8, latency=2.0), library, reference=True).row("all_gather", 64)
    assert row.reference_time == row.time == 56 + 2 * (3 if library == "recursive_doubling" else 7)
    assert row.difference == 0.0


def test_a_chain_of_the_reference_takes_time_to_fill():
    """Three ranks: the second hop begins when the first piece has arrived, one of two, then one of at most 64."""
    bench = Bench(flat(3), "ring", reference=True)
    for size, pieces in ((MIB // 2, 1), (MIB, 2), (GIB, 64)):
        row = bench.row("broadcast", size)
        assert row.time == size
        assert row.difference == pytest.approx(1 / pieces)


def test_the_reference_of_a_ring_prepares_messages_ahead():
    """Two hosts of 8: a byte crosses 2 cards on its longest way, the aggregate counts 1 and one link inside more."""
    cluster = load_cluster("dgx-h100", hosts=2)
    at = {link.name: link.latency.value for link in cluster.links}
    row = Bench(cluster, "ring", reference=True).row("all_gather", 1e-3)
    assert row.reference_time - row.time == pytest.approx(2 * (at["pcie"] + at["network"]) - 2 * at["nvlink"])


def test_json_has_the_reference_where_it_was_asked_for():
    flags = ("all_gather", "--topology", "flat", "--hosts", 4, "--library", "ring", "--max", "2MiB")
    found = rows(*flags, "--reference")
    assert [set(row) for row in found] == [KEYS | {"reference_time", "difference"}] * 2
    assert all(row["reference_time"] == pytest.approx((1 + row["difference"]) * row["time"]) for row in found)
    assert [{key: row[key] for key in KEYS} for row in found] == rows(*flags)


def test_the_reference_stands_beside_the_time():
    flags = ("--topology", "flat", "--topology", "dgx-h100", "--hosts", 2, "--library", "ring", "--max", "1MiB")
    done = zerosim("collective", "all_gather", *flags, "--reference")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("reference") == done.stdout.count("difference") == 2
    assert "…" not in done.stdout
    first = next(line for line in done.stdout.splitlines() if "1048576" in line)
    assert first.split()[-1] == "+0.00%"


def test_measured_times_have_no_reference():
    measured = MeasuredCollective(kind="all_gather", hosts=2, ranks=2, file="log", times=((1.0, 1.0),))
    cluster = replace(flat(2), measured=(measured,))
    with pytest.raises(InputError, match=r"measured: 'flat': the reference knows no measured times"):
        Bench(cluster, "ring", reference=True)


def test_the_table_has_nccl_tests_columns():
    done = zerosim("collective", "all_gather", "--topology", "dgx-h100", "--min", "1MiB", "--max", "1MiB")
    assert done.returncode == 0, done.stderr
    for word in ("size", "count", "type", "time", "algbw", "busbw", "algorithm", "protocol", "(us)", "(GB/s)"):
        assert word in done.stdout
    assert done.stdout.split("1048576")[1].split()[:2] == ["32768", "float"]  # 1 MiB / 8 ranks / 4 B


def test_topologies_stand_side_by_side():
    names = ("dgx-h100", "dgx-a100-80gb", "aws-p5", "gcp-a3-mega")
    flags = [word for name in names for word in ("--topology", name)]
    done = zerosim("collective", "all_reduce", *flags, "--hosts", 2, "--max", "1MiB")
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in names)
    assert "…" not in done.stdout


def test_a_picture(tmp_path):
    picture = tmp_path / "bandwidth.png"
    done = zerosim("collective", "all_reduce", "--topology", "dgx-h100", "-o", picture)
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_size_does_not_matter():
    start = time.perf_counter()
    bench = Bench(load_cluster("dgx-h100", hosts=16384))
    found = [bench.row(kind, GIB) for kind in KINDS]
    assert {row.ranks for row in found} == {131072}
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize(("arguments", "words"), [
    (["broadcst", "--topology", "dgx-h100"], ["broadcst", "did you mean 'broadcast'"]),
    (["broadcast", "--topology", "dgx-h10"], ["dgx-h10", "did you mean 'dgx-h100'"]),
    (["broadcast", "--topology", "dgx-h100", "--min", "1GiB", "--max", "1MiB"], ["min", "1 GiB", "1 MiB"]),
    (["broadcast", "--topology", "dgx-h100", "--min", "8"], ["--min", "unit", "1 MiB"]),
    (["broadcast", "--topology", "dgx-h100", "--max", "many"], ["--max", "many"]),
    (["broadcast", "--topology", "dgx-h100", "--min", "0B"], ["min", "0 B"]),
    (["broadcast", "--topology", "dgx-h100", "--factor", "1"], ["factor", "2 or more"]),
    (["broadcast", "--topology", "dgx-h100", "--algorithm", "tree"], ["algorithm", "tree", "use ring"]),
    (["all_gather", "--topology", "dgx-h100", "--algorithm", "tree"], ["--algorithm", "tree", "ring/simple"]),
    (["all_gather", "--topology", "dgx-h100", "--algorithm", "rign"], ["rign", "did you mean 'ring'"]),
    (["all_gather", "--topology", "dgx-h100", "--protocol", "ll129"], ["ll129", "did you mean 'll128'"]),
    (["all_to_all", "--topology", "dgx-h100", "--algorithm", "ring"], ["all_to_all", "leave out"]),
    (["all_reduce", "--topology", "dgx-h100", "--library", "ring", "--sharp"], ["library", "ring", "leave out"]),
    (["all_reduce", "--topology", "dgx-h100", "--reference"], ["library", "nccl", "use one of ring"]),
    (["all_reduce", "--topology", "mi300x", "--library", "rccl", "--reference"], ["rccl", "use one of ring"]),
    (["all_reduce", "--topology", "flat", "--topology", "dgx-h100", "--hosts", "9", "--library", "ring", "--reference"],
     ["ranks", "72", "at most 64"]),
    (["all_reduce", "--topology", "dgx-h100", "--library", "ncl"], ["ncl", "did you mean 'nccl'"]),
    (["all_reduce", "--topology", "dgx-h100", "--accelerators-per-host", "9"], ["9", "use 1 to 8"]),
    (["all_reduce", "--topology", "dgx-h100", "--accelerators-per-host", "1"], ["one device", "two"]),
])  # fmt: skip
def test_a_mistake_gets_one_line(arguments, words):
    done = zerosim("collective", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.parametrize(("smallest", "largest", "factor"), [(2, 1, 2), (0, 1, 2), (0.5, 1, 2), (1, 2, 1), (1, 2, 0)])
def test_sizes_that_never_end_or_never_begin(smallest, largest, factor):
    with pytest.raises(InputError):
        sizes(smallest, largest, factor)
