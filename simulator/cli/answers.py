"""The commands that answer what to run, and what to rent."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from simulator import __version__
from simulator.cli.common import PicturePath, print_json, print_tables, scenario_options, waiting

if TYPE_CHECKING:
    from simulator.answers.job import Job
    from simulator.answers.offers import Market

__all__ = ["ladder", "rent"]

Command = TypeVar("Command", bound=Callable[..., None])


class Percent(click.ParamType[float]):
    """A part of a whole, less than all of it."""

    name = "PERCENT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read ``10%``."""
        from simulator.units import Share

        try:
            part = float(value if isinstance(value, float) else Share.parse(value))
        except ValueError:
            part = -1.0
        if not 0 <= part < 1:
            self.fail(f"{value!r}: expected a part of a whole, like 10%", param, ctx)
        return part


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
    from simulator.answers.ladder import ladder as climb

    job = _job(scenario, **asked)
    with waiting("simulating the rungs"):
        content = climb(job, headroom).as_json()
    if machine:
        print_json({"scenario": dict(job.scenario.raw), "version": __version__, **content})
        return
    from rich.markup import escape

    from simulator.readings.advice import ladder_table

    print_tables(ladder_table(content, _title(job)), *(escape(line) for line in content["why"]))


@click.command()
@_answer_options
@click.option("--prices", default=None, metavar="LIST", help="A list of prices, by name or path.")
@click.option("--spot", is_flag=True, help="Spot prices, where the list has them.")
@click.option("--tax", type=Percent(), default="10%", show_default=True, help="Of a step, for the network with ZeRO-3.")
@click.option("--networks", default=None, metavar="LIST", help="Bandwidths per host: 100,200,400Gbit/s.")
@click.option("--brief", is_flag=True, help="Leave out on how many GPUs ZeRO-3 pays.")
@click.option("--plot", type=PicturePath(path_type=Path, dir_okay=False), help="Also draw that: .png, .svg or .pdf.")
def rent(
    scenario: str, headroom: float, machine: bool, tax: float, networks: str | None, brief: bool, plot: Path | None,
    **asked: Any,
) -> None:  # fmt: skip
    """Say on which GPUs to train SCENARIO, what that costs, and on how many of them ZeRO-3 pays."""
    from simulator.answers.counts import counts, stops
    from simulator.answers.rent import rent as compare
    from simulator.crowd import Crowd

    if brief and (plot is not None or networks is not None):
        raise click.UsageError("--brief leaves out what --plot and --networks are for")
    speeds, crowd = _networks(networks), Crowd()
    job, found = _market(scenario, **asked)
    with waiting("simulating the offers"):
        content = compare(job, found, crowd, headroom=headroom, tax=tax).as_json()
    with waiting("simulating numbers of GPUs and networks"):
        many = [] if brief else counts(job, found, crowd, speeds, headroom)
    content |= {"counts": [item.as_json() for item in many], "stops": [item.as_json() for item in stops(many)]}
    if machine:
        print_json({"scenario": dict(job.scenario.raw), "version": __version__, **content})
    else:
        _print_rent(content, job, brief=brief)
    if plot is not None:
        _draw(content, job, plot)
        print_tables(*([] if machine else [f"written to {plot}"]))


def _market(scenario: str, *, prices: str | None, spot: bool, **asked: Any) -> tuple[Job, Market]:
    from simulator.answers.offers import market
    from simulator.world.prices import NEWEST, load_prices

    job = _job(scenario, **asked)
    return job, market(job, load_prices(prices or NEWEST), "spot" if spot else "on_demand")


def _print_rent(content: dict[str, Any], job: Job, *, brief: bool) -> None:
    from rich.markup import escape

    from simulator.readings.advice import counts_table, offers_table

    listed = content["prices"]
    title = f"{_title(job)}; prices: {listed['title']} ({listed['source']})"
    print_tables(offers_table(content, title), *(escape(line) for line in content["why"]))
    if brief:
        return
    if not any(item["rival"] for item in content["counts"]):
        print_tables("no bigger GPU of the list is a rival to ZeRO-3: none fits under ZeRO-2, or none is as fast")
        return
    for strategy in dict.fromkeys(count["strategy"] for count in content["counts"]):
        about = (
            f"{strategy} on {job.scenario.accelerator.name}: price of a token / that on the cheapest bigger GPU as fast"
        )
        print_tables("", counts_table(content, strategy, about))
    print_tables("below 1 it pays; alone: no bigger GPU on a lower stage is as fast")


def _draw(content: dict[str, Any], job: Job, plot: Path) -> None:
    from simulator.readings.files import write_atomically
    from simulator.readings.plots import counts_figure

    tokens = job.micro_batches * job.scenario.tokens_per_micro_batch
    size = f"{job.scenario.training.micro_batch} x {job.scenario.model.sequence_length} tokens"
    title = f"{job.scenario.model.name}, {tokens / 1e6:.3g} million tokens in a step, micro-batches of {size}"
    write_atomically(plot, counts_figure(content["counts"], content["stops"], title).savefig)


def _job(scenario: str, *, overrides: Sequence[str], topology: str | None, names: Sequence[str], textbook: bool) -> Job:
    from simulator.answers.job import load_job

    if len(names) > 1:
        raise click.UsageError("--variant: one variant is what the stages start from")
    cluster = [f"topology.cluster={topology}"] if topology else []
    return load_job(scenario, [*overrides, *cluster], names[0] if names else None, textbook=textbook)


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


def _title(job: Job) -> str:
    scenario = job.scenario
    where = f"{job.cluster.hosts} x {job.cluster.name} = {job.cluster.ranks} x {scenario.accelerator.name}"
    return f"{scenario.name}; {where}; {'textbook' if job.textbook else 'DeepSpeed'}"
