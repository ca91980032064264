"""Layers that the scenario spells out: parameters, and either FLOP or times.

Each is a module with one weight, below a root that calls them in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from simulator.units import Bytes, Duration, Flop
from simulator.world.document import Section
from simulator.world.model.layer import Layer, Tensor, Work
from simulator.world.model.module import Module

__all__ = ["LayerSection", "explicit"]


class LayerSection(Section):
    """One entry of ``model.layers``: ``count`` equal layers."""

    name: str
    parameters: Annotated[float, Meta(ge=0)]
    count: Annotated[int, Meta(ge=1)] = 1
    forward_flop: Flop | None = None
    """Per token; without it 2 FLOP per parameter."""
    backward_flop: Flop | None = None
    """Per token; without it twice the forward."""
    forward_time: Duration | None = None
    """Of one micro-batch; takes the place of the FLOP."""
    backward_time: Duration | None = None
    input_activations: Bytes = Bytes(0)
    """Per token: what activation checkpointing keeps."""
    activations: Bytes = Bytes(0)
    """Per token: what backward needs."""


def explicit(sections: Sequence[LayerSection], element_bytes: int) -> tuple[Module, tuple[Layer, ...]]:
    """Return the module tree and the layers in order; equal layers are numbered."""
    layers = tuple(
        _layer(section, section.name if section.count == 1 else f"{section.name}.{index}", element_bytes)
        for section in sections
        for index in range(section.count)
    )
    modules = tuple(_module(layer) for layer in layers)
    return Module(name="", kind="Model", children=modules, calls=modules), layers


def _layer(section: LayerSection, name: str, element_bytes: int) -> Layer:
    elements = int(section.parameters)
    forward = 2.0 * elements if section.forward_flop is None else float(section.forward_flop)
    backward = 2.0 * forward if section.backward_flop is None else float(section.backward_flop)
    return Layer(
        name=name,
        modules=(name,),
        tensors=(Tensor(f"{name}.weight", (elements,)),),
        forward=(Work("matrix", flop=forward, constant_traffic=element_bytes * elements),),
        backward=(Work("matrix", flop=backward, constant_traffic=2 * element_bytes * elements),),
        model_flop=forward + backward,
        input_bytes=float(section.input_activations),
        activation_bytes=float(max(section.activations, section.input_activations)),
        forward_time=None if section.forward_time is None else float(section.forward_time),
        backward_time=None if section.backward_time is None else float(section.backward_time),
    )


def _module(layer: Layer) -> Module:
    return Module(
        name=layer.name,
        kind="Linear",
        parameters=layer.tensors,
        forward=layer.forward,
        backward=layer.backward,
        forward_time=layer.forward_time,
        backward_time=layer.backward_time,
    )
