"""One job in other settings: another ZeRO stage, other GPUs, more of them, another network.

A job is what a scenario trains: the model, the sequences of a micro-batch and the tokens of an optimizer step.  A
setting changes keys of the scenario's content, which is then resolved as if somebody had written it so.  The tokens of
a step stay the same: on twice the GPUs every rank has half the micro-steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from simulator.crowd import Crowd
from simulator.errors import InputError
from simulator.readings.report import Result
from simulator.world.policy.deepspeed import deepspeed_content
from simulator.world.scenario import Scenario, Variant, read_scenario, resolve_scenario
from simulator.world.topology.asked import Place
from simulator.world.topology.cluster import Cluster, LinkKind, load_cluster

__all__ = ["HEADROOM", "Job", "Setting", "Tried", "host_bandwidth", "job_of", "load_job", "posed", "shortage", "tried"]

HEADROOM: Final = 0.1
"""Definition: part of the memory that is to stay free, for longer sequences, evaluations and checkpoints."""

_ZEROPP: Final = ("zero_quantized_weights", "zero_quantized_gradients", "zero_hpz_partition_size")
_OFFLOADS: Final = ("offload_optimizer", "offload_param", "cpu_offload", "cpu_offload_params")
_BATCH: Final = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")

GB: Final = 1e9  # definition: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is trained, and what its settings start from."""

    scenario: Scenario
    """As it was asked."""
    variant: Variant
    """Whose DeepSpeed config and place the settings start from."""
    content: Mapping[str, Any]
    """Of the scenario, with the variant's topology in place of the common one."""
    config: Mapping[str, Any]
    """Of DeepSpeed: the variant's, else one that says nothing but the precision."""
    textbook: bool
    """Whether the stages are the published idealisations instead of DeepSpeed's."""

    @property
    def cluster(self) -> Cluster:
        """Where the job is planned."""
        return self.scenario.cluster

    @property
    def micro_batches(self) -> int:
        """Of all ranks in one step."""
        return self.cluster.ranks * self.scenario.training.gradient_accumulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How a job is run."""

    stage: int
    """Of ZeRO."""
    zeropp: bool | None = None
    """Stage 3 with quantised weights and gradients and a secondary shard per host; None: as the config says."""
    checkpointing: bool = False
    """``full`` in place of what the scenario says."""
    offload: bool = False
    """Optimizer states in the memory of the hosts, or where the config puts them."""
    cluster: str | None = None
    """Another one than the scenario's."""
    hosts: int
    micro_steps: int | None = None
    """Per rank; None: as many as leave the tokens of a step what they are."""
    network: float | None = None
    """Bandwidth of all cards of a host together [B/s]; None: the cluster's."""
    per_gpu_hour: float | None = None
    """[US$/h]; None: the scenario's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A setting and what came of it."""

    setting: Setting
    micro_steps: int = 0
    """Of a rank in one step."""
    result: Result | None
    """None where it cannot run."""
    failure: str | None = None
    """Why it cannot."""


def load_job(path: str | Path, overrides: Sequence[str] = (), variant: str | None = None, *, textbook: bool) -> Job:
    """Load the job of a scenario; *variant* is the one to start from, the first by default.

    Raises
    ------
    InputError
        As :func:`~simulator.world.scenario.load_scenario`, or there is no such variant.
    """
    return job_of(*read_scenario(path, overrides), variant, textbook=textbook)


def job_of(raw: dict[str, Any], file: Path, variant: str | None = None, *, textbook: bool) -> Job:
    """Return the job of a scenario's content, as :func:`load_job` does."""
    scenario = resolve_scenario(deepcopy(raw), file)
    chosen = scenario.variants[0] if variant is None else scenario.variant(variant)
    written = next(item for item in raw["variants"] if item["name"] == chosen.name)
    content = {**raw, "topology": {**raw["topology"], **(written.get("topology") or {})}}
    given = written.get("deepspeed")
    config = _plain(scenario.training.precision) if given is None else deepspeed_content(given, file)
    return Job(scenario=scenario.at(chosen), variant=chosen, content=content, config=config, textbook=textbook)


def _plain(precision: str) -> dict[str, Any]:
    return {} if precision == "fp32" else {precision: {"enabled": True}}


def tried(crowd: Crowd, job: Job, settings: Iterable[Setting]) -> list[Tried]:
    """Simulate *job* in *settings*; one that cannot run has a reason.

    Raises
    ------
    BrokenLawError
        A timeline contradicts a law.
    """
    settings = list(settings)
    places: dict[object, Place] = {}
    scenarios = [_posed(job, setting) for setting in settings]
    asked: list[tuple[Scenario, Variant]] = []
    for setting, item in zip(settings, scenarios, strict=True):
        if isinstance(item, Scenario):  # of equal places one, so that what is known of its cluster serves all
            place = places.setdefault((setting.cluster, setting.hosts, setting.network), item.place)
            asked.append((item, replace(item.variants[0], place=place)))
    results = iter(crowd.run(asked))
    return [
        _tried(setting, item, next(results) if isinstance(item, Scenario) else item)
        for setting, item in zip(settings, scenarios, strict=True)
    ]


def _tried(setting: Setting, posed: Scenario | InputError, found: Result | Exception) -> Tried:
    if isinstance(posed, Scenario) and isinstance(found, Result):
        return Tried(setting=setting, micro_steps=posed.training.gradient_accumulation, result=found)
    if isinstance(found, InputError):
        return Tried(setting=setting, result=None, failure=str(found))
    assert isinstance(found, Exception)
    raise found


def _posed(job: Job, setting: Setting) -> Scenario | InputError:
    try:
        return posed(job, setting)
    except InputError as error:
        return error


def posed(job: Job, setting: Setting) -> Scenario:
    """Return the scenario of *job* in *setting*, with one variant.

    Raises
    ------
    InputError
        It cannot be written: the micro-batches of a step cannot be shared, the stage does not allow it.
    """
    file = job.scenario.file
    content = deepcopy(dict(job.content))
    content["topology"] = _topology(job, setting)
    cluster = load_cluster(str(content["topology"]["cluster"]), file)
    per_host = content["topology"].get("accelerators_per_host") or cluster.accelerators_per_host
    content["training"]["gradient_accumulation"] = setting.micro_steps or _share(job, setting.hosts * per_host)
    if setting.checkpointing:
        content["training"] |= {"activation_checkpointing": "full", "checkpointed_share": 1.0}
    if setting.per_gpu_hour is not None:
        content["prices"] = {"per_gpu_hour": f"{setting.per_gpu_hour!r} USD/h"}
    variant = {"name": "job", "deepspeed": _config(job, setting, per_host)}
    content["variants"] = [variant | ({"schedule": "textbook"} if job.textbook else {})]
    return resolve_scenario(content, file)


def _share(job: Job, ranks: int) -> int:
    """Micro-steps of each of *ranks*."""
    micro_steps, rest = divmod(job.micro_batches, ranks)
    if rest or not micro_steps:
        remedy = "choose a number of GPUs that divides them, or smaller micro-batches"
        raise InputError(f"{job.micro_batches} micro-batches of a step cannot be shared by {ranks} GPUs", remedy=remedy)
    return micro_steps


def _topology(job: Job, setting: Setting) -> dict[str, Any]:
    """What the scenario says of its own cluster holds for no other."""
    own = setting.cluster is None
    topology: dict[str, Any] = deepcopy(job.content["topology"]) if own else {"cluster": setting.cluster}
    topology["hosts"] = setting.hosts
    if setting.network is not None:
        cluster = job.cluster if own else load_cluster(str(setting.cluster), job.scenario.file)
        topology["links"] = topology.get("links", {}) | _links(topology, cluster, setting.network)
    return topology


def _links(topology: Mapping[str, Any], cluster: Cluster, network: float) -> dict[str, Any]:
    """Let the cards of a host have *network* together, and the switches above as much more or less."""
    share = network / host_bandwidth(cluster)
    above = [link for link in cluster.links if _leaves_the_host(cluster, link)]
    written = topology.get("links", {})
    return {
        link.name: {**written.get(link.name, {}), "bandwidth": f"{link.nominal.value * share!r} B/s"} for link in above
    }


def _leaves_the_host(cluster: Cluster, link: LinkKind) -> bool:
    return cluster.node(link.ends[1]).per != "host" and cluster.node(link.ends[0]).kind != "device"


def host_bandwidth(cluster: Cluster) -> float:
    """Bandwidth of all cards of a host together [B/s].

    Raises
    ------
    InputError
        The hosts of the cluster have no cards.
    """
    for link in cluster.links:
        card = cluster.node(link.ends[0])
        if card.kind == "nic" and _leaves_the_host(cluster, link):
            return card.count * link.nominal.value
    raise InputError("has no network cards", key="topology.cluster", value=cluster.name, remedy="choose another")


def _config(job: Job, setting: Setting, per_host: int) -> dict[str, Any]:
    """DeepSpeed's config in *setting*; what the setting says nothing of stays."""
    config = {name: value for name, value in deepcopy(dict(job.config)).items() if name not in _BATCH}
    given = config.get("zero_optimization")
    written: dict[str, Any] = given if isinstance(given, dict) else {}
    drop = {*_OFFLOADS, *(_ZEROPP if setting.stage < 3 or setting.zeropp is not None else ())}
    zero = {name: value for name, value in written.items() if name not in drop}
    # DeepSpeed overlaps by default at stage 3 alone; stages are to be compared, not this key
    zero = {"overlap_comm": True} | zero | {"stage": setting.stage}
    if setting.zeropp:
        zero |= dict.fromkeys(_ZEROPP[:2], True) | {_ZEROPP[2]: per_host}
    if setting.offload:
        zero["offload_optimizer"] = written.get("offload_optimizer") or {"device": "cpu", "pin_memory": True}
    return config | {"zero_optimization": zero}


def shortage(item: Tried, headroom: float) -> str | None:
    """Why *item* is not possible, in numbers; None if it runs with *headroom* of the memory of a GPU free."""
    if item.result is None:
        return f"cannot run: {item.failure}"
    memory = item.result.memory
    most = (1 - headroom) * memory["capacity"]
    if memory["needed"] > most:
        name, size = next(iter(memory["items"].items()))
        return (
            f"needs {memory['needed'] / GB:.1f} GB; {100 * headroom:.0f} % headroom leaves {most / GB:.1f} of "
            f"{memory['capacity'] / GB:.0f} GB; largest item: {name}, {size / GB:.1f} GB"
        )
    for place in ("host", "nvme"):
        if place in memory and not memory[place]["fits"]:
            found = memory[place]
            return f"needs {found['peak'] / GB:.0f} GB of the {place}'s {found['capacity'] / GB:.0f} GB"
    return None
