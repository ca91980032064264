"""What one can decide about the work of a step: recomputation, and how its sequences are cut into micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import log
from typing import Any, Final

from simulator.tune.space import Knob, Option
from simulator.world.scenario import Scenario

__all__ = ["Keys", "training_knobs"]

MOST: Final = 6
"""Definition: ways to cut a step that are tried, those near the present one."""

Keys = Callable[[Any], Mapping[str, Any]]
"""Keys of a configuration that say the same as a value."""


def training_knobs(scenario: Scenario, checkpointing: Keys, batch: Keys) -> Iterator[Knob]:
    """Yield the knobs that every configuration has; a step always trains on the same number of sequences.

    Parameters
    ----------
    scenario
        If it gives times of a micro-batch, nothing is known of another one.
    checkpointing
        What the configuration says of ``none`` and ``full``.
    batch
        What it says of a micro-batch and an accumulation.
    """
    training = scenario.training
    now = training.activation_checkpointing
    modes = [Option(value=now if training.checkpointed_share == 1 else f"{training.checkpointed_share:g} {now}")]
    for mode in ("none", "full"):
        if mode != modes[0].value:
            keys = {"activation_checkpointing": mode, "checkpointed_share": 1.0}
            modes.append(Option(value=mode, config=checkpointing(mode), training=keys))
    yield Knob(name="activation_checkpointing", options=tuple(modes), coarse=True)
    cuts = [Option(value=(training.micro_batch, training.gradient_accumulation))]
    others = [] if _timed(scenario) else _cuts(training.micro_batch, training.gradient_accumulation)
    for micro, steps in others:
        keys = {"micro_batch": micro, "gradient_accumulation": steps}
        cuts.append(Option(value=(micro, steps), config=batch((micro, steps)), training=keys))
    yield Knob(name="micro_batch x accumulation", options=tuple(cuts), coarse=True)


def _timed(scenario: Scenario) -> bool:
    """Whether there are times of a micro-batch that say nothing of its tokens."""
    layers = scenario.model.layers
    given = any(time is not None for layer in layers for time in (layer.forward_time, layer.backward_time))
    return given or any(item.row.tokens is None for item in scenario.measured)


def _cuts(micro_batch: int, accumulation: int) -> list[tuple[int, int]]:
    """Other ways to write the same product, those near the present one.

    >>> _cuts(2, 4)
    [(1, 8), (4, 2), (8, 1)]
    """
    total = micro_batch * accumulation
    others = [size for size in range(1, total + 1) if total % size == 0 and size != micro_batch]
    near = sorted(others, key=lambda size: abs(log(size / micro_batch)))[: MOST - 1]
    return [(size, total // size) for size in sorted(near)]
