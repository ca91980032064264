"""Random factors of kernels' times."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simulator.clock.pace import is_timed_by_micro_batch
from simulator.laws.kernels import Kernel
from simulator.schedules.program import Program
from simulator.world.jitter import Jitter

__all__ = ["factors"]

Array = npt.NDArray[np.float64]


def factors(program: Program, jitter: Jitter, shape: tuple[int, int], random: np.random.Generator) -> Array:
    """Return a factor for each launch of *program*, (launches, replications, ranks); one for what is no kernel.

    Parameters
    ----------
    shape
        (replications, ranks)
    """
    launches = program.launches
    kernels = [number for number, item in enumerate(launches) if isinstance(program.operations[item.operation], Kernel)]
    found = np.ones((len(launches), *shape))
    found[kernels] = _drawn(jitter, jitter.kernel, (len(kernels), *shape), random)
    found[kernels] *= _drawn(jitter, jitter.rank, shape, random)
    for micro_batch in sorted({item.micro_batch for item in launches}):
        of_ranks = _of_micro_batch(jitter, shape, random)
        timed = (
            number for number, item in enumerate(launches)
            if item.micro_batch == micro_batch and is_timed_by_micro_batch(program, item)
        )  # fmt: skip
        for number in timed:
            found[number] *= of_ranks
    return found


def _of_micro_batch(jitter: Jitter, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    if jitter.micro_batches:
        return random.choice(np.array(jitter.micro_batches), shape)
    return _drawn(jitter, jitter.micro_batch, shape, random)


def _drawn(jitter: Jitter, deviation: float, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Draw factors with mean one."""
    if not deviation:
        return np.ones(shape)
    normal = random.standard_normal(shape)
    if jitter.distribution == "normal":
        return np.maximum(1 + deviation * normal, 0.0)
    spread = np.sqrt(np.log1p(deviation**2))  # of the logarithm, so that the deviation is what was asked for
    lognormal: Array = np.exp(spread * normal - spread**2 / 2)
    return lognormal
