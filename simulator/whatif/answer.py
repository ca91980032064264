"""How much shorter a step is when one resource is better.

Every answer is given twice.  *Simulated*: the step is played again with the better resource.  *Foreseen*: the critical
path of today's step, at the prices of the better resource (:mod:`simulator.readings.held`).  They agree as long as the
path stays the path.  Where the simulated gain is another one, something else has become critical, a library has chosen
another algorithm, or what runs side by side shares differently.

The slope is the first derivative of the step by the logarithm of the resource, the other way round: the time of the
path that the resource carries.  A resource that a step spends t on takes t / f when it is f times better, so slopes are
told from one percent, as (T(1) - T(f)) / (1 - 1 / f), which is t itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Final

from simulator.clock.cast import Stage
from simulator.clock.engine import simulate
from simulator.clock.stage import stage
from simulator.readings.held import held_path
from simulator.readings.released import stretches
from simulator.schedules.record import Recorder
from simulator.steady import shortened
from simulator.whatif.resources import Resource, resources
from simulator.whatif.times import step_times
from simulator.world.scenario import Scenario, Variant

__all__ = ["FACTORS", "Answer", "Gain", "Sensitivity", "whatif"]

PROBE: Final = 1.01
"""How much better a resource is where slopes are taken."""

FACTORS: Final = (1.1, 2.0)
"""How many times better."""

AGREES: Final = 0.05
"""Relative difference between gains, foreseen and simulated, up to which the path says what happens."""
NOTHING: Final = 1e-6
"""Part of a step below which a difference is none."""
LITTLE: Final = 1e-4
"""Part of a step that a resource must gain or cost to be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What a resource that is so many times better does."""

    factor: float
    step_time: float
    """Simulated [s]."""
    gain: float
    """By how much that is shorter; negative if it is longer [s]."""
    foreseen: float | None
    """The same on today's critical path [s]; None for sizes, with which the program changes."""
    holds: bool | None
    """What was foreseen comes true; None for sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """How a step depends on one resource."""

    resource: str
    now: str
    change: str
    """``better``; of sizes ``larger`` or ``smaller``."""
    on_path: float | None
    """Time of the critical path that it carries, which is the slope foreseen [s]; None for sizes."""
    slope: float | None
    """Slope simulated [s]; None for sizes."""
    gains: tuple[Gain, ...]
    """One for each of :data:`FACTORS`."""

    @property
    def matters(self) -> bool:
        """Whether the step depends on it, or the path says so."""
        step = self.gains[0].step_time + self.gains[0].gain
        return any(abs(time or 0.0) > LITTLE * step for gain in self.gains for time in (gain.gain, gain.foreseen))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One variant."""

    name: str
    step_time: float
    """As it is [s]."""
    sensitivities: tuple[Sensitivity, ...]
    """Those that matter, most gain by the last of :data:`FACTORS` first."""
    without_effect: tuple[str, ...]
    """Resources that the step hardly depends on."""

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and mappings."""
        return asdict(self)


def whatif(scenario: Scenario, variant: Variant) -> Answer:
    """Simulate *variant* with each of its resources better, without jitter.

    Raises
    ------
    InputError
        The variant cannot run.
    """
    scenario, recorder = replace(scenario.at(variant), jitter=None), Recorder()

    @cache
    def found(micro_batches: int) -> list[Resource]:
        changed = shortened(scenario, micro_batches)
        return list(resources(changed, variant, stage(changed, recorder.record(changed, variant)), recorder))

    def asked(number: int, factor: float) -> Callable[[int], Stage]:
        return lambda micro_batches: found(micro_batches)[number].at(factor)

    now = found(scenario.training.gradient_accumulation)
    steps = [asked(number, factor) for number in range(len(now)) for factor in (PROBE, *FACTORS)]
    times = iter(step_times(scenario, steps))
    ready = stage(scenario, recorder.record(scenario, variant))
    timeline = simulate(ready)
    step = timeline.step_time
    chain = stretches(timeline.classes, ready, step)

    def foreseen(resource: Resource, factor: float) -> float | None:
        if not resource.has_slope:
            return None
        slowdown = 1 / factor if resource.slowdown else 1.0
        return step - held_path(chain, timeline.classes, resource.at(factor), slowdown=slowdown)

    factors = (PROBE, *FACTORS)
    answers = [
        _sensitivity(step, item, [next(times) for _ in factors], [foreseen(item, factor) for factor in factors])
        for item in now
    ]
    matter = sorted((item for item in answers if item.matters), key=lambda item: -item.gains[-1].gain)
    told = {item.resource for item in matter}
    return Answer(
        name=variant.name,
        step_time=step,
        sensitivities=tuple(matter),
        without_effect=tuple(dict.fromkeys(item.resource for item in answers if item.resource not in told)),
    )


def _sensitivity(
    step: float, resource: Resource, times: Sequence[float], foreseen: Sequence[float | None]
) -> Sensitivity:
    """Hold what was simulated against what the path says; the first of each is the probe."""
    probe, share = foreseen[0], 1 - 1 / PROBE
    return Sensitivity(
        resource=resource.name,
        now=resource.now,
        change=resource.change,
        on_path=None if probe is None else probe / share,
        slope=(step - times[0]) / share if resource.has_slope else None,
        gains=tuple(
            Gain(factor=factor, step_time=time, gain=step - time, foreseen=said, holds=_holds(step, time, said))
            for factor, time, said in zip(FACTORS, times[1:], foreseen[1:], strict=True)
        ),
    )


def _holds(step: float, time: float, foreseen: float | None) -> bool | None:
    if foreseen is None:
        return None
    gain = step - time
    return abs(gain - foreseen) <= max(AGREES * max(abs(gain), abs(foreseen)), NOTHING * step)
