"""What is tuned: the configuration of one variant, as its user wrote it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simulator.errors import InputError
from simulator.sweep.axes import Point
from simulator.sweep.study import Study, code_version
from simulator.tune.deepspeed import ZEROPP, named_as_written
from simulator.tune.fsdp import accelerate_names
from simulator.world.document import find, read_mapping
from simulator.world.policy.ddp import DdpPolicy
from simulator.world.policy.deepspeed import deepspeed_content
from simulator.world.policy.torchtitan import read_toml
from simulator.world.scenario import Scenario, Variant, read_scenario, resolve_scenario

__all__ = ["BATCHES", "FORMATS", "Target", "load_target", "target_of"]

FORMATS: Final = ("deepspeed", "fsdp2", "fsdp1", "accelerate", "torchtitan", "llmfoundry")
"""Of configurations that can be tuned, named as in a variant."""

BATCHES: Final = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
"""Keys that would contradict a scenario with another micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A variant and its configuration."""

    scenario: Scenario
    """Where the variant runs."""
    variant: Variant
    format: str
    """One of :data:`FORMATS`."""
    config: Mapping[str, Any]
    """As it is written."""
    source: Path | None
    """The file in which it stands; None: in the scenario."""
    study: Study
    """The scenario with this variant alone."""

    def keys(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return *changes* with the names that the configuration has for their keys."""
        if self.format == "deepspeed":
            return named_as_written(self.config, changes)
        return accelerate_names(self.config, changes) if self.format == "accelerate" else dict(changes)

    def point(self, config: Mapping[str, Any], training: Mapping[str, Any]) -> Point:
        """Return what makes the scenario one with this configuration and these keys of ``training``."""
        own = {key: value for key, value in config.items() if self.format != "deepspeed" or key not in BATCHES}
        return {f"variants.0.{self.format}": own, **{f"training.{key}": value for key, value in training.items()}}


def load_target(path: str | Path, overrides: Sequence[str] = (), name: str | None = None) -> Target:
    """Load the variant called *name* of a scenario, by default the first that can be tuned.

    Raises
    ------
    InputError
        As :func:`~simulator.world.scenario.load_scenario`; there is no such variant, or none that can be tuned.
    """
    return target_of(*read_scenario(path, overrides), name)


def target_of(raw: dict[str, Any], file: Path, name: str | None = None) -> Target:
    """Return the variant called *name* of the content of a scenario file, as :func:`load_target` does."""
    scenario = resolve_scenario(deepcopy(raw), file)
    chosen = next(filter(_tunable, raw["variants"]), None) if name is None else _named(scenario, raw, name)
    if chosen is None:
        remedy = f"add a variant with one of: {', '.join(FORMATS)}"
        raise InputError("nothing can be tuned", file=file, key="variants", remedy=remedy)
    kind, given = _written(chosen, scenario)
    content, source = _content(kind, given, file)
    raw = {key: value for key, value in raw.items() if key != "jitter"}
    own = {key: chosen[key] for key in ("name", "topology") if key in chosen}
    raw["variants"] = [{**own, kind: content}]
    scenario = resolve_scenario(deepcopy(raw), file)
    variant = scenario.variants[0]
    if isinstance(variant.policy, DdpPolicy):
        remedy = "shard among several ranks, or choose another with --variant"
        raise InputError("this is DDP, of which nothing can be tuned", file=source or file, key=kind, remedy=remedy)
    return Target(
        scenario=scenario.at(variant),
        variant=variant,
        format=kind,
        config=content,
        source=source,
        study=Study(raw=raw, file=file, code=code_version()),
    )


def _tunable(item: Mapping[str, Any]) -> bool:
    return any(item.get(key) is not None for key in (*FORMATS, "zero_stage"))


def _named(scenario: Scenario, raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    variant = scenario.variant(name)
    chosen: Mapping[str, Any] = next(item for item in raw["variants"] if item["name"] == variant.name)
    if not _tunable(chosen):
        remedy = f"choose one with {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        problem = f"is {variant.schedule}, which has no configuration to write"
        raise InputError(problem, file=scenario.file, key="--variant", value=name, remedy=remedy)
    return chosen


def _written(item: Mapping[str, Any], scenario: Scenario) -> tuple[str, Any]:
    """Format and configuration; what accelerate only passes on to DeepSpeed is DeepSpeed's, and so is a bare stage."""
    kind = next((kind for kind in FORMATS if item.get(kind) is not None), None)
    if kind is None:
        precision = scenario.training.precision
        enabled = {} if precision == "fp32" else {precision: {"enabled": True}}
        own = {key: item[key] for key in ZEROPP.values() if item.get(key) is not None}
        return "deepspeed", {"zero_optimization": {"stage": item["zero_stage"], **own}, **enabled}
    given = item[kind]
    if kind != "accelerate":
        return kind, given
    content, source = _content(kind, given, scenario.file)
    beside = source or scenario.file
    passed = (content.get("deepspeed_config") or {}).get("deepspeed_config_file") or content.get("deepspeed")
    if passed is not None:
        return "deepspeed", passed if isinstance(passed, dict) else str(find(passed, beside, "scenarios"))
    if str(content.get("distributed_type", "FSDP")).upper() != "FSDP":
        remedy = "give deepspeed_config_file, or distributed_type: FSDP"
        raise InputError("there is no configuration to tune", file=beside, key="distributed_type", remedy=remedy)
    return kind, given


def _content(kind: str, given: Any, file: Path) -> tuple[dict[str, Any], Path | None]:
    """What is written, and in which file of its own."""
    source = find(given, file, "scenarios") if isinstance(given, str) else None
    if kind == "deepspeed":
        content = deepspeed_content(given, file)
        zero = content.get("zero_optimization")
        if isinstance(zero, bool):  # the form before there were stages
            content["zero_optimization"] = {"stage": int(zero)}
        return content, source
    if source is None:
        return deepcopy(dict(given)), None
    return (read_toml(source) if source.suffix == ".toml" else read_mapping(source)), source
