"""Memory of a rank over the step: what it keeps, what comes and goes, the peak and what makes it up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from simulator.clock.timeline import MemoryChange

__all__ = ["Footprint", "footprint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """The moment at which a rank uses most memory."""

    peak: float
    """[B]"""
    at: float
    """When [s]."""
    capacity: float
    """Of the accelerator [B]."""
    items: Mapping[str, float]
    """What makes up the peak [B], largest first."""

    @property
    def fits(self) -> bool:
        """Whether the peak is within the capacity."""
        return self.peak <= self.capacity


def footprint(states: Mapping[str, float], changes: Iterable[MemoryChange], capacity: float) -> Footprint:
    """Find the peak.

    Parameters
    ----------
    states
        Bytes kept through the whole step, by item [B].
    changes
        Memory taken and given back, in order of time.
    capacity
        Of the accelerator [B].
    """
    held, total = dict(states), sum(states.values())
    peak, peak_at, at_peak = total, 0.0, dict(held)
    for change in changes:
        held[change.item] = held.get(change.item, 0.0) + change.amount
        total += change.amount
        if total > peak:
            peak, peak_at, at_peak = total, change.at, dict(held)
    largest_first = sorted(at_peak.items(), key=lambda item: -item[1])
    return Footprint(
        peak=peak, at=peak_at, capacity=capacity, items={name: size for name, size in largest_first if size > 0}
    )
