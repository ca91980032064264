"""What a job costs on GPUs that can be rented."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from simulator.answers.job import Job, Setting, Tried, shortage, tried
from simulator.crowd import Crowd
from simulator.errors import InputError
from simulator.readings.report import Result
from simulator.world.catalog import Number, accelerator
from simulator.world.prices import PriceList, Terms
from simulator.world.topology.cluster import load_cluster

__all__ = ["LOW", "SAME", "STRATEGIES", "Market", "Offer", "Place", "cheapest", "market", "offers"]

STRATEGIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "ZeRO-0": {"stage": 0},
    "ZeRO-1": {"stage": 1},
    "ZeRO-2": {"stage": 2},
    "ZeRO-3": {"stage": 3, "zeropp": False},
    "ZeRO++": {"stage": 3, "zeropp": True},
}
"""Keys of a :class:`Setting` by name; ``ZeRO-3`` is without what ZeRO++ adds."""

LOW: Final = ("ZeRO-0", "ZeRO-1", "ZeRO-2")
"""Strategies that keep the weights whole on every GPU."""


SAME: Final = 1.01
"""Definition: prices within one percent of each other are the same, and the lower stage is preferred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A kind of GPU that can be rented, and what it stands in."""

    gpu: str
    """Name of the part."""
    memory: float
    """[B]"""
    cluster: str
    own: bool
    """Whether that is the scenario's, with all that it says of it."""
    per_host: int
    price: Number
    """Of one GPU [US$/h]."""
    terms: str
    """``on_demand``, ``spot``, or ``scenario`` where the scenario has a price of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """The scenario's GPUs, and all others with a price."""

    prices: PriceList
    own: Place
    others: tuple[Place, ...]
    """By memory."""

    @property
    def places(self) -> tuple[Place, ...]:
        """All, the scenario's first."""
        return (self.own, *self.others)

    @property
    def bigger(self) -> tuple[Place, ...]:
        """Those with more memory than the scenario's."""
        return tuple(place for place in self.others if place.memory > self.own.memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A job on rented GPUs."""

    place: Place
    strategy: str
    """One of :data:`STRATEGIES`."""
    tried: Tried
    passed: str | None
    """Why it is not possible; None if it fits with headroom."""

    @property
    def hosts(self) -> int:
        """Rented."""
        return self.tried.setting.hosts

    @property
    def gpus(self) -> int:
        """Rented."""
        return self.hosts * self.place.per_host

    @property
    def result(self) -> Result:
        """What was simulated; only of an offer that runs."""
        assert self.tried.result is not None
        return self.tried.result

    @property
    def per_billion_tokens(self) -> float:
        """Price [US$]."""
        assert self.result.cost is not None
        return self.result.cost["per_billion_tokens"]

    @property
    def exposed_share(self) -> float:
        """Part of the step in which compute waits for communication."""
        return self.result.exposed["stalled"] / self.result.step_time

    @property
    def exposed_per_billion_tokens(self) -> float:
        """Of that, for waiting [US$]."""
        return self.per_billion_tokens * self.exposed_share

    @property
    def network_share(self) -> float:
        """Part of the step that an infinitely fast network would save: waiting, and kernels that traffic slows."""
        return self.result.exposed["counterfactual"] / self.result.step_time

    @property
    def network_per_billion_tokens(self) -> float:
        """Price of that [US$]."""
        return self.per_billion_tokens * self.network_share

    @property
    def tokens_per_second(self) -> float:
        """Of all GPUs."""
        return self.result.tokens_per_second_per_gpu * self.gpus

    def told(self) -> str:
        """Name it in a sentence."""
        checkpointing = " and full checkpointing" if self.tried.setting.checkpointing else ""
        return f"{self.strategy} on {self.gpus} x {self.place.gpu}{checkpointing}"

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and mappings."""
        found = self.tried.result
        return {
            "told": self.told(),
            "gpu": self.place.gpu,
            "cluster": self.place.cluster,
            "strategy": self.strategy,
            "checkpointing": self.tried.setting.checkpointing,
            "network": self.tried.setting.network,
            "hosts": self.hosts,
            "gpus": self.gpus,
            "per_gpu_hour": self.place.price.value,
            "terms": self.place.terms,
            "fits": self.passed is None,
            "passed": self.passed,
            "tokens_per_second": None if found is None else self.tokens_per_second,
            "per_billion_tokens": None if found is None else self.per_billion_tokens,
            "exposed_per_billion_tokens": None if found is None else self.exposed_per_billion_tokens,
            "network_per_billion_tokens": None if found is None else self.network_per_billion_tokens,
            "result": None if found is None else found.as_json(),
        }


def market(job: Job, prices: PriceList, terms: Terms = "on_demand") -> Market:
    """Return who offers GPUs: the scenario's cluster, and those of *prices* with other GPUs.

    Raises
    ------
    InputError
        The scenario's GPU has no price, or the scenario's times hold for one kind of GPU only.
    """
    part = job.scenario.accelerator
    mine = prices.gpus.get(part.name)
    if job.scenario.per_gpu_hour is not None:
        price = Number(value=job.scenario.per_gpu_hour, name="prices.per_gpu_hour", unit="USD/h", basis="chosen")
        own = _place(job, price, "scenario")
    elif mine is not None:
        own = _place(job, *mine.on(terms))
    else:
        remedy = f"set prices.per_gpu_hour; there are {', '.join(prices.gpus)}"
        raise InputError("has no price", file=prices.file, key="gpus", value=part.name, remedy=remedy)
    others = [_other(job, name, prices, terms) for name in prices.gpus if name != part.name]
    if others:
        _check_times(job)
    return Market(prices=prices, own=own, others=tuple(sorted(others, key=lambda place: place.memory)))


def _place(job: Job, price: Number, terms: str) -> Place:
    part, cluster = job.scenario.accelerator, job.cluster
    per_host, memory = cluster.accelerators_per_host, part.memory.value
    return Place(
        gpu=part.name, memory=memory, cluster=cluster.name, own=True, per_host=per_host, price=price, terms=terms
    )  # fmt: skip


def _other(job: Job, name: str, prices: PriceList, terms: Terms) -> Place:
    gpu = prices.gpus[name]
    try:
        cluster = load_cluster(gpu.cluster, prices.file)
    except InputError as error:
        key = f"gpus.{name}.cluster"
        raise InputError(error.problem, file=prices.file, key=key, value=gpu.cluster, remedy=error.remedy) from None
    if cluster.accelerator.name != name:
        problem = f"has {cluster.accelerator.name}"
        raise InputError(
            problem, file=prices.file, key=f"gpus.{name}.cluster", value=gpu.cluster, remedy="name another"
        )
    price, found = gpu.on(terms)
    memory = accelerator(name).memory.value
    per_host = cluster.accelerators_per_host
    return Place(
        gpu=name, memory=memory, cluster=gpu.cluster, own=False, per_host=per_host, price=price, terms=found
    )  # fmt: skip


def _check_times(job: Job) -> None:
    """Refuse times that were measured on one GPU: on the others they would make it just as fast."""
    section = job.content.get("compute") or {}
    for key in ("achieved", "measured"):
        if section.get(key) is not None:
            remedy = "remove it, or give --prices a list with the scenario's GPU alone"
            raise InputError("holds for one GPU only", file=job.scenario.file, key=f"compute.{key}", remedy=remedy)


def offers(crowd: Crowd, job: Job, asked: Sequence[tuple[Place, str, Setting]], headroom: float) -> list[Offer]:
    """Simulate *job* in places, under strategies; the settings say how many hosts and what else."""
    settings = [
        replace(
            setting,
            cluster=None if place.own else place.cluster,
            per_gpu_hour=place.price.value,
            **STRATEGIES[strategy],
        )
        for place, strategy, setting in asked
    ]
    return [
        Offer(place=place, strategy=strategy, tried=item, passed=shortage(item, headroom))
        for (place, strategy, _), item in zip(asked, tried(crowd, job, settings), strict=True)
    ]


def cheapest(found: Iterable[Offer]) -> Offer | None:
    """Least US$ per token of those that fit, the first of those within one percent of it; None if none does."""
    fitting = [offer for offer in found if offer.passed is None]
    least = min((offer.per_billion_tokens for offer in fitting), default=0.0)
    return next((offer for offer in fitting if offer.per_billion_tokens <= SAME * least), None)
