"""The command that fits a cluster to measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from simulator.cli.common import PicturePath, print_json, print_tables, written_to

if TYPE_CHECKING:
    from rich.table import Table

    from simulator.calibrate import Calibration

__all__ = ["calibrate"]


@click.command()
@click.argument("name")
@click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--hosts", type=click.IntRange(min=1), help="That the tests ran on, if the logs do not list devices.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write a cluster file (.yaml).")
@click.option(
    "--plot", type=PicturePath(path_type=Path, dir_okay=False), help="Draw the residuals: a .png, .svg or .pdf file."
)
@click.option("--json", "machine", is_flag=True, help="Print one JSON object instead of tables.")
def calibrate(
    name: str, logs: tuple[Path, ...], hosts: int | None, output: Path | None, plot: Path | None, machine: bool
) -> None:
    """Fit cluster NAME to LOGS of nccl-tests: latency, bandwidth, and a table that takes the model's place."""
    from simulator.calibrate import calibrate as fitted
    from simulator.calibrate import calibrated_file
    from simulator.readings.files import write_atomically
    from simulator.world.topology.cluster import load_cluster

    cluster = load_cluster(name)
    found = fitted(cluster, logs, hosts)
    if output:
        text = calibrated_file(name, cluster, found, output.stem)
        write_atomically(output, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    if plot:
        from simulator.readings.plots import residuals_figure

        write_atomically(plot, residuals_figure([each.as_json() for each in found], cluster.title).savefig)
    if machine:
        print_json({"calibrations": [each.as_json() for each in found], "written": str(output) if output else None})
        return
    written = [written_to(path) for path in (output, plot) if path]
    print_tables(_table(found), *written)


def _table(found: tuple[Calibration, ...]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from simulator.units import binary, readable

    table = Table(title="T = alpha + payload / bandwidth", title_justify="left", box=SIMPLE_HEAD)
    headings = (
        "collective", "hosts", "ranks", "alpha", "bandwidth", "fitted from", "worst residual",
        "catalogue's worst error", "file",
    )  # fmt: skip
    for heading in headings:
        table.add_column(heading)
    for each in found:
        measured, fit = each.measured, each.fit
        fitted = ("too few", "payloads", "", "")
        if fit is not None:
            fitted = (
                readable(fit.alpha, "s"), readable(fit.bandwidth, "B/s"), binary(fit.above), f"{100 * fit.worst:.1f} %",
            )  # fmt: skip
        fits = [error for size, error in each.model if fit is None or size >= fit.above]
        worst = f"{100 * max(fits, key=abs):+.1f} %"
        table.add_row(measured.kind, str(measured.hosts), str(measured.ranks), *fitted, worst, measured.file)
    return table
