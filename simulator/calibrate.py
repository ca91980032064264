r"""A cluster that takes as long as nccl-tests measured on it.

Each table of a log becomes measured times of one kind of collective on its ranks
(:mod:`simulator.laws.collectives.calibration` says what they mean elsewhere).  An affine fit

.. math:: T = \alpha + S / b

to the larger payloads, weighted by relative error, says what the machine's latency and algorithmic bandwidth are; its
residuals say how far to believe that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from simulator.errors import InputError
from simulator.laws.collectives.base import Collective, CollectiveKind
from simulator.laws.collectives.calibration import Pricing
from simulator.laws.collectives.fabric import ClassFabric, Phase
from simulator.units import binary
from simulator.world.document import find, read_mapping, yaml_text
from simulator.world.measurements.nccl_tests import Row, read_nccl_tests
from simulator.world.mesh import Mesh
from simulator.world.topology.cluster import Cluster, Forced
from simulator.world.topology.measured import MeasuredCollective

__all__ = ["Calibration", "Fit", "calibrate", "calibrated_file"]

KINDS: tuple[CollectiveKind, ...] = get_args(CollectiveKind)

FITTED_FROM = 32 * 2**20
"""Smallest payload of a fit: from there on NCCL's protocol stays the same on most systems [B]."""
ROUNDING = 1e-6
FEWEST = 3
"""Points that a fit of two constants needs to have residuals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Latency and bandwidth of one table."""

    alpha: float
    """[s]"""
    bandwidth: float
    """Algorithmic [B/s]."""
    above: float
    """Smallest payload fitted [B]."""
    residuals: tuple[tuple[float, float], ...]
    """Payload [B] and fitted over measured time, less one."""

    @property
    def worst(self) -> float:
        """Largest residual, without its sign."""
        return max(abs(residual) for _, residual in self.residuals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What one table says of the cluster."""

    measured: MeasuredCollective
    fit: Fit | None
    """None if there are too few payloads."""
    model: tuple[tuple[float, float], ...]
    """Payload [B], and the time of the catalogue's numbers over the measured one, less one."""

    def as_json(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        fit = self.fit
        return {
            "kind": self.measured.kind,
            "hosts": self.measured.hosts,
            "ranks": self.measured.ranks,
            "file": self.measured.file,
            "times": [list(point) for point in self.measured.times],
            "alpha": fit and fit.alpha,
            "bandwidth": fit and fit.bandwidth,
            "fitted_from": fit and fit.above,
            "residuals": [list(point) for point in fit.residuals] if fit else [],
            "catalogue_errors": [list(point) for point in self.model],
        }


def calibrate(cluster: Cluster, logs: Iterable[Path], hosts: int | None = None) -> tuple[Calibration, ...]:
    """Read *logs* of nccl-tests and compare them with *cluster*.

    Parameters
    ----------
    hosts
        That the tests ran on, for logs that do not list their devices; default: as few as hold the ranks.

    Raises
    ------
    InputError
        A log without a table or with ranks that do not fit the cluster's hosts.
    """
    tables = [table for log in logs for table in _tables(log, cluster, hosts)]
    return tuple(Calibration(measured=table, fit=_fit(table.times), model=_errors(table, cluster)) for table in tables)


def _tables(log: Path, cluster: Cluster, hosts: int | None) -> list[MeasuredCollective]:
    groups: dict[tuple[CollectiveKind, int, int], dict[float, float]] = defaultdict(dict)
    for row in read_nccl_tests(log):
        timing = row.out_of_place or row.in_place
        kind = next((kind for kind in KINDS if kind == row.kind), None)
        if kind is None or timing is None or not (row.size and timing.time):
            continue
        ranks = _ranks(row, log)
        groups[kind, hosts or row.hosts or _fewest_hosts(ranks, cluster), ranks][float(row.size)] = timing.time
    if not groups:
        raise InputError("no collective with a time", file=log, remedy=f"known are {', '.join(KINDS)}")
    for _, on, ranks in groups:
        if ranks % on or ranks // on > cluster.accelerators_per_host:
            remedy = f"say with --hosts how many hosts of {cluster.accelerators_per_host} devices there were"
            raise InputError(f"{ranks} ranks do not fit {on} hosts", file=log, key="hosts", value=on, remedy=remedy)
    return [
        MeasuredCollective(kind=kind, hosts=on, ranks=ranks, file=log.name, times=tuple(sorted(times.items())))
        for (kind, on, ranks), times in groups.items()
    ]


def _ranks(row: Row, log: Path) -> int:
    if row.ranks is None:
        remedy = "keep the list of devices that the test prints"
        raise InputError("the log does not say how many ranks there were", file=log, remedy=remedy)
    return row.ranks


def _fewest_hosts(ranks: int, cluster: Cluster) -> int:
    return -(-ranks // cluster.accelerators_per_host)


def _fit(times: Sequence[tuple[float, float]]) -> Fit | None:
    """Affine fit in relative error, to large payloads; to the largest ones if those are few."""
    large = [point for point in times if point[0] >= FITTED_FROM]
    large = large if len(large) >= FEWEST else list(times[-FEWEST:])
    if len(large) < FEWEST:
        return None
    payload, time = np.array(large).T
    found, *_ = np.linalg.lstsq(np.stack([1 / time, payload / time], axis=1), np.ones(len(large)), rcond=None)
    alpha, slope = (float(value) for value in found)
    if slope <= 0:
        return None
    residuals = tuple((size, (alpha + slope * size) / taken - 1) for size, taken in large)
    return Fit(alpha=alpha, bandwidth=1 / slope, above=large[0][0], residuals=residuals)


def _errors(measured: MeasuredCollective, cluster: Cluster) -> tuple[tuple[float, float], ...]:
    bench = _Bench(cluster, measured)
    return tuple((payload, bench.time(payload) / time - 1) for payload, time in measured.times)


class _Bench:
    """A cluster as far as it was measured, with the catalogue's numbers."""

    def __init__(self, cluster: Cluster, measured: MeasuredCollective) -> None:
        per_host = measured.ranks // measured.hosts
        used = replace(cluster, hosts=measured.hosts, accelerators_per_host=per_host, measured=())
        self.fabric, self._kind = ClassFabric(used), measured.kind
        self._pricing = Pricing(used, used.library, Forced(), self.fabric)
        self._group = Mesh(hosts=used.hosts, devices_per_host=per_host).world()

    def phases(self, payload: float) -> tuple[Phase, ...]:
        """Phases of a call of *payload* bytes."""
        return self._pricing.phases(
            Collective(kind=self._kind, elements=payload, bytes_per_element=1, group=self._group, role=self._kind)
        )

    def time(self, payload: float) -> float:
        """Time of a call of *payload* bytes [s]."""
        return sum(phase.duration for phase in self.phases(payload))


def calibrated_file(reference: str, cluster: Cluster, calibrations: Sequence[Calibration], name: str) -> str:
    """Return the text of a cluster file called *name*: that of *reference* with what was measured on it."""
    content = read_mapping(find(reference, None, "topologies", ".yaml"))
    for link in content["links"]:
        needed = _needed(cluster, calibrations).get(link["name"])
        if needed is not None:
            link["efficiency"] = needed
    content["name"] = name
    content["title"] = f"{content['title']}, calibrated"
    measured = [_entry(each) for each in calibrations]
    again = {(each["kind"], each["hosts"], each["ranks"]) for each in measured}
    kept = [each for each in content.get("measured", []) if (each["kind"], each["hosts"], each["ranks"]) not in again]
    content["measured"] = kept + measured
    files = sorted({each.measured.file for each in calibrations})
    head = f"# {cluster.name}, with times of collectives measured on it: {', '.join(files)}.\n\n"
    return head + yaml_text(content)


def _entry(calibration: Calibration) -> dict[str, Any]:
    measured, fit = calibration.measured, calibration.fit
    entry: dict[str, Any] = {"kind": measured.kind, "hosts": measured.hosts, "ranks": measured.ranks}
    entry |= {
        "file": measured.file,
        "times": [[f"{size:.0f} B", f"{time * 1e6:.6g} us"] for size, time in measured.times],
    }
    if fit is not None and fit.alpha >= 0:
        entry["fit"] = {
            "alpha": f"{fit.alpha * 1e6:.6g} us",
            "bandwidth": f"{fit.bandwidth / 1e9:.6g} GB/s",
            "above": f"{fit.above:.0f} B",
            "worst": round(fit.worst, 4),
        }
    return entry


def _needed(cluster: Cluster, calibrations: Sequence[Calibration]) -> dict[str, dict[str, Any]]:
    """Efficiency of links that carried more than the catalogue allows; no link carries more than its line rate."""
    found: dict[str, dict[str, Any]] = {}
    links = {link.name: link for link in cluster.links}
    most: dict[str, float] = defaultdict(float)
    for calibration in calibrations:
        bench = _Bench(cluster, calibration.measured)
        for payload, time in calibration.measured.times:
            phases = bench.phases(payload)
            factor = time / sum(phase.duration for phase in phases)
            for phase in phases:
                for number, share in phase.usage:
                    name = bench.fabric.links[number].kind
                    rate = phase.rate / factor * share / max(1.0, links[name].bandwidth)
                    if rate > most[name]:
                        most[name] = rate
                        at = f"{calibration.measured.file}: {binary(payload)} {calibration.measured.kind}"
                        value = min(1.0, rate * links[name].bandwidth / links[name].nominal.value)
                        found[name] = {"value": round(value, 4), "basis": "measured", "source": "simulator", "at": at}
    return {name: entry for name, entry in found.items() if most[name] > 1 + ROUNDING}
