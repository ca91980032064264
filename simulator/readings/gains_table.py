"""What better resources gain, as tables; contents as ``zerosim whatif --json`` has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from simulator.readings.table import titled
from simulator.units import readable

__all__ = ["gains_tables"]


def gains_tables(answer: Mapping[str, Any]) -> Iterator[Table | str]:
    """Yield a table with one line per resource, and what hardly matters."""
    yield _table(answer)
    if answer["without_effect"]:
        yield escape(f"{answer['name']} hardly depends on: {', '.join(answer['without_effect'])}")


def _table(answer: Mapping[str, Any]) -> Table:
    step = readable(answer["step_time"], "s", 4)
    table = titled(f"{answer['name']}: what a better resource gains of a step of {step}")
    for heading in ("resource", "now", ""):
        table.add_column(heading, no_wrap=True)
    factors = [f"{gain['factor']:g}x" for item in answer["sensitivities"][:1] for gain in item["gains"]]
    headings = (
        "on the\npath [ms]",
        "slope\n[ms]",
        *(text for name in factors for text in (f"{name}\n[ms]", f"{name}\n[%]")),
    )
    for heading in headings:
        table.add_column(escape(heading), justify="right", no_wrap=True)
    table.add_column("as foreseen", no_wrap=True)
    for item in answer["sensitivities"]:
        table.add_row(
            escape(item["resource"]), escape(item["now"]), item["change"],
            *(_milliseconds(item[key]) for key in ("on_path", "slope")),
            *(text for gain in item["gains"] for text in _gain(gain, answer["step_time"])), _foreseen(item["gains"]),
        )  # fmt: skip
    return table


def _milliseconds(time: float | None) -> str:
    return "" if time is None else f"{1e3 * time:.1f}"


def _gain(gain: Mapping[str, Any], step: float) -> tuple[str, str]:
    return _milliseconds(gain["gain"]), f"{100 * gain['gain'] / step:.2f}"


def _foreseen(gains: Sequence[Mapping[str, Any]]) -> str:
    """Whether what the path says comes true; what it says where it does not."""
    if gains[0]["holds"] is None:
        return ""
    missed = [f"{gain['factor']:g}x: {_milliseconds(gain['foreseen'])}" for gain in gains if not gain["holds"]]
    return "no, " + ", ".join(missed) if missed else "yes"
