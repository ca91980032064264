"""Tables of measured collectives: three layouts, one noun.

What a table says of the machine is kept in its own words; :mod:`simulator.validate.systems` finds the cluster that
they mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["LAYOUTS", "Layout", "Measurement"]

Cells = Mapping[str, str]

_US, _GB, _GBIT = 1e-6, 1e9, 1e9 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One call of one collective, or the mean of many.  None where a table does not say."""

    system: str
    """Name of the machine, in the table's words as what follows."""
    gpu: str = ""
    cards: str = ""
    """Network cards of a node."""
    publication: str = ""
    notes: str = ""
    ranks: int | None
    nodes: int | None
    """What the table counts as such; trays in a rack of NVL72."""
    per_node: int | None = None
    """GPUs."""
    network: float | None = None
    """Of one node, in one direction [B/s]."""
    collective: str
    """As the table spells it."""
    settings: str = ""
    """Algorithm or variables of NCCL."""
    statistic: str = ""
    """How several trials became one value."""
    payload: float | None
    """Bytes of the whole array."""
    time: float | None
    """[s]"""
    busbw: float | None = None
    """[B/s]"""
    in_place: bool = False

    @property
    def text(self) -> str:
        """All that the table says of the machine itself."""
        return f"{self.system} {self.gpu} {self.cards}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Columns of a table, and how a row of it is read."""

    title: str
    columns: frozenset[str]
    numbers: frozenset[str]
    """Those of them that hold numbers."""
    read: Callable[[Cells], Measurement]


def _one_host(cells: Cells) -> Measurement:
    return Measurement(
        system=cells["system"],
        gpu=cells["device"],
        ranks=_count(cells["num_gpus"]),
        nodes=1,
        collective=cells["op_name"],
        payload=_number(cells["bytes"]),
        time=_number(cells["time_us"], _US),
    )


def _between_hosts(cells: Cells) -> Measurement:
    return Measurement(
        system=cells["system"],
        cards=cells["nics_per_node"],
        publication=cells["source"],
        ranks=_count(cells["gpus"]),
        nodes=_count(cells["nodes"]),
        collective=cells["op"],
        payload=_number(cells["bytes"]),
        time=_number(cells["time_us"], _US),
        in_place=cells["in_place"].lower() in _IN_PLACE,
    )


def _published(cells: Cells) -> Measurement:
    return Measurement(
        system=cells["system"],
        gpu=cells["gpu"],
        publication=f"{cells['source']} {cells['source_file_or_section']}",
        notes=cells["notes"],
        ranks=_count(cells["n_gpus"]),
        nodes=_count(cells["n_nodes"]),
        per_node=_count(cells["gpus_per_node"]),
        network=_number(cells["inter_bw_gbps_per_node"], _GBIT),
        collective=cells["collective"],
        settings=cells["algo_or_settings"],
        statistic=cells["value_origin"],
        payload=_number(cells["size_bytes"]),
        time=_number(cells["time_us"], _US),
        busbw=_number(cells["busbw_gbs"], _GB),
        in_place=cells["in_place"].lower() in _IN_PLACE,
    )


_IN_PLACE: Final = ("1", "in", "true", "yes")


def _number(cell: str, unit: float = 1.0) -> float | None:
    """Value of *cell* in SI; None if it holds no number above zero."""
    try:
        value = float(cell) * unit
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def _count(cell: str) -> int | None:
    value = _number(cell)
    return int(value) if value is not None and value.is_integer() else None


LAYOUTS: Final = (
    Layout(
        title="collectives on one host",
        columns=frozenset({"system", "device", "op_name", "num_gpus", "bytes", "time_us"}),
        numbers=frozenset({"num_gpus", "bytes", "time_us"}),
        read=_one_host,
    ),
    Layout(
        title="collectives between hosts",
        columns=frozenset({"system", "nics_per_node", "nodes", "gpus", "op", "in_place", "bytes", "time_us", "source"}),
        numbers=frozenset({"nodes", "gpus", "bytes", "time_us"}),
        read=_between_hosts,
    ),
    Layout(
        title="published collectives",
        columns=frozenset({
            "source", "source_file_or_section", "system", "gpu", "n_gpus", "n_nodes", "gpus_per_node",
            "inter_bw_gbps_per_node", "collective", "algo_or_settings", "size_bytes", "time_us", "busbw_gbs",
            "in_place", "value_origin", "notes",
        }),
        numbers=frozenset({
            "n_gpus", "n_nodes", "gpus_per_node", "inter_bw_gbps_per_node", "size_bytes", "time_us", "busbw_gbs",
        }),
        read=_published,
    ),
)  # fmt: skip
"""Layouts that are known, by the columns that they need."""
