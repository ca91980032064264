"""One colour per thing in all figures.

Causes stand out: the palette of Okabe and Ito (2008, "Color Universal Design"), which people with any colour vision
tell apart.  What merely runs is quieter: grey for compute, darker the later in a layer's life; the *light* scheme of
Tol (2021, SRON/EPS/TN/09-002, section 2) for communication and what belongs to it.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

__all__ = [
    "CAUSE_COLOURS",
    "ITEM_COLOURS",
    "KIND_COLOURS",
    "LINK_COLOURS",
    "NODE_COLOURS",
    "ROLE_COLOURS",
    "SERIES_COLOURS",
    "colour",
    "known_order",
]

CAUSE_COLOURS: Final = {
    "bandwidth": "#0072B2",
    "latency": "#56B4E9",
    "contention": "#D55E00",
    "queueing": "#E69F00",
    "prefetch limit": "#009E73",
    "host": "#CC79A7",
    "skew": "#F0E442",
    "copy": "#8C6D46",
    "host bound": "#3A3A3A",
}
"""Why the compute stream is idle."""

KIND_COLOURS: Final = {
    "forward": "#C9CED6",
    "recompute": "#ADB4BE",
    "backward": "#858E9A",
    "optimizer": "#4F5763",
    "quantize": "#DCC5E6",
    "dequantize": "#BE9BD0",
    "blocked": "#4D4D4D",
    "compute": "#9AA2AD",
    "copies": "#CDB79E",
}
"""What kernels do, by their kind, and all of them together; ``blocked`` is what the host does in a wait."""

ROLE_COLOURS: Final = {
    "forward_all_gather": "#77AADD",
    "backward_all_gather": "#99DDFF",
    "parameter_all_gather": "#44BB99",
    "reduce_scatter": "#EE8866",
    "all_reduce": "#FFAABB",
    "all_to_all": "#EEDD88",
    "broadcast": "#BBCC33",
    "parameter_broadcast": "#CFA87A",
    "reduce": "#AAAA00",
}
"""What collectives are for, by their role."""

ITEM_COLOURS: Final = {
    "optimizer states": "#6B737E",
    "gradients": "#F6C4B3",
    "weights": "#BBD5EE",
    "secondary weights": "#A3D9C9",
    "activations": "#D5D9DF",
    "logits and loss": "#EEDD88",
    "gathered weights": "#77AADD",
    "all-gather buffers": "#99DDFF",
    "gradients in flight": "#EE8866",
    "reduce buckets": "#C97B5F",
    "reduce temporaries": "#E3A78F",
    "reduced gradients": "#FFAABB",
    "quantization buffers": "#DCC5E6",
    "optimizer temporaries": "#9AA1AB",
}
"""What memory holds."""

NODE_COLOURS: Final = {"device": "#CFE3F5", "nic": "#FBE3D0", "switch": "#E2E4E8"}
"""Nodes of a topology, by kind."""

LINK_COLOURS: Final = ("#117733", "#882255", "#332288", "#AA7A00", "#44AA99", "#CC6677", "#777777")
"""Kinds of links in the order in which they are met from the devices upwards (Tol, *muted*)."""

SERIES_COLOURS: Final = (
    "#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#777777", "#EE7733", "#332288", "#999933",
)  # fmt: skip
"""Variants, or whatever a sweep varies, in the order in which they are met (Tol, *bright* with a darker grey, and three
of *vibrant* and *muted* for more than seven)."""

_KNOWN: Final = CAUSE_COLOURS | ROLE_COLOURS | KIND_COLOURS | ITEM_COLOURS
_OTHERS: Final = ("#BBCC33", "#AAAA00", "#EEDD88", "#C9A48A", "#9DB8A0", "#B7B0E0", "#D98FB0", "#8FC7C7")
"""For names that a new schedule brings."""


def colour(name: str) -> str:
    """Colour of a cause, kernel kind, role or memory item; the same for the same name, known or not.

    >>> colour("bandwidth"), colour("forward"), colour("something new") == colour("something new")
    ('#0072B2', '#C9CED6', True)
    """
    return _KNOWN.get(name) or _OTHERS[crc32(name.encode()) % len(_OTHERS)]


def known_order(name: str) -> tuple[int, str]:
    """Sort key: in the order of the tables, unknown names last.

    >>> sorted(["zeta", "queueing", "bandwidth"], key=known_order)
    ['bandwidth', 'queueing', 'zeta']
    """
    names = list(_KNOWN)
    return (names.index(name) if name in _KNOWN else len(names)), name
