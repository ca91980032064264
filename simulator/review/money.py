"""What a step costs, and what of that is paid for waiting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from simulator.laws.price import cost
from simulator.review.parts import Cell, Material, Section, Table, number, text
from simulator.review.variants import fastest
from simulator.world.prices import load_prices
from simulator.world.scenario import Scenario

__all__ = ["cost_section"]

COLUMNS: Final = (
    ("cluster [$/h]", "per_hour", ",.2f"),
    ("step [$]", "per_step", ",.4f"),
    ("billion tokens [$]", "per_billion_tokens", ",.2f"),
    ("exposed in a step [$]", "exposed_per_step", ",.4f"),
)


def cost_section(asked: Material) -> Section | None:
    """Write what variants cost, at the scenario's price or that of the newest list; nothing where neither is known."""
    price, source = _price(asked.scenario)
    if price is None:
        return None
    costs = {result["name"]: _cost(asked, result, price) for result in asked.ran}
    best = fastest(asked.ran)["name"]
    spent = costs[best]
    return Section(
        key="cost",
        topic="Cost",
        finding=(
            f"A billion tokens cost ${spent['per_billion_tokens']:,.2f} with {best}, "
            f"${spent['per_billion_tokens'] * spent['exposed']:,.2f} of them for exposed communication"
        ),
        tables=(
            Table(
                caption="Cost of each variant",
                columns=("variant", *(heading for heading, *_ in COLUMNS), "exposed [$/h]"),
                rows=tuple((text(name), *_cells(found)) for name, found in costs.items()),
            ),
        ),
        remarks=(f"${price:.2f} for an hour of a GPU: {source}", "Other GPUs and prices: zerosim rent"),
    )


def _price(scenario: Scenario) -> tuple[float | None, str]:
    """Of an hour of a GPU [US$], and where it is from."""
    if scenario.per_gpu_hour is not None:
        return scenario.per_gpu_hour, "prices.per_gpu_hour of the scenario"
    listed = load_prices()
    found = listed.gpus.get(scenario.accelerator.name)
    if found is None:
        return None, ""
    return found.on_demand.value, f"{listed.title}, on demand ({found.on_demand.basis}, {listed.source})"


def _cost(asked: Material, result: Mapping[str, Any], price: float) -> dict[str, float]:
    """What a step costs [US$], and the share of it that is ``exposed``."""
    tokens = float(asked.scenario.tokens_per_step * result["ranks"])
    step, stalled = result["step_time"], result["exposed"]["stalled"]
    return cost(price, result["ranks"], step, stalled, tokens) | {"exposed": stalled / step if step else 0.0}


def _cells(found: Mapping[str, float]) -> Iterator[Cell]:
    yield from (number(found[key], form) for _, key, form in COLUMNS)
    yield number(found["per_hour"] * found["exposed"], ",.2f")
