"""The commands that answer what to run, and what to rent."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from simulator.cli.common import (
    Percent,
    PicturePath,
    only_one,
    print_json,
    print_tables,
    scenario_options,
    waiting,
    written_to,
)

if TYPE_CHECKING:
    from simulator.answers.job import Job

__all__ = ["ladder", "rent"]

Command = TypeVar("Command", bound=Callable[..., None])


def _answer_options(command: Command) -> Command:
    options: Sequence[Callable[[Command], Command]] = (
        click.option(
            "--headroom", type=Percent(), default="10%", show_default=True, help="Of a GPU's memory, kept free."
        ),
        click.option("--textbook", is_flag=True, help="The published idealisations instead of DeepSpeed's schedules."),
        click.option("--json", "machine", is_flag=True, help="Print one JSON object instead of tables."),
    )
    for option in reversed(options):
        command = option(command)
    return scenario_options(command)


@click.command()
@_answer_options
def ladder(scenario: str, headroom: float, machine: bool, **asked: Any) -> None:
    """Try stages 0 to 3, checkpointing, offload and more GPUs for SCENARIO; say which is the first that fits."""
    from simulator.ask import ladder as ask

    with waiting("simulating the rungs"):
        answer = ask(_job(scenario, **asked), headroom=headroom)
    if machine:
        print_json(answer.as_json())
    else:
        print_tables(*answer.tables())


@click.command()
@_answer_options
@click.option("--prices", default=None, metavar="LIST", help="A list of prices, by name or path.")
@click.option("--spot", is_flag=True, help="Spot prices, where the list has them.")
@click.option("--tax", type=Percent(), default="10%", show_default=True, help="Of a step, for the network with ZeRO-3.")
@click.option("--networks", default=None, metavar="LIST", help="Bandwidths per host: 100,200,400Gbit/s.")
@click.option("--brief", is_flag=True, help="Leave out on how many GPUs ZeRO-3 pays.")
@click.option("--plot", type=PicturePath(path_type=Path, dir_okay=False), help="Also draw that: .png, .svg or .pdf.")
def rent(scenario: str, headroom: float, machine: bool, networks: str | None, plot: Path | None, **asked: Any) -> None:
    """Say on which GPUs to train SCENARIO, what that costs, and on how many of them ZeRO-3 pays."""
    from simulator.ask import rent as ask

    if asked["brief"] and (plot is not None or networks is not None):
        raise click.UsageError("--brief leaves out what --plot and --networks are for")
    speeds = _networks(networks)
    names = ("prices", "spot", "tax", "brief")
    options = {name: asked.pop(name) for name in names}
    with waiting("simulating the offers"):
        answer = ask(_job(scenario, **asked), networks=speeds, headroom=headroom, **options)
    if machine:
        print_json(answer.as_json())
    else:
        print_tables(*answer.tables())
    if plot is not None:
        from simulator.readings.files import write_atomically

        write_atomically(plot, answer.plot().savefig)
        print_tables(*([] if machine else [written_to(plot)]))


def _job(scenario: str, *, overrides: Sequence[str], topology: str | None, names: Sequence[str], textbook: bool) -> Job:
    from simulator.answers.job import load_job

    cluster = [f"topology.cluster={topology}"] if topology else []
    return load_job(scenario, [*overrides, *cluster], only_one(names), textbook=textbook)


def _networks(text: str | None) -> Sequence[float]:
    from simulator.answers.counts import NETWORKS
    from simulator.errors import InputError
    from simulator.sweep.axes import axis
    from simulator.units import Bandwidth

    if text is None:
        return NETWORKS
    values = [str(point["network"]) for point in axis(f"network={text}", "--networks").points]
    unit = re.sub(r"^[\d.\s]+", "", values[-1])
    try:
        return [float(Bandwidth.parse(value if value.endswith(unit) else f"{value} {unit}")) for value in values]
    except InputError as error:
        raise InputError(error.problem, key="--networks", value=text, remedy=error.remedy) from None
