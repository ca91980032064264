"""Published training runs: from a row to a scenario, and from its result to the row's metric.

A row that leaves out the network between its hosts gets that of its GPU's reference host, and one without vocabulary
GPT-2's; ``assumed`` names both.

The model is built from the row's sizes: GPT with learned positions and biases, or Llama with as many key heads as fit
the stated number of parameters.  The cluster is found as for collectives.  What PyTorch reaches is one set of
constants per generation of accelerators (``topologies/stacks``), none per source and none per row.

Where two runs are compared ("ZeRO++ vs ZeRO-3"), both are simulated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from simulator.errors import InputError
from simulator.explore import run_variant
from simulator.readings.report import Result
from simulator.validate.metrics import METRICS
from simulator.validate.strategies import is_megatron, is_narrow, variant_of
from simulator.validate.summary import Unmapped, Verdict
from simulator.validate.systems import Place, place
from simulator.validate.unstated import completed
from simulator.world.measurements.collectives import Measurement
from simulator.world.measurements.tables import Table
from simulator.world.measurements.training import Run, read_run
from simulator.world.scenario import Scenario, resolve_scenario

__all__ = ["training"]

STACK: Final = "pytorch"
"""All frameworks here run PyTorch's kernels."""

VOCABULARY: Final = 51200
"""Of GPT-2, padded as Megatron does, where a row does not state it: in a large model below 1 % of the parameters."""

SHARE: Final = 1 / 3
"""Of the blocks that are checkpointed where a source says no more than "selective"."""

CLOSE: Final = 0.03
"""A model may differ by so much from the stated number of parameters; what is called 18B has 18.4e9."""

SPEED_UP: Final = "speedup_x"
VERSUS: Final = " vs "
"""Between the strategies of a speed-up."""


def training(table: Table, *, assume: bool) -> Iterator[Verdict | Unmapped]:
    """Judge the rows of *table*; most of a run's communication is hidden, so an unstated network is always assumed."""
    for number, cells in enumerate(table.rows, start=1):
        run = read_run(cells)
        try:
            yield _verdict(number, table.file, run, cells)
        except InputError as error:
            yield Unmapped(row=number, file=table.file.name, source=run.source, reason=str(error.problem))


def _verdict(number: int, file: Path, run: Run, cells: Mapping[str, str]) -> Verdict:
    metric, written = cells["metric_name"], cells["metric_value"]
    compares = metric == SPEED_UP and VERSUS in run.strategy
    if metric not in METRICS and not compares:
        raise InputError(f"a metric that is not predicted: {metric}")
    try:
        measured = float(written)
    except ValueError:
        raise InputError("no value") from None
    if "WARM-UP" in run.notes:
        raise InputError("a warm-up iteration, says the source")
    if not measured:
        raise InputError("zero, of which nothing is a fraction")
    run, told = completed(run, metric)
    scenario, result, assumed = _simulated(run)
    return Verdict(
        row=number, file=file.name, source=_source(run), metric=metric, measured=measured,
        predicted=_speed_up(run, result) if compares else METRICS[metric](run, scenario, result),
        details={
            "model": run.model, "ranks": run.ranks, "cluster": scenario.cluster.name, "strategy": run.strategy,
            "sequence_length": run.sequence_length, "micro_batch": run.micro_batch,
            "exposed": result.exposed["stalled"] / result.step_time,
            "assumed": [*assumed, *told, *(["vocabulary"] if run.vocabulary is None else [])],
        },
    )  # fmt: skip


def _speed_up(run: Run, result: Result) -> float:
    """Step time of the second strategy over that of the first, whose *result* is."""
    _, base = run.strategy.split(VERSUS)
    return _simulated(replace(run, strategy=base))[1].step_time / result.step_time


def _source(run: Run) -> str:
    """Repository or paper without its commit, and the GPU."""
    return f"{run.source.split('@')[0].strip()}, {run.gpu.split(' (')[0]}"


@lru_cache(maxsize=256)
def _simulated(run: Run) -> tuple[Scenario, Result, tuple[str, ...]]:
    """Simulate *run*; the names are of what its row does not say."""
    found = _place(run)
    scenario = resolve_scenario(_content(run, found), Path("row"))
    return scenario, run_variant(scenario, scenario.variants[0]).result, found.assumed


def _content(run: Run, found: Place) -> dict[str, Any]:
    """Scenario of *run* on what was *found* for it."""
    variant = variant_of(run)
    if run.micro_batch is None or run.sequence_length is None:
        raise InputError("micro-batch or sequence length not stated")
    return {
        "name": run.model,
        "model": {"config": _config(run), "sequence_length": run.sequence_length},
        "training": {
            "micro_batch": run.micro_batch,
            "gradient_accumulation": run.accumulation,
            **_checkpointing(run),
            "fused_loss": _compiles_loss(run),
            "precision": "fp16" if "fp16" in run.precision or "V100" in run.gpu else "bf16",
        },
        "topology": _topology(found, run),
        "compute": {"stack": STACK, "element_wise": _element_wise(run), **_narrow(run), **_attention(run)},
        "variants": [variant],
    }


def _checkpointing(run: Run) -> dict[str, Any]:
    if run.checkpointing.startswith("full"):
        # DeepSpeed is driven by Megatron or transformers, whose checkpoints were reentrant
        return {"activation_checkpointing": "full", "use_reentrant": "zero" in run.strategy.lower()}
    if not run.checkpointing.startswith("selective"):
        return {}
    if "per-op" in run.checkpointing:
        return {"activation_checkpointing": "selective"}
    return {"activation_checkpointing": "full", "checkpointed_share": SHARE}


def _element_wise(run: Run) -> str:
    said = run.strategy.lower()
    if "compile" in said and "no compile" not in said:
        return "compiled"
    return "kernels" if "InternEvo" in run.source or is_megatron(run) else "python"


def _narrow(run: Run) -> dict[str, Any]:
    return {"matrix_precision": "fp8"} if is_narrow(run) else {}


def _attention(run: Run) -> dict[str, Any]:
    """FlashAttention does not run on Volta; of all sources only the Open Book names a later one than the second."""
    if "V100" in run.gpu:
        return {"attention": "naive"}
    is_newest = "ml-engineering" in run.source and re.search("H200|B200", run.gpu)
    return {"attention": "flash3"} if is_newest else {}


def _compiles_loss(run: Run) -> bool:
    """Whether the loss is compiled with the model: torchtitan's from 2025 on, whose benchmarks are named by month."""
    return "torchtitan" in run.source and "compile" in run.strategy and "_2024" not in run.section


def _place(run: Run) -> Place:
    measured = Measurement(
        system="", gpu=f"{run.gpu}-{run.gpu_memory}GB" if run.gpu_memory else run.gpu, publication=run.source,
        notes="", ranks=run.ranks, nodes=None, per_node=run.per_node or 8, network=run.network, collective="",
        payload=None, time=None,
    )  # fmt: skip
    return place(measured, None, assume=True)


def _topology(found: Place, run: Run) -> dict[str, Any]:
    cluster = found.load()
    content = {"cluster": found.cluster, "hosts": found.hosts, "accelerators_per_host": found.per_host}
    if run.cards is not None:
        content |= {"cards": run.cards, "links": {"network": {"efficiency": run.efficiency}}}
    elif found.network != 1:
        content["links"] = {link.name: {"bandwidth": f"{link.nominal.value} B/s"} for link in cluster.links}
    return content | ({"accelerator": found.accelerator} if found.accelerator else {})


def _config(run: Run) -> dict[str, Any]:
    """A model of the row's sizes that has the stated number of parameters.

    Raises
    ------
    InputError
        A size is missing, or none has.
    """
    sizes = (run.layers, run.width, run.heads)
    if None in sizes:
        raise InputError("sizes of the model not stated")
    candidates = list(_candidates(run))
    if run.parameters is None:
        return candidates[0][0]
    config, elements = min(candidates, key=lambda item: abs(item[1] - (run.parameters or 0)))
    if abs(elements / run.parameters - 1) > CLOSE:
        raise InputError(f"no model of these sizes has {run.parameters:.4g} parameters")
    return config


def _candidates(run: Run) -> Iterator[tuple[dict[str, Any], float]]:
    """Configurations and their parameters."""
    layers, width, heads, vocabulary = run.layers or 0, run.width or 0, run.heads or 1, run.vocabulary or VOCABULARY
    positions = run.sequence_length or 0
    wide = run.feed_forward or 4 * width
    if "internevo" in run.source.lower():  # its own modules: who broadcasts what follows from the tensors
        internlm = {
            "model_type": "INTERNLM", "hidden_size": width, "mlp_ratio": wide / width, "num_layers": layers,
            "num_attention_heads": heads, "vocab_size": vocabulary,
        }  # fmt: skip
        yield internlm, layers * (4 * width**2 + 3 * width * wide + 6 * width) + (2 * vocabulary + 1) * width
        return
    gpt = {
        "model_type": "gpt2", "n_embd": width, "n_layer": layers, "n_head": heads, "n_inner": wide,
        "n_positions": positions, "vocab_size": vocabulary,
    }  # fmt: skip
    block = 4 * width**2 + 2 * width * wide + 9 * width + wide
    yield gpt, (vocabulary + positions + 2) * width + layers * block
    for groups in sorted({heads, 8, 4, 2, 1}):
        if heads % groups or width % heads:
            continue
        llama = {
            "model_type": "llama", "hidden_size": width, "intermediate_size": wide, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": groups, "vocab_size": vocabulary,
        }  # fmt: skip
        attention = 2 * width**2 + 2 * width * (width // heads) * groups
        body = layers * (attention + 3 * width * wide + 2 * width) + width
        yield llama, body + 2 * vocabulary * width
        yield llama | {"tie_word_embeddings": True}, body + vocabulary * width
