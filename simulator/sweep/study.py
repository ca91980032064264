"""The simulations of a sweep, and the keys under which their results are stored.

A key is a hash of all that a result depends on: the scenario with the point's values and one variant, the content of
every file that it names, and the code with the numbers that ship with it.  It is taken from what is written, before
anything is resolved, so that thousands of keys cost no more than a few simulations.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from simulator.errors import InputError, UnknownNameError
from simulator.sweep.axes import Point
from simulator.world.document import data_directory, read_mapping
from simulator.world.overrides import replace_key
from simulator.world.scenario import read_scenario, resolve_scenario

__all__ = ["Study", "Task", "code_version", "load_study", "tasks"]

UNSEEN: Final = ("name", "notes")
"""Sections that no result depends on."""

SUFFIXES: Final = ("", ".yaml", ".json", ".csv")
"""What may be left out where a scenario names a file."""

NAMING: Final = (".yaml", ".yml", ".json")
"""Of files that may name others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The scenario that is varied."""

    raw: Mapping[str, Any]
    file: Path
    code: str
    """Version of the code, as :func:`code_version` has it."""

    @property
    def name(self) -> str:
        """Of the scenario."""
        return str(self.raw.get("name", self.file.stem))

    def at(self, point: Point, variant: str) -> dict[str, Any]:
        """Return the content of a scenario with the values of *point* and with *variant* alone."""
        raw = deepcopy(dict(self.raw))
        for key, value in point.items():
            replace_key(raw, key, deepcopy(value), self.file, "--over")
        raw["variants"] = [item for item in raw["variants"] if item["name"] == variant]
        return raw

    def variants(self, names: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the names of the variants, or check *names*.

        Raises
        ------
        InputError
            A variant has no name, or there is none of that name.
        """
        items = self.raw.get("variants")
        if not isinstance(items, list) or not all(isinstance(item, dict) and "name" in item for item in items):
            resolve_scenario(deepcopy(dict(self.raw)), self.file)  # says what is wrong
        known = [str(item["name"]) for item in items or ()]
        for name in names:
            if name not in known:
                raise UnknownNameError("variant", name, known, file=self.file)
        return tuple(dict.fromkeys(names or known))


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One simulation."""

    key: str
    point: Point
    variant: str


def load_study(scenario: str | Path, overrides: Sequence[str] = ()) -> Study:
    """Load a scenario to be varied, as :func:`~simulator.world.scenario.load_scenario` finds it.

    Raises
    ------
    InputError
        There is no such file, it is not a mapping, or an override leads nowhere.
    """
    raw, file = read_scenario(scenario, overrides)
    return Study(raw=raw, file=file, code=code_version())


def tasks(study: Study, points: Iterable[Point], variants: Sequence[str]) -> list[Task]:
    """Every variant at every point.

    Raises
    ------
    InputError
        A key leads through something that is no mapping, or nothing can be resolved at any point: the first reason.
    """
    keys = _Keys(study.file, study.code)
    found = [
        Task(key=keys.of(study.at(point, variant)), point=point, variant=variant)
        for point in points
        for variant in variants
    ]
    _check_some(study, found)
    return found


def _check_some(study: Study, found: Iterable[Task]) -> None:
    """Tell a wrong key, which spoils every point, from points that fail."""
    first: InputError | None = None
    for task in found:
        try:
            resolve_scenario(study.at(task.point, task.variant), study.file)
        except InputError as error:
            first = first or error
        else:
            return
    if first is not None:
        raise first


@cache  # what has been imported does not change with its file
def code_version() -> str:
    """Hash of the code and of the numbers that ship with it."""
    package = Path(__file__).parents[1]
    places = ((package, "*.py"), (data_directory("topologies"), "*"))
    digest = hashlib.sha256()
    for folder, pattern in places:
        for path in sorted(path for path in folder.rglob(pattern) if path.is_file()):
            digest.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


class _Keys:
    """Keys of tasks; files are read once."""

    def __init__(self, file: Path, code: str) -> None:
        self._file, self._code = file, code
        self._known: dict[tuple[str, Path], frozenset[str]] = {}

    def of(self, raw: Mapping[str, Any]) -> str:
        seen = {name: value for name, value in raw.items() if name not in UNSEEN}
        files = sorted(self._files(seen, self._file))
        text = json.dumps([self._code, seen, files], sort_keys=True, default=str, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def _files(self, content: Any, beside: Path) -> set[str]:
        """Hashes of the files that strings in *content* may name, and of those that they name in turn."""
        return {digest for text in _strings(content) for digest in self._named(text, beside)}

    def _named(self, text: str, beside: Path) -> frozenset[str]:
        place = (text, beside.parent)
        if place not in self._known:
            self._known[place] = frozenset()  # a file that names itself ends here
            self._known[place] = frozenset(
                digest for path in _candidates(text, beside) for digest in (_digest(path), *self._behind(path))
            )
        return self._known[place]

    def _behind(self, path: Path) -> set[str]:
        if path.suffix not in NAMING:
            return set()
        try:
            return self._files(read_mapping(path), path)
        except InputError:  # not a file that a scenario can name
            return set()


def _candidates(text: str, beside: Path) -> Iterator[Path]:
    """Yield the files that *text* may mean: beside the file, here, or shipped with the package."""
    scenarios = data_directory("scenarios")
    for folder in (beside.parent, Path.cwd(), scenarios, scenarios / "models"):
        for suffix in SUFFIXES:
            path = f"{folder}/{text}{suffix}"
            if os.path.isfile(path):  # unlike Path's it says no to names that are too long
                yield Path(path)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _strings(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        for value in content.values():
            yield from _strings(value)
    elif isinstance(content, list):
        for value in content:
            yield from _strings(value)
