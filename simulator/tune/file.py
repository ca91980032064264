"""A configuration in its user's file: only what was decided is different.

JSON is written anew with the indentation that it had.  YAML and TOML go through libraries that keep comments, order
and quotes.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import ruamel.yaml
import tomlkit

from simulator.errors import InputError
from simulator.tune.space import REMOVED, edited
from simulator.tune.target import Target
from simulator.world.document import yaml_text

__all__ = ["check_output", "text_of"]

YAML: Final = (".yaml", ".yml")

SUFFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    "deepspeed": (".json",),
    "fsdp2": YAML,
    "fsdp1": YAML,
    "accelerate": YAML,
    "torchtitan": (".toml",),
    "llmfoundry": YAML,
}
"""Of files as the trainers read them, by format."""


def check_output(target: Target, path: Path) -> None:
    """Make sure, before any work is done, that the configuration of *target* can be written to *path*.

    Raises
    ------
    InputError
        The name says that it is something else, or there is no such folder.
    """
    known = SUFFIXES[target.format]
    if path.suffix not in known:
        problem = f"a configuration of {target.format} is another kind of file"
        raise InputError(problem, key="--output", value=str(path), remedy=f"end its name in {' or '.join(known)}")
    if not path.parent.is_dir():
        raise InputError("no such folder", key="--output", value=str(path), remedy="make it, or name another")


def text_of(target: Target, changes: Mapping[str, Any]) -> str:
    """Return the user's file with *changes*: dotted keys and their values; None as a value: the key goes.

    Options of ``fsdp1`` and ``fsdp2`` stand below that key, as in a variant of a scenario.
    """
    source = None if target.source is None else target.source.read_text(encoding="utf-8")
    wanted = {key: REMOVED if value is None else value for key, value in changes.items()}
    if SUFFIXES[target.format] == (".json",):
        indent = re.search(r"^\{\s*?\n([ \t]+)", source or "")
        content = edited(target.config, wanted)
        return json.dumps(content, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"
    if source is None:
        content = edited(target.config, wanted)
        return yaml_text({target.format: content} if target.format.startswith("fsdp") else content)
    return _toml(source, wanted) if SUFFIXES[target.format] == (".toml",) else _yaml(source, wanted)


def _yaml(source: str, changes: Mapping[str, Any]) -> str:
    yaml = ruamel.yaml.YAML()
    yaml.preserve_quotes = True
    yaml.width = 10_000  # what was one line stays one
    content = yaml.load(source)
    _edit(content, changes, dict)
    text = io.StringIO()
    yaml.dump(content, text)
    return text.getvalue()


def _toml(source: str, changes: Mapping[str, Any]) -> str:
    content = tomlkit.parse(source)
    _edit(content, changes, tomlkit.table)
    return tomlkit.dumps(content)


def _edit(content: Any, changes: Mapping[str, Any], section: Any) -> None:
    """Change *content* in place; *section* makes a new mapping."""
    for key, value in changes.items():
        *path, last = key.split(".")
        place = content
        for step in path:
            if step not in place:
                place[step] = section()
            place = place[step]
        if value is REMOVED:
            place.pop(last, None)
        else:
            place[last] = value
