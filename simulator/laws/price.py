"""What a step costs."""

from __future__ import annotations

__all__ = ["cost"]

HOUR = 3600.0  # definition: seconds
BILLION = 1e9  # definition: tokens in which training is priced


def cost(per_gpu_hour: float, ranks: int, step_time: float, exposed: float, tokens_per_step: float) -> dict[str, float]:
    """Price of the cluster [US$].

    Parameters
    ----------
    per_gpu_hour
        Price of one GPU [US$/h].
    step_time, exposed
        Of which the second part is exposed communication [s].
    tokens_per_step
        Of all ranks.

    Examples
    --------
    >>> cost(1.5, 16, 10.0, 3.0, 1e6)["per_hour"]
    24.0
    """
    per_second = per_gpu_hour * ranks / HOUR
    return {
        "per_hour": per_gpu_hour * ranks,
        "per_step": per_second * step_time,
        "per_billion_tokens": per_second * step_time / tokens_per_step * BILLION,
        "exposed_per_step": per_second * exposed,
    }
