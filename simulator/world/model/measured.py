"""Measured layers of a model: a table of the user's takes the place of what the model says of them.

A row names a module as the implementation registers it, or else a layer.  Each part of the name between dots may hold
``*``, ``?`` and ``[...]``: ``model.layers.*`` means every block, and nothing inside of one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from simulator.errors import UnknownNameError
from simulator.world.catalog import Number
from simulator.world.measurements.layers import QUANTITIES, LayerRow, read_layers
from simulator.world.model.layer import Layer
from simulator.world.model.module import Model, Module

__all__ = ["MeasuredLayers", "measured_layers", "with_activations"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLayers:
    """A row and what it means: each of its parts takes its times."""

    row: LayerRow
    """Scaled to the micro-batch of the scenario."""
    parts: tuple[frozenset[str], ...]
    """For each layer or module that the row names: the modules that it consists of, itself and all below."""

    def time(self, direction: str) -> float:
        """Return the time of forward, recompute or backward [s]."""
        if direction == "recompute" and self.row.recompute is not None:
            return self.row.recompute
        return self.row.backward if direction == "backward" else self.row.forward

    def numbers(self) -> Iterator[Number]:
        """Yield what the row gives, with its pedigree."""
        for quantity, kind in QUANTITIES.items():
            value = getattr(self.row, quantity)
            if value is not None:
                yield Number(
                    value=value,
                    name=f"{self.row.name} {quantity}",
                    unit=next(iter(kind.factors)),
                    basis="measured",
                    source=self.row.file.name,
                    at=f"row {self.row.number}",
                )


def measured_layers(file: Path, model: Model, tokens: int, *, scales: bool) -> tuple[MeasuredLayers, ...]:
    """Read a table of measured layers of *model*.

    Parameters
    ----------
    tokens
        Of a micro-batch.
    scales
        Whether a row that was measured with another number of tokens counts in proportion.

    Raises
    ------
    InputError
        Something is wrong with the table, or a row names nothing in the model, what another row has measured, or what
        launches no kernel, or was measured with another number of tokens.
    """
    found = []
    taken: dict[str, int] = {}
    for row in read_layers(file):
        parts = _parts(row, model)
        for name in (module.name for module in model.root.walk()):
            if any(name in part for part in parts):
                if name in taken:
                    problem = f"row {taken[name]} measures {name} too"
                    raise row.error(problem, "layer", row.name, "leave one of them")
                taken[name] = row.number
        found.append(MeasuredLayers(row=_scaled(row, tokens, scales=scales), parts=parts))
    return tuple(found)


def with_activations(model: Model, measured: Iterable[MeasuredLayers], tokens: int) -> Model:
    """Return *model* with the activations that were *measured* for a micro-batch of so many *tokens*.

    Raises
    ------
    InputError
        Activations of something else than a whole layer, or less than its input.
    """
    layers = {frozenset(module.name for module in model.modules_of(layer)): layer for layer in model.layers}
    changed: dict[str, Layer] = {}
    for row, part in ((item.row, part) for item in measured for part in item.parts):
        if row.activations is None:
            continue
        layer = layers.get(part)
        if layer is None:
            raise row.error("only a whole layer has activations", "activations", row.name, "leave the cell empty")
        if row.activations < layer.input_bytes * tokens:
            remedy = "give all that backward needs"
            raise row.error(f"less than the input of {layer.name}", "activations", row.activations, remedy)
        changed[layer.name] = replace(layer, activation_bytes=row.activations / tokens, python_bytes=0.0)
    return replace(model, layers=tuple(changed.get(layer.name, layer) for layer in model.layers))


def _parts(row: LayerRow, model: Model) -> tuple[frozenset[str], ...]:
    """Return the modules of each module, or else layer, that *row* names."""
    modules = [tuple(module.walk()) for module in model.root.walk() if module.name and _means(row.name, module.name)]
    layers = [model.modules_of(layer) for layer in model.layers if _means(row.name, layer.name)]
    if not modules and not layers:
        names = (*(module.name for module in model.root.walk()), *(layer.name for layer in model.layers))
        known = {re.sub(r"(?<![^.])\d+(?![^.])", "*", name) for name in names if name}
        raise UnknownNameError("layer or module", row.name, known, file=row.file, key=f"row {row.number}, layer")
    for part in modules or layers:
        _require_kernels(row, part)
        _require_one_layer(row, part, model)
    return tuple(frozenset(module.name for module in part) for part in modules or layers)


def _means(pattern: str, name: str) -> bool:
    """Whether *pattern* means *name*, part by part.

    >>> _means("model.layers.*", "model.layers.12"), _means("model.layers.*", "model.layers.12.mlp")
    (True, False)
    """
    wanted, found = pattern.split("."), name.split(".")
    return len(wanted) == len(found) and all(map(fnmatchcase, found, wanted))


def _require_kernels(row: LayerRow, part: tuple[Module, ...]) -> None:
    """Refuse a time for what launches nothing: it would be lost."""
    runs = {
        "forward": any(module.forward or module.forward_time is not None for module in part),
        "backward": any(module.backward or module.backward_time is not None for module in part),
    }
    for direction, is_run in runs.items():
        time = getattr(row, direction)
        if time and not is_run:
            remedy = "measure the module around it"
            raise row.error(f"{part[0].name} launches no kernel in {direction}", "layer", row.name, remedy)


def _require_one_layer(row: LayerRow, part: tuple[Module, ...], model: Model) -> None:
    """Refuse a time for several layers together: how much each of them takes is not in the table."""
    names = {module.name for module in part}
    if sum(any(module.name in names for module in model.modules_of(layer)) for layer in model.layers) > 1:
        raise row.error(f"{part[0].name} has several layers", "layer", row.name, "give each of them a time")


def _scaled(row: LayerRow, tokens: int, *, scales: bool) -> LayerRow:
    """Return *row* for a micro-batch of so many *tokens*."""
    if row.tokens is None or row.tokens == tokens:
        return row
    if not scales:
        remedy = f"measure with {tokens} or set compute.scale_measured: true"
        raise row.error(f"a micro-batch here has {tokens} tokens", "tokens", row.tokens, remedy)
    factor = tokens / row.tokens
    return replace(
        row,
        forward=row.forward * factor,
        backward=row.backward * factor,
        recompute=None if row.recompute is None else row.recompute * factor,
        activations=None if row.activations is None else row.activations * factor,
    )
