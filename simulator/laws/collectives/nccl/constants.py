"""The constants of NCCL's tuner, version 2.30.7.

``ncclTunerConstantsDefaults`` and neighbours in ``src/graph/tuning.cc``.

Times are in microseconds and bandwidths in GB/s, as in the source, so that the two can be laid side by side; the
modules that use them convert.  A row per generation: Volta, Ampere, Hopper, Blackwell.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

__all__ = [
    "ALGORITHMS", "BASE", "HOP", "LL_CAP", "NVLS_EFFICIENCY", "NVLS_TREE_CAP", "PROTOCOLS", "RING_LL128_CAP",
    "TREE_CORRECTION", "TREE_LL128_CAP", "TREE_SIMPLE_CAP", "Algorithm", "Hop", "Protocol",
]  # fmt: skip

Algorithm = Literal["tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"]
Protocol = Literal["ll", "ll128", "simple"]
Hop = Literal["nvlink", "pci", "net"]
"""What a message crosses."""

ALGORITHMS: Final[tuple[Algorithm, ...]] = get_args(Algorithm)
PROTOCOLS: Final[tuple[Protocol, ...]] = get_args(Protocol)

_ByProtocol = dict[Protocol, float]


def _row(ll: float, ll128: float, simple: float) -> _ByProtocol:
    return {"ll": ll, "ll128": ll128, "simple": simple}


BASE: Final[dict[Algorithm, _ByProtocol]] = {
    "tree": _row(6.8, 14.0, 8.4),
    "ring": _row(6.6, 14.0, 8.4),
    "collnet_direct": _row(0, 0, 0),
    "collnet_chain": _row(0, 0, 0),
    "nvls": _row(0, 0, 0),
    "nvls_tree": _row(0, 0, 0),
    "pat": _row(8.0, 8.0, 8.0),
}
"""Latency of a call whatever the ranks (``baseLatencies``) [us]."""

HOP: Final[dict[Algorithm, dict[Hop, _ByProtocol]]] = {
    "tree": {"nvlink": _row(0.6, 1.25, 4.0), "pci": _row(1.0, 1.9, 4.0), "net": _row(5.0, 8.5, 14.0)},
    "ring": {"nvlink": _row(0.6, 1.9, 3.4), "pci": _row(1.0, 2.5, 5.7), "net": _row(2.7, 4.0, 14.0)},
    "collnet_direct": {"nvlink": _row(0, 0, 3.7), "pci": _row(0, 0, 3.7), "net": _row(0, 0, 31.0)},
    "collnet_chain": {"nvlink": _row(0, 0, 2.8), "pci": _row(0, 0, 2.8), "net": _row(0, 0, 30.0)},
    "nvls": {"nvlink": _row(0, 0, 25.0), "pci": _row(0, 0, 0), "net": _row(0, 0, 18.0)},
    "nvls_tree": {"nvlink": _row(0, 0, 25.0), "pci": _row(0, 0, 0), "net": _row(0, 0, 20.9)},
    "pat": {"nvlink": _row(0, 0, 4.0), "pci": _row(0, 0, 4.0), "net": _row(0, 0, 14.0)},
}
"""Latency of one message (``hwLatencies``) [us]."""

LL_CAP: Final = ((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0))
"""Bus bandwidth of LL on one, two and more hosts, all channels together (``llMaxBws``) [GB/s]."""

RING_LL128_CAP: Final = ((20.0,) * 3, (20.0,) * 3, (36.7,) * 3, (40.0,) * 3)
"""Of one channel (``perChMaxRingLL128Bws``) [GB/s]."""

TREE_LL128_CAP: Final = ((20.0,) * 3, (20.0,) * 3, (36.7, 36.7, 29.0), (55.6, 31.67, 20.0))
"""Of one channel (``perChMaxTreeLL128Bws``) [GB/s]."""

TREE_SIMPLE_CAP: Final = ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0))
"""Of one channel (``perChMaxTreeBws``) [GB/s]."""

NVLS_TREE_CAP: Final = ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (0.0, 57.7, 45.5), (0.0, 96.0, 80.0))
"""Of one channel (``perChMaxNVLSTreeBws``) [GB/s]."""

NVLS_EFFICIENCY: Final = (0.0, 0.0, 0.85, 0.74)
"""Part of the scale-up bandwidth that NVLS uses (``nvlsEfficiency``)."""

TREE_CORRECTION: Final[dict[Protocol, tuple[float, ...]]] = {
    "ll": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1),
    "ll128": (
        1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1,
    ),
    "simple": (
        0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9,
        0.9, 0.9,
    ),
}  # fmt: skip
"""Part of its bandwidth that a tree reaches at payloads of 64 B, 128 B, ... (``treeCorrectionFactor``)."""
