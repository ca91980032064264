"""Measured collectives against the model: one call, alone."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypedDict

from simulator.collective import Bench, Row, kind_called
from simulator.errors import InputError, UnknownNameError
from simulator.laws.collectives.base import CollectiveKind
from simulator.validate.summary import Unmapped, Verdict
from simulator.validate.systems import Place, hosts_of, place
from simulator.world.measurements.collectives import Measurement
from simulator.world.measurements.tables import Table
from simulator.world.topology.cluster import NCCL_ALGORITHMS, NCCL_PROTOCOLS, Forced

__all__ = ["collectives", "orders"]


class _Values(TypedDict):
    """Of a verdict."""

    metric: str
    measured: float
    predicted: float
    payload: float


LARGE: Final = 8 * 2**30
"""Taken for "peak" where a row gives no size and assumptions are allowed [B]."""


def collectives(
    table: Table, read: Callable[[Mapping[str, str]], Measurement], *, assume: bool
) -> Iterator[Verdict | Unmapped]:
    """Predict each row of *table*, or say why not."""
    rows = [read(cells) for cells in table.rows]
    sizes, file = _host_sizes(rows), table.file.name
    for number, (source, measured) in enumerate(zip(_sources(rows), rows, strict=True), start=1):
        try:
            predicted, details = _prediction(measured, sizes.get(_machine(measured)), assume)
            yield Verdict(row=number, file=file, source=source, details=details, **predicted)
        except InputError as error:
            yield Unmapped(row=number, file=file, source=source, reason=str(error))


def _sources(rows: Sequence[Measurement]) -> Iterator[str]:
    """Name of each row's system; where two kinds of GPU share one, or there is none, the GPU's too."""
    gpus: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        gpus[row.system].add(row.gpu)
    for row in rows:
        alone = row.system and len(gpus[row.system]) == 1
        yield row.system if alone else ", ".join(filter(None, (row.system, row.gpu))) or row.publication


def _machine(measured: Measurement) -> tuple[str, str, str]:
    return measured.system, measured.gpu, measured.publication


def _host_sizes(rows: Sequence[Measurement]) -> Mapping[tuple[str, str, str], int]:
    """Most GPUs that any row uses on a node of the same machine."""
    sizes: dict[tuple[str, str, str], int] = defaultdict(int)
    for row in rows:
        if row.ranks and row.nodes:
            sizes[_machine(row)] = max(sizes[_machine(row)], row.per_node or row.ranks // row.nodes)
    return sizes


def _prediction(measured: Measurement, host_size: int | None, assume: bool) -> tuple[_Values, Mapping[str, Any]]:
    """What was measured and what the model says, and how it came to say so."""
    payload = _payload(measured, assume)
    found = place(measured, host_size, assume=assume)
    row = _fastest(measured, found, payload)
    values: _Values = {"metric": "busbw", "measured": measured.busbw or 0.0, "predicted": row.busbw, "payload": payload}
    if measured.time is not None:
        values |= {"metric": "time", "measured": measured.time, "predicted": row.time}
    guesses = [*found.assumed, *(["size"] if measured.payload is None else [])]
    details = {
        "op": row.kind, "ranks": row.ranks, "nodes": hosts_of(measured), "cluster": found.cluster,
        "hosts": found.hosts, "network": found.network, "algorithm": row.algorithm, "protocol": row.protocol,
        "in_place": measured.in_place, "settings": measured.settings, "assumed": guesses,
    }  # fmt: skip
    return values, details


def _payload(measured: Measurement, assume: bool) -> float:
    """Size of the array, once it is clear that the row can be judged at all."""
    _kind(measured)
    if re.match(r"(min|max)\b", measured.statistic.lower()):
        raise InputError("an extreme of several trials; their median is judged")
    if measured.time is None and measured.busbw is None:
        raise InputError("neither time nor bus bandwidth stated")
    if measured.payload is None and not assume:
        raise InputError("size not stated")
    return measured.payload or LARGE


def _kind(measured: Measurement) -> CollectiveKind:
    try:
        return kind_called(measured.collective)
    except UnknownNameError:
        raise InputError(f"not a collective that is modelled: {measured.collective}") from None


def _fastest(measured: Measurement, found: Place, payload: float) -> Row:
    """What the prescribed algorithms take; of several that are allowed, the fastest."""
    rows, refusals = [], []
    for forced in orders(measured.settings, found.hosts):
        try:
            rows.append(_bench(found, forced).row(_kind(measured), payload, in_place=measured.in_place))
        except InputError as error:
            refusals.append(error)
    if not rows:
        raise InputError(f"{measured.settings or found.cluster}: {refusals[0].problem}")
    return min(rows, key=lambda row: row.time)


@lru_cache(maxsize=256)
def _bench(found: Place, forced: Forced) -> Bench:
    return Bench(found.load(), None, forced)


def orders(settings: str, hosts: int) -> tuple[Forced, ...]:
    """What *settings* prescribe to NCCL: alternatives, one for each algorithm that is allowed.

    >>> [order.algorithm for order in orders("NCCL_ALGO=NVLSTree", hosts=4)]
    ['nvls_tree']
    >>> [order.algorithm for order in orders("NCCL_ALGO=Ring,Tree NCCL_PROTO=Simple", hosts=1)]
    ['ring', 'tree']

    "NVLS" across hosts is the tree between them unless switches of the network reduce, and "SHARP" on one host is NVLS.
    """
    text = settings.lower()
    algorithms = _listed(r"nccl_algo\s*[=:]\s*([\w,]+)", text, NCCL_ALGORITHMS)
    protocols = _listed(r"nccl_proto\s*[=:]\s*([\w,]+)", text, NCCL_PROTOCOLS)
    sharp = hosts > 1 and re.search(r"sharp|collnet_enable=1", text) is not None
    if not algorithms and "nvls_enable=0" in text:
        algorithms = ["ring", "tree"]
    if not algorithms and "=" not in text:
        algorithms = _listed(r"([\w, ]+)", text.replace("sharp", "" if hosts > 1 else "nvls"), NCCL_ALGORITHMS)
    if hosts > 1 and not sharp:
        algorithms = ["nvls_tree" if name == "nvls" else name for name in algorithms]
    return tuple(
        Forced(algorithm=algorithm, protocol=protocol, sharp=sharp)
        for algorithm in algorithms or (None,)
        for protocol in protocols or (None,)
    )


def _listed(pattern: str, text: str, known: Sequence[str]) -> list[str]:
    """Names of *known* in a list that *pattern* finds; others are no order."""
    found = re.search(pattern, text)
    words = re.split(r"[,\s]+", found[1]) if found else []
    return [name for word in words for name in known if word and word.replace("_", "") == name.replace("_", "")]
