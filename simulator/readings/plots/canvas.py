"""What all figures share: sizes of type, units of time, legends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.patches import Patch

from simulator.readings.colours import colour, known_order

__all__ = [
    "FINDING",
    "GREY",
    "LARGE",
    "MEDIUM",
    "SMALL",
    "bare",
    "grouped_legend",
    "headline",
    "ink",
    "panel",
    "patches",
    "percent",
    "stacked",
    "time_unit",
]

SMALL, MEDIUM, LARGE = 9.0, 10.0, 14.0
"""Sizes of type [pt]."""

GREY = "#555555"

FINDING = "finding"
"""Mark of the line below the title, by which a page finds what a figure says."""

Array = npt.NDArray[np.float64]


def time_unit(longest: float) -> tuple[float, str]:
    """Unit in which times up to *longest* [s] are easy to read: its length in seconds, and its name.

    >>> time_unit(65.1), time_unit(0.02), time_unit(0.0)
    ((1.0, 's'), (0.001, 'ms'), (1e-06, 'us'))
    """
    units = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
    return next((unit for unit in units if longest >= unit[0]), units[-1])


def percent(part: float, whole: float) -> str:
    """*part* of *whole* with two digits that say something.

    >>> [percent(part, 100) for part in (100, 7.348, 0.147, 0.0001, 0)]
    ['100 %', '7.3 %', '0.15 %', '<0.01 %', '0 %']
    """
    share = 100 * part / whole if whole else 0.0  # definition: per cent
    if share <= 0:
        return "0 %"
    if share < 0.01:
        return "<0.01 %"
    digits = 0 if share >= 9.95 else 1 if share >= 0.995 else 2
    return f"{share:.{digits}f} %"


def ink(background: str) -> str:
    """Black or white, whichever is legible on *background* (relative luminance, WCAG 2.1).

    >>> ink("#F0E442"), ink("#0072B2")
    ('black', 'white')
    """
    red, green, blue = (channel**2.2 for channel in to_rgb(background))
    return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.2 else "white"


def headline(figure: Figure, title: str, finding: str = "") -> None:
    """Put *title* at the upper left, smaller if it is long, and *finding* below it."""
    inches = float(figure.get_figheight())
    size = max(SMALL, LARGE * min(1.0, 90 / max(1, len(title))))  # about 90 letters of LARGE fill 12 inches
    figure.suptitle(title, x=0.012, y=1 - 0.12 / inches, ha="left", va="top", fontsize=size, fontweight="bold")
    if finding:
        figure.text(
            0.012, 1 - 0.42 / inches, finding, ha="left", va="top", fontsize=MEDIUM + 1, color=GREY, gid=FINDING
        )  # fmt: skip


def panel(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Add axes at a place given in inches."""
    across, up = (float(size) for size in figure.get_size_inches())
    return figure.add_axes((left / across, bottom / up, width / across, height / up))


def bare(axes: Axes) -> None:
    """Take away the frame but for the axis below, and set the sizes of type."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(labelsize=MEDIUM, length=3)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.label.set_fontsize(MEDIUM)
    axes.yaxis.label.set_fontsize(MEDIUM)


def stacked(axes: Axes, layers: Mapping[str, Array], edges: Array, base: float, height: float) -> None:
    """Draw *layers*, one value for each interval between *edges*, on top of each other from *base* up.

    ``Axes.stairs`` would do the same but takes 50 ms a layer (matplotlib 3.11, ``_update_patch_limits``), this 1 ms.
    """
    corners = np.repeat(edges, 2)[1:-1]
    floor = np.full(len(edges) - 1, base)
    for name in sorted(layers, key=known_order):
        top = floor + height * layers[name]
        lower, upper = np.repeat(floor, 2), np.repeat(top, 2)
        axes.fill_between(corners, lower, upper, color=colour(name), linewidth=0, label=name)
        floor = top


def patches(names: Iterable[str], labels: Mapping[str, str] | None = None) -> list[Patch]:
    """One legend entry for each of *names*, in its colour."""
    return [Patch(facecolor=colour(name), label=(labels or {}).get(name, name.replace("_", " "))) for name in names]


def grouped_legend(figure: Figure, groups: Mapping[str, Sequence[Artist]], *, left: float, top: float) -> list[Legend]:
    """A legend for each group that has entries, below each other from *top* on, in fractions of the figure."""
    bold = {"weight": "bold", "size": SMALL}
    row = 1.5 * SMALL / 72 / float(figure.get_figheight())  # definition: points in an inch
    legends: list[Legend] = []
    for name, entries in groups.items():
        if entries:
            legends.append(
                figure.legend(
                    handles=list(entries), title=name, alignment="left", title_fontproperties=bold, loc="upper left",
                    bbox_to_anchor=(left, top), frameon=False, fontsize=SMALL, handlelength=1.4, borderaxespad=0,
                    borderpad=0, labelspacing=0.4,
                )
            )  # fmt: skip
            top -= row * (len(entries) + 2)
    return legends
