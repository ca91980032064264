"""What people write about a machine: GPUs, instances, providers, network cards.

The catalogue's own names do most of the work: ``aws-p4de`` is what "2x p4de.24xlarge EFA" means, ``gcp-a3-mega`` is
"a3-megagpu-8g".  Only what is spelled otherwise stands here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from simulator.world.topology.cluster import Technology

__all__ = [
    "RELATED",
    "is_bridged",
    "is_misconfigured",
    "is_shared",
    "is_sockets",
    "model_in",
    "named_in",
    "network_in",
    "provider_in",
    "says_pcie",
    "technology_in",
]

RELATED: Final[Mapping[str, str]] = {"b300": "b200", "gb300": "gb200", "mi325x": "mi300x"}
"""GPUs whose links to each other are those of another: NVLink 5, xGMI of 64 GB/s."""

_INSTANCES: Final[Mapping[str, str]] = {
    "azure-ndv2": r"nd40rs",
    "azure-ndv4": r"nd96asr|nd[^a-z0-9]*a100[^a-z0-9]*v4",
    "azure-ndmv4": r"nd96amsr|ndm[^a-z0-9]*a100[^a-z0-9]*v4",
    "azure-ndv5": r"nd96isr[^a-z0-9]*h100|nd[^a-z0-9]*h100[^a-z0-9]*v5",
    "dgx-1v": r"dgx[^a-z0-9]*1v?(?![a-z0-9])",
}
"""Clusters of the catalogue: what else they are called."""

_PROVIDERS: Final[Mapping[str, str]] = {
    "aws": r"\baws|amazon|\bec2\b|\bp\d[a-z]*\.\d+xlarge|\befa\b",
    "azure": r"azure|\baks\b|\bnd[a-z0-9 ]*v\d",
    "gcp": r"\bgcp|google|\bgke\b|\btcpxo?\b|fastrak",
    "oci": r"\boci|oracle|\bbm\.gpu",
}

_TECHNOLOGIES: Final[Mapping[Technology, str]] = {
    "efa": r"\befa\b",
    "tcp": r"\btcpxo?\b|fastrak",
    "roce": r"roce",
    "infiniband": r"\bib\b|infiniband|\b[ehnx]dr\b",
}

_RATES: Final[Mapping[str, int]] = {"edr": 100, "hdr100": 100, "hdr": 200, "ndr200": 200, "ndr": 400, "xdr": 800}
"""Of one InfiniBand port [Gbit/s]."""

_CARDS = re.compile(r"(?<![\d.])(\d+)\s*x\s*(\d+)\s*G(?!i?B(?!ASE|/s|E))", re.ASCII)
_NAMED_CARDS = re.compile(rf"(\d+)\s*x\s*({'|'.join(sorted(_RATES, key=len, reverse=True))})\b", re.IGNORECASE)

_GBIT = 1e9 / 8


def model_in(text: str, models: Iterable[str]) -> str | None:
    """GPU model that *text* names, the most specific; GB200 is no B200.

    >>> model_in("NVIDIA GB200", ["b200", "gb200"]), model_in("32x 8xH100", ["h100"]), model_in("RTX4090", ["rtx-4090"])
    ('gb200', 'h100', 'rtx-4090')
    """
    known = sorted({*models, *RELATED}, key=len, reverse=True)
    return next((model for model in known if _word(model).search(text.lower())), None)


def named_in(text: str, clusters: Iterable[str]) -> list[str]:
    """Clusters of the catalogue whose instance or product *text* names; its network is then known.

    >>> named_in("2x p4de.24xlarge EFA", ["aws-p4d", "aws-p4de"]), named_in("a3-megagpu-8g", ["gcp-a3-mega"])
    (['aws-p4de'], ['gcp-a3-mega'])
    """
    return [name for name in clusters if _is_named(name, text.lower())]


def _is_named(cluster: str, text: str) -> bool:
    if cluster in _INSTANCES and re.search(_INSTANCES[cluster], text):
        return True
    maker, _, product = cluster.partition("-")
    if maker == "dgx":
        product = re.sub(r"-\d+gb$", "", cluster)
    elif maker not in ("aws", "azure", "gcp"):
        return False
    return _word(product).search(text) is not None


def _word(name: str) -> re.Pattern[str]:
    """Match *name* with any punctuation between its parts, not inside a longer word; ``8xH100`` names H100."""
    parts = r"[^a-z0-9]*".join(map(re.escape, name.split("-")))
    return re.compile(rf"(?:(?<![a-z0-9])|(?<=\dx)){parts}(?=gpu|nvl|sxm|pcie|[^a-z0-9]|$)")


def provider_in(text: str) -> str | None:
    """Cloud that *text* names, as the catalogue calls it."""
    return _first(_PROVIDERS, text)


def technology_in(text: str) -> Technology | None:
    """Kind of network that *text* names."""
    return next((name for name, pattern in _TECHNOLOGIES.items() if re.search(pattern, text.lower())), None)


def _first(patterns: Mapping[str, str], text: str) -> str | None:
    words = text.lower().replace("_", " ")
    return next((name for name, pattern in patterns.items() if re.search(pattern, words)), None)


def network_in(text: str) -> float | None:
    """Bandwidth of a node's cards together in one direction [B/s].

    >>> network_in("8x200G TCPXO"), network_in("NVL72+4x400G IB"), network_in("4x HDR"), network_in("8x80GB")
    (200000000000.0, 200000000000.0, 100000000000.0, None)
    """
    if found := _CARDS.search(text):
        return int(found[1]) * int(found[2]) * _GBIT
    if found := _NAMED_CARDS.search(text):
        return int(found[1]) * _RATES[found[2].lower()] * _GBIT
    return None


def says_pcie(text: str) -> bool:
    """Whether the GPU is a PCIe card."""
    return re.search(r"pci(e|\b)", text.lower()) is not None


def is_bridged(text: str) -> bool:
    """Whether pairs of cards are joined by NVLink bridges."""
    return re.search(r"nvlink bridge|\bnvl\b(?! ?\d)", text.lower().replace("_", " ")) is not None


def is_sockets(text: str) -> bool:
    """Whether NCCL went through TCP sockets of the kernel, which TCPX and TCPXO do not."""
    return re.search(r"ipoib|(?<![a-z])tcp(?![a-z])|sockets?\b|ib_disable=1", text.lower()) is not None


def is_misconfigured(text: str) -> bool:
    """Whether the source itself says that something was wrong."""
    return re.search(r"misconfigur|bad configuration", text.lower()) is not None


def is_shared(text: str) -> bool:
    """Whether the source itself says that others used the network."""
    return re.search(r"congested|shared fabric|shared network", text.lower()) is not None
