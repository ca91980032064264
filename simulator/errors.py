"""What can go wrong, and whose fault it is.

``InputError`` is the user's to mend: it names the file, the key, the value, what was expected and what to do, on
one line.  ``BrokenLawError`` is ours: a simulation contradicted a law of nature, and no result may be shown.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["BrokenLawError", "InputError", "NoRouteError", "SimulatorError", "UnknownNameError"]


class SimulatorError(Exception):
    """Base of all errors that this package raises on purpose."""


class InputError(SimulatorError, ValueError):
    """Something the user wrote cannot be used.

    Parameters
    ----------
    problem
        What was found and what was expected, without a final full stop.
    file, key
        Where: a path, and a dotted key inside it.
    value
        What stood there.
    remedy
        What to write instead.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: object = None,
        key: str | None = None,
        value: object = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem, self.file, self.key, self.value, self.remedy = problem, file, key, value, remedy

    def __str__(self) -> str:
        where = [str(part) for part in (self.file, self.key) if part]
        found = "" if self.value is None else f"{_shown(self.value)}: "
        text = ": ".join([*where, found + self.problem])
        return " ".join((f"{text}; {self.remedy}" if self.remedy else text).split())


class UnknownNameError(InputError):
    """A name that is not in the list of names known at that place.

    >>> print(UnknownNameError("key", "stagee", ["stage", "bucket"], file="a.yaml"))
    a.yaml: 'stagee': unknown key; did you mean 'stage'? Known: bucket, stage
    """

    def __init__(
        self, what: str, name: str, known: Iterable[str], *, file: object = None, key: str | None = None
    ) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        super().__init__(f"unknown {what}", file=file, key=key, value=name, remedy=f"{hint}Known: {', '.join(names)}")


class NoRouteError(InputError):
    """Two ranks that no chain of links joins."""


class BrokenLawError(SimulatorError):
    """A timeline contradicts a law (bytes lost, a link over capacity, time running backwards): a bug of ours."""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
