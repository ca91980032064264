r"""What DeepSpeed's own estimators say of the memory that model states need on a GPU, for comparison.

With P parameters, L those of the largest module itself, N ranks, mixed precision and Adam, nothing offloaded:

.. math:: 2 P + \frac{18 P}{N} \text{ (stage 2)}, \qquad 4 L + \frac{18 P}{N} \text{ (stage 3)}

(DeepSpeed 0.19.8, ``runtime/zero/stage_1_and_2.py`` and ``stage3.py``, ``estimate_zero*_model_states_mem_needs``).  The
18 B are gradients in 16 and 32 bits, master weight, momentum and variance; stage 3 counts its 16-bit weight for a
gradient.  Activations, and what is gathered or reduced at the moment, are not in it.
"""

from __future__ import annotations

__all__ = ["deepspeed_estimate"]


def deepspeed_estimate(stage: int, parameters: float, largest: float, ranks: int) -> float | None:
    """Return bytes on a GPU; None for stages that DeepSpeed has no estimator for.

    Parameters
    ----------
    parameters, largest
        Elements of the model, and the most that one module has itself.

    Examples
    --------
    T5-3B (2,851 M parameters, a largest module of 32 M) on eight GPUs, in GiB:

    >>> [round(deepspeed_estimate(stage, 2851e6, 32e6, 8) / 2**30, 2) for stage in (2, 3)]
    [11.28, 6.09]
    """
    shared = 18 * parameters / ranks
    return {2: 2 * parameters + shared, 3: 4 * largest + shared}.get(stage)
