"""What a row leaves out, where its notes or another source of the same runs tell it.

ZeRO++'s figures give a nominal number of parameters and tokens per GPU.  The tutorial's 18B has 40 layers of 6144; with
12 L h^2 elements in the blocks, 27, 50 and 76 layers of 12288 make 48.9e9, 90.6e9 and 137.7e9.  All of them need full
checkpointing to fit 32 GB.  Its table of volumes holds for any model: the figure's smallest stands in, on its machine.

The tutorial's log does not name its network.  On the slowest that its authors report, one card of 100 Gbit/s per host,
forward of the baseline (37 GB into each host in 3.36 s) takes 0.9 of the line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from simulator.world.measurements.training import Run

__all__ = ["completed"]

SIZES: Final[Mapping[float, tuple[int, int, int]]] = {
    18e9: (40, 6144, 32),
    49e9: (27, 12288, 96),
    91e9: (50, 12288, 96),
    138e9: (76, 12288, 96),
}
"""Layers, width and heads of ZeRO++'s models by nominal parameters."""

SEQUENCE: Final = 1024
"""Tokens of a sequence where only their number per GPU is known."""

EDR: Final = 100e9 / 8
"""InfiniBand card [B/s]."""

FIGURE: Final[Mapping[str, Any]] = {
    "parameters": 18e9, "gpu": "V100", "ranks": 384, "per_node": 16, "network": 4 * EDR, "cards": 4,
    "sequence_length": SEQUENCE, "micro_batch": 1,
}  # fmt: skip
"""A run of ZeRO++'s figure."""


XNODE: Final = "xnode_comm"
"""Metrics of volumes, which hold for any model."""


def completed(run: Run, metric: str) -> tuple[Run, tuple[str, ...]]:
    """Return *run* with what can be told of it, and the names of what was told."""
    known = run
    if metric.startswith(XNODE):
        known = replace(known, **FIGURE)
    for told in (_sizes, _tokens, _host):
        known = replace(known, **told(known))
    changed = [item.name for item in fields(Run) if getattr(run, item.name) != getattr(known, item.name)]
    return known, tuple(changed)


def _sizes(run: Run) -> dict[str, Any]:
    if run.layers is not None or run.parameters not in SIZES:
        return {}
    layers, width, heads = SIZES[run.parameters]
    return {"layers": layers, "width": width, "heads": heads, "checkpointing": "full"}


def _tokens(run: Run) -> dict[str, Any]:
    """Sequences from tokens per GPU."""
    said = re.search(r"tokens per GPU per micro-step=(\d+)K", run.notes)
    if said is None or run.sequence_length is not None:
        return {}
    return {"sequence_length": SEQUENCE, "micro_batch": int(said[1]) * 1024 // SEQUENCE}


def _host(run: Run) -> dict[str, Any]:
    """GPUs and cards of a host; the tutorial's network."""
    told: dict[str, Any] = {}
    if run.per_node is None and (said := re.search(r"(\d+)/node", run.notes)):
        told["per_node"] = int(said[1])
    if run.network is not None and (said := re.search(r"each IB link (\d+) Gbps", run.notes)):
        told["cards"] = round(run.network / (float(said[1]) * 1e9 / 8))
    if "zeropp.md" in run.notes and run.network is None:
        told |= {"network": EDR, "cards": 1}
    return told
