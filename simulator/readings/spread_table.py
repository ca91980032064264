"""Tables of what differs: between ranks, and from one step to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

from simulator.readings.table import seconds, titled

__all__ = ["jittered", "rank_classes"]

SHOWN: Final = 0.5e-3
"""definition: half of the last digit [s]."""


def rank_classes(results: Sequence[Mapping[str, Any]]) -> Iterator[Table]:
    """Yield where the time of every class of ranks went, if some variant has several."""
    uneven = [result for result in results if not result["failure"] and len(result["rank_classes"]) > 1]
    if not uneven:
        return
    table = titled("Ranks that behave alike; figures above are of the first class")
    table.add_column("variant", no_wrap=True)
    table.add_column("class", no_wrap=True)
    for heading in ("ranks", "compute\n[s]", "exposed\n[s]", "skew\n[s]", "host\n[s]"):
        table.add_column(escape(heading), justify="right", no_wrap=True)
    for result in uneven:
        for number, item in enumerate(result["rank_classes"]):
            times = (item[key] for key in ("compute_time", "stalled", "skew", "host_time"))
            name = "" if number else escape(result["name"])
            table.add_row(name, escape(item["name"]), str(item["ranks"]), *(f"{time:.3f}" for time in times))
    yield table


def jittered(results: Sequence[Mapping[str, Any]]) -> Iterator[Table | str]:
    """Yield quantiles over replications and what makes the slowest ones slow, if times are random."""
    random = [result for result in results if not result["failure"] and result["jitter"]]
    if not random:
        return
    first = random[0]["jitter"]
    few = (
        "" if first["ranks"] == random[0]["ranks"] else f", {first['ranks']} of {random[0]['ranks']:,} ranks one by one"
    )
    table = titled(f"With random times: {first['replications']} steps{few}")
    table.add_column("variant", no_wrap=True)
    for heading in (
        "no jitter\n[s]", "mean\n[s]", "median\n[s]", "p95\n[s]", "p99\n[s]", "exposed\n[%]", "exposed\np95 [%]",
        "slowest 5 %\n[+ms]",
    ):  # fmt: skip
        table.add_column(escape(heading), justify="right", no_wrap=True)
    table.add_column("of that [ms]".replace("[", r"\["))
    for result in random:
        table.add_row(*_jittered(result["name"], result["jitter"]))
    yield table


def _jittered(name: str, jitter: Mapping[str, Any]) -> Iterator[str]:
    step, share, tail = jitter["step_time"], jitter["exposed_share"], jitter["tail"]
    yield escape(name)
    yield from (seconds(step[key]) for key in ("even", "mean", "p50", "p95", "p99"))
    yield from (f"{100 * share[key]:.1f}" for key in ("mean", "p95"))
    yield f"{1e3 * tail['longer']:.0f}"
    largest = sorted(tail["by_cause"].items(), key=lambda item: -item[1])[:2]
    parts = [f"{cause} {1e3 * more:.0f}" for cause, more in largest if more >= SHOWN]
    role, at_most = max(tail["by_collective"].items(), key=lambda item: item[1], default=("", 0.0))
    yield escape(", ".join(parts) + (f"; most at {role.replace('_', ' ')}" if at_most >= SHOWN else ""))
