"""What to rent for a job: offers at the prices of a list, and the answer of the sizing order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from simulator.answers.job import HEADROOM, Job
from simulator.answers.offers import SAME, STRATEGIES, Market, Offer, cheapest
from simulator.answers.sizing import Question, Sizer, sizing_order
from simulator.crowd import Crowd

__all__ = ["TAX", "Rent", "rent"]

TAX: Final = 0.1
"""Definition: part of a step that the network may cost with ZeRO-3 across hosts before ZeRO++ is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rent:
    """Offers, and which to take."""

    market: Market
    headroom: float
    tax: float
    offers: tuple[Offer, ...]
    fits_from: tuple[int | None, ...]
    """For each offer the fewest GPUs on which it fits; None: on none that was tried."""
    order: tuple[Question, ...]
    """As far as it was asked."""

    @property
    def answer(self) -> Offer | None:
        """What to rent; None if nothing fits."""
        return self.order[-1].answer

    @property
    def cheapest(self) -> Offer | None:
        """The least US$ per token of all offers that fit."""
        return cheapest(self.offers)

    @property
    def why(self) -> tuple[str, ...]:
        """The order in words, and what to know beside the answer."""
        order = [f"{item.question} {item.told}" for item in self.order]
        if self.answer is None:
            return (*order, "nothing fits: lower micro_batch or sequence_length")
        return (*order, f"rent {self.answer.told()}", *self._cheaper(self.answer))

    def _cheaper(self, answer: Offer) -> list[str]:
        best = self.cheapest
        if best is None or best.per_billion_tokens * SAME >= answer.per_billion_tokens:
            return ["no other offer is cheaper by more than 1 %"]
        less = 100 * (1 - best.per_billion_tokens / answer.per_billion_tokens)
        pace = best.tokens_per_second / answer.tokens_per_second
        return [
            f"cheaper by {less:.0f} %: {best.told()}, ${best.per_billion_tokens:.2f} for a billion tokens, "
            f"at {pace:.2g} times the pace"
        ]

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and mappings."""
        prices, listed = self.market.prices, zip(self.offers, self.fits_from, strict=True)
        order = [{"question": item.question, "answer": _named(item.answer), "told": item.told} for item in self.order]
        return {
            "prices": {"file": str(prices.file), "title": prices.title, "date": prices.date, "source": prices.source},
            "headroom": self.headroom,
            "tax": self.tax,
            "offers": [offer.as_json() | {"fits_from": fewest} for offer, fewest in listed],
            "order": order,
            "answer": _named(self.answer),
            "cheapest": _named(self.cheapest),
            "why": list(self.why),
        }


def _named(offer: Offer | None) -> str | None:
    return None if offer is None else offer.told()


def rent(job: Job, found: Market, crowd: Crowd, *, headroom: float = HEADROOM, tax: float = TAX) -> Rent:
    """Simulate the offers of the market for *job*, on as many GPUs as it is planned or more where those are too few.

    Parameters
    ----------
    headroom
        Part of the memory of a GPU that is to stay free.
    tax
        Part of a step that the network may cost with ZeRO-3 across hosts.
    """
    sizer = Sizer(job=job, market=found, crowd=crowd, headroom=headroom)
    plan = sizer.offers(found.places, STRATEGIES)
    order = tuple(sizing_order(sizer, plan, tax))
    table = sizer.grown(plan)
    names = {offer.told() for offer in table}
    more = [item.answer for item in order if item.answer is not None and item.answer.told() not in names]
    listed = (*table, *more)
    fewest = tuple(sizer.fewest(listed))
    return Rent(market=found, headroom=headroom, tax=tax, offers=listed, fits_from=fewest, order=order)
