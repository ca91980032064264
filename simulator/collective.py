r"""One collective alone on a cluster: what nccl-tests would print.

.. math:: \mathrm{algbw} = S / T, \qquad \mathrm{busbw} = f \cdot \mathrm{algbw}

with S the bytes of the whole array, T the time and f what a ring sends over its busiest link per byte of the array
(nccl-tests, ``doc/PERFORMANCE.md``), so that the bus bandwidth of a good ring is the bandwidth of that link at any
number of ranks.

Beside the time of the model may stand that of the reference, which simulates every message
(:mod:`simulator.clock.reference`): prepared ahead, as NCCL's kernels do, and cut into pieces where a chain would
otherwise wait for the whole array at every rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final, get_args

from simulator.clock.reference import check_ranks, reference_time
from simulator.errors import InputError, UnknownNameError
from simulator.laws.collectives.base import Collective, CollectiveKind
from simulator.laws.collectives.calibration import Pricing
from simulator.laws.collectives.fabric import ClassFabric, Phase
from simulator.laws.collectives.library import TEXTBOOK, library
from simulator.units import binary
from simulator.world.mesh import Mesh
from simulator.world.topology.cluster import Cluster, Forced
from simulator.world.topology.cluster import Library as LibraryName

__all__ = ["KINDS", "Bench", "Row", "bus_factor", "kind_called", "sizes"]

KINDS: Final[tuple[CollectiveKind, ...]] = get_args(CollectiveKind)

PIECE: Final = 512 * 2**10
"""What a chain passes on at once: NCCL's buffer of 4 MiB has 8 slots (``DEFAULT_BUFFSIZE`` in ``src/init.cc``,
``NCCL_STEPS`` in ``src/include/device.h``) [B]."""

MOST_PIECES: Final = 64
"""More of them would cost the reference minutes; a chain of n ranks in k pieces takes (n - 2)/k too long at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    topology: str
    kind: CollectiveKind
    hosts: int
    ranks: int
    payload: float
    """Bytes of the whole array."""
    time: float
    """Of one call [s]."""
    algorithm: str
    protocol: str | None
    """None where a textbook algorithm has none."""
    reference_time: float | None = None
    """Of the same call, message by message [s]; None where nobody asked."""

    @property
    def difference(self) -> float | None:
        """Of the reference relative to the time: 0.01 if it takes one percent longer."""
        return None if self.reference_time is None else self.reference_time / self.time - 1

    @property
    def algbw(self) -> float:
        """Payload per time [B/s]."""
        return self.payload / self.time

    @property
    def busbw(self) -> float:
        """Load of the busiest link of a ring that takes as long [B/s]."""
        return self.algbw * bus_factor(self.kind, self.ranks)

    def as_json(self) -> dict[str, str | float | None]:
        """Return the row under the names that ``--json`` promises."""
        asked = {} if self.reference_time is None else {
            "reference_time": self.reference_time, "difference": self.difference
        }  # fmt: skip
        return {
            "topology": self.topology, "kind": self.kind, "hosts": self.hosts, "ranks": self.ranks,
            "payload": self.payload, "time": self.time, "algbw": self.algbw, "busbw": self.busbw,
            "algorithm": self.algorithm, "protocol": self.protocol, **asked,
        }  # fmt: skip


@final
class Bench:
    """A cluster on which one collective after the other runs over all ranks.

    Parameters
    ----------
    cluster
        With at least two devices in use.
    name
        What carries out collectives; the cluster's own library by default.
    forced
        What a user prescribes to NCCL or RCCL.
    reference
        Whether to simulate every message, too.

    Raises
    ------
    InputError
        There is nobody to talk to, something is prescribed to a textbook algorithm, or the reference cannot tell.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: LibraryName | None = None,
        forced: Forced | None = None,
        *,
        reference: bool = False,
    ) -> None:
        self.cluster, self.name, self.forced = cluster, name or cluster.library, forced or Forced()
        if cluster.ranks < 2:
            raise InputError(f"{cluster.name} has one device in use", key="hosts", remedy="a collective needs two")
        if self.name in TEXTBOOK and self.forced != Forced():
            remedy = "leave out algorithm, protocol, channels and SHARP, or use nccl or rccl"
            raise InputError("a textbook algorithm takes no orders", key="library", value=self.name, remedy=remedy)
        if reference:
            _check_reference(cluster, self.name)
        self._reference = reference
        self._pricing = Pricing(cluster, self.name, self.forced, ClassFabric(cluster))
        self._world = Mesh(hosts=cluster.hosts, devices_per_host=cluster.accelerators_per_host).world()

    def row(self, kind: CollectiveKind, payload: float, *, in_place: bool = False) -> Row:
        """Time one call of *kind* with *payload* bytes in the whole array, out of place as nccl-tests counts first.

        Raises
        ------
        InputError
            What is prescribed does not exist for this collective on this cluster.
        """
        _check(kind, self.forced)
        call = Collective(
            kind=kind, elements=payload, bytes_per_element=1, group=self._world, role=kind, in_place=in_place
        )
        phases = self._pricing.phases(call)
        return Row(
            topology=self.cluster.name,
            kind=kind,
            hosts=self.cluster.hosts,
            ranks=self.cluster.ranks,
            payload=payload,
            time=sum(phase.duration for phase in phases),
            algorithm=self._algorithm(kind, phases),
            protocol=phases[0].protocol or None,
            reference_time=self._by_messages(call) if self._reference else None,
        )

    def _by_messages(self, call: Collective) -> float:
        algorithm = library(self.cluster, self.name, self.forced).algorithm(call)
        chained = call.kind in ("broadcast", "reduce")
        pieces = min(MOST_PIECES, math.ceil(call.payload / PIECE)) if chained else 1
        return reference_time(self.cluster, call, algorithm, pieces=pieces, ahead=True).time

    def _algorithm(self, kind: CollectiveKind, phases: tuple[Phase, ...]) -> str:
        """What NCCL chose; a textbook library has one algorithm for each kind."""
        if phases[0].algorithm:
            return phases[0].algorithm
        if kind == "all_to_all":
            return "direct"
        return "ring" if kind in ("broadcast", "reduce") else self.name


def bus_factor(kind: CollectiveKind, ranks: int) -> float:
    """Bytes on the busiest link of a ring per byte of the whole array.

    >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 8), bus_factor("broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    if kind in ("broadcast", "reduce"):
        return 1.0
    return (2 if kind == "all_reduce" else 1) * (ranks - 1) / ranks


def kind_called(name: str) -> CollectiveKind:
    """Return the collective that *name* means: ours, or as nccl-tests spells it.

    >>> kind_called("alltoall"), kind_called("AllReduce"), kind_called("all_gather_perf")
    ('all_to_all', 'all_reduce', 'all_gather')

    Raises
    ------
    UnknownNameError
        None of :data:`KINDS`.
    """
    squashed = name.lower().removesuffix("_perf").replace("_", "").replace("-", "")
    for kind in KINDS:
        if squashed == kind.replace("_", ""):
            return kind
    raise UnknownNameError("collective", name, KINDS)


def sizes(smallest: float, largest: float, factor: int) -> Iterator[float]:
    """Sizes from *smallest* to *largest* [B], each *factor* times the one before.

    >>> list(sizes(1, 10, 2))
    [1, 2, 4, 8]

    Raises
    ------
    InputError
        There is none, or there is no end.
    """
    if smallest > largest or smallest < 1:
        problem = "larger than the largest" if smallest >= 1 else "below one byte"
        raise InputError(problem, key="min", value=binary(smallest), remedy=f"use 1 B to {binary(largest)}")
    if factor < 2:
        raise InputError("sizes would not grow", key="factor", value=factor, remedy="use 2 or more")
    return _sizes(smallest, largest, factor)


def _sizes(size: float, largest: float, factor: int) -> Iterator[float]:
    while size <= largest:
        yield size
        size *= factor


def _check_reference(cluster: Cluster, name: LibraryName) -> None:
    """Refuse what is more than messages from rank to rank."""
    if name not in TEXTBOOK:
        remedy = f"use one of {', '.join(TEXTBOOK)}"
        raise InputError("the reference needs a textbook algorithm", key="library", value=name, remedy=remedy)
    if cluster.measured:
        remedy = "leave measurements out of the cluster"
        raise InputError("the reference knows no measured times", key="measured", value=cluster.name, remedy=remedy)
    check_ranks(cluster)


def _check(kind: CollectiveKind, forced: Forced) -> None:
    """Refuse what the library would silently leave out for kinds it has one way to carry out."""
    if kind == "all_to_all" and (forced.algorithm or forced.protocol or forced.channels or forced.sharp):
        remedy = "leave out algorithm, protocol, channels and SHARP"
        raise InputError("is made of sends and receives, which take no orders", value=kind, remedy=remedy)
    if kind in ("broadcast", "reduce") and forced.algorithm not in (None, "ring"):
        raise InputError(f"NCCL has no such {kind}", key="algorithm", value=forced.algorithm, remedy="use ring")
