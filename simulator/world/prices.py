"""What GPUs cost to rent: lists of ``topologies/prices``, or one of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from simulator.errors import InputError
from simulator.units import Price
from simulator.world.catalog import Number, accelerator, number
from simulator.world.document import Section, convert, find, read_mapping

__all__ = ["NEWEST", "GpuPrice", "PriceList", "Terms", "load_prices"]

NEWEST = "2026-09"
"""The list that is read if none is named."""

Terms = Literal["on_demand", "spot"]


class GpuSection(Section):
    """An entry of ``gpus``."""

    cluster: str
    on_demand: str | float | dict[str, Any]
    spot: str | float | dict[str, Any] | None = None


class PricesSection(Section):
    """A list of prices."""

    kind: Literal["prices"]
    title: str
    date: str
    source: str
    gpus: Annotated[dict[str, GpuSection], Meta(min_length=1)]
    read: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPrice:
    """Price of one GPU of a kind."""

    accelerator: str
    """Name of the part."""
    cluster: str
    """Of the catalogue, or a file: where such a GPU stands."""
    on_demand: Number
    """[US$/h]"""
    spot: Number | None
    """[US$/h]; None where the list has none."""

    def on(self, terms: Terms) -> tuple[Number, Terms]:
        """Return the price on *terms*, or on demand where the list has no other; also on which terms that is."""
        if terms == "spot" and self.spot is not None:
            return self.spot, "spot"
        return self.on_demand, "on_demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """Prices of one day."""

    file: Path
    title: str
    date: str
    source: str
    gpus: Mapping[str, GpuPrice]
    """By name of the part."""


def load_prices(reference: str = NEWEST) -> PriceList:
    """Load a list, by path or by the name of a shipped one.

    A price is a number with basis and source as everywhere in the catalogue, or in a user's own list just
    ``1.43 USD/h``.

    Raises
    ------
    InputError
        There is no such file, a key or unit is wrong, or a GPU is none of the catalogue.
    """
    file = find(reference, None, "topologies/prices", ".yaml")
    section = convert(read_mapping(file), PricesSection, file)
    gpus = {name: _gpu(name, item, file) for name, item in section.gpus.items()}
    return PriceList(file=file, title=section.title, date=section.date, source=section.source, gpus=gpus)


def _gpu(name: str, section: GpuSection, file: Path) -> GpuPrice:
    try:
        accelerator(name)
    except InputError as error:
        raise InputError(error.problem, file=file, key="gpus", value=name, remedy=error.remedy) from None
    return GpuPrice(
        accelerator=name,
        cluster=section.cluster,
        on_demand=_price(section.on_demand, f"gpus.{name}.on_demand", file),
        spot=None if section.spot is None else _price(section.spot, f"gpus.{name}.spot", file),
    )


def _price(raw: str | float | dict[str, Any], name: str, file: Path) -> Number:
    if isinstance(raw, dict):
        return number(raw, "USD/h", name, file)
    try:
        value = float(Price.parse(raw))
    except InputError as error:
        raise InputError(error.problem, file=file, key=name, value=raw, remedy=error.remedy) from None
    return Number(value=value, name=name, unit="USD/h", basis="chosen")
