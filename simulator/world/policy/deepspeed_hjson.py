"""The text of a ``ds_config.json``, read as DeepSpeed reads it: JSON with comments and looser punctuation.

DeepSpeed parses its configuration with Hjson.  The subset here: ``//``, ``#`` and ``/* */`` comments, commas that may
trail or be left out at the end of a line, keys and strings without quotes (such a string runs to the end of the line).
A key that stands twice is refused, as DeepSpeed refuses it.

Source: https://hjson.github.io/syntax.html; DeepSpeed runtime/config.py, ``DeepSpeedConfig.__init__``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from simulator.errors import InputError

__all__ = ["parse_hjson", "read_hjson"]

_GAP: Final = re.compile(r"(?:\s+|//[^\n]*|#[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
_BARE_KEY: Final = re.compile(r"[^\s,:\[\]{}\"']+")
_SINGLE_QUOTED: Final = re.compile(r"'((?:[^'\\\n]|\\.)*)'")
_END_OF_BARE_VALUE: Final = re.compile(r"[,\]}\n#]|//|/\*|\Z")
_WORDS: Final = {"true": True, "false": False, "null": None}


def read_hjson(path: Path) -> dict[str, Any]:
    """Read the file at *path*.

    Raises
    ------
    InputError
        The file cannot be read, is a template, or is no mapping in this syntax.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", file=path) from None
    return parse_hjson(text, path)


def parse_hjson(text: str, file: object = None) -> dict[str, Any]:
    r"""Parse *text*; *file* is only named in errors.

    >>> parse_hjson('{\n  stage: 3, // shard everything\n  "sub_group_size": 1e9,\n}')
    {'stage': 3, 'sub_group_size': 1000000000.0}
    """
    reader = _Reader(text, file)
    try:
        return reader.document()
    except InputError:
        if re.search(r"\{%|\{\{", text):
            remedy = "render it first and give the file that comes out"
            raise InputError("is a jinja template, not a configuration", file=file, remedy=remedy) from None
        raise


class _Reader:
    """A position in a text and what can be read from there."""

    def __init__(self, text: str, file: object) -> None:
        self.text, self.file, self.at = text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}"), file, 0

    def document(self) -> dict[str, Any]:
        if self.next() != "{":
            raise self.error("expected a mapping in braces")
        content = self.mapping()
        if self.next():
            raise self.error("text after the closing brace")
        return content

    def next(self) -> str:
        """Skip blanks and comments; the character that follows, or nothing at the end."""
        gap = _GAP.match(self.text, self.at)
        self.at = gap.end() if gap else self.at
        return self.text[self.at : self.at + 1]

    def error(self, problem: str) -> InputError:
        line = self.text.count("\n", 0, self.at) + 1
        return InputError(f"not valid JSON in line {line}: {problem}", file=self.file)

    def value(self) -> Any:
        first = self.next()
        if first == "{":
            return self.mapping()
        if first == "[":
            return self.sequence()
        return self.quoted() if first in ('"', "'") else self.bare()

    def mapping(self) -> dict[str, Any]:
        self.at += 1
        content: dict[str, Any] = {}
        while self.next() != "}":
            key = self.key()
            if key in content:
                raise self.error(f"the key {key!r} stands twice")
            if self.next() != ":":
                raise self.error(f"expected ':' after the key {key!r}")
            self.at += 1
            content[key] = self.value()
            self.comma()
        self.at += 1
        return content

    def sequence(self) -> list[Any]:
        self.at += 1
        content: list[Any] = []
        while self.next() != "]":
            content.append(self.value())
            self.comma()
        self.at += 1
        return content

    def comma(self) -> None:
        if self.next() == ",":
            self.at += 1

    def key(self) -> str:
        if self.next() in ('"', "'"):
            return self.quoted()
        bare = _BARE_KEY.match(self.text, self.at)
        if bare is None:
            raise self.error(f"expected a key, found {self.next() or 'the end'!r}")
        self.at = bare.end()
        return bare[0]

    def quoted(self) -> str:
        single = _SINGLE_QUOTED.match(self.text, self.at)
        if single:
            self.at = single.end()
            return single[1].replace("\\'", "'")
        try:
            value, self.at = json.JSONDecoder().raw_decode(self.text, self.at)
        except json.JSONDecodeError as error:
            raise self.error(error.msg) from None
        return str(value)

    def bare(self) -> Any:
        """Read a number, a word or a string without quotes, which runs to the end of its line."""
        if self.next() in ("", ",", ":", "]", "}"):
            raise self.error(f"expected a value, found {self.next() or 'the end'!r}")
        start = self.at
        end = _END_OF_BARE_VALUE.search(self.text, start)
        stop = end.start() if end else len(self.text)
        token = self.text[start:stop].strip()
        number = _NUMBER.fullmatch(token)
        if number or token in _WORDS:
            self.at = stop
            if number is None:
                return _WORDS[token]
            return float(token) if number[1] or number[2] else int(token)
        line_end = self.text.find("\n", start)
        self.at = len(self.text) if line_end < 0 else line_end
        return self.text[start : self.at].strip()
