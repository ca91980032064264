"""What ``zerosim sweep`` draws: options, checks before anything is simulated, the picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from simulator.cli.common import PicturePath
from simulator.errors import InputError

if TYPE_CHECKING:
    from simulator.sweep import Study, Task

__all__ = ["check_picture", "draw", "picture_of_sweep"]

PLACES = ("x", "y", "color", "rows", "cols")

Command = TypeVar("Command", bound=Callable[..., None])


def picture_of_sweep(command: Command) -> Command:
    """Add the options of pictures."""
    options: Sequence[Callable[[Command], Command]] = (
        click.option("--plot", type=PicturePath(path_type=Path, dir_okay=False), help="Draw a .png, .svg or .pdf."),
        click.option("--figure", type=click.Choice(["curves", "heatmap", "best", "pareto"]),
                     help="What --plot draws.  [default: curves; pareto if no number varies]"),
        click.option("--x", metavar="NAME", help="Along x: a key; of pareto a metric."),
        click.option("--y", metavar="NAME", help="Along y: a metric; of heatmap and best a key."),
        click.option("--color", metavar="NAME", help="Of curves a key; of others a metric."),
        click.option("--rows", metavar="KEY", help="A row of panels for each value of a key; variant is one."),
        click.option("--cols", metavar="KEY", help="A column of panels for each."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def check_picture(study: Study, found: Iterable[Task], plot: Path | None, picture: Mapping[str, str | None]) -> None:
    """Refuse, before anything is simulated, what cannot be drawn.

    Raises
    ------
    InputError
        As :func:`simulator.readings.layout.layout`; a place without ``--plot``; prices that the scenario does not have.
    """
    from simulator.readings.layout import layout

    if plot is None:
        said = [f"--{name}" for name, value in picture.items() if value is not None]
        if said:
            raise InputError("says what is drawn, but nothing is", key=said[0], remedy="add --plot FILE.png")
        return
    points = [{"name": task.variant, "point": task.point} for task in found]
    places = layout(_kind(points, picture), points, **{place: picture[place] for place in PLACES})
    priced = study.raw.get("prices") or any(key.startswith("prices") for key in points[0]["point"])
    for place, metric in places.metrics.items():
        if metric.name.startswith("cost.") and not priced:
            remedy = "add --set 'prices.per_gpu_hour=2 USD/h'"
            raise InputError("the scenario has no prices", key=f"--{place}", value=metric.name, remedy=remedy)


def draw(study: Study, results: Iterable[Mapping[str, Any]], plot: Path, picture: Mapping[str, str | None]) -> None:
    """Write the picture, whole or not at all."""
    from simulator.readings.files import write_atomically
    from simulator.readings.plots import sweep_figure

    results = list(results)
    figure = sweep_figure(_kind(results, picture), results, study.name, **{place: picture[place] for place in PLACES})
    write_atomically(plot, figure.savefig)


def _kind(rows: Sequence[Mapping[str, Any]], picture: Mapping[str, str | None]) -> str:
    from simulator.readings.layout import default_figure

    return picture["figure"] or default_figure(rows)
