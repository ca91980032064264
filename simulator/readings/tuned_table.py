"""Better settings as tables for a terminal; contents as ``zerosim tune --json`` has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

__all__ = ["changes_table", "headline", "remarks", "rivals_table"]

GB: Final = 1e9


def headline(content: Mapping[str, Any]) -> str:
    """What was gained, in one line."""
    before, after = content["before"], content["after"]
    most = (1 - content["headroom"]) * after["memory"]["capacity"] / GB
    need = f"{after['memory']['needed'] / GB:.1f} GB of the {most:.1f} GB allowed"
    if not content["fits"]:
        return f"{content['variant']}: nothing that was tried fits; what lacks least needs {need}"
    if before is None:
        return f"{content['variant']}: it cannot run as it is ({content['failure']}); step {_step(after)}, {need}"
    if not content["lines"]:
        return f"{content['variant']}: nothing that was tried is better; step {_step(after)}, {need}"
    change = after["step_time"] / before["step_time"] - 1
    return f"{content['variant']}: step {_step(before)} -> {_step(after)} ({100 * change:+.1f} %), {need}"


def _step(result: Mapping[str, Any]) -> str:
    return f"{result['step_time']:.4g} s"


def changes_table(content: Mapping[str, Any]) -> Table:
    """One line per change, the most valuable first."""
    table = _table(escape(headline(content)))
    for heading in ("change", "from", "to"):
        table.add_column(heading, overflow="fold")
    table.add_column(escape("without it\n[% step]"), justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    for line in content["lines"]:
        cost = "-" if line["gain"] is None else f"{100 * line['gain']:+.1f}"
        why = line["why"].removeprefix("without it: ")
        table.add_row(line["knob"], _value(line["before"]), _value(line["after"]), cost, escape(why))
    return table


def rivals_table(content: Mapping[str, Any]) -> Table:
    """Other combinations of what decides memory and work, each at its best."""
    table = _table("Other settings, as far as they were tried (less than 0.5 % is no difference)")
    table.add_column("changes", overflow="fold")
    for heading in ("step\n[s]", "longer by\n[%]", "memory\n[% allowed]"):
        table.add_column(escape(heading), justify="right", no_wrap=True)
    best = content["after"]["step_time"]
    for rival in content["rivals"]:
        changes = ", ".join(f"{name} {_value(value)}" for name, value in rival["values"].items()) or "none"
        over = f"[red]{100 * (1 + rival['excess']):.0f}[/red]" if rival["excess"] else "fits"
        table.add_row(changes, f"{rival['step_time']:.4g}", f"{100 * (rival['step_time'] / best - 1):+.1f}", over)
    return table


def remarks(content: Mapping[str, Any]) -> Iterator[str]:
    """What is to be done elsewhere than in the configuration."""
    for line in content["lines"]:
        if line["where"]:
            yield f"{line['knob']}: say {_value(line['after'])} in {line['where']}"
        if line["after"] == "NO_SHARD":
            yield "NO_SHARD is deprecated in PyTorch: DistributedDataParallel does the same"
        chosen = [key.rpartition("_")[2] for key, value in line["keys"].items() if "quantized" in key and value]
        if chosen:
            yield f"{line['knob']} rounds {' and '.join(chosen)} on their way: watch the loss, or say --exact"


def _value(value: Any) -> str:
    """*value* of a knob for people.

    >>> _value([4, 8]), _value(True), _value(50000000), _value(None)
    ('4 x 8', 'true', '50,000,000', 'none')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " x ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
