"""The question what a better resource would gain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simulator import __version__
from simulator.ask.answer import Answer
from simulator.ask.source import AS_IT_IS, Source, each, scenario_of, variants_of
from simulator.errors import InputError
from simulator.readings.gains_table import gains_tables
from simulator.readings.rendered import lines
from simulator.whatif import whatif as sensitivities
from simulator.world.scenario import Scenario

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

__all__ = ["Gains", "whatif"]


@dataclass(frozen=True, kw_only=True)
class Gains(Answer):
    """How much shorter steps are with better resources: ``zerosim whatif``."""

    scenario: Scenario = field(repr=False)

    def tables(self) -> Iterator[Table | str]:
        """Yield a table per variant."""
        for answer in self.content["variants"]:
            yield from gains_tables(answer)
        yield from lines(f"{name} cannot run: {reason}" for name, reason in self.content["failures"].items())

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield a row per variant, resource and factor."""
        for answer in self.content["variants"]:
            for item in answer["sensitivities"]:
                of_resource = {key: value for key, value in item.items() if key != "gains"}
                for gain in item["gains"]:
                    yield {"variant": answer["name"], **of_resource, **gain}

    def units(self) -> Mapping[str, str]:
        """Times, all of them."""
        return dict.fromkeys(("on_path", "slope", "step_time", "gain", "foreseen"), "s")

    def plot(self) -> Figure:
        """Draw the gains as bars, most at the top."""
        from simulator.readings.plots import tornado_figure

        return tornado_figure(self.content["variants"], f"What if it were better: {self.scenario.name}")


def whatif(
    source: Source,
    changes: Mapping[str, Any] = AS_IT_IS,
    *,
    variants: str | Sequence[str] = (),
    done: Callable[[], None] = lambda: None,
) -> Gains:
    """Simulate each variant with each of its resources 1.1 and 2 times better; call *done* after each variant.

    Raises
    ------
    InputError
        The scenario cannot be used, or no variant can run.
    """
    scenario = scenario_of(source, changes)
    chosen = variants_of(scenario, variants)
    answers, failures = each(chosen, lambda variant: sensitivities(scenario, variant).as_json(), done)
    reasons = {name: str(error) for name, error in failures.items()}
    if not answers:
        raise InputError("; ".join(f"{name} cannot run: {reason}" for name, reason in reasons.items()))
    head = {"scenario": dict(scenario.raw), "version": __version__, "failures": reasons}
    return Gains(content=head | {"variants": answers}, scenario=scenario)
