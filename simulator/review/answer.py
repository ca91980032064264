"""A scenario answered in full: every section of the page, in the order in which a review asks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

from simulator.errors import UnknownNameError
from simulator.explore import Outcome, attempt, report
from simulator.review.asked import breakeven_section, whatif_section
from simulator.review.exposed import exposed_section
from simulator.review.memory import memory_section
from simulator.review.money import cost_section
from simulator.review.numbers import assumptions_section
from simulator.review.parts import During, Material, Section
from simulator.review.timeline import timeline_section
from simulator.review.variants import fastest, head, variants_section
from simulator.world.scenario import Scenario, Variant

__all__ = ["LEFT_OUT_BY_QUICK", "SECTIONS", "Review", "review"]

SECTIONS: Final[Mapping[str, Callable[[Material], Section | None]]] = {
    "variants": variants_section,
    "timeline": timeline_section,
    "exposed": exposed_section,
    "whatif": whatif_section,
    "breakeven": breakeven_section,
    "memory": memory_section,
    "cost": cost_section,
    "assumptions": assumptions_section,
}
"""By the names that ``--without`` takes; a section that has nothing to say is None."""

LEFT_OUT_BY_QUICK: Final = ("whatif", "breakeven")
"""Those that simulate many times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """Everything that the page says."""

    title: str
    version: str
    head: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    left_out: tuple[str, ...]
    """Names of the sections that were not asked for."""


def review(
    scenario: Scenario,
    variants: Collection[Variant],
    version: str,
    *,
    closer: str | None = None,
    without: Collection[str] = (),
    during: During = lambda _: nullcontext(),
) -> Review:
    """Simulate *variants* of a scenario and write the sections.

    Parameters
    ----------
    closer
        Name of the variant that is looked into; default: the fastest that fits in memory.
    without
        Names of :data:`SECTIONS` to leave out.
    during
        Is told what takes long.

    Raises
    ------
    InputError
        No variant can run, *closer* is none that ran, or a name in *without* is no section.
    """
    for name in without:
        if name not in SECTIONS:
            raise UnknownNameError("section", name, SECTIONS, key="--without")
    with during("simulating the variants"):
        asked = _material(scenario, tuple(variants), version, closer)
    sections = []
    for name, write in SECTIONS.items():
        if name not in without:
            with during(f"writing: {name}"):
                sections.append(write(asked))
    return Review(
        title=scenario.name,
        version=version,
        head=tuple(head(asked)),
        sections=tuple(section for section in sections if section is not None),
        left_out=tuple(name for name in SECTIONS if name in without),
    )


def _material(scenario: Scenario, variants: tuple[Variant, ...], version: str, closer: str | None) -> Material:
    attempts = attempt(scenario, variants)
    results = report(scenario, attempts, version)["results"]
    outcomes = {item.variant.name: item for item in attempts if isinstance(item, Outcome)}
    name = closer or fastest([result for result in results if not result["failure"]])["name"]
    if name not in outcomes:
        raise UnknownNameError("variant", name, outcomes, file=scenario.file, key="--timeline")
    return Material(
        scenario=scenario,
        variants=variants,
        outcomes=tuple(outcomes.values()),
        results=tuple(results),
        closer=outcomes[name],
    )
