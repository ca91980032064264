"""Two results side by side: what changed in the inputs, and of what the steps' difference is made.

A step is compute, stalls by cause, copies and host-bound time, so the difference of two steps is the sum of the
differences of these parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

__all__ = ["Change", "Difference", "changed", "difference", "pairs"]

UNSEEN: Final = frozenset({"name", "notes"})
"""Sections that no result depends on."""

VALUES: Final = ("tokens_per_second_per_gpu", "mfu", "communication_time")
"""Numbers of a result that are told beside the parts of its step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A key of the scenario that differs."""

    key: str
    before: Any
    """None where it is not written."""
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two results.  Pairs are (before, after)."""

    names: tuple[str, str]
    step_time: tuple[float, float]
    """[s]"""
    parts: Mapping[str, tuple[float, float]]
    """Of the step, those that changed most first [s]; their differences add up to that of the steps."""
    collectives: Mapping[str, tuple[float, float]]
    """Stalls by what was waited for, those that changed most first [s]."""
    values: Mapping[str, tuple[float, float]]
    """Other numbers of the results, in SI units."""

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and mappings."""
        return asdict(self)


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Compare what two scenario files say, key by key; sections without effect are left out.

    >>> changed({"topology": {"hosts": 2}, "notes": "a"}, {"topology": {"hosts": 4}, "notes": "b"})
    [Change(key='topology.hosts', before=2, after=4)]
    """
    some, others = (dict(_flat(_seen(content), "")) for content in (before, after))
    return [
        Change(key=key, before=some.get(key), after=others.get(key))
        for key in dict.fromkeys([*some, *others])
        if some.get(key) != others.get(key)
    ]


def _seen(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: section for name, section in content.items() if name not in UNSEEN}


def _flat(content: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Yield leaves with dotted keys; variants are named, not numbered."""
    if isinstance(content, Mapping) and (content or not key):
        for name, value in content.items():
            yield from _flat(value, f"{key}.{name}" if key else str(name))
    elif isinstance(content, list) and content and all(isinstance(item, Mapping) for item in content):
        for number, item in enumerate(content):
            yield from _flat(item, f"{key}.{item.get('name', number)}")
    else:
        yield key, content


def pairs(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Pair results of the same name that could run, or the only ones there are; none if nothing matches."""
    some, others = ([result for result in results if not result["failure"]] for results in (before, after))
    if len(some) == len(others) == 1:
        return [(some[0], others[0])]
    named = {result["name"]: result for result in others}
    return [(result, named[result["name"]]) for result in some if result["name"] in named]


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference:
    """Compare two results, which are as ``zerosim run --json`` has them."""
    values = {name: (before[name], after[name]) for name in VALUES}
    values["memory.needed"] = before["memory"]["needed"], after["memory"]["needed"]
    values["volume.sent_per_rank"] = before["volume"]["sent_per_rank"], after["volume"]["sent_per_rank"]
    return Difference(
        names=(before["name"], after["name"]),
        step_time=(before["step_time"], after["step_time"]),
        parts=_paired(_parts(before), _parts(after)),
        collectives=_paired(before["exposed_by_collective"], after["exposed_by_collective"]),
        values=values,
    )


def _parts(result: Mapping[str, Any]) -> dict[str, float]:
    """What the step is made of."""
    own = {"compute": result["compute_time"], "copies": result["copy_time"], "host bound": result["host_time"]}
    return {**own, **result["exposed_by_cause"]}


def _paired(some: Mapping[str, float], others: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    found = {name: (some.get(name, 0.0), others.get(name, 0.0)) for name in dict.fromkeys([*some, *others])}
    there = {name: pair for name, pair in found.items() if pair != (0.0, 0.0)}
    return dict(sorted(there.items(), key=lambda item: -abs(item[1][1] - item[1][0])))
