"""Times of collectives that others measured and published; the model was fitted to some of them.

On one host, nccl-tests [us] by size [MiB]: performance tables of ai-dynamo/aiconfigurator at 095f58a (Apache-2.0), NCCL
2.27.3 on 8 A100 SXM 80 GB, 2.29.2 on 8 H100 and 8 B200.  Between hosts: the source stands at each system.

The bounds are those of docs/models/validation.md: a mean absolute error of 8 % from 16 MiB on (on B200 from
128 MiB on), and of 10 % between hosts.
"""

from statistics import fmean

import pytest

from simulator.collective import Bench
from simulator.validate.systems import place
from simulator.world.measurements.collectives import Measurement
from simulator.world.topology.cluster import load_cluster

MIB = 2**20

ONE_HOST = {
    "dgx-a100-80gb": {
        ("all_gather", 4): {16: 118.5, 64: 325.4, 128: 578.5, 512: 2102.0},
        ("all_gather", 8): {16: 135.0, 64: 351.6, 128: 660.3, 512: 2288.0},
        ("all_reduce", 4): {16: 183.5, 64: 544.3, 128: 1000.5, 512: 3716.3},
        ("all_reduce", 8): {16: 216.5, 64: 595.3, 128: 1169.1, 512: 4225.9},
        ("reduce_scatter", 4): {16: 109.3, 64: 303.3, 128: 538.7, 512: 1982.3},
        ("reduce_scatter", 8): {16: 123.4, 64: 327.2, 128: 624.0, 512: 2207.1},
    },
    "dgx-h100": {
        ("all_gather", 4): {16: 66.21, 64: 195.13, 128: 350.31, 512: 1267.46},
        ("all_gather", 8): {16: 68.86, 64: 208.14, 128: 392.82, 512: 1401.5},
        ("all_reduce", 4): {16: 99.01, 64: 330.44, 128: 613.24, 512: 2299.71},
        ("all_reduce", 8): {16: 121.91, 64: 324.53, 128: 578.74, 512: 2111.06},
        ("reduce_scatter", 4): {16: 59.27, 64: 194.62, 128: 355.17, 512: 1299.82},
        ("reduce_scatter", 8): {16: 69.67, 64: 200.75, 128: 382.18, 512: 1399.36},
    },
    "dgx-b200": {
        ("all_gather", 4): {128: 195.73, 512: 710.64},
        ("all_gather", 8): {128: 206.75, 512: 761.42},
        ("all_reduce", 4): {128: 341.57, 512: 1270.83},
        ("all_reduce", 8): {128: 398.37, 512: 1334.56},
        ("reduce_scatter", 4): {128: 199.61, 512: 728.81},
        ("reduce_scatter", 8): {128: 208.04, 512: 766.45},
    },
}
"""Cluster: collective and GPUs: size [MiB]: time [us]."""

BETWEEN_HOSTS = {
    # GoogleCloudPlatform/cluster-toolkit at 1047080, examples/gke-a3-megagpu/README.md
    ("gcp a3 mega, 8x200G TCPXO", "H100", 16, 2, "all_gather"): {
        16: 197.88, 64: 517.87, 256: 1510.98, 1024: 5531.01, 8192: 42668.7,
    },
    # oracle-quickstart/oci-hpc-oke at 61d210a, docs/running-nccl-rccl-tests-from-slurm-operator.md
    ("OCI BM.GPU.B4.8, 16x100G RoCE", "A100", 16, 2, "all_reduce"): {1024: 10887.4, 8192: 84948.7},
    # coreweave/nccl-tests at cb86553, README.md
    ("1 rack, NVL72", "GB200", 72, 18, "all_reduce"): {512: 1806.7, 2048: 5589.1, 8192: 20299.0},
    ("2 racks, NVL72+4x400G IB", "GB200", 144, 36, "all_reduce"): {512: 2156.8, 2048: 6264.0, 8192: 21493.0},
}  # fmt: skip
"""System, GPU, ranks, nodes, collective: size [MiB]: time [us]."""


def error(bench, kind, size, microseconds):
    return bench.row(kind, size * MIB).time / (microseconds * 1e-6) - 1


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
@pytest.mark.parametrize("cluster", ONE_HOST)
def test_one_host(cluster, kind):
    errors = [
        error(Bench(load_cluster(cluster, accelerators_per_host=ranks)), kind, size, time)
        for (measured, ranks), times in ONE_HOST[cluster].items()
        if measured == kind
        for size, time in times.items()
    ]
    assert fmean(map(abs, errors)) <= 0.08, errors


@pytest.mark.parametrize("measured", BETWEEN_HOSTS, ids=lambda measured: measured[0])
def test_between_hosts(measured):
    system, gpu, ranks, nodes, kind = measured
    row = Measurement(system=system, gpu=gpu, ranks=ranks, nodes=nodes, collective=kind, payload=None, time=None)
    bench = Bench(place(row).load())
    errors = [error(bench, kind, size, time) for size, time in BETWEEN_HOSTS[measured].items()]
    assert fmean(map(abs, errors)) <= 0.10, errors
