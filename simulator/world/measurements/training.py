"""Tables of published training runs: a row is one metric of one run; what a source does not say is blank."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["COLUMNS", "NUMBERS", "Run", "read_run"]

COLUMNS: Final = frozenset({
    "source", "model_name", "n_params", "n_layers", "d_model", "n_heads", "ffn", "vocab", "seq_len", "gpu",
    "gpu_mem_gb", "n_gpus", "gpus_per_node", "inter_bw_gbps_per_node", "micro_batch_per_gpu", "grad_accum", "precision",
    "strategy", "act_ckpt", "metric_name", "metric_value", "notes",
})  # fmt: skip
"""That a table of runs must have."""

NUMBERS: Final = frozenset({
    "n_params", "n_layers", "d_model", "n_heads", "ffn", "vocab", "seq_len", "n_gpus", "gpus_per_node",
    "inter_bw_gbps_per_node", "micro_batch_per_gpu", "grad_accum", "metric_value",
})  # fmt: skip
"""Those of them that hold numbers."""

_GBIT = 1e9 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a source says of a training run; None where it does not."""

    source: str
    section: str
    model: str
    parameters: float | None
    layers: int | None
    width: int | None
    heads: int | None
    feed_forward: int | None
    vocabulary: int | None
    sequence_length: int | None
    gpu: str
    gpu_memory: str
    """GB, as written."""
    ranks: int | None
    per_node: int | None
    network: float | None
    """Of one node, in one direction [B/s]."""
    micro_batch: int | None
    """Sequences per GPU and micro-step."""
    accumulation: int
    precision: str
    strategy: str
    checkpointing: str
    notes: str
    cards: int | None = None
    """Network cards of a node in use; no column has them."""
    efficiency: float | None = None
    """Share of their line rate that collectives reach; no column has it."""
    bucket: int | None = None
    """``reduce_bucket_size``; no column has it."""


def read_run(cells: Mapping[str, str]) -> Run:
    """Read the run of a row; its metric stays in the cells."""
    network = _number(cells["inter_bw_gbps_per_node"])
    return Run(
        source=cells["source"],
        section=cells.get("source_file_or_section", ""),
        model=cells["model_name"],
        parameters=_number(cells["n_params"]),
        layers=_count(cells["n_layers"]),
        width=_count(cells["d_model"]),
        heads=_count(cells["n_heads"]),
        feed_forward=_count(cells["ffn"]),
        vocabulary=_count(cells["vocab"]),
        sequence_length=_count(cells["seq_len"]),
        gpu=cells["gpu"],
        gpu_memory=cells["gpu_mem_gb"],
        ranks=_count(cells["n_gpus"]),
        per_node=_count(cells["gpus_per_node"]),
        network=None if network is None else network * _GBIT,
        micro_batch=_count(cells["micro_batch_per_gpu"]) or _noted_micro_batch(cells["notes"]),
        accumulation=_count(cells["grad_accum"]) or 1,
        precision=cells["precision"],
        strategy=cells["strategy"],
        checkpointing=cells["act_ckpt"],
        notes=cells["notes"],
    )


def _noted_micro_batch(notes: str) -> int | None:
    """Return the micro-batch that *notes* name where the column is blank.

    >>> _noted_micro_batch("mbs 1; ZeRO-3 on one node")
    1
    """
    found = re.search(r"\bmbs (\d+)", notes)
    return int(found[1]) if found else None


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def _count(cell: str) -> int | None:
    value = _number(cell)
    return int(value) if value is not None and value.is_integer() else None
