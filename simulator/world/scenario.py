"""One file, one frozen description of what was asked.

:func:`load_scenario` resolves every file that the scenario names, parses every unit and checks every
cross-reference.  What it returns can be simulated; what cannot be is refused here, before any clock starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, field

from simulator.errors import InputError, UnknownNameError
from simulator.units import Duration, Price
from simulator.world.catalog import Accelerator, Host, Number, python_host
from simulator.world.compute import Attention, Compute, ComputeSection, asked_compute
from simulator.world.document import Section, convert, find, read_mapping
from simulator.world.jitter import Jitter, JitterSection, read_jitter
from simulator.world.mesh import Mesh
from simulator.world.model.explicit import LayerSection, explicit
from simulator.world.model.frozen import freeze
from simulator.world.model.huggingface import model_from_config, model_from_mapping
from simulator.world.model.measured import MeasuredLayers, measured_layers, with_activations
from simulator.world.model.module import Model
from simulator.world.overrides import replace_key, split_override, value_of
from simulator.world.policy.choice import Asked, Policy, VariantSection, chosen_policy
from simulator.world.policy.deepspeed import DeepSpeedConfig
from simulator.world.stack import Stack, software_stack
from simulator.world.topology.asked import NcclSection, Place, TopologySection, asked_place, forced
from simulator.world.topology.cluster import Cluster, Count
from simulator.world.training import ELEMENT_BYTES, Checkpointing, Training
from simulator.world.uneven import Uneven, UnevenSection, read_uneven

__all__ = ["NcclSection", "Scenario", "Variant", "forced", "load_scenario", "read_scenario", "resolve_scenario"]


class ModelSection(Section):
    """``model``: a Hugging Face config or explicit layers."""

    sequence_length: Count
    config: str | dict[str, Any] | None = None
    """A ``config.json``, by path or in place."""
    layers: list[LayerSection] | None = None
    name: str | None = None
    frozen: list[str] = field(default_factory=list)
    """Modules whose parameters are not trained, by their names in the implementation."""


class TrainingSection(Section):
    """``training``: what one step computes."""

    micro_batch: Count
    """Sequences per rank and micro-step."""
    gradient_accumulation: Count = 1
    """Micro-steps per optimizer step (k)."""
    activation_checkpointing: Checkpointing = "none"
    """``full`` keeps only the input of each block and computes the rest again before its backward; ``selective`` also
    keeps the results of attention and of every second matrix product."""
    checkpointed_share: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Of the blocks: those that are checkpointed at all, spread evenly."""
    use_reentrant: bool = False
    """``use_reentrant`` of ``torch.utils.checkpoint``; DeepSpeed's and Megatron's own checkpointing is reentrant."""
    precision: Literal["bf16", "fp16", "fp32"] = "bf16"
    optimizer: Literal["adamw"] = "adamw"
    fused_loss: bool = False
    """The loss is compiled or one kernel, which keeps the logits as they are and no copy of them in fp32."""


class HostSection(Section):
    """``host``: what the launching thread costs."""

    launch_time: Duration | None = None
    """Per launched operation, whatever it is; the textbook schedule has an instantaneous host by default."""
    kernel_time: Duration | None = None
    """Per launched kernel."""
    collective_time: Duration | None = None
    """Per launched collective."""
    hook_time: Duration | None = None
    """Per hook that a framework runs on a module or gradient."""


class PriceSection(Section):
    """``prices``."""

    per_gpu_hour: Price


class RunSection(Section):
    """``run``: how to simulate."""

    ranks: Literal["classes", "all"] = "classes"
    """``all`` simulates every rank of a uniform cluster, for the same answer the long way."""
    step: Literal["first", "steady"] = "steady"
    """``first`` is the first optimizer step of a job, in which frameworks still learn the order of modules."""


class ScenarioSection(Section):
    """A file of ``scenarios``."""

    name: str
    model: ModelSection
    training: TrainingSection
    topology: TopologySection
    variants: Annotated[list[VariantSection], Meta(min_length=1)]
    compute: ComputeSection = field(default_factory=ComputeSection)
    host: HostSection = field(default_factory=HostSection)
    prices: PriceSection | None = None
    run: RunSection = field(default_factory=RunSection)
    uneven: list[UnevenSection] = field(default_factory=list)
    """Ranks that are slower than the others."""
    jitter: JitterSection | None = None
    notes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One configuration to simulate."""

    name: str
    schedule: str
    policy: Policy
    place: Place
    config: DeepSpeedConfig | None = None
    """What a DeepSpeed policy was read from."""
    notes: tuple[str, ...] = ()
    """What the author of a trainer's file should know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that was asked, resolved."""

    name: str
    file: Path
    model: Model
    training: Training
    place: Place
    """Where the job runs, unless a variant says otherwise."""
    compute: Compute
    """What kernels run, and how they are timed."""
    measured: tuple[MeasuredLayers, ...]
    """Measured times of layers and modules, instead of the model's."""
    step_per_layer: Number | None
    """Of the optimizer's step, whatever its tensors' sizes, per layer [s]; None without a software stack."""
    launch_time: float
    """Host time per operation that the textbook schedule launches [s]."""
    host: Host
    """Host times of the frameworks' schedules."""
    per_gpu_hour: float | None
    """[US$/h]"""
    uneven: tuple[Uneven, ...]
    """Ranks that are slower than the others."""
    jitter: Jitter | None
    """Random times, beside the step in which everything takes as long as it does on average."""
    all_ranks: bool
    first_step: bool
    """Simulate the first optimizer step of a job instead of a later one."""
    variants: tuple[Variant, ...]
    raw: Mapping[str, Any]
    """The file's content with overrides applied, for provenance."""

    @property
    def cluster(self) -> Cluster:
        """Hosts and links."""
        return self.place.cluster

    def at(self, variant: Variant) -> Scenario:
        """Return the scenario where *variant* runs."""
        return replace(self, place=variant.place)

    @property
    def mesh(self) -> Mesh:
        """Ranks on devices."""
        return _mesh(self.cluster)

    @property
    def accelerator(self) -> Accelerator:
        """The GPU type."""
        return self.cluster.accelerator

    @property
    def tokens_per_micro_batch(self) -> int:
        """Of one rank."""
        return self.training.micro_batch * self.model.sequence_length

    @property
    def tokens_per_step(self) -> int:
        """Of one rank."""
        return self.tokens_per_micro_batch * self.training.gradient_accumulation

    def variant(self, name: str) -> Variant:
        """Return the variant called *name*.

        Raises
        ------
        UnknownNameError
            There is none.
        """
        for variant in self.variants:
            if variant.name == name:
                return variant
        raise UnknownNameError("variant", name, [variant.name for variant in self.variants], file=self.file)


def load_scenario(path: str | Path, overrides: Sequence[str] = ()) -> Scenario:
    """Load a scenario file, by path or by the name of a shipped one.

    Parameters
    ----------
    overrides
        ``KEY=VALUE`` pairs, KEY a dotted path into the file.

    Raises
    ------
    InputError
        Anything in the scenario or in a file it names is wrong.
    """
    return resolve_scenario(*read_scenario(path, overrides))


def read_scenario(path: str | Path, overrides: Sequence[str] = ()) -> tuple[dict[str, Any], Path]:
    """Return what :func:`load_scenario` resolves: content with *overrides* applied, and the file.

    Raises
    ------
    InputError
        There is no such file, it is not a mapping, or an override leads nowhere.
    """
    file = find(str(path), None, "scenarios", ".yaml")
    raw = read_mapping(file)
    for override in overrides:
        key, text = split_override(override, "--set")
        replace_key(raw, key, value_of(text, f"--set {key}"), file, "--set")
    return raw, file


def resolve_scenario(raw: dict[str, Any], file: Path) -> Scenario:
    """Resolve the content of a scenario file; *file* is where relative paths start and what errors name.

    Raises
    ------
    InputError
        As :func:`load_scenario`.
    """
    section = convert(raw, ScenarioSection, file)
    compute = asked_compute(section.compute, section.training.precision)
    stack = None if compute.stack is None else software_stack(compute.stack, file)
    place = _with_stack(asked_place(section.topology, file), stack)
    cluster = place.cluster
    if section.compute.achieved is None:
        _check_kernels(cluster.accelerator, compute, file)
    training = Training(
        micro_batch=section.training.micro_batch,
        gradient_accumulation=section.training.gradient_accumulation,
        activation_checkpointing=section.training.activation_checkpointing,
        use_reentrant=section.training.use_reentrant,
        fused_loss=section.training.fused_loss,
        precision=section.training.precision,
        checkpointed_share=section.training.checkpointed_share,
    )
    model = _model(section.model, ELEMENT_BYTES[training.precision], file)
    tokens = training.micro_batch * model.sequence_length
    measured = _measured(section.compute, model, tokens, file)
    model = with_activations(model, measured, tokens) if measured else model
    asked = Asked(file=file, training=training, cluster=cluster, model=model)
    return Scenario(
        name=section.name,
        file=file,
        model=model,
        training=training,
        place=place,
        compute=compute,
        measured=measured,
        step_per_layer=stack.step_per_layer(cluster.accelerator) if stack else None,
        launch_time=float(section.host.launch_time or 0.0),
        host=_host(section.host),
        per_gpu_hour=None if section.prices is None else float(section.prices.per_gpu_hour),
        uneven=read_uneven(section.uneven, _mesh(cluster), file),
        jitter=None if section.jitter is None else read_jitter(section.jitter, file),
        all_ranks=section.run.ranks == "all",
        first_step=section.run.step == "first",
        variants=_variants(section, raw["topology"], place, stack, asked),
        raw=raw,
    )


def _mesh(cluster: Cluster) -> Mesh:
    return Mesh(hosts=cluster.hosts, devices_per_host=cluster.accelerators_per_host)


def _measured(section: ComputeSection, model: Model, tokens: int, file: Path) -> tuple[MeasuredLayers, ...]:
    if section.measured is None:
        return ()
    return measured_layers(find(section.measured, file, "scenarios"), model, tokens, scales=section.scale_measured)


def _with_stack(place: Place, stack: Stack | None) -> Place:
    """Let accelerators be as efficient as *stack* makes them."""
    if stack is None:
        return place
    others = tuple(replace(item, accelerator=stack.on(item.accelerator)) for item in place.cluster.others)
    cluster = replace(place.cluster, accelerator=stack.on(place.cluster.accelerator), others=others)
    return replace(place, cluster=cluster)


def _host(section: HostSection) -> Host:
    """Catalogue numbers, where the scenario does not give its own."""
    chosen = {
        "kernel": section.launch_time if section.kernel_time is None else section.kernel_time,
        "collective": section.launch_time if section.collective_time is None else section.collective_time,
        "hook": section.hook_time,
    }
    return python_host().with_chosen({name: float(time) for name, time in chosen.items() if time is not None})


def _model(section: ModelSection, element_bytes: int, file: Path) -> Model:
    if (section.config is None) == (section.layers is None):
        remedy = "give one of them"
        raise InputError("expected either 'config' or 'layers'", file=file, key="model", remedy=remedy)
    if section.config is not None:
        sizes = section.sequence_length, element_bytes
        if isinstance(section.config, str):
            shipped = "scenarios" if "/" in section.config else "scenarios/models"
            path = find(section.config, file, shipped, ".json")
            root, layers = model_from_config(path, *sizes)
            name = section.name or path.stem
        else:
            root, layers = model_from_mapping(section.config, file, *sizes)
            name = section.name or str(section.config.get("model_type", "model"))
    else:
        root, layers = explicit(section.layers or [], element_bytes)
        name = section.name or "explicit layers"
    if not any(layer.elements for layer in layers):
        raise InputError("the model is empty", file=file, key="model", remedy="give it layers with parameters")
    root, layers = freeze(root, layers, section.frozen, file, "model.frozen")
    model = Model(name=name, sequence_length=section.sequence_length, layers=layers, root=root)
    if not any(tensor.trainable for tensor in model.tensors):
        raise InputError("nothing is left to train", file=file, key="model.frozen", remedy="freeze fewer modules")
    names = [layer.name for layer in layers]
    if len(set(names)) < len(names):
        twice = next(item for item in names if names.count(item) > 1)
        raise InputError("the name stands twice", file=file, key="model.layers", value=twice)
    return model


def _variants(
    section: ScenarioSection, topology: Mapping[str, Any], place: Place, stack: Stack | None, asked: Asked
) -> tuple[Variant, ...]:
    variants: dict[str, Variant] = {}
    for index, item in enumerate(section.variants):
        key = f"variants[{index}]"
        if item.name in variants:
            raise InputError("the name stands twice", file=asked.file, key=f"{key}.name", value=item.name)
        own = place
        if item.topology is not None:
            own = _with_stack(_own_place(topology, item.topology, asked.file, key), stack)
        chosen = chosen_policy(item, replace(asked, cluster=own.cluster), key)
        where = () if own is place else (f"on {own.cluster.hosts} x {own.cluster.title}",)
        variants[item.name] = Variant(
            name=item.name,
            schedule=chosen.schedule,
            policy=chosen.policy,
            place=own,
            config=chosen.config,
            notes=(*where, *chosen.notes),
        )
    return tuple(variants.values())


def _own_place(common: Mapping[str, Any], own: Mapping[str, Any], file: Path, key: str) -> Place:
    """Place of a variant: what the scenario says of the topology, with the variant's changes."""
    return asked_place(convert({**common, **own}, TopologySection, file, f"{key}.topology"), file)


def _check_kernels(part: Accelerator, compute: Compute, file: Path) -> None:
    """Make sure that *part* has kernels in these precisions, and this attention."""
    attentions = [name for name in get_args(Attention) if name != "flash3" or part.flash3_efficiency is not None]
    for what, name, known, key in (
        ("precision of", compute.precision, part.peak_flops, "training.precision"),
        ("precision of", compute.matrix_precision or compute.precision, part.peak_flops, "compute.matrix_precision"),
        ("attention on", compute.attention, attentions, "compute.attention"),
    ):
        if name not in known:
            raise UnknownNameError(f"{what} {part.name}", name, known, file=file, key=key)
