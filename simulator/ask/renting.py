"""The question on which GPUs to train, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simulator import __version__
from simulator.answers.counts import NETWORKS, counts, stops
from simulator.answers.job import HEADROOM, Job
from simulator.answers.offers import market
from simulator.answers.rent import TAX
from simulator.answers.rent import rent as compared
from simulator.ask.answer import Answer
from simulator.ask.sizing import job, job_title
from simulator.ask.source import AS_IT_IS, Source
from simulator.crowd import Crowd
from simulator.readings.advice import counts_table, offers_table
from simulator.readings.rendered import lines
from simulator.readings.rows import flat_rows
from simulator.world.prices import NEWEST, load_prices

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

__all__ = ["Offers", "rent"]


@dataclass(frozen=True, kw_only=True)
class Offers(Answer):
    """GPUs and strategies by price, and on how many GPUs ZeRO-3 pays: ``zerosim rent``."""

    job: Job = field(repr=False)
    brief: bool

    @property
    def answer(self) -> str | None:
        """What to rent; None if nothing fits."""
        told: str | None = self.content["answer"]
        return told

    def tables(self) -> Iterator[Table | str]:
        """Yield the offers, why that one, and on how many GPUs ZeRO-3 pays."""
        content, listed = self.content, self.content["prices"]
        yield offers_table(content, f"{job_title(self.job)}; prices: {listed['title']} ({listed['source']})")
        yield from lines(content["why"])
        if self.brief:
            return
        if not any(item["rival"] for item in content["counts"]):
            yield "no bigger GPU of the list is a rival to ZeRO-3: none fits under ZeRO-2, or none is as fast"
            return
        gpu = self.job.scenario.accelerator.name
        for strategy in dict.fromkeys(count["strategy"] for count in content["counts"]):
            yield ""
            about = f"{strategy} on {gpu}: price of a token / that on the cheapest bigger GPU as fast"
            yield counts_table(content, strategy, about)
        yield "below 1 it pays; alone: no bigger GPU on a lower stage is as fast"

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield a row per offer."""
        for offer in self.content["offers"]:
            head = {key: value for key, value in offer.items() if key != "result"}
            yield from flat_rows([{**head, **(offer["result"] or {})}])

    def units(self) -> Mapping[str, str]:
        """Prices and pace."""
        prices = ("per_billion_tokens", "exposed_per_billion_tokens", "network_per_billion_tokens")
        return {
            "per_gpu_hour": "US$/h",
            "tokens_per_second": "tokens/s",
            "network": "B/s",
            **dict.fromkeys(prices, "US$"),
        }

    def plot(self) -> Figure:
        """Draw on how many GPUs ZeRO-3 pays; not of a brief answer."""
        from simulator.readings.plots import counts_figure

        asked, scenario = self.job, self.job.scenario
        tokens = asked.micro_batches * scenario.tokens_per_micro_batch
        size = f"{scenario.training.micro_batch} x {scenario.model.sequence_length} tokens"
        title = f"{scenario.model.name}, {tokens / 1e6:.3g} million tokens in a step, micro-batches of {size}"
        return counts_figure(self.content["counts"], self.content["stops"], title)


def rent(
    source: Source | Job,
    changes: Mapping[str, Any] = AS_IT_IS,
    *,
    prices: str | None = None,
    spot: bool = False,
    headroom: float = HEADROOM,
    tax: float = TAX,
    networks: Sequence[float] = NETWORKS,
    brief: bool = False,
) -> Offers:
    """Simulate a job on every GPU of a list of prices, and on many numbers of GPUs.

    Parameters
    ----------
    prices
        A list, by name or path; the newest by default.
    headroom
        Part of the memory of a GPU that is to stay free.
    tax
        Part of a step that the network may cost with ZeRO-3 across hosts.
    networks
        Bandwidths of all cards of a host together [B/s].
    brief
        Leave out on how many GPUs ZeRO-3 pays.

    Raises
    ------
    InputError
        The scenario or the prices cannot be used, or hold for another GPU.
    """
    asked = source if isinstance(source, Job) else job(source, changes)
    found, crowd = market(asked, load_prices(prices or NEWEST), "spot" if spot else "on_demand"), Crowd()
    offered = compared(asked, found, crowd, headroom=headroom, tax=tax).as_json()
    many = [] if brief else counts(asked, found, crowd, networks, headroom)
    on_many = {"counts": [item.as_json() for item in many], "stops": [item.as_json() for item in stops(many)]}
    head = {"scenario": dict(asked.scenario.raw), "version": __version__}
    return Offers(content=head | offered | on_many, job=asked, brief=brief)
