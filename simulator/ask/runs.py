"""The question how long a step is, how much communication is exposed, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from simulator import __version__
from simulator.ask.answer import Answer
from simulator.ask.source import AS_IT_IS, Source, scenario_of, variants_of
from simulator.errors import InputError, UnknownNameError
from simulator.explore import Failure, Outcome, attempt, report
from simulator.readings.detail import details
from simulator.readings.footprint import fullest
from simulator.readings.rendered import lines
from simulator.readings.report import timeline_of
from simulator.readings.resolved import remarks
from simulator.readings.rows import flat_rows
from simulator.readings.spread_table import jittered, rank_classes
from simulator.readings.table import ceilings, comparison, exposed_by, notes
from simulator.world.scenario import Scenario

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

__all__ = ["PICTURES", "Run", "check_picture", "run"]

GB: Final = 1e9  # definition: bytes


@dataclass(frozen=True, kw_only=True)
class Run(Answer):
    """Variants of a scenario side by side: ``zerosim run``."""

    scenario: Scenario = field(repr=False)
    attempts: tuple[Outcome | Failure, ...] = field(repr=False)

    @property
    def results(self) -> list[dict[str, Any]]:
        """One for each variant, those that cannot run with a reason."""
        found: list[dict[str, Any]] = self.content["results"]
        return found

    def outcome(self, variant: str | None = None) -> Outcome:
        """Return what happened in the step of one variant, by default of the first that ran.

        Raises
        ------
        UnknownNameError
            None of that name ran.
        """
        ran = {item.variant.name: item for item in self.attempts if isinstance(item, Outcome)}
        name = next(iter(ran)) if variant is None else variant
        if name not in ran:
            raise UnknownNameError("variant", name, ran, file=self.scenario.file)
        return ran[name]

    def tables(self) -> Iterator[Table | str]:
        """Yield what ``zerosim run`` prints, with critical paths if they were asked for."""
        yield from self.comparison()
        if any("critical_path" in result for result in self.results):
            yield from details(self.results)

    def comparison(self) -> Iterator[Table | str]:
        """Yield the tables without critical paths."""
        results, variants = self.results, [item.variant for item in self.attempts]
        yield comparison(results, f"{self.scenario.name}; {self._where} = {self._gpus}")
        yield exposed_by(results, "exposed_by_collective", "Exposed communication by collective [ms]")
        yield exposed_by(results, "exposed_by_cause", "Exposed communication by cause [ms]")
        yield ceilings(results)
        yield from rank_classes(results)
        yield from jittered(results)
        yield from lines(notes(results))
        yield from lines(f"{variant.name}: {remark}" for variant in variants for remark in remarks(variant))

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield a row per variant; columns are the dotted keys of a result."""
        return flat_rows(self.results)

    def plot(self, kind: str = "exposed", variant: str | None = None) -> Figure:
        """Draw ``exposed`` or ``jitter`` of all variants, or ``timeline`` or ``memory`` of one.

        Raises
        ------
        InputError
            There is no such figure or variant, or nothing is random.
        """
        check_picture(kind, self.scenario)
        return PICTURES[kind](self, variant)

    @property
    def _where(self) -> str:
        return f"{self.scenario.cluster.hosts} x {self.scenario.cluster.name}"

    @property
    def _gpus(self) -> str:
        return f"{self.scenario.mesh.ranks} x {self.scenario.accelerator.name}"

    def _exposed(self, _: str | None) -> Figure:
        from simulator.readings.plots import exposed_figure

        return exposed_figure(self.results, f"Exposed communication, {self.scenario.name}, {self._where}")

    def _jitter(self, _: str | None) -> Figure:
        from simulator.readings.plots import jitter_figure

        return jitter_figure(self.results, f"Steps with random times, {self.scenario.name}, {self._where}")

    def _timeline(self, variant: str | None) -> Figure:
        from simulator.readings.plots import timeline_figure

        outcome = self.outcome(variant)
        title = _exposed_sentence(outcome)
        return timeline_figure(outcome.timeline.classes[0], outcome.reading, title, path=outcome.path())

    def _memory(self, variant: str | None) -> Figure:
        from simulator.readings.plots import memory_figure

        outcome = self.outcome(variant)
        memory = outcome.result.memory
        curve = timeline_of(self.scenario.at(outcome.variant), outcome.variant, outcome.timeline)
        return memory_figure(outcome.timeline.classes[0], memory, curve, *_memory_sentences(outcome))


PICTURES: Final[Mapping[str, Callable[[Run, str | None], Figure]]] = {
    "exposed": Run._exposed,
    "jitter": Run._jitter,
    "timeline": Run._timeline,
    "memory": Run._memory,
}
"""What :meth:`Run.plot` draws."""


def check_picture(kind: str, scenario: Scenario) -> None:
    """Refuse a picture that there cannot be.

    Raises
    ------
    InputError
        There is no such figure, or nothing is random.
    """
    if kind not in PICTURES:
        raise UnknownNameError("figure", kind, PICTURES, key="kind")
    if kind == "jitter" and scenario.jitter is None:
        raise InputError("nothing is random", file=scenario.file, key="jitter", remedy="--set jitter.kernel=0.02")


def _exposed_sentence(outcome: Outcome) -> str:
    """Say how much of a step is exposed communication."""
    step, stalled = outcome.result.step_time, outcome.reading.stalled
    share = 100 * stalled / step if step else 0.0
    return f"{outcome.variant.name}: {stalled:.3g} s of the {step:.4g} s step is exposed communication ({share:.1f} %)"


def _memory_sentences(outcome: Outcome) -> tuple[str, str]:
    memory = outcome.result.memory
    largest, size = next(iter(memory["items"].items()))
    verdict = "fits into" if memory["fits"] else "does not fit into"
    return (
        f"{outcome.variant.name}: memory peaks at {memory['peak'] / GB:.1f} GB in {fullest(memory)}; "
        f"the largest item is {largest}, {size / GB:.1f} GB",
        f"With context, communicators and holes the step needs {memory['needed'] / GB:.1f} GB and {verdict} "
        f"{memory['capacity'] / GB:.0f} GB",
    )


def run(
    source: Source,
    changes: Mapping[str, Any] = AS_IT_IS,
    *,
    variants: str | Sequence[str] = (),
    detail: bool = False,
    done: Callable[[], None] = lambda: None,
) -> Run:
    """Simulate one step of each variant; call *done* after each.

    Parameters
    ----------
    changes
        Values by dotted key.
    variants
        Names; all by default.
    detail
        Add critical paths, and what is exposed by layer and link; long steps are simulated for it.

    Raises
    ------
    InputError
        The scenario cannot be used, or no variant can run.
    """
    scenario = scenario_of(source, changes)
    attempts = attempt(scenario, variants_of(scenario, variants), done)
    content = report(scenario, attempts, __version__, detail=detail)
    return Run(content=content, scenario=scenario, attempts=attempts)
