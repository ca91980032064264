"""From the result of a simulated run to what a source printed.

MFU is reckoned as the source does: 6 N + 12 L d s FLOP per token with N all parameters (llm-foundry, fms), or without
the embedding (torchtitan).  FLOP of the hardware add the forward pass that checkpointing repeats; so does
``tflops_per_gpu``, which DeepSpeed and Megatron print (96 B s L d^2 and more, Narayanan et al. 2021, section 5.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from simulator.errors import InputError
from simulator.explore import volume_of
from simulator.readings.report import Result
from simulator.validate.strategies import is_narrow
from simulator.world.measurements.training import Run
from simulator.world.scenario import Scenario

__all__ = ["METRICS"]

Metric = Callable[[Run, Scenario, Result], float]

MILLI: Final = 1e-3

PEAKS: Final[Mapping[str, float]] = {
    "A100": 312e12,
    "H100": 989.5e12,
    "H200": 989.5e12,
    "B200": 2250e12,
    "V100": 125e12,
}
"""That sources divide by [FLOP/s]."""


def _tokens_per_second(_run: Run, _scenario: Scenario, result: Result) -> float:
    return result.tokens_per_second_per_gpu


def _flop_per_token(run: Run, scenario: Scenario) -> float:
    """As the source counts: attention in full, nothing for what is computed again."""
    elements = float(scenario.model.elements)
    if "torchtitan" in run.source:
        elements -= (run.vocabulary or 0) * (run.width or 0)
    return 6 * elements + 12 * (run.layers or 0) * (run.width or 0) * (run.sequence_length or 0)


def _tflops(run: Run, scenario: Scenario, result: Result) -> float:
    return _flop_per_token(run, scenario) * result.tokens_per_second_per_gpu / 1e12


def _hardware(run: Run) -> float:
    """What checkpointing adds: one forward pass of three."""
    return 4 / 3 if run.checkpointing.startswith("full") else 1.0


def _peak(run: Run) -> float:
    for name, peak in PEAKS.items():
        if name in run.gpu:
            return 2 * peak if is_narrow(run) else peak
    raise InputError("the peak that the source divides by is not known")


def _mfu(run: Run, scenario: Scenario, result: Result) -> float:
    return _tflops(run, scenario, result) * 1e12 / _peak(run)


def _hardware_tflops(run: Run, scenario: Scenario, result: Result) -> float:
    return _tflops(run, scenario, result) * _hardware(run)


def _printed_tflops(run: Run, scenario: Scenario, result: Result) -> float:
    """Attention counted by half where the source says so; else as Megatron and DeepSpeed do."""
    if "counted causally" not in run.notes:
        return _hardware_tflops(run, scenario, result)
    attention = 6 * (run.layers or 0) * (run.width or 0) * (run.sequence_length or 0)
    return (_flop_per_token(run, scenario) - attention) * result.tokens_per_second_per_gpu / 1e12


def _samples_per_second(run: Run, _scenario: Scenario, result: Result) -> float:
    return (run.ranks or 1) * (run.micro_batch or 0) * run.accumulation / result.step_time


def _phase(name: str, unit: float) -> Metric:
    """Time of a phase in *unit* [s]."""
    return lambda run, scenario, result: result.phases[name] / unit


def _crossing(*roles: str) -> Metric:
    """What collectives of *roles*, or all, send out of a host, in units of the model."""

    def volume(_run: Run, scenario: Scenario, _result: Result) -> float:
        sent = volume_of(scenario, scenario.variants[0])
        mine = sum(item.inter_host for item in sent.roles if not roles or item.role in roles)
        return mine * sent.ranks_per_host / sent.model_bytes

    return volume


METRICS: Final[Mapping[str, Metric]] = {
    "tokens_per_s_per_gpu": _tokens_per_second,
    "tokens_per_s": lambda run, scenario, result: _tokens_per_second(run, scenario, result) * (run.ranks or 1),
    "samples_per_s": _samples_per_second,
    "step_time_s": lambda run, scenario, result: result.step_time,
    "step_time_ms": lambda run, scenario, result: result.step_time / MILLI,
    "step_time_s_derived": lambda run, scenario, result: result.step_time,
    "micro_step_time_s_derived": lambda run, scenario, result: result.step_time / run.accumulation,
    **{f"{name}_s": _phase(name, 1.0) for name in ("forward", "backward", "optimizer")},
    **{f"{name}_ms": _phase(name, MILLI) for name in ("forward", "backward", "optimizer")},
    "xnode_comm_forward_allgather_over_M": _crossing("forward_all_gather"),
    "xnode_comm_backward_allgather_over_M": _crossing("backward_all_gather", "recompute_all_gather"),
    "xnode_comm_backward_reducescatter_over_M": _crossing("reduce_scatter"),
    "xnode_comm_total_over_M": _crossing(),
    "model_tflops_per_gpu": _tflops,
    "hw_tflops_per_gpu": _hardware_tflops,
    "tflops_per_gpu": _printed_tflops,
    "tflops_per_gpu_printed_label": _hardware_tflops,
    "peak_memory_gib": lambda run, scenario, result: result.memory["reserved"] / 2**30,  # as torchtitan's logs say
    "mfu": _mfu,
    "hfu": lambda run, scenario, result: _mfu(run, scenario, result) * _hardware(run),
    "mfu_pct": lambda run, scenario, result: 100 * _mfu(run, scenario, result),
    "mfu_pct_derived": lambda run, scenario, result: 100 * _mfu(run, scenario, result),
    "hfu_pct": lambda run, scenario, result: 100 * _mfu(run, scenario, result) * _hardware(run),
}
"""How a metric follows from a result."""
