"""What a row leaves out, where its notes or another source of the same runs tell it.

ZeRO++'s throughput figure gives a nominal number of parameters, tokens per GPU and the bandwidth of a host.  The
tutorial's 18B has 40 layers of 6144; with 12 L h^2 elements in the blocks, 27, 50 and 76 layers of 12288 make 48.9e9,
90.6e9 and 137.7e9.  Hosts are DGX-2, as in DeepSpeed's issue 2928 of the same authors; of their eight cards of
100 Gbit/s so many are in use as the bandwidth needs.  Full checkpointing and buckets are the tutorial's.  The table of
volumes holds for any model: the figure's smallest stands in.

What collectives reach of the cards was fitted: all of one card's rate to the log of ZeRO-3, whose network the tutorial
does not name (37 GB into each host in 3.36 s), and 0.61 of four to the figure.  Two and eight lie on the power law
between, n cards reach n^0.64 times what one does.
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

DGX_2: Final = 16
"""GPUs of a host."""
EDR: Final = 100e9 / 8
"""Bandwidth of one of its cards [B/s]."""
CARDS: Final = 0.64
"""Exponent: n cards give n^x times the rate of one."""
BUCKET: Final = 10_000_000
"""``reduce_bucket_size`` of the tutorial."""
SEQUENCE: Final = 1024
"""Tokens of a sequence where only their number per GPU is known."""

ANY_MODEL: Final = "xnode_comm"
"""What metrics of volumes begin with."""

SAID_AS: Final[Mapping[str, str]] = {
    "parameters": "model", "layers": "sizes", "width": "sizes", "heads": "sizes", "sequence_length": "sequence length",
    "micro_batch": "sequence length", "gpu": "cluster", "ranks": "cluster", "per_node": "cluster", "cards": "cluster",
    "efficiency": "network", "bucket": "reduce_bucket_size",
}  # fmt: skip
"""What fields are called in a list of assumptions, where not by their names."""


def completed(run: Run, metric: str) -> tuple[Run, tuple[str, ...]]:
    """Return *run* with what can be told of it, and the names of what was told."""
    known = run
    if metric.startswith(ANY_MODEL):
        known = replace(run, parameters=18e9, gpu="V100", ranks=384, network=4 * EDR, notes="micro-step=1K")
    for told in (_figure, _tokens, _tutorial):
        known = replace(known, **told(known))
    changed = [item.name for item in fields(Run) if getattr(run, item.name) != getattr(known, item.name)]
    return known, tuple(dict.fromkeys(SAID_AS.get(name, name) for name in changed if name != "notes"))


def _figure(run: Run) -> dict[str, Any]:
    """Model and machine of ZeRO++'s figure."""
    sizes = SIZES.get(run.parameters or 0.0)
    if run.layers is not None or sizes is None or "V100" not in run.gpu:
        return {}
    told = dict(zip(("layers", "width", "heads"), sizes, strict=True))
    cards = round(run.network / EDR) if run.network else None
    return told | {"per_node": DGX_2, "checkpointing": "full", "bucket": BUCKET} | _cards(cards)


def _cards(cards: int | None) -> dict[str, Any]:
    """Cards in use, and what collectives reach of their line rate."""
    return {} if cards is None else {"cards": cards, "efficiency": round(cards ** (CARDS - 1), 2)}


def _tokens(run: Run) -> dict[str, Any]:
    """Sequences from tokens per GPU."""
    said = re.search(r"micro-step=(\d+)K", run.notes)
    if said is None or run.sequence_length is not None:
        return {}
    return {"sequence_length": SEQUENCE, "micro_batch": int(said[1]) * 1024 // SEQUENCE}


def _tutorial(run: Run) -> dict[str, Any]:
    """Network of the tutorial's log, and its buckets."""
    if "tutorials/zeropp" not in run.notes:
        return {}
    return {"bucket": BUCKET} | ({} if run.network else {"network": EDR} | _cards(1))
