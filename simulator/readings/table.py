"""Reports as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from simulator.readings.exposure import CAUSES
from simulator.readings.volume import Volume
from simulator.units import readable

__all__ = [
    "SAME",
    "ceilings",
    "comparison",
    "exposed_by",
    "has_room",
    "host_table",
    "memory_table",
    "notes",
    "program_table",
    "seconds",
    "titled",
    "transfer_table",
    "volume_table",
]

GB = 1e9

HOST_BOUND = 0.05  # definition: a twentieth of the step lost to the host is worth a word

TIGHT = 0.95  # definition: what is left then goes with a longer sequence, an evaluation or a checkpoint

ELSEWHERE = {"host": "memory of the host", "nvme": "drives of the host"}
"""Parts of ``memory`` that are there where something is offloaded."""

SAME = 1.01  # definition: steps within one percent of each other are called equally fast


def comparison(results: Sequence[Mapping[str, Any]], title: str) -> Table:
    """One line per variant: time, exposed communication, volume, memory, throughput, cost.

    Variants that fit and are within one percent of the fastest of them stand out.
    """
    priced = any(result["cost"] for result in results)
    ran = _ran(results)
    table = titled(title)
    table.add_column("variant", no_wrap=True)
    for heading in (
        "step\n[s]", "compute\n[s]", "exposed\n[s]", "copies,\nhost [s]", "exposed\n[%]", "comm.\n[s]",
        "busiest link\n[% of step]", "volume\n[Ψ]", "in host\n[GB/GPU]", "between\n[GB/GPU]", "memory\n[GB]", "fits",
        "tokens\n/s/GPU", "MFU\n[%]", *(["cost [$\n/Gtoken]"] if priced else []),
    ):  # fmt: skip
        table.add_column(escape(heading), justify="right", no_wrap=True)
    fastest = min((result["step_time"] for result in ran if has_room(result["memory"])), default=0.0)
    for result in results:
        if result["failure"]:
            table.add_row(escape(result["name"]), *["-"] * (len(table.columns) - 1))
            continue
        as_good = has_room(result["memory"]) and result["step_time"] <= fastest * SAME
        table.add_row(escape(result["name"]), *_cells(result), style="bold green" if as_good else None)
    return table


def _ran(results: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [result for result in results if not result["failure"]]


def _cells(result: Mapping[str, Any]) -> Iterable[str]:
    step, stalled = result["step_time"], result["exposed"]["stalled"]
    volume, memory = result["volume"], result["memory"]
    return (
        seconds(step),
        seconds(result["compute_time"]),
        f"{stalled:.3f}",
        f"{result['copy_time'] + result['host_time']:.3f}",
        f"{100 * stalled / step:.1f}" if step else "-",
        f"{result['communication_time']:.3f}",
        *_busiest(result["links"]),
        f"{volume['in_psi']:.2f}",
        f"{volume['intra_host_per_rank'] / GB:.1f}",
        f"{volume['inter_host_per_rank'] / GB:.1f}",
        f"{memory['peak'] / GB:.1f}",
        _fits(memory),
        f"{result['tokens_per_second_per_gpu']:.0f}",
        f"{100 * result['mfu']:.1f}",
        *([f"{result['cost']['per_billion_tokens']:.0f}"] if result["cost"] else []),
    )


def _busiest(links: Mapping[str, float]) -> Iterator[str]:
    yield next((f"{name} {100 * share:.0f}" for name, share in links.items()), "-")


def has_room(memory: Mapping[str, Any]) -> bool:
    """Whether everything fits where it is put: device, host, drives."""
    return memory["fits"] and all(memory[place]["fits"] for place in ELSEWHERE if place in memory)


def _fits(memory: Mapping[str, Any]) -> str:
    if not memory["fits"]:
        return "[red]no[/red]"
    if not has_room(memory):
        return "[red]host no[/red]"
    crowded = memory["device"] > memory["capacity"] or memory["needed"] > TIGHT * memory["capacity"]
    return "[yellow]tight[/yellow]" if crowded else "yes"


def exposed_by(results: Sequence[Mapping[str, Any]], key: str, title: str) -> Table:
    """Milliseconds of exposed communication, one column per entry of ``exposed_by_collective`` or ``_by_cause``."""
    table, results = titled(title), _ran(results)
    table.add_column("variant", no_wrap=True)
    order = list(CAUSES) if key == "exposed_by_cause" else []
    names = [*order, *(name for result in results for name in result[key] if name not in order)]
    columns = [name for name in dict.fromkeys(names) if any(result[key].get(name) for result in results)]
    for name in columns:
        table.add_column(name.replace("_", " "), justify="right")
    for result in results:
        table.add_row(escape(result["name"]), *(f"{1e3 * result[key].get(name, 0.0):.1f}" for name in columns))
    return table


def ceilings(results: Sequence[Mapping[str, Any]]) -> Table:
    """What each variant would gain at most: step and MFU if all communication were hidden, and without recompute."""
    table = titled("Ceilings: all communication hidden, nothing recomputed")
    table.add_column("variant", no_wrap=True)
    for heading in ("hidden\n[% of comm.]", "all hidden\n[s]", "MFU\n[%]", "no recompute\n[s]", "MFU\n[%]"):
        table.add_column(escape(heading), justify="right", no_wrap=True)
    for result in _ran(results):
        bounds = result["ceilings"]
        table.add_row(
            escape(result["name"]),
            "-" if bounds["hidden"] is None else f"{100 * bounds['hidden']:.1f}",
            seconds(bounds["perfect_overlap_step_time"]),
            f"{100 * bounds['perfect_overlap_mfu']:.1f}",
            seconds(bounds["no_recompute_step_time"]),
            f"{100 * bounds['no_recompute_mfu']:.1f}",
        )
    return table


def notes(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a reader must know: what cannot run or does not fit and why, what was assumed, what was measured."""
    lines = [f"{result['name']} cannot run: {result['failure']}" for result in results if result["failure"]]
    for result in _ran(results):
        memory = result["memory"]
        if not memory["fits"]:
            name, size = next(iter(memory["items"].items()))
            lines.append(
                f"{result['name']} does not fit: {memory['needed'] / GB:.1f} GB of {memory['capacity'] / GB:.0f} GB; "
                f"largest item: {name}, {size / GB:.1f} GB"
            )
        lines += [
            f"{result['name']} does not fit into the {what}: {memory[place]['peak'] / GB:.1f} GB of "
            f"{memory[place]['capacity'] / GB:.0f} GB"
            for place, what in ELSEWHERE.items()
            if place in memory and not memory[place]["fits"]
        ]
        by_host = result["host_time"] + result["exposed_by_cause"]["host"]
        if by_host > HOST_BOUND * result["step_time"]:
            lines.append(
                f"{result['name']} is host-bound: for {100 * by_host / result['step_time']:.0f} % {_why(memory)}"
            )
    for key, told in (("assumed", "assumed numbers used"), ("measured", "measured times used")):
        names = list(dict.fromkeys(name for result in _ran(results) for name in result[key]))
        if names:
            lines.append(f"{told}: " + ", ".join(names))
    return lines


def _why(memory: Mapping[str, Any]) -> str:
    """What a host-bound step waits for, and what helps."""
    if "host" in memory:
        return "of the step the GPU waits for the host, which updates parameters; more gradient accumulation helps"
    return "of the step the GPU waits for launches; larger micro-batches, larger kernels or a compiled model help"


def volume_table(volumes: Mapping[str, Volume]) -> Table:
    """Traffic of one step by variant and role."""
    table = titled("Communication volume of one step")
    for heading in ("variant", "collective"):
        table.add_column(heading, no_wrap=True)
    for heading in ("calls", "as published\n[Ψ]", "in host\n[GB/rank]", "between\n[GB/rank]", "leaves a host\n[Ψ]"):
        table.add_column(escape(heading), justify="right")
    for name, item in volumes.items():
        for role in item.roles:
            leaves = role.inter_host * item.ranks_per_host / item.model_bytes
            table.add_row(
                name, role.role, str(role.count), f"{role.payload / item.model_bytes:.3f}",
                f"{role.intra_host / GB:.3f}", f"{role.inter_host / GB:.3f}", f"{leaves:.3f}",
            )  # fmt: skip
        table.add_row(
            name, "[bold]total", "", f"[bold]{item.in_psi:.3f}", f"[bold]{item.intra_host / GB:.3f}",
            f"[bold]{item.inter_host / GB:.3f}", f"[bold]{item.inter_host_in_psi:.3f}", end_section=True,
        )  # fmt: skip
    return table


def transfer_table(volumes: Mapping[str, Volume]) -> Table:
    """Copies of one step between devices, memory of the hosts and drives."""
    table = titled("Copies between device, memory of the host and NVMe in one step [GB/rank]")
    table.add_column("variant", no_wrap=True)
    routes = dict.fromkeys(route for item in volumes.values() for route in item.transfers)
    for route in routes:
        table.add_column(route.replace("_", " "), justify="right")
    for name, item in volumes.items():
        table.add_row(name, *(f"{item.transfers.get(route, 0.0) / GB:.3f}" for route in routes))
    return table


def memory_table(memories: Mapping[str, Mapping[str, Any]]) -> Table:
    """Memory at the peak, by item, when that is, and what the allocator and the device add.

    Parameters
    ----------
    memories
        As ``zerosim run --json`` has them, by variant.
    """
    table = titled("Memory per GPU at its peak [GB]")
    table.add_column("item", no_wrap=True)
    for variant in memories:
        table.add_column(variant, justify="right")

    def row(name: str, key: str, style: str | None = None) -> None:
        table.add_row(name, *(_gigabytes(memory[key]) for memory in memories.values()), style=style)

    for name in dict.fromkeys(name for memory in memories.values() for name in memory["items"]):
        table.add_row(name, *(_gigabytes(memory["items"].get(name, 0.0)) for memory in memories.values()))
    table.add_section()
    row("peak, allocated", "peak", "bold")
    table.add_row("  reached after", *(readable(memory["peak_at"], "s") for memory in memories.values()))
    table.add_row("  in", *(memory["peak_phase"] for memory in memories.values()))
    table.add_row("  of", *(memory["peak_module"] for memory in memories.values()))
    table.add_section()
    row("reserved by the allocator", "reserved")
    row("used on the device", "device")
    row("needed at least", "needed")
    row("capacity", "capacity")
    table.add_row("fits", *(_fits(memory) for memory in memories.values()))
    if any(memory["deepspeed_estimate"] for memory in memories.values()):
        row("states, DeepSpeed's estimator", "deepspeed_estimate")
    return table


def host_table(memories: Mapping[str, Mapping[str, Any]]) -> Table:
    """Memory of a host and its drives, for the variants that offload."""
    table = titled("Memory per host, where states are offloaded [GB]")
    table.add_column("item", no_wrap=True)
    for variant in memories:
        table.add_column(variant, justify="right")
    hosts = [memory["host"] for memory in memories.values()]
    for name in dict.fromkeys(name for host in hosts for name in host["items"]):
        table.add_row(name, *(f"{host['items'].get(name, 0.0) / GB:.2f}" for host in hosts))
    table.add_section()
    for key in ("peak", "pinned", "capacity"):
        label = "of it pinned" if key == "pinned" else key
        table.add_row(label, *(f"{host[key] / GB:.2f}" for host in hosts), style="bold" if key == "peak" else None)
    table.add_row("fits", *("yes" if host["fits"] else "[red]no[/red]" for host in hosts))
    if any("nvme" in memory for memory in memories.values()):
        drives = [memory.get("nvme") for memory in memories.values()]
        table.add_row(
            "on NVMe", *(f"{item['peak'] / GB:.2f} of {item['capacity'] / GB:.0f}" if item else "-" for item in drives)
        )
    if any(host["deepspeed_estimate"] for host in hosts):
        said = (host["deepspeed_estimate"] for host in hosts)
        table.add_row("DeepSpeed's estimator", *("-" if size is None else f"{size / GB:.2f}" for size in said))
    return table


def _gigabytes(size: float | None) -> str:
    return "-" if size is None else f"{size / GB:.2f}"


def program_table(rows: Sequence[Mapping[str, Any]], title: str) -> Table:
    """Collectives in issue order."""
    table = titled(title)
    for heading in ("phase", "micro-batch", "collective", "role", "for", "payload", "group", "stream"):
        # names of layers can be long: they are folded, not the numbers
        table.add_column(heading, no_wrap=heading != "for", overflow="fold", min_width=None if heading == "for" else 7)
    for row in rows:
        table.add_row(
            row["phase"], str(row["micro_batch"]), row["kind"], row["role"], row["module"],
            readable(row["bytes"], "B", 4), f"{row['communicator']} ({row['group']['size']} ranks)", row["stream"],
        )  # fmt: skip
    return table


def titled(title: str) -> Table:
    """Return an empty table."""
    # units stand in square brackets, which rich would take for markup
    return Table(
        title=escape(title),
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )


def seconds(value: float) -> str:
    """Seconds with enough digits to tell variants apart."""
    return f"{value:.{3 if value < 10 else 2 if value < 100 else 1}f}"
