"""What a better resource would gain, and from which bandwidth on another variant is the fastest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from simulator.crowd import Crowd
from simulator.readings.plots import curves_figure, finding_of, inline_svg, tornado_figure
from simulator.readings.report import Result
from simulator.require import knob
from simulator.review.parts import Material, Picture, Section
from simulator.units import readable
from simulator.whatif import whatif

__all__ = ["breakeven_section", "whatif_section"]

VARIANTS: Final = 3
"""That are asked what a better resource would gain, which takes as long as twenty simulations of each."""

SPAN: Final = 8.0
"""Times and parts of the bandwidth that the curves reach."""

GIGA: Final = 1e9  # definition: bytes in a GB

EVERY: Final = 2
"""Of the values that a search looks at first, one is enough for a curve: neighbours are a factor of 1.4 apart."""


def whatif_section(asked: Material) -> Section:
    """Write what resources gain that are better by a tenth, and by two."""
    chosen = list(asked.best(VARIANTS))
    answers = [whatif(asked.scenario, item.variant).as_json() for item in chosen]
    figure = tornado_figure(answers, asked.scenario.name)
    finding = finding_of(figure) or "No single resource makes a step shorter"
    picture = Picture(svg=inline_svg(figure, "tornado", finding), caption="What a better resource gains")
    left = len(asked.outcomes) - len(chosen)
    idle = (f"{item['name']} hardly depends on: {', '.join(item['without_effect'])}" for item in answers)
    return Section(
        key="whatif",
        topic="What if",
        finding=finding,
        pictures=(picture,),
        remarks=(*idle, *([f"{left} slower variants were not asked; zerosim whatif asks all"] if left else [])),
    )


def breakeven_section(asked: Material) -> Section | None:
    """Write the steps of all variants over the bandwidth of the narrowest link; nothing where there is no link."""
    links = asked.scenario.cluster.links
    if not links:
        return None
    link = min(links, key=lambda link: link.nominal.value).name
    name = f"{link}.bandwidth"
    found = list(_curves(asked, name))
    if not found:
        return None
    figure = curves_figure(found, asked.scenario.name, x=name, y="step_time")
    finding = _finding(asked, found, link, finding_of(figure).removeprefix("Best: "))
    caption = "Step over bandwidth; lower is better, a dotted line marks where another variant becomes the fastest"
    return Section(
        key="breakeven",
        topic="Break-even",
        finding=finding,
        pictures=(Picture(svg=inline_svg(figure, "breakeven", f"{caption}. {finding}"), caption=caption),),
    )


def _finding(asked: Material, found: Sequence[Mapping[str, Any]], link: str, best: str) -> str:
    """Who is fastest where, or how far the step of the only variant is apart."""
    if len(asked.outcomes) > 1:
        return f"Fastest over the bandwidth of {link}: {best}"
    ends, key = (found[0], found[-1]), f"{link}.bandwidth"
    told = (f"{readable(each['step_time'], 's')} with {each['point'][key]}" for each in ends)
    return f"A step takes {', and '.join(told)} of {link} bandwidth"


def _curves(asked: Material, name: str) -> Iterator[dict[str, Any]]:
    """Results at the values of the knob, as a sweep has them; of variants whose hosts have such a link."""
    scenario, crowd = replace(asked.scenario, jitter=None), Crowd()
    for outcome in asked.outcomes:
        links = {f"{link.name}.bandwidth": link.nominal.value for link in outcome.variant.place.cluster.links}
        if name not in links:
            continue
        span = "{:.9g}..{:.9g} GB/s".format(*(links[name] * times / GIGA for times in (1 / SPAN, SPAN)))
        turned = knob(scenario, outcome.variant, name, span)
        values = turned.first[::EVERY]
        for value, result in zip(values, crowd.run(turned.at(value) for value in values), strict=True):
            if isinstance(result, Result):
                yield {**result.as_json(), "point": {name: f"{value / GIGA:.9g} GB/s"}}
