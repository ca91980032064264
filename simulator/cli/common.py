"""What the commands share: options, loading, terminals, progress."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

    from simulator.world.scenario import Scenario, Variant

__all__ = [
    "PagePath",
    "Percent",
    "PicturePath",
    "chosen",
    "load",
    "only_one",
    "picture_option",
    "print_json",
    "print_tables",
    "progress",
    "scenario_options",
    "waiting",
    "written_to",
]

PICTURES, PAGES = (".png", ".svg", ".pdf"), (".html",)

Command = TypeVar("Command", bound=Callable[..., None])


def scenario_options(command: Command) -> Command:
    """Add what every command on a scenario takes."""
    options: Sequence[Callable[[Command], Command]] = (
        click.argument("scenario"),
        click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key of the scenario."),
        click.option("--topology", metavar="NAME", help="Another cluster: the same as --set topology.cluster=NAME."),
        click.option("--variant", "names", multiple=True, metavar="NAME", help="Only this variant; may be repeated."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def load(scenario: str, overrides: Sequence[str], topology: str | None) -> Scenario:
    """Load the scenario that the options describe."""
    from simulator.world.scenario import load_scenario

    cluster = [f"topology.cluster={topology}"] if topology else []
    return load_scenario(scenario, [*overrides, *cluster])


def chosen(scenario: Scenario, names: Sequence[str]) -> tuple[Variant, ...]:
    """Return the variants called *names*, all without names."""
    return tuple(scenario.variant(name) for name in dict.fromkeys(names)) or scenario.variants


def only_one(names: Sequence[str]) -> str | None:
    """Return the one variant that was named; None if none was.

    Raises
    ------
    UsageError
        Several were.
    """
    if len(names) > 1:
        raise click.UsageError("--variant: one variant is what this starts from")
    return names[0] if names else None


def print_json(content: Any) -> None:
    """Write *content* as JSON; infinities and NaN are a bug."""
    print(json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False))


def print_tables(*parts: RenderableType) -> None:
    """Write tables and lines; in a pipe as wide as they need."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    for part in parts:
        console.print(part)


def written_to(place: object, what: str = "") -> str:
    r"""Say where *what* was written, as a line of markup: brackets in names mean themselves.

    >>> written_to("a[/b].json")
    'written to a\\[/b].json'
    """
    from rich.markup import escape

    return escape(f"{what}: written to {place}" if what else f"written to {place}")


class PicturePath(click.Path):
    """A file that a figure can be written to."""

    endings: ClassVar[Sequence[str]] = PICTURES

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse what cannot be written, before any work is done."""
        if Path(value).suffix not in self.endings:
            self.fail(f"{value!r}: expected a name that ends in {', '.join(self.endings)}", param, ctx)
        folder = Path(value).parent
        if not folder.is_dir():
            self.fail(f"{value!r}: no such folder", param, ctx)
        if not os.access(folder, os.W_OK):
            self.fail(f"{value!r}: the folder cannot be written to", param, ctx)
        return super().convert(value, param, ctx)


class PagePath(PicturePath):
    """A file that a page can be written to."""

    endings = PAGES


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


picture_option = click.option(
    "-o", "--output", type=PicturePath(path_type=Path, dir_okay=False), required=True, help="A .png, .svg or .pdf file."
)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say on a terminal what takes long, nothing in a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar on a terminal, nothing in a pipe; yields what to call after each piece of work."""
    if not sys.stderr.isatty() or total < 2:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)
