"""What one can decide about PyTorch's FSDP, in the words of five formats.

``fsdp1`` and ``fsdp2`` are the arguments of ``FullyShardedDataParallel`` and ``fully_shard`` as a scenario has them;
accelerate (and axolotl), torchtitan and llm-foundry pass some of them on under names of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from simulator.tune.space import Knob, Option, always
from simulator.world.edits import REMOVED
from simulator.world.policy.fsdp1 import Fsdp1Policy
from simulator.world.policy.fsdp2 import Fsdp2Policy
from simulator.world.policy.launch import block_kinds
from simulator.world.scenario import Scenario, Variant

__all__ = ["accelerate_names", "fsdp_knobs"]

STRATEGIES: Final = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD")
HYBRIDS: Final = ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")

GROUPS: Final = (2, 4)
"""Definition: blocks in one unit that are tried."""

LARGE: Final = 4
"""Definition: parts of a block that hold more than one part in so many of what its largest one holds are large."""

Values = Mapping[str, Any]


def fsdp_knobs(format: str, config: Mapping[str, Any], scenario: Scenario, variant: Variant) -> Iterator[Knob]:
    """Yield the knobs of a variant with FSDP; *config* is what is written in *format*."""
    policy = variant.policy
    if isinstance(policy, Fsdp1Policy):
        yield from _fsdp1(format, config, scenario, policy)
    else:
        assert isinstance(policy, Fsdp2Policy)
        yield from {"fsdp2": _fsdp2, "torchtitan": _torchtitan, "accelerate": _accelerate2}[format](
            config, scenario, policy
        )


def _switch(name: str, key: str, now: Any, others: Sequence[Any], *, words: Mapping[Any, Any] | None = None,
            applies: Callable[[Values], bool] = always, coarse: bool = False) -> Knob:  # fmt: skip
    """One key that takes one of some values, which *words* says in the words of the format."""
    said = words or {}
    options = [
        Option(value=value, config={key: said.get(value, value)}, applies=applies) for value in others if value != now
    ]
    return Knob(name=name, options=(Option(value=now), *options), coarse=coarse)


def _fsdp1(format: str, config: Mapping[str, Any], scenario: Scenario, policy: Fsdp1Policy) -> Iterator[Knob]:
    """FSDP1; of accelerate and llm-foundry what they pass on."""
    prefix = {"fsdp1": "", "accelerate": "fsdp_config.fsdp_", "llmfoundry": "fsdp_config."}[format]
    nothing = {"fsdp1": None, "accelerate": "NO_PREFETCH", "llmfoundry": "NONE"}[format]
    hybrids = HYBRIDS if scenario.mesh.hosts > 1 and format != "llmfoundry" else ()
    yield _switch(
        "sharding_strategy", f"{prefix}sharding_strategy", policy.sharding_strategy, (*STRATEGIES, *hybrids),
        words={HYBRIDS[1]: "HYBRID_SHARD_ZERO2"} if format == "accelerate" else {}, coarse=True,
    )  # fmt: skip
    prefetches = ("BACKWARD_PRE", "BACKWARD_POST", None)
    yield _switch(
        "backward_prefetch", f"{prefix}backward_prefetch", policy.backward_prefetch, prefetches, words={None: nothing}
    )
    yield _switch("forward_prefetch", f"{prefix}forward_prefetch", policy.forward_prefetch, (True, False))
    if format != "accelerate":
        yield _switch("limit_all_gathers", f"{prefix}limit_all_gathers", policy.limit_all_gathers, (True, False))
    if format == "fsdp1":
        yield _unsynchronised("no_sync", scenario, now=policy.no_sync, wanted=True)
        written = config.get("units")
        yield _wrapping(scenario, None if written is None else tuple(written), lambda kinds: {"units": kinds})
    if format == "accelerate":
        yield _wrapping(scenario, policy.units, _accelerate_units)


def _unsynchronised(key: str, scenario: Scenario, *, now: bool, wanted: bool) -> Knob:
    """A switch that matters between the micro-batches of a step."""

    def applies(values: Values) -> bool:
        return bool(values["micro_batch x accumulation"][1] > 1)

    return _switch(key, key, now, (wanted, not wanted), applies=applies)


def _wrapping(scenario: Scenario, now: tuple[str, ...] | None, keys: Callable[[list[str]], Mapping[str, Any]]) -> Knob:
    """Blocks as units, or their large parts as units too; *now*: as it is written, None for blocks, () for no units."""
    root = scenario.model.root
    blocks = block_kinds(root)
    inside = {
        child.kind: sum(tensor.elements for tensor in child.tensors())
        for block in root.walk()
        if block.kind in blocks
        for child in block.children
    }
    large = [kind for kind, elements in inside.items() if elements > max(inside.values()) / LARGE]
    present = blocks if now is None else now
    others = [kinds for kinds in dict.fromkeys((blocks, (*blocks, *large))) if kinds != present]
    options = [Option(value=", ".join(kinds), config=keys(list(kinds))) for kinds in others]
    return Knob(name="units", options=(Option(value=", ".join(present) or "the model"), *options))


def _accelerate_units(kinds: list[str]) -> Mapping[str, Any]:
    return {
        "fsdp_config.fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_config.fsdp_transformer_layer_cls_to_wrap": ",".join(kinds),
    }


def _replicas(scenario: Scenario, now: int | None, keys: Callable[[int], Mapping[str, Any]]) -> Knob:
    """Shards among all ranks, the ranks of a host, or of two hosts (HSDP); trainers take one rank a shard for DDP."""
    hosts, ranks = scenario.mesh.hosts, scenario.mesh.ranks
    counts = [count for count in dict.fromkeys((1, hosts, hosts // 2)) if 0 < count < ranks and hosts % count == 0]
    options = [Option(value=count, config=keys(count)) for count in counts if count != (now or 1)]
    return Knob(name="replicate", options=(Option(value=now or 1), *options), coarse=True)


def _fsdp2(config: Mapping[str, Any], scenario: Scenario, policy: Fsdp2Policy) -> Iterator[Knob]:
    yield _replicas(scenario, policy.replicate, lambda count: {"replicate": count if count > 1 else REMOVED})
    now = policy.reshard_after_forward is not False and (policy.reshard_after_forward or True)
    per_host = scenario.mesh.devices_per_host
    among = (per_host,) if scenario.mesh.hosts > 1 and per_host > 1 else ()
    yield _switch("reshard_after_forward", "reshard_after_forward", now, (True, False, *among), coarse=True)
    for key in ("forward_prefetch", "backward_prefetch"):
        if isinstance(getattr(policy, key), int):
            yield _switch(key, key, getattr(policy, key), (0, 1, 2))
    yield _unsynchronised("requires_gradient_sync", scenario, now=policy.requires_gradient_sync, wanted=False)
    yield _unsynchronised("requires_all_reduce", scenario, now=policy.requires_all_reduce, wanted=False)
    yield _unsynchronised("reshard_after_backward", scenario, now=policy.reshard_after_backward, wanted=False)
    separate = "separate_reduce_scatter_group"
    yield _switch(separate, separate, policy.separate_reduce_scatter_group, (True, False))
    buffers = "reduce_scatter_max_input_buffers"
    yield _switch(buffers, buffers, policy.reduce_scatter_max_input_buffers, (1, 2))
    if "units" not in config:
        yield Knob(name="units", options=(Option(value="blocks"), *_grouped(scenario)))


def _grouped(scenario: Scenario) -> Iterator[Option]:
    """Several blocks in one unit: fewer and larger collectives."""
    blocks = [name for layer in scenario.model.layers if layer.checkpointed for name in layer.modules]
    for size in GROUPS:
        if len(blocks) > size:
            groups = [blocks[first : first + size] for first in range(0, len(blocks), size)]
            yield Option(value=f"{size} blocks each", config={"units": groups})


def _torchtitan(config: Mapping[str, Any], scenario: Scenario, policy: Fsdp2Policy) -> Iterator[Knob]:
    parallel = config.get("parallelism") or {}
    written = parallel.get("data_parallel_shard_degree", -1) > 0

    def degrees(count: int) -> Mapping[str, Any]:
        sizes = {"replicate": count, "shard": scenario.mesh.ranks // count if written else -1}
        return {f"parallelism.data_parallel_{name}_degree": size for name, size in sizes.items()}

    yield _replicas(scenario, policy.replicate, degrees)
    key = "fsdp_reshard_after_forward"
    now = parallel.get(key, "default")
    yield _switch(key, f"parallelism.{key}", now, ("default", "always", "never"), coarse=True)


def _accelerate2(config: Mapping[str, Any], scenario: Scenario, policy: Fsdp2Policy) -> Iterator[Knob]:
    axolotl = "base_model" in config
    prefix = "dp" if axolotl else "parallelism_config.parallelism_config_dp"
    # a file for another number of ranks, which accelerate compares with the sizes
    launched = {"num_machines": scenario.mesh.hosts, "num_processes": scenario.mesh.ranks}
    corrected = {key: size for key, size in launched.items() if key in config and not axolotl and config[key] != size}

    def sizes(count: int) -> Mapping[str, Any]:
        if count == 1:
            removed = (f"{prefix}_replicate_size", f"{prefix}_shard_size") if axolotl else ("parallelism_config",)
            return dict.fromkeys(removed, REMOVED)
        return {f"{prefix}_replicate_size": count, f"{prefix}_shard_size": scenario.mesh.ranks // count} | corrected

    yield _replicas(scenario, policy.replicate, sizes)
    key, now = "fsdp_reshard_after_forward", policy.reshard_after_forward is not False
    yield _switch(key, f"fsdp_config.{key}", now, (True, False), coarse=True)
    classes = {module.kind for module in scenario.model.root.walk()}
    named = tuple(unit for unit in policy.units if isinstance(unit, str) and unit in classes)
    yield _wrapping(scenario, named, _accelerate_units)


def accelerate_names(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the prefix of keys of ``fsdp_config`` that *config* has without it.

    >>> accelerate_names({"fsdp_config": {"sharding_strategy": "FULL_SHARD"}},
    ...                  {"fsdp_config.fsdp_sharding_strategy": "NO_SHARD"})
    {'fsdp_config.sharding_strategy': 'NO_SHARD'}
    """
    written = config.get("fsdp_config") or {}
    short = {f"fsdp_config.fsdp_{name}": f"fsdp_config.{name}" for name in written if not name.startswith("fsdp_")}
    return {short.get(key, key): value for key, value in changes.items()}
