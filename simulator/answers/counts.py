"""On how many GPUs ZeRO-3 stops paying against a bigger GPU on a lower stage, over the network between hosts.

The tokens of a step stay the same, so on more GPUs every rank has fewer micro-steps between the same exchanges, and a
token costs more.  The rival is a bigger GPU that keeps its weights whole: of those clusters on the same network that
are at least as fast, the cheapest.  ZeRO-3 pays where its token costs no more than the rival's.  It may pay again on
more GPUs: few bigger GPUs are not as fast any more, and many suffer from the same network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from simulator.answers.job import HEADROOM, Job, Setting
from simulator.answers.offers import Market, Offer, Place, cheapest, offers
from simulator.crowd import Crowd

__all__ = ["NETWORKS", "Count", "Stop", "counts", "stops"]

NETWORKS: Final = tuple(12.5e9 * times for times in (1, 2, 4, 8, 16))
"""A choice: 100 to 1,600 Gbit/s per host [B/s]."""

SHARDED: Final = ("ZeRO-3", "ZeRO++")
WHOLE: Final = ("ZeRO-1", "ZeRO-2")
"""Strategies that are compared; stage 0 fits nowhere where stage 1 does not, and is no cheaper."""

MOST_HOSTS: Final = 16
"""Times the planned hosts, at which the numbers of GPUs end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Sharded weights on so many GPUs, and what they are compared with."""

    offer: Offer
    rival: Offer | None
    """None where no bigger GPU on a lower stage is as fast."""

    @property
    def pays(self) -> bool:
        """Whether a token costs no more than the rival's."""
        return self.rival is None or self.offer.per_billion_tokens <= self.rival.per_billion_tokens

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and mappings."""
        offer, rival = self.offer, self.rival
        return {
            "strategy": offer.strategy,
            "network": offer.tried.setting.network,
            "gpu": offer.place.gpu,
            "gpus": offer.gpus,
            "tokens_per_second": offer.tokens_per_second,
            "per_billion_tokens": offer.per_billion_tokens,
            "exposed_per_billion_tokens": offer.exposed_per_billion_tokens,
            "pays": self.pays,
            "rival": None
            if rival is None
            else {
                "strategy": rival.strategy,
                "gpu": rival.place.gpu,
                "gpus": rival.gpus,
                "tokens_per_second": rival.tokens_per_second,
                "per_billion_tokens": rival.per_billion_tokens,
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Where a strategy stops paying on one network."""

    strategy: str
    network: float
    """Bandwidth of all cards of a host together [B/s]."""
    tried: tuple[int, ...]
    """Numbers of GPUs on which it fits."""
    at: int | None
    """The fewest GPUs on which it does not pay; None: it pays on all that were tried."""
    again: int | None
    """The fewest after those on which it pays again, because what is as fast costs even more; None: on none."""

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and mappings."""
        return {
            "strategy": self.strategy,
            "network": self.network,
            "tried": list(self.tried),
            "stops_at": self.at,
            "pays_again_at": self.again,
        }


def counts(
    job: Job, found: Market, crowd: Crowd, networks: Sequence[float] = NETWORKS, headroom: float = HEADROOM
) -> list[Count]:
    """Simulate ZeRO-3 and ZeRO++ on the scenario's GPU, and its rivals, on many numbers of GPUs and networks.

    Parameters
    ----------
    networks
        Bandwidths of all cards of a host together [B/s].
    """
    sharded = _everywhere(job, (found.own,), SHARDED, networks)
    whole = _everywhere(job, found.bigger, WHOLE, networks)
    simulated = [offer for offer in offers(crowd, job, sharded + whole, headroom) if offer.passed is None]
    rivals = [offer for offer in simulated if offer.strategy in WHOLE]
    return [Count(offer=offer, rival=_rival(offer, rivals)) for offer in simulated if offer.strategy in SHARDED]


def stops(found: Sequence[Count]) -> list[Stop]:
    """Return for each strategy and network on how many GPUs it stops paying; counts stand by number of GPUs."""
    lines: dict[tuple[str, float], list[Count]] = {}
    for count in found:
        lines.setdefault((count.offer.strategy, count.offer.tried.setting.network or 0.0), []).append(count)
    return [_stop(strategy, network, line) for (strategy, network), line in lines.items()]


def _stop(strategy: str, network: float, line: Sequence[Count]) -> Stop:
    gpus = tuple(count.offer.gpus for count in line)
    at = next((count.offer.gpus for count in line if not count.pays), None)
    later = (count.offer.gpus for count in line if at is not None and count.offer.gpus > at and count.pays)
    return Stop(strategy=strategy, network=network, tried=gpus, at=at, again=next(later, None))


def _everywhere(
    job: Job, places: Sequence[Place], strategies: Sequence[str], networks: Sequence[float]
) -> list[tuple[Place, str, Setting]]:
    return [
        (place, strategy, Setting(stage=0, hosts=hosts, network=network))
        for strategy in strategies
        for place in places
        for hosts in _hosts(job, place)
        for network in networks
    ]


def _hosts(job: Job, place: Place) -> list[int]:
    """From half of the planned GPUs on, doubling as long as every rank gets a micro-batch of the step."""
    planned = -(-job.cluster.ranks // place.per_host)
    first = planned // 2 if planned % 2 == 0 else planned
    candidates = (first * 2**doubling for doubling in range(MOST_HOSTS.bit_length() + 1))
    return [
        hosts
        for hosts in candidates
        if hosts <= MOST_HOSTS * planned and job.micro_batches % (hosts * place.per_host) == 0
    ]


def _rival(offer: Offer, rivals: Sequence[Offer]) -> Offer | None:
    network = offer.tried.setting.network
    return cheapest(
        rival
        for rival in rivals
        if rival.tried.setting.network == network and rival.tokens_per_second >= offer.tokens_per_second
    )
