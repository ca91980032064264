"""Keys of a scenario that are replaced before it is resolved: ``--set``, and the axes of a sweep."""

from __future__ import annotations

from typing import Any

from simulator.errors import InputError
from simulator.world.document import parse_mapping

__all__ = ["replace_key", "split_override", "value_of"]


def split_override(override: str, option: str) -> tuple[str, str]:
    """Return key and text of ``KEY=TEXT``; *option* is named in errors.

    Raises
    ------
    InputError
        One of them is missing.

    >>> split_override("topology.hosts=4", "--set")
    ('topology.hosts', '4')
    """
    key, equals, text = override.partition("=")
    if not key or not equals:
        raise InputError("expected KEY=VALUE", key=option, value=override, remedy="for instance topology.hosts=4")
    return key, text


def value_of(text: str, where: str) -> Any:
    """Read *text* as it would be read in the file.

    >>> value_of("4", "--set a"), value_of("true", "--set a"), value_of("400 Gbit/s", "--set a")
    (4, True, '400 Gbit/s')
    """
    return parse_mapping(f"value: {text}", where)["value"]


def replace_key(raw: dict[str, Any], key: str, value: Any, file: object, option: str) -> None:
    """Let *key*, a dotted path into the content *raw* of *file*, have *value*.

    Entries of lists go by their names, or by their numbers from 0.

    Raises
    ------
    InputError
        The path leads through something that is no mapping.
    """
    *path, last = key.split(".")
    place: Any = raw
    for step in path:
        place = _inside(place, step)
    if not isinstance(place, dict):
        raise InputError("leads into something that is not a mapping", file=file, key=f"{option} {key}")
    place[last] = value


def _inside(place: Any, step: str) -> Any:
    """Go to a key of a mapping, or to the entry of a list that is called so, or else has that number."""
    if isinstance(place, list):
        known = {str(number): item for number, item in enumerate(place)}
        known |= {str(item["name"]): item for item in place if isinstance(item, dict) and "name" in item}
        return known.get(step)
    return place.setdefault(step, {}) if isinstance(place, dict) else None
