"""What stands where in a figure of a sweep: checked and completed before anything is drawn, or even simulated.

=========  ===========  ===========  ====================  ==========================================
figure     ``x``        ``y``        ``color``             shows
=========  ===========  ===========  ====================  ==========================================
curves     numeric key  metric       key                   a line for each value of the colour's key
heatmap    key          key          metric                a number for each pair of values
best       key          key          metric                the variant that is best in it
pareto     metric       metric       metric or key         what nothing beats in two or three metrics
=========  ===========  ===========  ====================  ==========================================

``rows`` and ``cols`` divide any of them into small multiples, one for each value of a key.  ``variant`` counts as a
key.  A key that varies and has no place yet gets one there, so that no two results ever stand at the same place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from simulator.errors import InputError, UnknownNameError
from simulator.readings.metrics import Metric, metric
from simulator.readings.varied import VARIANT, Dimension, dimensions, place_of, short_names

__all__ = ["FIGURES", "Layout", "default_figure", "layout"]

FIGURES: Final = ("curves", "heatmap", "best", "pareto")

MEASURES: Final[Mapping[str, Mapping[str, str]]] = {
    "curves": {"y": "tokens_per_second_per_gpu"},
    "heatmap": {"color": "tokens_per_second_per_gpu"},
    "best": {"color": "tokens_per_second_per_gpu"},
    "pareto": {"x": "tokens_per_second_per_gpu", "y": "memory.needed"},
}
"""Places of metrics, and which stand there if nothing is said."""

MOST_PANELS: Final = 36  # definition: more are too small to be read

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A figure of a sweep: which key or metric stands where."""

    kind: str
    keys: Mapping[str, Dimension]
    """By place: ``x``, ``y``, ``color``, ``rows``, ``cols``."""
    metrics: Mapping[str, Metric]
    """By place, where it is no key."""
    varied: Mapping[str, Dimension]
    """All keys that the sweep names, and the variant."""
    names: Mapping[str, str]
    """Their short names."""

    def title(self) -> str:
        """Say what the figure shows."""
        if self.kind == "pareto":
            *others, last = (item.label for item in self.metrics.values())
            return f"Pareto front of {', '.join(others)} and {last}"
        (shown,) = self.metrics.values()
        if self.kind == "curves":
            return _capital(f"{shown.label} over {self.keys['x'].key}")
        what = f"best variant by {shown.label}" if self.kind == "best" else shown.label
        return _capital(f"{what} over {self.names[self.keys['x'].key]} and {self.names[self.keys['y'].key]}")

    def label(self, place: str) -> str:
        """Key and unit of an axis; in small multiples the key is short."""
        found = self.keys[place]
        return found.label.replace(found.key, self.names[found.key], 1) if self.facets() else found.label

    def facets(self) -> tuple[Dimension, ...]:
        """Keys of rows and columns."""
        return tuple(self.keys[place] for place in ("rows", "cols") if place in self.keys)

    def told(self, key: str, text: str) -> str:
        """Short key and value, for people; of a variant its name alone."""
        return text if key == VARIANT else f"{self.names[key]} = {self.varied[key].told(text)}"


def layout(kind: str, results: Iterable[Row], **asked: str | None) -> Layout:
    """Decide where everything stands.

    Parameters
    ----------
    kind
        One of :data:`FIGURES`.
    results
        Of which ``point`` and ``name`` are looked at; they need not have run.
    asked
        ``x``, ``y``, ``color``, ``rows``, ``cols``: keys or metrics; None where the default will do.

    Raises
    ------
    InputError
        A name that is not known, a key that is not numeric where a curve needs numbers, the same key at two places, or
        more keys vary than there are places.
    """
    rows = list(results)
    varied = dimensions(rows)
    given = {place: name for place, name in asked.items() if name is not None}
    metrics = {place: given.pop(place, name) for place, name in MEASURES[kind].items()}
    if kind == "pareto" and given.get("color") not in (None, *varied):
        metrics["color"] = given.pop("color")
    keys = {place: _key(kind, place, name, varied) for place, name in given.items()}
    others = varied if kind == "pareto" else ()
    found = {place: metric(name, f"--{place}", others if place == "color" else ()) for place, name in metrics.items()}
    if "color" not in metrics:
        keys.setdefault("color", varied[VARIANT])
    _complete(kind, keys, varied)
    _check_twice(keys)
    if kind != "pareto":
        _divide(kind, keys, varied, rows)
    names = short_names(key for key in varied if key != VARIANT) | {VARIANT: VARIANT}
    decided = Layout(kind=kind, keys=keys, metrics=found, varied=varied, names=names)
    panels = prod(len(item.texts) for item in decided.facets())
    if panels > MOST_PANELS:
        remedy = "vary fewer values, or give --x to a key that has many"
        raise InputError(f"{panels} panels are more than {MOST_PANELS}", key="--rows, --cols", remedy=remedy)
    return decided


def default_figure(results: Iterable[Row]) -> str:
    """Curves if a key with several numbers varies, else the Pareto front."""
    return "curves" if _longest(dimensions(results), numeric=True) else "pareto"


def _key(kind: str, place: str, name: str, varied: Mapping[str, Dimension]) -> Dimension:
    if name not in varied:
        raise UnknownNameError("key that varies", name, varied, key=f"--{place}")
    if (kind, name) == ("best", VARIANT):
        raise InputError("which variant is best is what the colour says", key=f"--{place}", remedy="name another key")
    return varied[name]


def _complete(kind: str, keys: dict[str, Dimension], varied: Mapping[str, Dimension]) -> None:
    """Choose keys for the places that the figure needs."""
    if kind == "pareto":
        return
    free = {key: item for key, item in varied.items() if item not in keys.values()}
    if "x" not in keys:
        keys["x"] = _chosen("x", free, numeric=kind == "curves")
    if kind == "curves":
        _check_numbers(keys["x"])
    elif "y" not in keys:
        keys["y"] = _chosen("y", {key: item for key, item in free.items() if item != keys["x"]}, numeric=False)


def _chosen(place: str, free: Mapping[str, Dimension], *, numeric: bool) -> Dimension:
    found = _longest(free, numeric=numeric)
    if found is None:
        what = "no key has several numbers" if numeric else "too few keys vary"
        raise InputError(what, key=f"--{place}", remedy="vary one more with --over, or choose another --figure")
    return found


def _longest(free: Mapping[str, Dimension], *, numeric: bool) -> Dimension | None:
    """Key with most values, those with numbers first."""
    usable = [
        item
        for key, item in free.items()
        if key != VARIANT and len(item.texts) > 1 and (item.numbers is not None or not numeric)
    ]
    return max(usable, key=lambda item: (item.numbers is not None, len(item.texts)), default=None)


def _check_numbers(x: Dimension) -> None:
    if x.numbers is None:
        remedy = "choose a key of numbers, or --figure heatmap"
        raise InputError(f"{x.key} is not a key of numbers, which curves need", key="--x", remedy=remedy)


def _check_twice(keys: Mapping[str, Dimension]) -> None:
    places: dict[str, str] = {}
    for place, item in keys.items():
        if item.key in places:
            where = f"--{places[item.key]} and --{place}"
            raise InputError("the same key stands at two places", key=where, value=item.key, remedy="change one")
        places[item.key] = place


def _divide(kind: str, keys: dict[str, Dimension], varied: Mapping[str, Dimension], rows: Sequence[Row]) -> None:
    """Give columns, then rows, to keys that differ where all others are the same."""
    inner = [VARIANT] if kind == "best" else []
    while key := _differing(rows, [*inner, *(item.key for item in keys.values())], list(varied)):
        place = next((place for place in ("cols", "rows") if place not in keys), None)
        if place is None:
            remedy = "vary fewer keys, or choose one value of it with --set"
            raise InputError(f"no place is left for {key}, which varies too", key="--rows, --cols", remedy=remedy)
        keys[place] = varied[key]


def _differing(rows: Sequence[Row], placed: Sequence[str], keys: Sequence[str]) -> str | None:
    """Return the first of *keys* that differs between two results whose *placed* keys are the same."""
    first: dict[tuple[str, ...], Row] = {}
    free = [key for key in keys if key not in placed]
    differ: set[str] = set()
    for row in rows:
        other = first.setdefault(tuple(place_of(row, key) for key in placed), row)
        differ.update(key for key in free if place_of(row, key) != place_of(other, key))
    return next((key for key in free if key in differ), None)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
