"""Links shared by the transfers in flight.

Between two changes every transfer progresses at a constant max-min fair rate
(:mod:`simulator.laws.fairness`); rates change only when a transfer starts or ends, or a link changes.  SimPy cannot
cancel a timeout, so each allotment of rates has a number, and a timer that belongs to an older allotment does nothing
when it rings.  Transfers that start or end at the same instant share one allotment.  Rivals are transfers of others
that never end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import simpy

from simulator.clock.cast import Change
from simulator.laws.collectives.fabric import Link, Phase
from simulator.laws.fairness import max_min_rates

__all__ = ["Network"]

EPSILON = 1e-12
"""A remainder below this fraction of the payload is rounding."""


class _Transfer:
    """A phase on its way."""

    __slots__ = ("done", "phase", "rate", "remaining")

    def __init__(self, phase: Phase, done: simpy.Event) -> None:
        self.phase, self.done = phase, done
        self.remaining, self.rate = phase.payload, 0.0


class Network:
    """Carries phases over links."""

    def __init__(
        self, env: simpy.Environment, links: Sequence[Link], changes: Sequence[Change] = (), rivals: Sequence[int] = ()
    ) -> None:
        self.carried = [0.0] * len(links)
        """Bytes given to each link so far."""
        self._env = env
        self._capacity = [link.bandwidth for link in links]
        self._in_flight: list[_Transfer] = []
        self._settled_at = 0.0
        self._allotment = 0
        self._due = False
        self._rates: dict[tuple[int, ...], tuple[list[float], list[Phase]]] = {}
        self._rivals = [((link, 1.0),) for link in rivals]
        self._alone_is_known = not (changes or rivals)
        for change in changes:
            self._foresee(change)

    def _foresee(self, change: Change) -> None:
        if not change.at:
            self._capacity[change.link] = change.bandwidth
            return
        timer = self._env.timeout(change.at, value=change)
        timer.callbacks.append(self._on_change)

    def _on_change(self, timer: Any) -> None:
        change: Change = timer.value
        self._settle()
        self._capacity[change.link] = change.bandwidth
        self._rates.clear()
        self._allot()

    def count(self, phases: Iterable[Phase]) -> None:
        """Book the bytes of *phases* on their links."""
        for phase in phases:
            for link, share in phase.usage:
                self.carried[link] += share * phase.payload

    def carry(self, phase: Phase) -> simpy.Event:
        """Put the bytes of *phase* on the links; the event is their arrival."""
        self._settle()
        transfer = _Transfer(phase, self._env.event())
        self._in_flight.append(transfer)
        self._allot_soon()
        return transfer.done

    def _allot_soon(self) -> None:
        """Share the links anew once everything that happens at this instant has been announced."""
        self._allotment += 1
        if not self._due:
            self._due = True
            timer = self._env.timeout(0.0)
            timer.callbacks.append(self._on_due)

    def _on_due(self, _: Any) -> None:
        self._due = False
        self._allot()

    def _settle(self) -> None:
        """Take off what was sent since the last change."""
        elapsed = self._env.now - self._settled_at
        self._settled_at = self._env.now
        for transfer in self._in_flight:
            transfer.remaining -= transfer.rate * elapsed

    def _allot(self) -> None:
        """Share the links among the transfers in flight and set the timer for the first end."""
        self._allotment += 1
        for transfer, rate in zip(self._in_flight, self._fair_rates(), strict=True):
            transfer.rate = rate
        moving = [transfer for transfer in self._in_flight if transfer.rate > 0]  # the others wait for a failed link
        if moving:
            first_end = min(max(0.0, transfer.remaining) / transfer.rate for transfer in moving)
            timer = self._env.timeout(first_end, value=self._allotment)
            timer.callbacks.append(self._on_timer)

    def _fair_rates(self) -> list[float]:
        if len(self._in_flight) == 1 and self._alone_is_known:
            return [self._in_flight[0].phase.rate]
        key = tuple(id(transfer.phase) for transfer in self._in_flight)
        if key not in self._rates:
            phases = [transfer.phase for transfer in self._in_flight]  # kept, so that no other gets their identity
            own = len(self._capacity)  # links of their own keep kernels from being faster than they are alone
            usage = [(*phase.usage, (own + index, 1.0)) for index, phase in enumerate(phases)]
            rates = max_min_rates([*usage, *self._rivals], [*self._capacity, *(phase.rate for phase in phases)])
            self._rates[key] = rates[: len(phases)], phases
        return self._rates[key][0]

    def _on_timer(self, timer: simpy.Event) -> None:
        if timer.value != self._allotment:
            return
        self._settle()
        arrived = [transfer for transfer in self._in_flight if self._has_arrived(transfer)]
        self._in_flight = [transfer for transfer in self._in_flight if not self._has_arrived(transfer)]
        for transfer in arrived:
            transfer.done.succeed()
        self._allot_soon()

    def _has_arrived(self, transfer: _Transfer) -> bool:
        """Say whether what is left is rounding, or takes less time than the clock can tell apart."""
        resolution = transfer.rate * math.ulp(self._env.now)
        return transfer.remaining <= max(EPSILON * transfer.phase.payload, resolution)
