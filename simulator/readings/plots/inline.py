"""A figure as part of a page: SVG in the page's own ink, without the title, which the page has as a heading.

The page defines the variables of :data:`INK`, so that a dark page gets light ink and no figure is drawn twice.  What
has no ink of its own takes that of the ``svg`` element: black is SVG's default, which matplotlib therefore leaves out.
"""

from __future__ import annotations

import io
import re
from html import escape
from typing import Final

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.text import Text

from simulator.readings.plots.canvas import FINDING

__all__ = ["INK", "finding_of", "inline_svg"]

INK: Final = {
    "#000000": "currentColor",
    "#3a3a3a": "var(--host-bound)",
    "#4d4d4d": "var(--blocked)",
    "#555555": "var(--muted)",
    "#b00020": "var(--alarm)",
    "#e4e4e4": "var(--rule)",
    "#f6f6f4": "var(--lane)",
    "#ffffff": "var(--page)",
}
"""Colours of figures that are not colours of things, and what they are on a page."""

NEARLY: Final = 0.1
"""Margin around what is drawn [inch]."""


def finding_of(figure: Figure) -> str:
    """What stands below the title of *figure*."""
    return " ".join(text.get_text() for text in _findings(figure))


def _findings(figure: Figure) -> list[Text]:
    return [text for text in figure.texts if text.get_gid() == FINDING]


def inline_svg(figure: Figure, name: str, label: str) -> str:
    """Return the element ``svg`` of *figure*, which loses its title and finding.

    Parameters
    ----------
    name
        Begins all identifiers, which must not be those of another figure in the page.
    label
        What people hear who do not see it.
    """
    figure.suptitle("")
    for text in _findings(figure):
        text.remove()
    written = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(
            written, format="svg", transparent=True, bbox_inches="tight", pad_inches=NEARLY, metadata=nothing
        )
    drawn = written.getvalue()
    drawn = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", drawn[drawn.index("<svg") :], flags=re.S)
    drawn = re.sub(r"<[^>]+>", lambda tag: _tag(tag[0], name), re.sub(r"\s+", " ", drawn))
    said = f'role="img" aria-label="{escape(label)}" fill="currentColor"'
    head, rest = drawn.split(">", maxsplit=1)
    sizeless = re.sub(r'\b(width|height)="[^"]*"', "", head)  # as wide as there is room
    return f"{sizeless} {said}>{rest}"


def _tag(tag: str, name: str) -> str:
    """Return *tag* with identifiers of its own, the page's ink, and places to a hundredth of a point."""
    tag = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", tag)
    tag = re.sub(r"#[0-9a-f]{6}\b", lambda found: INK.get(found[0], found[0]), tag)
    return re.sub(r"(\.\d\d)\d+", r"\1", tag) if ' d="' in tag else tag
