"""ASTRA-sim's analytical network file: a product of dimensions, each a Ring, a Switch or FullyConnected.

In its units a GB is 2**30 bytes and latency is in nanoseconds (``astra-network-analytical``, ``Type.hh``).  A message
over a switch pays the latency twice, over a direct link once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from simulator.errors import InputError, UnknownNameError
from simulator.world.document import parse_mapping
from simulator.world.topology.imported.inventory import Inventory, Nic, ScaleUp
from simulator.world.topology.imported.layout import Figure, Layout, Link, Node, bandwidth, latency

__all__ = ["read"]

FORMAT = "ASTRA-sim network YAML"

_GB, _NS = 2.0**30, 1e-9
_KEYS = ("topology", "npus_count", "bandwidth", "latency")
_KINDS = ("Ring", "Switch", "FullyConnected")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dimension:
    kind: str
    npus: int
    bandwidth: float
    """Of one link [B/s]."""
    latency: float
    """[s]"""


def read(text: str, file: str) -> Inventory:
    """Read the *text* of a network file; *file* is its name.

    Raises
    ------
    InputError
        Not YAML, a key is missing, lists of different length, or a value that is no positive number.
    """
    content = parse_mapping(text, file)
    dimensions = _dimensions(content, file)
    inside, outside = dimensions[0], [each for each in dimensions[1:] if each.npus > 1]
    notes = [f"the key {key!r} was ignored" for key in content if key not in _KEYS]
    obstacle = _obstacle(inside, outside)
    return Inventory(
        file=file,
        format=FORMAT,
        accelerators=inside.npus,
        hosts=math.prod(each.npus for each in outside),
        scale_up=_scale_up(inside),
        pairs=_pairs(inside),
        nics=tuple(
            Nic(name=f"npu {npu}, dimension {number}", speed=each.bandwidth, near=(npu,), technology="other")
            for npu in range(inside.npus)
            for number, each in enumerate(dimensions[1:], start=2)
            if each.npus > 1
        ),
        rails=inside.npus if outside else 0,
        notes=(
            "the first dimension is taken for the host",
            *(f"dimension {number}: {_shown(each)}" for number, each in enumerate(dimensions, start=1)),
            *notes,
        ),
        layout=None if obstacle else _layout(inside, outside, file),
        obstacle=obstacle,
    )


def _shown(each: _Dimension) -> str:
    return (
        f"{each.kind} of {each.npus}, {each.bandwidth / 1e9:.4g} GB/s per link ({each.bandwidth / _GB:g} of 2**30 B), "
        f"{each.latency / _NS:g} ns"
    )


def _dimensions(content: dict[str, Any], file: str) -> list[_Dimension]:
    lists = [_list(content, key, file) for key in _KEYS]
    if len({len(each) for each in lists}) != 1:
        lengths = ", ".join(f"{key} {len(each)}" for key, each in zip(_KEYS, lists, strict=True))
        raise InputError(f"lists of different length: {lengths}", file=file, remedy="one entry per dimension in each")
    return [_dimension(kind, npus, width, delay, file) for kind, npus, width, delay in zip(*lists, strict=True)]


def _list(content: dict[str, Any], key: str, file: str) -> list[Any]:
    if key not in content:
        raise InputError(f"the key {key!r} is missing", file=file, remedy=f"a network file has {', '.join(_KEYS)}")
    value = content[key]
    if not isinstance(value, list) or not value:
        raise InputError("expected a list with one entry per dimension", file=file, key=key, value=value)
    return value


def _dimension(kind: object, npus: object, width: object, delay: object, file: str) -> _Dimension:
    known = {name.lower(): name for name in _KINDS}
    if str(kind).lower() not in known:
        raise UnknownNameError("topology", str(kind), _KINDS, file=file, key="topology")
    if not isinstance(npus, int) or isinstance(npus, bool) or npus < 1:
        raise InputError("expected a count", file=file, key="npus_count", value=npus)
    for key, value in (("bandwidth", width), ("latency", delay)):
        least = "above zero" if key == "bandwidth" else "at least zero"
        if not isinstance(value, int | float) or value < 0 or (key == "bandwidth" and value == 0):
            raise InputError(f"expected a number {least}", file=file, key=key, value=value)
    return _Dimension(
        kind=known[str(kind).lower()],
        npus=npus,
        bandwidth=float(str(width)) * _GB,
        latency=float(str(delay)) * _NS,
    )


def _scale_up(inside: _Dimension) -> ScaleUp:
    if inside.npus == 1:
        return "none"
    kinds: dict[str, ScaleUp] = {"Switch": "switch", "FullyConnected": "mesh", "Ring": "ring"}
    return kinds[inside.kind]


def _obstacle(inside: _Dimension, outside: list[_Dimension]) -> str:
    if any(each.kind == "Ring" and each.npus > 2 for each in outside):
        return (
            "a Ring behind the first dimension joins each host to two neighbours, but in a cluster file hosts meet at "
            "switches; write Switch with the same bandwidth and half the latency in a copy of the file"
        )
    if len(outside) > 1:
        return (
            "a third dimension joins NPUs of equal place in the first two, which neither 'all' nor 'spread' wires; "
            "leave it out in a copy of the file"
        )
    if inside.npus == 1 and not outside:
        return "one NPU: nothing to wire; use the catalogue's 'flat'"
    return ""


def _layout(inside: _Dimension, outside: list[_Dimension], file: str) -> Layout:
    nodes = [Node(name="device", kind="device", per="host", count=inside.npus)]
    links = []
    if _pairs(inside):
        links.append(_direct(inside, file))
    elif inside.npus > 1:
        nodes.append(Node(name="dimension_1", kind="switch", per="host", count=1))
        links.append(_link(inside, 1, file))
    for each in outside:
        note = "one for the NPUs of equal place in their hosts"
        nodes.append(Node(name="dimension_2", kind="switch", per="cluster", count=inside.npus, note=note))
        links.append(_link(each, 2, file))
    hosts = math.prod(each.npus for each in outside)
    return Layout(
        nodes=tuple(nodes),
        links=tuple(links),
        hosts=hosts,
        library="ring",
        remarks=("GB in that file are 2**30 bytes.",),
    )


def _pairs(inside: _Dimension) -> tuple[tuple[int, int, int], ...]:
    """Direct links of a host: a ring of two has one."""
    joined = combinations(range(inside.npus), 2)
    if inside.kind == "Switch":
        return ()
    if inside.kind == "FullyConnected":
        return tuple((a, b, 1) for a, b in joined)
    return tuple((a, b, 1) for a, b in joined if b - a in (1, inside.npus - 1))


def _direct(inside: _Dimension, file: str) -> Link:
    where = f"dimension 1 of {file}, {inside.kind}"
    width, delay = f"{inside.bandwidth / _GB:g} GB/s of 2**30 B, {where}", f"{inside.latency / _NS:g} ns, {where}"
    return Link(
        name="dimension_1",
        technology="other",
        ends=("device", "device"),
        wiring="pairs",
        pairs=_pairs(inside),
        bandwidth=Figure(value=bandwidth(inside.bandwidth), basis="derived", source="simulator", at=width),
        latency=Figure(value=latency(inside.latency), basis="derived", source="simulator", at=delay),
    )


def _link(each: _Dimension, number: int, file: str) -> Link:
    """A switch as it is; direct links of an NPU merged into one port, half of the latency at each end."""
    direct = each.kind != "Switch"
    peers, share = (each.npus - 1, 2) if direct else (1, 1)
    width = f"{each.bandwidth / _GB:g} GB/s of 2**30 B, dimension {number} of {file}"
    delay = f"{each.latency / _NS:g} ns, dimension {number} of {file}"
    return Link(
        name=f"dimension_{number}",
        technology="other",
        ends=("device", f"dimension_{number}"),
        wiring="all" if number == 1 else "spread",
        bandwidth=Figure(
            value=bandwidth(peers * each.bandwidth),
            basis="derived",
            source="simulator",
            at=f"{peers} direct links of {width}" if direct else width,
        ),
        latency=Figure(
            value=latency(each.latency / share),
            basis="derived",
            source="simulator",
            at=f"Half of {delay}: a hop crosses two links here" if direct else f"{delay}; a hop crosses it twice",
        ),
    )
