"""The command that times one collective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simulator.cli.common import PicturePath, print_json, print_tables, progress, written_to

if TYPE_CHECKING:
    from rich.table import Table

    from simulator.collective import Bench, Row
    from simulator.laws.collectives.base import CollectiveKind
    from simulator.world.topology.cluster import Library

__all__ = ["collective"]

ELEMENT = 4  # definition: bytes of a float, nccl-tests' default type

BESIDE = 3
"""Topologies that stand side by side in one table."""


@click.command()
@click.argument("kind")
@click.option("--topology", "topologies", multiple=True, required=True, metavar="NAME", help="May be repeated.")
@click.option("--hosts", type=click.IntRange(min=1), help="Default: the file's.")
@click.option("--accelerators-per-host", type=click.IntRange(min=1), help="In use; default: all.")
@click.option("--min", "smallest", default="1MiB", show_default=True, metavar="SIZE", help="Of the whole array.")
@click.option("--max", "largest", default="1GiB", show_default=True, metavar="SIZE")
@click.option("--factor", type=int, default=2, show_default=True, help="From one size to the next.")
@click.option("--algorithm", metavar="NAME", help="NCCL's: ring, tree, nvls, ...; default: what its tuner chooses.")
@click.option("--protocol", metavar="NAME", help="NCCL's: ll, ll128, simple; default: what its tuner chooses.")
@click.option("--channels", type=click.IntRange(1, 64), help="Of rings and trees.")
@click.option("--sharp", is_flag=True, help="Switches of the network reduce.")
@click.option("--library", metavar="NAME", help="nccl, rccl or a textbook algorithm; default: the cluster's.")
@click.option("--reference", is_flag=True, help="Simulate every message, too: textbook algorithms, few GPUs.")
@click.option("--json", "machine", is_flag=True, help="Print one JSON object instead of tables.")
@click.option(
    "-o", "--output", type=PicturePath(path_type=Path, dir_okay=False), help="Draw a .png, .svg or .pdf file."
)
def collective(kind: str, machine: bool, output: Path | None, **asked: Any) -> None:
    """Time collective KIND alone over sizes, as nccl-tests prints it.

    KIND: all_gather, reduce_scatter, all_reduce, all_to_all, broadcast, reduce.
    """
    from simulator.collective import kind_called, sizes
    from simulator.readings.files import write_atomically

    meant = kind_called(kind)
    payloads = tuple(sizes(_size("min", asked["smallest"]), _size("max", asked["largest"]), asked["factor"]))
    groups = _timed(meant, payloads, asked)
    content = [row.as_json() for group in groups for row in group]
    if output:
        from simulator.readings.plots import collective_figure

        write_atomically(output, collective_figure(content, _title(groups)).savefig)
    if machine:
        print_json({"rows": content})
        return
    print_tables(*_tables(groups), *([written_to(output)] if output else []))


def _size(key: str, text: str) -> float:
    from simulator.errors import InputError
    from simulator.units import Bytes

    try:
        return float(Bytes.parse(text))
    except InputError as error:
        raise InputError(error.problem, key=f"--{key}", value=text, remedy="write it like '1 MiB'") from None


def _timed(kind: CollectiveKind, payloads: Sequence[float], asked: Mapping[str, Any]) -> list[list[Row]]:
    """Rows of every topology; what is wrong is named by the option, not by the key of a scenario."""
    from simulator.errors import InputError

    def row(bench: Bench, payload: float) -> Row:
        found = bench.row(kind, payload)
        done()
        return found

    try:
        benches = tuple(_benches(asked))
        with progress("Simulating", len(benches) * len(payloads)) as done:
            return [[row(bench, payload) for payload in payloads] for bench in benches]
    except InputError as error:
        if error.key == "topology.nccl":
            error.key = "--algorithm, --protocol"
        raise


def _benches(asked: Mapping[str, Any]) -> Iterator[Bench]:
    """Every topology once, in the order in which they were named."""
    from simulator.collective import Bench
    from simulator.world.scenario import NcclSection, forced
    from simulator.world.topology.cluster import load_cluster

    nccl = NcclSection(**{key: asked[key] for key in ("algorithm", "protocol", "channels", "sharp")})
    for name in dict.fromkeys(asked["topologies"]):
        cluster = load_cluster(name, hosts=asked["hosts"], accelerators_per_host=asked["accelerators_per_host"])
        yield Bench(cluster, _library(asked["library"]), forced(nccl, None), reference=asked["reference"])


def _library(name: str | None) -> Library | None:
    from typing import get_args

    from simulator.errors import UnknownNameError
    from simulator.world.topology.cluster import Library

    for known in get_args(Library):
        if name in (None, known):
            return known if name else None
    raise UnknownNameError("library", str(name), get_args(Library))


def _title(groups: Sequence[Sequence[Row]]) -> str:
    row = groups[0][0]
    where = f" on {row.topology}, {row.ranks:,} GPUs" if len(groups) == 1 else ""
    return f"Bus bandwidth of {row.kind.replace('_', '-')}{where}"


def _tables(groups: Sequence[Sequence[Row]]) -> Iterator[Table]:
    if len(groups) == 1 or groups[0][0].reference_time is not None:
        yield from map(_table, groups)
    else:
        for first in range(0, len(groups), BESIDE):
            yield _comparison(groups[first : first + BESIDE])


def _table(rows: Sequence[Row]) -> Table:
    """nccl-tests' columns, and what carried it out."""
    first = rows[0]
    table = _empty(f"{first.kind} on {first.topology}: {first.ranks} ranks, {first.ranks // first.hosts} on each host")
    for heading in ("size\n(B)", "count\n(elements)", "type", "time\n(us)", "algbw\n(GB/s)", "busbw\n(GB/s)"):
        table.add_column(heading, justify="right")
    table.add_column("algorithm")
    table.add_column("protocol")
    if first.reference_time is not None:
        table.add_column("reference\n(us)", justify="right")
        table.add_column("difference", justify="right")
    for row in rows:
        cells = (f"{row.payload:.0f}", str(_count(row)), "float", *_numbers(row), row.algorithm, row.protocol)
        table.add_row(*cells, *_reference(row))
    return table


def _comparison(groups: Sequence[Sequence[Row]]) -> Table:
    table = _empty(f"{groups[0][0].kind}: time (us), busbw (GB/s), algorithm")
    table.add_column("size\n(B)", justify="right")
    for group in groups:
        row = group[0]
        table.add_column(f"{row.topology}\n{row.hosts} x {row.ranks // row.hosts}: time", justify="right", no_wrap=True)
        table.add_column("busbw", justify="right", no_wrap=True)
        table.add_column("algorithm", no_wrap=True)
    for line in zip(*groups, strict=True):
        cells = [cell for row in line for cell in (*_numbers(row)[::2], _carried_out(row))]
        table.add_row(f"{line[0].payload:.0f}", *cells)
    return table


def _empty(title: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(title=title, title_justify="left", box=SIMPLE_HEAD)


def _count(row: Row) -> int:
    """Elements as nccl-tests counts: those of one rank where each rank has a part of the array."""
    shared = row.kind in ("all_gather", "reduce_scatter", "all_to_all")
    return int(row.payload) // ELEMENT // (row.ranks if shared else 1)


def _numbers(row: Row) -> tuple[str, str, str]:
    return (f"{row.time * 1e6:.2f}", f"{row.algbw / 1e9:.2f}", f"{row.busbw / 1e9:.2f}")


def _reference(row: Row) -> tuple[str, ...]:
    if row.reference_time is None or row.difference is None:
        return ()
    shown = round(row.difference, 4) + 0.0  # rounding is no difference: -0.0 + 0.0 is 0.0
    return (f"{row.reference_time * 1e6:.2f}", f"{shown:+.2%}")


def _carried_out(row: Row) -> str:
    return f"{row.algorithm}/{row.protocol}" if row.protocol else row.algorithm
