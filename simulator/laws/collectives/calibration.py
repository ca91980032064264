r"""From the model's time to the measured one.

Measured times of a kind of collective on n' ranks hold for groups of n' ranks on as many hosts: between two payloads
the time is linear, which is what :math:`T = \alpha + S / b` is piece by piece.  Elsewhere they give factors

.. math:: r(s) = T_{measured}(s\,n') / T_{model}(s\,n')

at payloads per rank s, interpolated in log r over log s and constant beyond the ends.  A group of other size takes the
factors of the nearest measured one of its kind that spans one host or several, as it does itself: at equal payload per
rank, latency and bandwidth share the time of a ring alike whatever its number of ranks.

A factor stretches the latency and the rate of every phase, but no transfer gets faster than the links it crosses: a
calibration therefore also raises the bandwidth of links that would be in the way of what was measured.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

from simulator.laws.collectives.base import Collective
from simulator.laws.collectives.fabric import AbstractFabric, ClassFabric, Phase
from simulator.laws.collectives.library import library
from simulator.world.mesh import Mesh
from simulator.world.topology.cluster import Cluster, Forced
from simulator.world.topology.cluster import Library as LibraryName
from simulator.world.topology.measured import MeasuredCollective

__all__ = ["Pricing", "between", "factor_at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Factors:
    """Of one measured group."""

    payloads: tuple[float, ...]
    """Per rank [B]."""
    factors: tuple[float, ...]


@final
class Pricing:
    """Prices collectives of one cluster: what a library does, corrected where there are measurements.

    Parameters
    ----------
    cluster
        With its measurements.
    name
        Of the library that carries out collectives.
    forced
        What a user prescribes to it.
    fabric
        Where the bytes go.
    """

    def __init__(self, cluster: Cluster, name: LibraryName, forced: Forced, fabric: AbstractFabric) -> None:
        self._cluster, self._name, self._forced, self._fabric = cluster, name, forced, fabric
        self._collectives = library(cluster, name, forced)
        self._factors: dict[MeasuredCollective, _Factors] = {}

    def phases(self, collective: Collective, ranks: Sequence[int] = ()) -> tuple[Phase, ...]:
        """Phases of *collective* among *ranks*, the members of one communicator (none on a fabric of kinds)."""
        plain = tuple(self._fabric.phase(each, ranks) for each in self._collectives.exchanges(collective))
        measured = _nearest(self._cluster.measured, collective)
        if measured is None or not plain or collective.quantization:
            return plain
        factor = self._factor(measured, collective, sum(phase.duration for phase in plain))
        return tuple(self._stretched(phase, factor) for phase in plain)

    def _factor(self, measured: MeasuredCollective, collective: Collective, modelled: float) -> float:
        group, times = collective.group, measured.times
        inside = times[0][0] <= collective.payload <= times[-1][0]
        if inside and (group.size, group.hosts) == (measured.ranks, measured.hosts):
            return between(collective.payload, *zip(*times, strict=True)) / modelled
        found = self._of(measured)
        return factor_at(collective.payload / group.size, found.payloads, found.factors)

    def _stretched(self, phase: Phase, factor: float) -> Phase:
        links = self._fabric.links
        fastest = min((links[link].bandwidth / share for link, share in phase.usage), default=phase.rate)
        return replace(phase, latency=phase.latency * factor, rate=min(phase.rate / factor, fastest))

    def _of(self, measured: MeasuredCollective) -> _Factors:
        if measured not in self._factors:
            modelled = _modelled(measured, self._cluster, self._name, self._forced)
            self._factors[measured] = _Factors(
                payloads=tuple(payload / measured.ranks for payload, _ in measured.times),
                factors=tuple(time / model for (_, time), model in zip(measured.times, modelled, strict=True)),
            )
        return self._factors[measured]


def _modelled(measured: MeasuredCollective, cluster: Cluster, name: LibraryName, forced: Forced) -> list[float]:
    """Times of the model for what was measured [s]."""
    as_measured = replace(
        cluster, hosts=measured.hosts, accelerators_per_host=measured.ranks // measured.hosts, measured=()
    )
    group = Mesh(hosts=measured.hosts, devices_per_host=as_measured.accelerators_per_host).world()
    plain = Pricing(as_measured, name, forced, ClassFabric(as_measured))
    asked = (
        Collective(kind=measured.kind, elements=payload, bytes_per_element=1, group=group, role="calibration")
        for payload, _ in measured.times
    )
    return [sum(phase.duration for phase in plain.phases(each)) for each in asked]


def between(payload: float, payloads: Sequence[float], values: Sequence[float]) -> float:
    """Interpolate *values* over *payloads* on straight lines; constant beyond their ends.

    >>> between(3.0, (1.0, 5.0), (1.0, 2.0))
    1.5
    """
    place = bisect_left(payloads, payload)
    if place == 0 or place == len(payloads):
        return values[min(place, len(values) - 1)]
    part = (payload - payloads[place - 1]) / (payloads[place] - payloads[place - 1])
    return (1 - part) * values[place - 1] + part * values[place]


def factor_at(payload: float, payloads: Sequence[float], factors: Sequence[float]) -> float:
    """Interpolate the logarithm of *factors* over that of *payloads*; constant beyond their ends.

    >>> factor_at(2.0, (1.0, 4.0), (1.0, 4.0))
    2.0
    """
    logarithms = [math.log(item) for item in payloads]
    return math.exp(between(math.log(payload), logarithms, [math.log(factor) for factor in factors]))


def _nearest(measured: Sequence[MeasuredCollective], collective: Collective) -> MeasuredCollective | None:
    """The measured group that is most like that of *collective*."""
    group = collective.group
    alike = [item for item in measured if item.kind == collective.kind and (item.hosts > 1) == (group.hosts > 1)]
    return min(alike, key=lambda item: abs(math.log(item.ranks / group.size)), default=None)
