"""What every answer is: data first, and views of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simulator.readings.rendered import html, text
from simulator.readings.rows import as_frame

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Answer"]


@dataclass(frozen=True, kw_only=True)
class Answer(ABC):
    """Data, shown as a table by a notebook and by ``print``."""

    content: Mapping[str, Any] = field(repr=False)
    """What the command of the same name prints with ``--json``; SI units."""

    @abstractmethod
    def tables(self) -> Iterable[Table | str]:
        """What the command prints: tables of rich, and lines of its markup."""

    @abstractmethod
    def rows(self) -> Iterable[Mapping[str, Any]]:
        """The same as flat rows, one for each thing that is compared."""

    def units(self) -> Mapping[str, str]:
        """Units of columns of :meth:`rows` that no key of a result is called."""
        return {}

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and mappings."""
        return dict(self.content)

    def frame(self) -> Any:
        """Return :meth:`rows` as a ``pandas.DataFrame``; ``attrs["units"]`` has the units of its columns.

        Raises
        ------
        InputError
            pandas is not installed.
        """
        return as_frame(self.rows(), self.units())

    def __str__(self) -> str:
        return text(self.tables())

    def _repr_html_(self) -> str:
        return html(self.tables())
