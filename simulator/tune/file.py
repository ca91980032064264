"""A configuration in its user's file: only what was decided is different."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from simulator.errors import InputError
from simulator.tune.target import Target
from simulator.world.document import yaml_text
from simulator.world.edits import REMOVED, edited, edited_text, is_json, json_text

__all__ = ["check_output", "loses_comments", "text_of"]

JSON: Final = (".json",)
YAML: Final = (".yaml", ".yml")

SUFFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    "deepspeed": JSON,
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
        The name says that it is something else or the scenario itself, or its folder is not there or closed.
    """
    known = SUFFIXES[target.format]
    if path.suffix not in known:
        problem = f"a configuration of {target.format} is another kind of file"
        raise InputError(problem, key="--output", value=str(path), remedy=f"end its name in {' or '.join(known)}")
    if path.resolve() == target.scenario.file.resolve():
        problem, remedy = "is the scenario, which would be lost", "name another file"
        raise InputError(problem, key="--output", value=str(path), remedy=remedy)
    if not path.parent.is_dir():
        raise InputError("no such folder", key="--output", value=str(path), remedy="make it, or name another")
    if not os.access(path.parent, os.W_OK):
        raise InputError("the folder cannot be written to", key="--output", value=str(path), remedy="name another")


def loses_comments(target: Target) -> bool:
    """Whether the user's file is Hjson, of which the JSON that is written keeps no comments."""
    source = target.source
    return source is not None and SUFFIXES[target.format] == JSON and not is_json(source.read_text(encoding="utf-8"))


def text_of(target: Target, changes: Mapping[str, Any]) -> str:
    """Return the user's file with *changes*: dotted keys and their values.

    None as a value: the key goes, or is null in ``fsdp1``.
    Without a file it is what the scenario says; options of ``fsdp1`` and ``fsdp2`` stand below that key, as in a
    variant.
    """
    source = None if target.source is None else target.source.read_text(encoding="utf-8")
    gone = None if target.format == "fsdp1" else REMOVED  # FSDP1 takes None for backward_prefetch, and no key goes
    wanted = {key: gone if value is None else value for key, value in changes.items()}
    content, suffixes = edited(target.config, wanted), SUFFIXES[target.format]
    if suffixes == JSON:
        return json_text(content, source or "")
    if source is None:
        return yaml_text({target.format: content} if target.format.startswith("fsdp") else content)
    return edited_text(source, wanted, suffixes[0])
