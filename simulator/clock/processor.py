r"""Kernels that run slower while communication runs beside them.

A collective's channels hold multiprocessors and take memory bandwidth, so while a rank takes part in at least one, each
of its kernels needs s times as long.  Beside a collective of c seconds a kernel of t >= c/s alone takes

.. math:: c + \left(t - \frac{c}{s}\right)

Between two changes all kernels progress at the same pace; a change settles what is done and sets one timer for the
first end, and a timer of an older plan does nothing when it rings.
"""

from __future__ import annotations

import math
from typing import Any

import simpy

__all__ = ["Processor"]


class _Running:
    """A kernel on its way."""

    __slots__ = ("done", "left")

    def __init__(self, left: float, done: simpy.Event) -> None:
        self.left, self.done = left, done


class Processor:
    """Runs the kernels of one rank.

    Parameters
    ----------
    env
        The clock.
    slowdown
        s, at least 1.
    """

    def __init__(self, env: simpy.Environment, slowdown: float) -> None:
        self._env, self._slowdown = env, slowdown
        self._running: list[_Running] = []
        self._collectives = 0
        self._settled_at = 0.0
        self._plan = 0

    def run(self, time: float) -> simpy.Event:
        """Start a kernel that takes *time* alone [s]; the event is its end."""
        self._settle()
        kernel = _Running(time, self._env.event())
        self._running.append(kernel)
        self._foresee()
        return kernel.done

    def communication(self, change: int) -> None:
        """Let *change* collectives more be under way."""
        self._settle()
        self._collectives += change
        self._foresee()

    @property
    def _pace(self) -> float:
        """Time that a second of work takes [s]."""
        return self._slowdown if self._collectives else 1.0

    def _settle(self) -> None:
        """Take off what was done since the last change."""
        work = (self._env.now - self._settled_at) / self._pace
        self._settled_at = self._env.now
        for kernel in self._running:
            kernel.left -= work

    def _foresee(self) -> None:
        """Set the timer for the first end."""
        self._plan += 1
        if self._running:
            first = max(0.0, min(kernel.left for kernel in self._running))
            timer = self._env.timeout(first * self._pace, value=self._plan)
            timer.callbacks.append(self._on_timer)

    def _on_timer(self, timer: Any) -> None:
        if timer.value != self._plan:
            return
        self._settle()
        first = min(kernel.left for kernel in self._running) + math.ulp(self._env.now)  # the clock tells no less apart
        for kernel in self._running:
            if kernel.left <= first:
                kernel.done.succeed()
        self._running = [kernel for kernel in self._running if kernel.left > first]
        self._foresee()
