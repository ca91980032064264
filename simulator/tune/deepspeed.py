"""What one can decide in a ``ds_config.json``.

Sizes that are tried are DeepSpeed's defaults, what a Hugging Face trainer writes for ``"auto"``, and what the model
makes natural: the elements of one or two of its blocks, or of all of it.  Source of defaults and of what belongs to
which stage: DeepSpeed runtime/zero/config.py; see :mod:`simulator.world.policy.deepspeed_keys`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from operator import attrgetter
from typing import Any, Final

from simulator.tune.space import Knob, Option
from simulator.world.edits import REMOVED
from simulator.world.policy.deepspeed_keys import DEPRECATED, PREFIXED, DeepSpeedConfig, ZeroSection
from simulator.world.policy.zero import DeepSpeedPolicy
from simulator.world.scenario import Scenario, Variant

__all__ = ["BATCH", "ZEROPP", "deepspeed_knobs", "named_as_written"]

BATCH: Final = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
"""Keys of micro-batch and accumulation; ``train_batch_size``, their product with the ranks, stays what it is."""

ZEROPP: Final = {
    "hpZ": "zero_hpz_partition_size",
    "qwZ": "zero_quantized_weights",
    "qgZ": "zero_quantized_gradients",
}
LOSSY: Final = ("qwZ", "qgZ")
"""What rounds weights and gradients in transit."""

DIAGNOSTICS: Final = {
    "comms_logger": ("comms_logger.enabled",),
    "wall_clock_breakdown": ("wall_clock_breakdown", "flops_profiler.enabled"),
}
"""Fields of the policy and their keys, each of which synchronises the device while it is on."""

Values = Mapping[str, Any]


def deepspeed_knobs(scenario: Scenario, variant: Variant, *, offload: bool, lossy: bool) -> Iterator[Knob]:
    """Yield the knobs of a variant with a DeepSpeed config.

    Parameters
    ----------
    offload
        Optimizer states in the memory of the hosts are a choice too.
    lossy
        So is communication that rounds.
    """
    policy, config = variant.policy, variant.config
    assert isinstance(policy, DeepSpeedPolicy)
    assert config is not None
    yield Knob(name="stage", options=tuple(_stages(policy)), coarse=True)
    yield from _offload(policy, asked=offload)
    yield _zeropp(policy, scenario.mesh.devices_per_host if scenario.mesh.hosts > 1 else 1, lossy=lossy)
    yield _overlap(policy, config)
    for key, (values, applies) in _sizes(scenario).items():
        yield _size(key, getattr(policy, key), values, applies)
    if policy.synchronises_timers:
        off = Option(value=False, config={"timers.throughput.synchronized": False})
        yield Knob(name="timers.throughput.synchronized", options=(Option(value=True), off))
    for field, keys in DIAGNOSTICS.items():
        if getattr(policy, field):
            off = Option(value=False, config={key: False for key in keys if attrgetter(key)(config)})
            yield Knob(name=field, options=(Option(value=True), off))


def _stages(policy: DeepSpeedPolicy) -> Iterator[Option]:
    """The present one, then the others, without the keys that they refuse or that mean nothing there."""
    yield Option(value=policy.zero_stage)
    for stage in range(4):
        if stage != policy.zero_stage:
            config: dict[str, Any] = {"zero_optimization.stage": stage}
            if stage < 3:
                config |= {f"zero_optimization.{key}": REMOVED for key in (*ZEROPP.values(), "offload_param")}
            if stage == 0:
                config["zero_optimization.offload_optimizer"] = REMOVED
            yield Option(value=stage, config=config)


def _at(*stages: int) -> Callable[[Values], bool]:
    def applies(values: Values) -> bool:
        return values["stage"] in stages

    return applies


def _offload(policy: DeepSpeedPolicy, *, asked: bool) -> Iterator[Knob]:
    """What is offloaded may stay on the GPU, all of it or parameters; what is not may leave it if that is asked."""
    keys = [key for key in ("offload_optimizer", "offload_param") if getattr(policy, key) is not None]
    if keys:
        none = Option(
            value="none", config={f"zero_optimization.{key}": REMOVED for key in keys}, applies=_at(1, 2, 3)
        )  # fmt: skip
        less = [Option(value="optimizer", config={"zero_optimization.offload_param": REMOVED}, applies=_at(3))]
        options = (Option(value="as written"), *(less if len(keys) > 1 else []), none)
        yield Knob(name="offload", options=options, coarse=True)
    elif asked:
        device = {"device": "cpu", "pin_memory": True}
        cpu = Option(value="optimizer", config={"zero_optimization.offload_optimizer": device}, applies=_at(1, 2, 3))
        yield Knob(name="offload", options=(Option(value="none"), cpu), coarse=True)


def _zeropp(policy: DeepSpeedPolicy, per_host: int, *, lossy: bool) -> Knob:
    """Every combination of ZeRO++'s three parts; what is in the config is always one of them."""
    now = {name: getattr(policy, key) for name, key in ZEROPP.items()}
    parts = [name for name in ZEROPP if (per_host > 1 or name != "hpZ") and (lossy or name not in LOSSY)]
    options = [Option(value=_told(now))]
    for count in range(len(parts) + 1):
        for chosen in combinations(parts, count):
            wanted = {name: per_host if name == "hpZ" else True for name in chosen}
            after = {name: wanted.get(name, 1 if name == "hpZ" else False) for name in ZEROPP}
            if after != now:
                changed = [name for name in ZEROPP if after[name] != now[name]]
                config = {f"zero_optimization.{ZEROPP[name]}": after[name] for name in changed}
                options.append(Option(value=_told(after), config=config, applies=_at(3)))
    return Knob(name="ZeRO++", options=tuple(options))


def _told(parts: Mapping[str, Any]) -> str:
    return " + ".join(name for name, value in parts.items() if value > (name == "hpZ")) or "none"


def _overlap(policy: DeepSpeedPolicy, config: DeepSpeedConfig) -> Knob:
    """Without the key it is on at stage 3 alone, so what makes a difference depends on the stage."""
    written = config.zero_optimization.overlap_comm

    def differs(wanted: bool) -> Callable[[Values], bool]:
        def applies(values: Values) -> bool:
            now = values["stage"] == 3 if written is None else written
            return values["stage"] > 0 and now is not wanted

        return applies

    options = [
        Option(value=wanted, config={"zero_optimization.overlap_comm": wanted}, applies=differs(wanted))
        for wanted in (True, False)
        if wanted is not written
    ]
    return Knob(name="overlap_comm", options=(Option(value=policy.overlap_comm), *options))


def _sizes(scenario: Scenario) -> dict[str, tuple[tuple[int, ...], Callable[[Values], bool]]]:
    """Values to try [elements], and the stages that read them."""
    model = scenario.model
    block = max(layer.elements for layer in model.layers)
    width = model.hidden_size or 0
    default = ZeroSection()
    third = _at(3)
    return {
        "reduce_bucket_size": (
            (default.reduce_bucket_size, width * width, block, 4 * block), _at(1, 2, 3)
        ),
        "stage3_prefetch_bucket_size": (
            (default.stage3_prefetch_bucket_size, int(0.9 * width * width), block, 2 * block), third
        ),
        "stage3_param_persistence_threshold": (
            (default.stage3_param_persistence_threshold, 10 * width, width * width), third
        ),
        "stage3_max_live_parameters": ((default.stage3_max_live_parameters, 4 * block, model.elements), third),
        "stage3_max_reuse_distance": ((default.stage3_max_reuse_distance, 0, model.elements), third),
    }  # fmt: skip


def _size(key: str, now: int, values: Iterable[int], applies: Callable[[Values], bool]) -> Knob:
    others = [value for value in dict.fromkeys(values) if value != now and (value or key.endswith("distance"))]
    options = [Option(value=value, config={f"zero_optimization.{key}": value}, applies=applies) for value in others]
    return Knob(name=key, options=(Option(value=now), *options))


def named_as_written(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Give keys of ``zero_optimization`` the former or short names that *config* has them under.

    A former switch, such as ``cpu_offload``, cannot hold a section, which takes its place.

    >>> named_as_written({"zero_optimization": {"prefetch_bucket_size": 1}},
    ...                  {"zero_optimization.stage3_prefetch_bucket_size": 2})
    {'zero_optimization.prefetch_bucket_size': 2}
    """
    zero = config.get("zero_optimization")
    written = {f"zero_optimization.{new}": f"zero_optimization.{old}" for old, new in {**PREFIXED, **DEPRECATED}.items()
               if isinstance(zero, Mapping) and old in zero}  # fmt: skip
    named: dict[str, Any] = {}
    for key, value in changes.items():
        replaced = isinstance(value, Mapping) and key in written
        named |= {written[key]: REMOVED, key: value} if replaced else {written.get(key, key): value}
    return named
