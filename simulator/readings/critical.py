"""The critical path of a step: the chain of things that makes it as long as it is.

The chain comes from :mod:`simulator.readings.released`.  Each stretch of it is divided by what made it as long as it
is: a collective has the latency and the bytes of its phases in order, then what sharing links added; a kernel its
time alone, then what communication beside it added.  The pieces lie side by side and sum to the step.

The path and the stalls answer different questions.  A stall says why *compute* was idle, the path what would have to be
shorter for the *step* to be: what waits beside a longer chain is in a stall and not on the path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from simulator.clock.cast import Stage
from simulator.clock.timeline import ClassTimeline
from simulator.errors import BrokenLawError
from simulator.laws.collectives.fabric import Link, Phase
from simulator.laws.kernels import Kernel
from simulator.readings.exposure import Exposure
from simulator.readings.released import Stretch, added, stretches

__all__ = ["KINDS", "CriticalPath", "Piece", "busiest", "critical_path", "exposed_by_layer", "summed"]

KINDS = ("compute", "slowed", "copy", "bandwidth", "latency", "contention", "host", "skew")
"""What a piece is: kernels alone and what communication adds to them, copies on the device, the parts of a collective,
work of the host, a wait for a rank class that is not looked at."""


class Piece(NamedTuple):
    """A part of the path with one reason for its length."""

    start: float
    end: float
    kind: str
    """One of :data:`KINDS`."""
    operation: str
    """Kind of kernel, or role of a collective or of a copy to and from the host; ``host work`` of the host."""
    label: str
    """Layer or bucket that it worked for."""
    phase: str
    """forward, backward, step."""
    micro_batch: int
    link: str
    """Kind of link that bounds a collective; empty for others."""
    after: str
    """What it waited for last, as :attr:`~simulator.readings.released.Stretch.after`; empty if the same operation went
    before."""
    rank_class: str
    """Name of the class that it happened in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPath:
    """The chain, whole and in pieces, in order of time and without gaps."""

    stretches: tuple[Stretch, ...]
    pieces: tuple[Piece, ...]

    def total(self, key: str) -> dict[str, float]:
        """Time by one field of a piece, most first; pieces in which it is empty are left out [s]."""
        found: dict[str, float] = defaultdict(float)
        for piece in self.pieces:
            found[getattr(piece, key)] += piece.end - piece.start
        return dict(sorted(((name, time) for name, time in found.items() if name), key=lambda item: -item[1]))

    def rows(self) -> list[dict[str, Any]]:
        """Pieces that are alike but for layer and micro-batch, added up, most first."""
        keys = ("phase", "operation", "kind", "link")
        found: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for piece in self.pieces:
            found[tuple(getattr(piece, key) for key in keys)].append(piece.end - piece.start)
        rows = [
            {**dict(zip(keys, values, strict=True)), "pieces": len(times), "time": sum(times)}
            for values, times in found.items()
        ]
        return sorted(rows, key=lambda row: -row["time"])

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and mappings."""
        by_kind = self.total("kind")
        return {
            "by_kind": {kind: by_kind.get(kind, 0.0) for kind in KINDS},
            "by_operation": self.total("operation"),
            "by_link": self.total("link"),
            "by_rank_class": self.total("rank_class"),
            "rows": self.rows(),
        }


def critical_path(classes: Sequence[ClassTimeline], ready: Stage, step: float) -> CriticalPath:
    """Read the path off what rank classes did.

    Parameters
    ----------
    classes
        In the order of the classes of *ready*; what waits for one that is left out at the end is ``skew``.
    step
        When the last of all classes was done [s].

    Raises
    ------
    BrokenLawError
        The path has a gap.
    """
    chain = tuple(stretches(classes, ready, step))
    _check(chain, step)
    pieces = tuple(piece for item in chain for piece in _Division(classes[item.rank_class], ready, item).pieces())
    return CriticalPath(stretches=chain, pieces=pieces)


def _check(chain: Sequence[Stretch], step: float) -> None:
    """From the start to the end of the step without a gap."""
    bounds = [0.0, *(bound for item in chain for bound in (item.start, item.end)), step]
    for left, right in zip(bounds[0::2], bounds[1::2], strict=True):
        if left != right:
            raise BrokenLawError(f"nothing is on the critical path from {left} to {right} s")


class _Division:
    """One stretch in pieces."""

    def __init__(self, played: ClassTimeline, ready: Stage, stretch: Stretch) -> None:
        self._span = played.spans[stretch.span]
        self._operation = played.program.operations[self._span.launch.operation]
        self._phases = ready.classes[stretch.rank_class].phases[self._span.launch.operation]
        self._links, self._stretch, self._name_of_class = ready.links, stretch, played.name

    def pieces(self) -> Iterator[Piece]:
        """Yield them in order of time; the last one takes up the rounding."""
        stretch, launch = self._stretch, self._span.launch
        parts = [part for part in self._parts() if part[0] > 0]
        at, after, name = stretch.start, stretch.after, self._name()
        for index, (length, kind, link) in enumerate(parts):
            end = stretch.end if index == len(parts) - 1 else min(at + length, stretch.end)
            if end > at:
                yield Piece(
                    at,
                    end,
                    kind,
                    name,
                    launch.label,
                    launch.phase,
                    launch.micro_batch,
                    link,
                    after,
                    self._name_of_class,
                )
            at, after = end, ""

    def _name(self) -> str:
        if self._stretch.doing == "work":
            return "host work"
        if isinstance(self._operation, Kernel):
            return self._operation.kind
        return self._operation.role

    def _parts(self) -> list[tuple[float, str, str]]:
        """Lengths, kinds and links."""
        whole = self._stretch.end - self._stretch.start
        if self._stretch.doing != "run":
            return [(whole, "host" if self._stretch.doing == "work" else "skew", "")]
        longer = added(self._span)
        if not isinstance(self._operation, Kernel):
            return self._of_collective(longer)
        if self._operation.is_copy:
            return [(whole, "copy", "")]
        return [(whole - longer, "compute", ""), (longer, "slowed", "")]

    def _of_collective(self, longer: float) -> list[tuple[float, str, str]]:
        parts = []
        for phase in self._phases:
            link = _bounding(phase, self._links)
            parts += [(phase.latency, "latency", link), (phase.payload / phase.rate, "bandwidth", link)]
        return [*parts, (longer, "contention", busiest(self._phases, self._links))]


def _bounding(phase: Phase, links: Sequence[Link]) -> str:
    """Kind of the link that is busiest in *phase*."""
    busiest = max(phase.usage, key=lambda item: item[1] / links[item[0]].bandwidth, default=None)
    return links[busiest[0]].kind if busiest else ""


def busiest(phases: Sequence[Phase], links: Sequence[Link]) -> str:
    """Kind of the link that bounds the longest of *phases*."""
    longest = max(phases, key=lambda phase: phase.duration, default=None)
    return _bounding(longest, links) if longest else ""


def exposed_by_layer(reading: Exposure) -> dict[str, float]:
    """``stalled`` by the layer or bucket that was waited for, most first [s]."""
    return summed((item.label, item.end - item.start) for item in reading.stalls if item.collective)


def summed(charges: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Sum of *charges* by name, most first."""
    found: dict[str, float] = defaultdict(float)
    for name, time in charges:
        found[name] += time
    return dict(sorted(found.items(), key=lambda item: -item[1]))
