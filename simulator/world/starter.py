"""A first scenario, written for somebody who has a model and a cluster, to be changed by hand."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path
from typing import Any, Final

from simulator.errors import InputError, UnknownNameError
from simulator.world.document import data_directory, find, parse_mapping, read_mapping, yaml_text
from simulator.world.policy.deepspeed import load_deepspeed
from simulator.world.policy.deepspeed_batch import resolve_batch
from simulator.world.scenario import resolve_scenario
from simulator.world.topology.cluster import Cluster, load_cluster

__all__ = ["Start", "starter"]

LONGEST: Final = 4096
"""A choice: tokens of a sequence, if the model takes so many."""

MICRO_STEPS: Final = 8
"""A choice: micro-batches of a step, if no DeepSpeed config says how many."""

LENGTHS: Final = ("max_position_embeddings", "n_positions", "max_seq_len")
"""What configs of Hugging Face call the most tokens that a model takes."""

FOREIGN: Final = (".xml", ".txt")
"""Endings of what NVIDIA's tools write about a host."""

TEMPLATE: Final = """\
# {title}.
# What is in no config is a guess below: sequence length, batch, checkpointing. Change it to what you train with.
name: {name}
model:
  config: {model}
  sequence_length: {length}  # tokens
training:
  micro_batch: {micro_batch}  # sequences per GPU that go through the model at once
  gradient_accumulation: {micro_steps}  # micro-batches per optimizer step
  activation_checkpointing: full  # or none, or selective
  precision: {precision}
topology:
  cluster: {cluster}
  hosts: {hosts}  # {gpus} GPUs
# prices: {{per_gpu_hour: 2 USD/h}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What somebody has."""

    model: str
    """Name of a shipped model, or path of a ``config.json``."""
    cluster: str
    """Name of a shipped cluster, or path of a topology file."""
    hosts: int | None = None
    """None: as many as the file of the cluster has."""
    deepspeed: str | None = None
    """Path of a ``ds_config.json``."""


def starter(start: Start, file: Path) -> str:
    """Return the text of a scenario that is to be written to *file*, and that runs.

    Raises
    ------
    InputError
        There is no such model or cluster, or the DeepSpeed config cannot be used.
    """
    if file.stem == start.cluster:  # files beside a scenario come before shipped ones
        problem = f"would be taken for the cluster {start.cluster}"
        raise InputError(problem, key="--output", value=str(file), remedy="name another file")
    model, cluster = _model(start.model), _cluster(start.cluster, start.hosts)
    precision = "bf16" if "bf16" in cluster.accelerator.peak_flops else "fp16"
    micro_batch, micro_steps, own = 1, MICRO_STEPS, list[dict[str, Any]]()
    if start.deepspeed is not None:
        micro_batch, micro_steps, precision = _trained(start.deepspeed, cluster, precision)
        own = [{"name": "mine", "deepspeed": _reference(start.deepspeed, Path(start.deepspeed), file)}]
    title = " ".join(f"{model.stem} on {cluster.hosts} x {cluster.name}".split())
    text = TEMPLATE.format(
        title=title,
        name=_scalar(title),
        model=_scalar(_reference(start.model, model, file)),
        length=_length(model),
        micro_batch=micro_batch,
        micro_steps=micro_steps,
        precision=precision,
        cluster=_scalar(_reference(start.cluster, Path(start.cluster), file)),
        hosts=cluster.hosts,
        gpus=cluster.ranks,
    ) + yaml_text({"variants": [*own, *_stages(precision, cluster)]})
    resolve_scenario(parse_mapping(text, file), file)
    return text


def _model(reference: str) -> Path:
    try:
        return find(reference, None, "scenarios/models", ".json")
    except InputError:
        known = [path.stem for path in data_directory("scenarios/models").glob("*.json")]
        error = UnknownNameError("model", reference, known, key="--model")
        error.remedy = f"give the path of its config.json, or a shipped one: {error.remedy}"
        raise error from None


def _cluster(reference: str, hosts: int | None) -> Cluster:
    if Path(reference).suffix in FOREIGN:
        remedy = f"translate it first: zerosim topology import {reference} -o my-cluster.yaml"
        raise InputError("not a topology file", key="--cluster", value=reference, remedy=remedy)
    try:
        return load_cluster(reference, hosts=hosts)
    except InputError as error:
        error.key = error.key or "--cluster"
        raise


def _trained(deepspeed: str, cluster: Cluster, precision: str) -> tuple[int, int, str]:
    """Micro-batch, micro-steps and precision that a DeepSpeed config asks for, or leaves to a trainer."""
    if not Path(deepspeed).is_file():
        raise InputError("no such file", key="--deepspeed", value=deepspeed, remedy="check the path")
    config = load_deepspeed(str(Path(deepspeed).resolve()), Path(), "")
    enabled = [name for name in ("bf16", "fp16") if getattr(config, name).enabled]
    left_open = any(config.origins.get(f"{name}.enabled") == "auto" for name in ("bf16", "fp16"))
    precision = enabled[0] if enabled else precision if left_open else "fp32"
    if config.train_batch_size is None and config.train_micro_batch_size_per_gpu is None:
        return 1, MICRO_STEPS, precision
    return *resolve_batch(config, cluster.ranks, micro_batch=1, gradient_accumulation=MICRO_STEPS), precision


def _reference(written: str, path: Path, file: Path) -> str:
    """How *file* calls what the command line calls *written*."""
    if not Path(written).is_file():
        return written
    # from the folder that ".." leads out of; the file itself may be a link, as in the cache of Hugging Face
    return relpath(path.parent.resolve() / path.name, file.parent.resolve())


def _length(model: Path) -> int:
    config = read_mapping(model)
    return min([LONGEST, *(int(config[name]) for name in LENGTHS if isinstance(config.get(name), int))])


def _stages(precision: str, cluster: Cluster) -> list[dict[str, Any]]:
    """Variants to compare with."""
    enabled = {} if precision == "fp32" else {precision: {"enabled": True}}
    stages: dict[str, dict[str, Any]] = {f"zero{stage}": {"stage": stage, "overlap_comm": True} for stage in (1, 2, 3)}
    if cluster.hosts > 1:
        stages["zero++"] = stages["zero3"] | {
            "zero_quantized_weights": True,
            "zero_hpz_partition_size": cluster.accelerators_per_host,
            "zero_quantized_gradients": True,
        }
    return [{"name": name, "deepspeed": {**enabled, "zero_optimization": zero}} for name, zero in stages.items()]


def _scalar(text: str) -> str:
    """*text* as YAML, in quotes where it needs them."""
    plain = re.fullmatch(r"[A-Za-z./][\w./+ -]*", text) and parse_mapping(f"text: {text}", Path())["text"] == text
    return text if plain else json.dumps(text)
