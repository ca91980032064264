"""Tables made for a terminal, rendered as HTML for a notebook and as plain text.

A table is described once, for rich; here its columns, rows and marks are read again.  The HTML has no colours of its
own, so it is as legible on a dark page as on a light one; what rich marks by colour is strong, and says in words what
it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape as escaped
from io import StringIO
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

__all__ = ["html", "lines", "text"]

WIDTH: Final = 160  # definition: columns of plain text, as the command prints into a pipe

PAGE: Final = "overflow-x:auto;font-variant-numeric:tabular-nums"
CAPTION: Final = "caption-side:top;text-align:left;white-space:nowrap;font-weight:bold;color:inherit;padding-top:1em"


def html(parts: Iterable[Table | str]) -> str:
    """Tables, and lines of markup between them, as one piece of HTML; everything in them is escaped."""
    inner = (_table(part) if isinstance(part, Table) else f"<p>{_written(part)}</p>" for part in parts)
    return f'<div style="{PAGE}">{"".join(inner)}</div>'


def text(parts: Iterable[Table | str]) -> str:
    """Return the same without marks, for a page that has no HTML."""
    page = StringIO()
    console = Console(file=page, width=WIDTH, highlight=False, color_system=None)
    for part in parts:
        console.print(part)
    return page.getvalue()


def lines(plain: Iterable[str]) -> Iterator[str]:
    """Plain text as lines of markup, in which brackets mean themselves."""
    yield from map(escape, plain)


def _table(table: Table) -> str:
    sides = [_side(column) for column in table.columns]
    heads = "".join(_cell("th", str(item.header), side) for item, side in zip(table.columns, sides, strict=True))
    found = zip(*(column.cells for column in table.columns), strict=True)
    rows = (
        _row([str(cell) for cell in cells], sides, strong=bool(row.style), last=row.end_section)
        for cells, row in zip(found, table.rows, strict=True)
    )
    caption = f'<caption style="{CAPTION}">{_written(str(table.title))}</caption>' if table.title else ""
    return f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _side(column: Column) -> str:
    """How the cells of *column* stand."""
    space = "nowrap" if column.no_wrap else "normal"
    return f"text-align:{'right' if column.justify == 'right' else 'left'};white-space:{space}"


def _row(cells: list[str], sides: list[str], *, strong: bool, last: bool) -> str:
    first, *others = (_cell("td", cell, side, strong=strong) for cell, side in zip(cells, sides, strict=True))
    head = first.replace("<td", '<th scope="row"', 1).removesuffix("</td>") + "</th>"
    below = ' style="border-bottom:1px solid"' if last else ""
    return f"<tr{below}>{head}{''.join(others)}</tr>"


def _cell(tag: str, cell: str, side: str, *, strong: bool = False) -> str:
    inner = _written(cell, strong=strong)
    scope, weight = (' scope="col"', "bold") if tag == "th" else ("", "normal")
    return f'<{tag}{scope} style="{side};font-weight:{weight};padding:2px 6px">{inner}</{tag}>'


def _written(markup: str, *, strong: bool = False) -> str:
    """What rich makes of *markup*: the words, strong if they are marked."""
    found = Text.from_markup(markup)
    words = escaped(found.plain).replace("\n", "<br>")
    return f"<strong>{words}</strong>" if strong or found.spans else words
