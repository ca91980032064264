"""What can be turned until a step reaches a goal.

=============================  ==============================================================================
knob                           values
=============================  ==============================================================================
``LINK.bandwidth``             of each link of that kind, as in the cluster's file, before efficiency
``A.bandwidth+B.bandwidth``    both in the proportion that they have now; told is the first
``accelerators_per_host``      of the same number of GPUs: domains of NVLink of another size
``micro_batch``                sequences per GPU
``gradient_accumulation``      micro-steps
``prefetch`` and its kin       by framework, named as there
any other key of a scenario    within the range that is given
=============================  ==============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Final

from simulator.errors import InputError, UnknownNameError
from simulator.readings.varied import dimensions, number_text
from simulator.sweep.axes import axis
from simulator.units import Bandwidth, readable
from simulator.whatif.resources import SIZES, relinked
from simulator.world.overrides import replace_key
from simulator.world.scenario import Scenario, Variant, resolve_scenario
from simulator.world.topology.cluster import Cluster, LinkKind

__all__ = ["Knob", "default_knobs", "knob", "told"]

PRECISION: Final = 1.01
"""Ratio of neighbours up to which values that are no whole numbers are told apart."""

SPAN: Final = 64.0
"""How many times more and less than now is tried, without a range."""

POINTS: Final = 25  # definition: of the first look at a range; two for each doubling of the usual one

BATCHES: Final = 64
"""Micro-batch and accumulation that are tried at least."""

TRAINING: Final = ("micro_batch", "gradient_accumulation")

Change = Callable[[float], tuple[Scenario, Variant]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A number of a scenario."""

    name: str
    unit: str
    """Of its values: ``B/s``, none of counts, or as written in the range."""
    now: float | None
    """As the scenario has it; None where that is not known."""
    first: tuple[float, ...]
    """Values to look at first, ascending."""
    at: Change
    """The scenario with that value."""
    whole: bool = False
    precision: float = 1.0
    """Ratio of neighbours that are as good as the same."""
    parts: int = 2
    """Into how many an interval is divided at a time: many where a program can be shared."""

    def between(self, low: float, high: float) -> tuple[float, ...]:
        """Values to look at between two; none if they are neighbours."""
        if high <= low * self.precision * (1 + 1e-9):  # definition: rounding
            return ()
        shares = [part / self.parts for part in range(1, self.parts)]
        if not self.whole:
            return tuple(low * (high / low) ** share for share in shares)
        values = (low + math.floor((high - low) * share) for share in shares)
        return tuple(value for value in dict.fromkeys(values) if low < value < high)


def told(value: float, unit: str) -> str:
    """*value* of a knob for people.

    >>> told(2.66e10, "B/s"), told(8.0, ""), told(0.125, "GHz")
    ('26.6 GB/s', '8', '0.125 GHz')
    """
    if unit == "B/s":
        return readable(value, unit, 4)
    return f"{value:,.0f}" if value.is_integer() and not unit else f"{number_text(value)} {unit}".strip()


def default_knobs(scenario: Scenario, variant: Variant, *, same_work: bool) -> Iterator[Knob]:
    """Yield the knobs that *variant* has.

    Parameters
    ----------
    same_work
        Leave out those that change how many tokens a step has.
    """
    for link in variant.place.cluster.links:
        yield _bandwidth(scenario, variant, (link.name,), None)
    if _devices(variant) > 1:
        yield _domain(scenario, variant, None)
    yield from (_prefetch(scenario, variant, key, None) for key in _prefetches(variant))
    if not same_work:
        yield from (_training(scenario, variant, key, None) for key in TRAINING)


def knob(scenario: Scenario, variant: Variant, name: str, span: str | None) -> Knob:
    """Return the knob called *name*.

    Parameters
    ----------
    span
        Its smallest and largest value, as ``100..800 Gbit/s``; None for the usual ones.

    Raises
    ------
    InputError
        There is no such knob, *span* is none of its values, or it needs one.
    """
    short = name.removeprefix("topology.").removeprefix("links.").removeprefix("training.")
    links = [link.name for link in variant.place.cluster.links]
    asked = [part.removesuffix(".bandwidth") for part in short.split("+")]
    if short.endswith(".bandwidth") and all(part in links for part in asked):
        return _bandwidth(scenario, variant, tuple(asked), span)
    if short in TRAINING:
        return _training(scenario, variant, short, span)
    if short == "accelerators_per_host":
        return _domain(scenario, variant, span)
    if short in _prefetches(variant):
        return _prefetch(scenario, variant, short, span)
    if "." not in name or "+" in name:
        known = [*(f"{link}.bandwidth" for link in links), *TRAINING, "accelerators_per_host", *_prefetches(variant)]
        raise UnknownNameError("knob", name, [*known, "a key with dots"], key="--knob")
    if span is None:
        raise InputError("its values are not known", key=f"--knob {name}", remedy="add --range, like 1..64")
    return _key(scenario, variant, name, span)


def _bandwidth(scenario: Scenario, variant: Variant, links: tuple[str, ...], span: str | None) -> Knob:
    place = variant.place
    now = next(link.nominal.value for link in place.cluster.links if link.name == links[0])
    low, high = (now / SPAN, now * SPAN) if span is None else map(Bandwidth.parse, _ends(links[0], span))

    def at(value: float) -> tuple[Scenario, Variant]:
        cluster = _widened(place.cluster, links, value / now)
        return scenario, replace(variant, place=replace(place, cluster=cluster))

    return Knob(
        name="+".join(f"{link}.bandwidth" for link in links),
        unit="B/s",
        now=now,
        first=_log(float(low), float(high)),
        at=at,
        precision=PRECISION,
        parts=8,
    )


def _widened(cluster: Cluster, links: tuple[str, ...], factor: float) -> Cluster:
    def wider(link: LinkKind) -> LinkKind:
        return replace(link, nominal=replace(link.nominal, value=link.nominal.value * factor))

    for name in links:
        cluster = relinked(cluster, name, wider)
    return cluster


def _domain(scenario: Scenario, variant: Variant, span: str | None) -> Knob:
    """As many GPUs on other hosts: all numbers of devices that divide it."""
    cluster = variant.place.cluster
    most = _devices(variant)
    low, high = (1.0, float(most)) if span is None else _counts("accelerators_per_host", span)
    sizes = [size for size in range(1, most + 1) if cluster.ranks % size == 0 and low <= size <= high]
    if not sizes:
        problem = f"no number of devices that a host has divides {cluster.ranks} GPUs"
        raise InputError(problem, key="--range", value=span, remedy=f"use 1..{most}")

    def at(value: float) -> tuple[Scenario, Variant]:
        hosts = cluster.ranks // int(value)
        return _changed(
            scenario, variant, {"topology.accelerators_per_host": int(value), "topology.hosts": hosts}
        )  # fmt: skip

    now = float(cluster.accelerators_per_host)
    return Knob(
        name="accelerators_per_host",
        unit="",
        now=now,
        first=tuple(map(float, sizes)),
        at=at,
        whole=True,
        precision=math.inf,
    )


def _devices(variant: Variant) -> int:
    """Of a host as its file has it."""
    return next(node.count for node in variant.place.cluster.nodes if node.kind == "device")


def _training(scenario: Scenario, variant: Variant, key: str, span: str | None) -> Knob:
    now = getattr(scenario.training, key)
    low, high = (1, max(BATCHES, 4 * now)) if span is None else _counts(key, span)

    def at(value: float) -> tuple[Scenario, Variant]:
        return _changed(scenario, variant, {f"training.{key}": int(value)})

    return Knob(name=key, unit="", now=float(now), first=_doubled(low, high, now), at=at, whole=True)


def _prefetches(variant: Variant) -> list[str]:
    """Keys of the policy that say how far ahead weights are gathered."""
    policy = variant.policy
    stage = getattr(policy, "zero_stage", 3)
    keys = SIZES.get(type(policy), ()) if stage == 3 else ()
    return [key for key in keys if "prefetch" in key and isinstance(getattr(policy, key), int)]


def _prefetch(scenario: Scenario, variant: Variant, key: str, span: str | None) -> Knob:
    """Layers, units, or elements."""
    now = getattr(variant.policy, key)
    elements = key.endswith("size")
    usual = (0, SPAN * max(now, 1) if elements else len(scenario.model.layers))
    low, high = usual if span is None else _counts(key, span)

    def at(value: float) -> tuple[Scenario, Variant]:
        changed: dict[str, Any] = {key: int(value)}
        return scenario, replace(variant, policy=replace(variant.policy, **changed))

    first = _doubled(low, high, now)
    return Knob(
        name=key, unit="", now=float(now), first=first, at=at, whole=True, precision=PRECISION if elements else 1.0
    )


def _key(scenario: Scenario, variant: Variant, key: str, span: str) -> Knob:
    """Any key: counts where the range has no unit and no fractions."""
    ends = dimensions([{"name": "", "point": {key: value}} for value in _ends(key, span)])[key]
    if ends.numbers is None:
        raise InputError("not a range of numbers", key="--range", value=span, remedy="write it like 1..64")
    low, high = ends.numbers
    whole = not ends.unit and "." not in span.replace("..", "")
    if not whole and low <= 0:
        raise InputError("starts at zero or below", key="--range", value=span, remedy="start above zero")

    def at(value: float) -> tuple[Scenario, Variant]:
        written = int(value) if whole else f"{value:.12g} {ends.unit}" if ends.unit else value
        return _changed(scenario, variant, {key: written})

    first = _doubled(low, high, low) if whole else _log(low, high)
    return Knob(
        name=key, unit=ends.unit, now=None, first=first, at=at, whole=whole, precision=1.0 if whole else PRECISION
    )


def _changed(scenario: Scenario, variant: Variant, point: Mapping[str, Any]) -> tuple[Scenario, Variant]:
    """Resolve the scenario again with other values of keys, and *variant* alone."""
    raw = deepcopy(dict(scenario.raw))
    for key, value in point.items():
        replace_key(raw, key, value, scenario.file, "--knob")
    raw["variants"] = [item for item in raw["variants"] if item["name"] == variant.name]
    changed = resolve_scenario(raw, scenario.file)
    return changed, changed.variant(variant.name)


def _ends(key: str, span: str) -> tuple[Any, Any]:
    """Smallest and largest value, as written in a file."""
    low, high = (point[key] for point in axis(f"{key}={span}:2", "--range").points)
    return low, high


def _counts(key: str, span: str) -> tuple[int, int]:
    low, high = _ends(key, span)
    if not (isinstance(low, int) and isinstance(high, int)) or low < 0:
        raise InputError("not a range of whole numbers", key=f"--range of {key}", value=span, remedy="like 1..64")
    return low, high


def _log(low: float, high: float) -> tuple[float, ...]:
    """Return :data:`POINTS` values at equal ratios, the ends and the middle exactly among them."""
    middle = (POINTS - 1) // 2
    centre = math.sqrt(low * high)
    ratio = math.sqrt(high / low)
    inner = [centre * ratio ** (place / middle) for place in range(1 - middle, middle)]
    return (low, *inner, high)


def _doubled(low: float, high: float, now: float) -> tuple[float, ...]:
    """Return *low*, *high*, and *now* doubled and halved between them."""
    exponents = range(-POINTS, POINTS)
    inner = {float(int(max(now, 1) * 2.0**exponent)) for exponent in exponents}
    return tuple(sorted({float(low), float(high)} | {value for value in inner if low < value < high}))
