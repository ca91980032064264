r"""What DeepSpeed's own estimators say of the memory that model states need on a GPU, for comparison.

With P parameters, L those of the largest module itself, N ranks, g of them on each of m hosts, mixed precision and
Adam, bytes on a GPU are

=================  =================  ================
offloaded          stage 2            stage 3
=================  =================  ================
nothing            2 P + 18 P / N     4 L + 18 P / N
optimizer          2 P                4 L + 2 P / N
and parameters     .                  4 L
=================  =================  ================

and on a host, with a factor of 1.5 for buffers and models that are made under ``zero.Init`` at stage 3,

=================  =================  ================
offloaded          stage 2            stage 3
=================  =================  ================
nothing            1.5 x 4 P g        1.5 x 4 L g
optimizer          1.5 P max(4 N, 16) 1.5 x 16 P / m
and parameters     .                  1.5 x 18 P / m
=================  =================  ================

(DeepSpeed 0.19.8, ``runtime/zero/stage_1_and_2.py`` and ``stage3.py``, ``estimate_zero*_model_states_mem_needs``).  The
18 B are gradients in 16 and 32 bits, master weight, momentum and variance; stage 3 counts its 16-bit weight for a
gradient.  Activations, and what is gathered or reduced at the moment, are not in it.
"""

from __future__ import annotations

from typing import Final, Literal

__all__ = ["Offloading", "deepspeed_estimate", "deepspeed_host_estimate"]

BUFFERS: Final = 1.5
"""source: stage_1_and_2.py and stage3.py, additional_buffer_factor."""

Offloading = Literal["nothing", "optimizer", "both"]


def deepspeed_estimate(
    stage: int, parameters: float, largest: float, ranks: int, offloads: Offloading = "nothing"
) -> float | None:
    """Return bytes on a GPU; None for stages that DeepSpeed has no estimator for.

    Parameters
    ----------
    parameters, largest
        Elements of the model, and the most that one module has itself.
    offloads
        The optimizer, or parameters as well; stage 2 knows the former only.

    Examples
    --------
    T5-3B (2,851 M parameters, a largest module of 32 M) on eight GPUs, in GiB:

    >>> [round(deepspeed_estimate(stage, 2851e6, 32e6, 8) / 2**30, 2) for stage in (2, 3)]
    [11.28, 6.09]
    """
    shared = {"nothing": 18, "optimizer": 2, "both": 0}[offloads] * parameters / ranks
    return {2: 2 * parameters + (shared if offloads == "nothing" else 0.0), 3: 4 * largest + shared}.get(stage)


def deepspeed_host_estimate(
    stage: int, parameters: float, largest: float, devices: int, hosts: int, offloads: Offloading
) -> float | None:
    """Return bytes in the memory of a host with *devices* ranks; None for stages without an estimator.

    Examples
    --------
    7e9 parameters on one host of eight, in GB: stage 2 with and without offload, stage 3 with all of it:

    >>> [deepspeed_host_estimate(2, 7e9, 131e6, 8, 1, offloads) / 1e9 for offloads in ("nothing", "optimizer")]
    [336.0, 336.0]
    >>> deepspeed_host_estimate(3, 7e9, 131e6, 8, 1, "both") / 1e9
    189.0
    """
    if stage == 2:
        each = 4 * devices if offloads == "nothing" else max(4 * devices * hosts, 16)
        return BUFFERS * each * parameters
    if stage == 3:
        states = {
            "nothing": 4 * devices * largest,
            "optimizer": 16 * parameters / hosts,
            "both": 18 * parameters / hosts,
        }
        return BUFFERS * states[offloads]
    return None
