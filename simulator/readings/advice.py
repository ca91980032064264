"""Ladders and offers as tables for a terminal; contents as ``zerosim ladder --json`` and ``rent --json`` have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

__all__ = ["counts_table", "ladder_table", "offers_table"]

GB: Final = 1e9

GBIT_PER_SECOND: Final = 1.25e8
"""[B/s]"""

HOUR: Final = 3600.0


def ladder_table(content: Mapping[str, Any], title: str) -> Table:
    """One line per rung; the chosen one stands out."""
    headings = ("GPUs", "k", "memory\n[GB]", "fits", "step\n[s]", "exposed\n[s]", "volume\n[Ψ]", "tokens\n/s/GPU")
    table = _table(title, ["rung"], headings)
    for rung in content["rungs"]:
        style = "bold green" if rung["name"] == content["chosen"] else None
        table.add_row(rung["name"], *_rung(rung), style=style)
    return table


def _rung(rung: Mapping[str, Any]) -> Iterable[str]:
    result = rung["result"]
    if result is None:
        return ("-",) * 8
    return (
        f"{result['ranks']}", f"{rung['micro_steps']}", f"{result['memory']['needed'] / GB:.1f}", _fits(rung),
        f"{result['step_time']:.2f}", f"{result['exposed']['stalled']:.2f}", f"{result['volume']['in_psi']:.1f}",
        f"{result['tokens_per_second_per_gpu']:.0f}",
    )  # fmt: skip


def offers_table(content: Mapping[str, Any], title: str) -> Table:
    """One line per GPU and strategy; the answer stands out."""
    headings = (
        "[$/GPU h]", "GPUs", "memory\n[GB]", "fits from\n[GPUs]", "step\n[s]", "h for\n1 Gtoken", "[$/step]",
        "[$/Gtoken]", "exposed\n[$/Gtoken]", "network\n[$/Gtoken]",
    )  # fmt: skip
    table = _table(title, ["GPU", "cluster", "strategy"], headings)
    offers = content["offers"]
    for number, offer in enumerate(offers):
        style = "bold green" if offer["told"] == content["answer"] else None
        last = number + 1 == len(offers) or offers[number + 1]["strategy"] != offer["strategy"]
        strategy = offer["strategy"] + (" + checkpointing" if offer["checkpointing"] else "")
        table.add_row(offer["gpu"], escape(offer["cluster"]), strategy, *_offer(offer), style=style, end_section=last)
    return table


def _offer(offer: Mapping[str, Any]) -> Iterable[str]:
    result = offer["result"]
    price = f"{offer['per_gpu_hour']:.2f}" + (" spot" if offer["terms"] == "spot" else "")
    if result is None:
        return (price, f"{offer['gpus']}", *("-",) * 8)
    fits = f"{offer['fits_from']}" if offer["fits"] else "[red]no[/red]"
    return (
        price, f"{offer['gpus']}", f"{result['memory']['needed'] / GB:.1f}", fits,
        f"{result['step_time']:.2f}", f"{1e9 / offer['tokens_per_second'] / HOUR:.2f}",
        f"{result['cost']['per_step']:.3f}", f"{offer['per_billion_tokens']:.2f}",
        f"{offer['exposed_per_billion_tokens']:.2f}", f"{offer['network_per_billion_tokens']:.2f}",
    )  # fmt: skip


def counts_table(content: Mapping[str, Any], strategy: str, title: str) -> Table:
    """Price of a token relative to the rival's: a line per network, a column per number of GPUs."""
    counts = [count for count in content["counts"] if count["strategy"] == strategy]
    gpus = sorted({count["gpus"] for count in counts})
    headings = ["network\n[Gbit/s/host]", *(f"{number}\nGPUs" for number in gpus), "stops paying"]
    table = _table(title, [], headings)
    for stop in (stop for stop in content["stops"] if stop["strategy"] == strategy):
        cells = {count["gpus"]: _ratio(count) for count in counts if count["network"] == stop["network"]}
        network = f"{stop['network'] / GBIT_PER_SECOND:g}"
        table.add_row(network, *(cells.get(number, "-") for number in gpus), _stop(stop))
    return table


def _ratio(count: Mapping[str, Any]) -> str:
    if count["rival"] is None:
        return "alone"
    ratio = f"{count['per_billion_tokens'] / count['rival']['per_billion_tokens']:.2f}"
    return ratio if count["pays"] else f"[red]{ratio}[/red]"


def _stop(stop: Mapping[str, Any]) -> str:
    if stop["stops_at"] is None:
        return "nowhere"
    again = f", pays again at {stop['pays_again_at']}" if stop["pays_again_at"] else ""
    return f"at {stop['stops_at']} GPUs{again}"


def _fits(item: Mapping[str, Any]) -> str:
    return "yes" if item["fits"] else "[red]no[/red]"


def _table(title: str, words: Iterable[str], numbers: Iterable[str]) -> Table:
    # units stand in square brackets, which rich would take for markup
    table = Table(title=escape(title), title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for heading in words:
        table.add_column(heading, no_wrap=True)
    for heading in numbers:
        table.add_column(escape(heading), justify="right", no_wrap=True)
    return table
