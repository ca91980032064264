r"""Kernels that run slower while communication runs beside them.

While a rank takes part in at least one collective, each of its kernels needs s times as long, where
:mod:`simulator.laws.interference` says s of the kernel and of all collectives under way.  Beside a collective of c
seconds a kernel of t >= c/s alone takes

.. math:: c + \left(t - \frac{c}{s}\right)

Between two changes all kernels progress at their pace; a change settles what is done and sets one timer for the first
end, and a timer of an older plan does nothing when it rings.
"""

from __future__ import annotations

import math
from typing import Any

import simpy

from simulator.laws.interference import AbstractInterference, Occupancy

__all__ = ["Processor"]


class _Running:
    """A kernel on its way."""

    __slots__ = ("done", "left", "movement", "pace")

    def __init__(self, left: float, movement: float, done: simpy.Event) -> None:
        self.left, self.movement, self.done = left, movement, done
        self.pace = 1.0
        """Time that a second of work takes [s]."""


class Processor:
    """Runs the kernels of one rank.

    Parameters
    ----------
    env
        The clock.
    interference
        What collectives do to kernels.
    """

    def __init__(self, env: simpy.Environment, interference: AbstractInterference) -> None:
        self._env, self._interference = env, interference
        self._running: list[_Running] = []
        self._beside: list[Occupancy] = []
        self._paces: dict[tuple[float, tuple[Occupancy, ...]], float] = {}
        self._settled_at = 0.0
        self._plan = 0

    def run(self, time: float, movement: float) -> simpy.Event:
        """Start a kernel; the event is its end.

        Parameters
        ----------
        time
            Of the kernel alone [s].
        movement
            Part of it that memory traffic bounds.
        """
        self._settle()
        kernel = _Running(time, movement, self._env.event())
        self._running.append(kernel)
        self._foresee()
        return kernel.done

    def beside(self, collective: Occupancy) -> None:
        """Let *collective* be under way."""
        self._settle()
        self._beside.append(collective)
        self._foresee()

    def done(self, collective: Occupancy) -> None:
        """Let *collective* be over."""
        self._settle()
        self._beside.remove(collective)
        self._foresee()

    def _settle(self) -> None:
        """Take off what was done since the last change."""
        passed = self._env.now - self._settled_at
        self._settled_at = self._env.now
        for kernel in self._running:
            kernel.left -= passed / kernel.pace

    def _foresee(self) -> None:
        """Set the timer for the first end."""
        self._plan += 1
        if not self._running:
            return
        first, beside = float("inf"), tuple(self._beside)
        for kernel in self._running:
            kernel.pace = self._pace(kernel.movement, beside) if beside else 1.0
            first = min(first, kernel.left * kernel.pace)
        timer = self._env.timeout(max(0.0, first), value=self._plan)
        timer.callbacks.append(self._on_timer)

    def _pace(self, movement: float, beside: tuple[Occupancy, ...]) -> float:
        """Time that a second of work takes; the same few cases come again and again."""
        key = (movement, beside)
        if key not in self._paces:
            self._paces[key] = self._interference.stretch(movement, beside)
        return self._paces[key]

    def _on_timer(self, timer: Any) -> None:
        if timer.value != self._plan:
            return
        self._settle()
        # what ends within the clock's resolution of the first ends with it
        first = min(kernel.left * kernel.pace for kernel in self._running) + math.ulp(self._env.now)
        for kernel in self._running:
            if kernel.left * kernel.pace <= first:
                kernel.done.succeed()
        self._running = [kernel for kernel in self._running if not kernel.done.triggered]
        self._foresee()
