"""The order in which one should ask what to rent, and the answers.

Sharding more than memory demands buys nothing and costs communication, so questions come in this order:

1. Does it fit under ZeRO-2 or lower?  Then stop.
2. Does it on a bigger GPU?
3. Does it with activation checkpointing?
4. Does ZeRO-3 inside one NVLink domain do?
5. Does ZeRO-3 across hosts, with the tax budgeted: the part of the step that an infinitely fast network would save?
6. Else ZeRO++.

The first question with a yes is the answer; among its offers the cheapest per token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from simulator.answers.job import Job, Setting
from simulator.answers.offers import LOW, Market, Offer, Place, cheapest, offers
from simulator.crowd import Crowd
from simulator.world.topology.cluster import load_cluster
from simulator.world.topology.kinds import SCALE_UP

__all__ = ["Question", "Sizer", "sizing_order"]

SETTLED: Final = 2
"""Micro-steps after which memory has been as full as it gets: gradients are there while the next backward runs."""

MOST_HOSTS: Final = 8
"""Times the planned hosts, at which the search for enough memory ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One step of the sizing order."""

    question: str
    answer: Offer | None
    """The offer that says yes."""
    told: str
    """The answer in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizer:
    """Finds offers for a job that fit."""

    job: Job
    market: Market
    crowd: Crowd
    headroom: float

    @property
    def checkpointed(self) -> bool:
        """Whether the scenario computes all activations again as it is."""
        return self.job.scenario.training.activation_checkpointing == "full"

    def offers(
        self, places: Iterable[Place], strategies: Iterable[str], hosts: int | None = None, *, more: bool = False
    ) -> list[Offer]:
        """All strategies in all places, on *hosts* or on as many GPUs as planned; *more* checkpoints everything."""
        places, checkpointing = list(places), more and not self.checkpointed
        asked = [
            (place, strategy, Setting(stage=0, hosts=hosts or self._planned(place), checkpointing=checkpointing))
            for strategy in strategies
            for place in places
        ]
        return offers(self.crowd, self.job, asked, self.headroom)

    def grown(self, found: Iterable[Offer]) -> list[Offer]:
        """Offers on the fewest hosts, double by double, on which they fit; as they were where they do on none."""
        return [self._grown(offer) for offer in found]

    def fewest(self, found: Sequence[Offer]) -> list[int | None]:
        """Fewest GPUs on which each offer fits, found by halving; None for those that do not fit."""
        hosts = [offer.hosts for offer in found]
        open_ = [number for number, offer in enumerate(found) if offer.passed is None]
        while open_ := [number for number in open_ if hosts[number] % 2 == 0]:
            halves = self._shortly([(found[number], hosts[number] // 2) for number in open_])
            open_ = [number for number, half in zip(open_, halves, strict=True) if half.passed is None]
            for number in open_:
                hosts[number] //= 2
        return [
            None if offer.passed is not None else count * offer.place.per_host
            for offer, count in zip(found, hosts, strict=True)
        ]

    def _planned(self, place: Place) -> int:
        return -(-self.job.cluster.ranks // place.per_host)

    def _grown(self, offer: Offer) -> Offer:
        setting = offer.tried.setting
        if offer.passed is None or not setting.stage or offer.tried.result is None:
            return offer
        for hosts in (times * setting.hosts for times in (2, 4, MOST_HOSTS)):
            if self.job.micro_batches % (hosts * offer.place.per_host):
                break
            if self._shortly([(offer, hosts)])[0].passed is None:
                asked = (offer.place, offer.strategy, replace(setting, hosts=hosts))
                return offers(self.crowd, self.job, [asked], self.headroom)[0]
        return offer

    def _enough(self, gpus: int) -> int:
        """Micro-steps that tell how full memory gets on *gpus*."""
        return min(SETTLED, max(1, self.job.micro_batches // gpus))

    def _shortly(self, asked: Sequence[tuple[Offer, int]]) -> list[Offer]:
        """Offers on other numbers of hosts, with no more micro-steps than memory needs to settle."""
        settings = [
            replace(offer.tried.setting, hosts=hosts, micro_steps=self._enough(hosts * offer.place.per_host))
            for offer, hosts in asked
        ]
        same = [(offer.place, offer.strategy) for offer, _ in asked]
        return offers(
            self.crowd, self.job, [(*who, how) for who, how in zip(same, settings, strict=True)], self.headroom
        )


def sizing_order(sizer: Sizer, plan: Sequence[Offer], tax: float) -> Iterator[Question]:
    """Ask until something fits.

    Parameters
    ----------
    plan
        All strategies in all places, as the scenario is.
    tax
        Part of a step that the network may cost with ZeRO-3 across hosts.
    """
    for question, candidates in _questions(sizer, plan):
        found = candidates()
        answer = cheapest(found)
        if question == ACROSS and answer is not None and answer.network_share > tax:
            budget = f"more than the {100 * tax:.0f} % budgeted"
            yield Question(question=question, answer=None, told=f"{answer.told()} fits, {_taxed(answer)}, {budget}")
            yield _quantized(sizer, answer)
            return
        yield Question(question=question, answer=answer, told=_told(answer, found))
        if answer is not None:
            return


ACROSS: Final = "ZeRO-3 across hosts, with the tax budgeted?"


def _questions(sizer: Sizer, plan: Sequence[Offer]) -> Iterator[tuple[str, Callable[[], list[Offer]]]]:
    market, places = sizer.market, (sizer.market.own, *sizer.market.bigger)
    low = [offer for offer in plan if offer.strategy in LOW]
    yield "fits under ZeRO-2?", lambda: [offer for offer in low if offer.place is market.own]
    yield "a bigger GPU under ZeRO-2?", lambda: [offer for offer in low if offer.place in market.bigger]
    if not sizer.checkpointed:
        yield "activation checkpointing, under ZeRO-2?", lambda: sizer.offers(places, LOW, more=True)
    domains = [place for place in places if _has_nvlink(sizer.job, place)]
    yield "ZeRO-3 inside one NVLink domain?", lambda: sizer.offers(domains, ["ZeRO-3"], 1, more=True)
    yield ACROSS, lambda: sizer.grown(sizer.offers(places, ["ZeRO-3"], more=True))


def _has_nvlink(job: Job, place: Place) -> bool:
    cluster = job.cluster if place.own else load_cluster(place.cluster, job.scenario.file)
    return any(link.technology in SCALE_UP for link in cluster.links)


def _quantized(sizer: Sizer, taxed: Offer) -> Question:
    """Ask ZeRO++, and take what is cheaper."""
    places = (sizer.market.own, *sizer.market.bigger)
    found = cheapest(sizer.grown(sizer.offers(places, ["ZeRO++"], more=True)))
    if found is None or found.per_billion_tokens >= taxed.per_billion_tokens:
        return Question(question="ZeRO++?", answer=taxed, told=f"no cheaper: stay with {taxed.told()}, {_taxed(taxed)}")
    return Question(question="ZeRO++?", answer=found, told=f"yes: {found.told()}, {_taxed(found)}")


def _told(answer: Offer | None, found: Sequence[Offer]) -> str:
    if answer is not None:
        return f"yes: {answer.told()}, {_taxed(answer)}"
    ran = [offer for offer in found if offer.tried.result is not None]
    if not ran:
        return found[0].passed or "" if found else "no: there is none"
    nearest = min(ran, key=lambda offer: offer.result.memory["needed"] / offer.result.memory["capacity"])
    return f"no: {nearest.told()} {nearest.passed}"


def _taxed(offer: Offer) -> str:
    return (
        f"${offer.per_billion_tokens:.2f} for a billion tokens, ${offer.network_per_billion_tokens:.2f} of it "
        f"({100 * offer.network_share:.1f} %) for the network"
    )
