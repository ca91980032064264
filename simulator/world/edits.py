"""Files of configurations with some keys changed, and everything else as its author wrote it.

JSON is written anew with the indentation that it had.  YAML and TOML go through libraries that keep comments, order
and quotes; what the one for YAML writes in another way, though it is the same, stays as it was.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from difflib import SequenceMatcher
from typing import Any, Final

import ruamel.yaml
import tomlkit

__all__ = ["REMOVED", "edited", "edited_text", "is_json", "json_text"]

REMOVED: Final = object()
"""In place of a value: the key goes."""


def edited(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of *content* in which dotted keys have other values.

    >>> edited({"a": {"b": 1, "c": 2}}, {"a.b": 3, "a.c": REMOVED, "d.e": 4})
    {'a': {'b': 3}, 'd': {'e': 4}}
    """
    found: dict[str, Any] = deepcopy(dict(content))
    _edit(found, changes, dict)
    return found


def edited_text(source: str, changes: Mapping[str, Any], suffix: str) -> str:
    r"""Return the text of a file in which dotted keys have other values.

    Parameters
    ----------
    source
        Its present text.
    suffix
        ``.yaml``, ``.yml`` or ``.toml``.

    >>> edited_text("a: 1  # why\n", {"b.c": 2}, ".yaml")
    'a: 1  # why\nb:\n  c: 2\n'
    """
    return _toml(source, changes) if suffix == ".toml" else _yaml(source, changes)


def is_json(text: str) -> bool:
    """Whether *text* is JSON, in which nothing can stand beside the content."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def json_text(content: Mapping[str, Any], like: str = "") -> str:
    r"""Return *content* as JSON, indented as the text *like* is.

    >>> json_text({"a": 1, "b": 5e8}, '{\n    "b": 5e8\n}')
    '{\n    "a": 1,\n    "b": 5e8\n}\n'
    """
    indent = re.match(r"\s*\{[^\n]*\n([ \t]+)", like)
    text = json.dumps(content, indent=indent[1] if indent else 2, ensure_ascii=False)
    # what people write as 5e8 is a float, which Python would write as 500000000.0
    return re.sub(r"(?<=: )(\d+?)(0{5,})\.0(?=,?$)", _scientific, text, flags=re.MULTILINE) + "\n"


def _scientific(found: re.Match[str]) -> str:
    return f"{found[1]}e{len(found[2])}"


def _yaml(source: str, changes: Mapping[str, Any]) -> str:
    yaml = ruamel.yaml.YAML()
    yaml.preserve_quotes = True
    yaml.width = 10_000  # what was one line stays one
    if nested := re.search(r"^\w[^\n]*:[ ]*(?:#[^\n]*)?\n([ ]+)\w", source, re.MULTILINE):
        yaml.indent(mapping=len(nested[1]))
    before, after = _dumped(yaml, yaml.load(source)), yaml.load(source)
    _edit(after, changes, dict)
    wanted = _dumped(yaml, after)
    found, meant = _merged(source, before, wanted), _meant(wanted)
    return found if found is not None and meant is not None and _meant(found) == meant else wanted


def _dumped(yaml: ruamel.yaml.YAML, content: Any) -> str:
    text = io.StringIO()
    yaml.dump(content, text)
    return text.getvalue()


def _meant(text: str) -> Any:
    """What *text* says; None if it says nothing, or has tags of its own."""
    try:
        return ruamel.yaml.YAML(typ="safe", pure=True).load(text)
    except ruamel.yaml.error.YAMLError:
        return None


def _merged(source: str, before: str, after: str) -> str | None:
    r"""Make the changes from *before* to *after* in *source*, which says what *before* says; None: it is too different.

    >>> _merged("a:   1\nb: null\nc: 2\n", "a: 1\nb:\nc: 2\n", "a: 1\nb:\nc: 3\n")
    'a:   1\nb: null\nc: 3\n'
    """
    lines, old, new = (text.splitlines(keepends=True) for text in (source.rstrip("\n") + "\n", before, after))
    same = re.compile(r"(?<=:)\s+(null|~)\s*$|\s")
    written, kept = ([same.sub("", line) for line in text] for text in (old, lines))
    places: dict[int, int] = {}
    for there, here, count in SequenceMatcher(None, written, kept, autojunk=False).get_matching_blocks():
        places |= {there + step: here + step for step in range(count + 1)}
    for tag, first, last, start, end in reversed(SequenceMatcher(None, old, new, autojunk=False).get_opcodes()):
        if tag != "equal":
            if first not in places or last not in places:
                return None
            lines[places[first] : places[last]] = new[start:end]
    return "".join(lines)


def _toml(source: str, changes: Mapping[str, Any]) -> str:
    content = tomlkit.parse(source)
    _edit(content, changes, tomlkit.table)
    return tomlkit.dumps(content)


def _edit(content: Any, changes: Mapping[str, Any], section: Callable[[], Any]) -> None:
    """Change *content* in place; *section* makes a new mapping."""
    for key, value in changes.items():
        *path, last = key.split(".")
        place = content
        for step in path:
            if place.get(step) is None:  # no such section, or an empty one of YAML
                place[step] = section()
            place = place[step]
        if value is REMOVED:
            place.pop(last, None)
        else:
            place[last] = deepcopy(value)
