"""Software stacks whose speed was measured: files of ``topologies/stacks``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from simulator.errors import UnknownNameError
from simulator.world.catalog import Accelerator, Generation, Number, number
from simulator.world.document import Section, data_directory, read_section

__all__ = ["Stack", "software_stack"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What a software stack reaches on a generation of accelerators."""

    matrix: Number
    attention: Number
    memory: Number
    """Of the data-sheet's bandwidth."""
    fused: Number | None
    """Of the data-sheet's bandwidth, by compiled kernels; None where it was not measured."""
    step_per_layer: Number
    """Of the optimizer's step per layer of the model: launches for many tensors, clipping, logging [s]."""
    quantize: Number | None
    """Of the data-sheet's memory bandwidth, by kernels that quantise; None where it was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A software stack whose speed was measured."""

    name: str
    reached: Mapping[Generation, Reached]
    """By generation."""
    others: Reached
    """On generations that were not measured, as part of what single kernels reach at best."""

    def on(self, part: Accelerator) -> Accelerator:
        """Return *part* with what is reached on it."""
        known, others = self.reached.get(part.generation), self.others
        if known is not None:
            return replace(
                part,
                matrix_efficiency=known.matrix,
                attention_efficiency=known.attention,
                memory_efficiency=known.memory,
                fused_efficiency=known.fused,
                quantize_efficiency=known.quantize,
            )
        return replace(
            part,
            matrix_efficiency=_part_of(part.matrix_efficiency, others.matrix),
            attention_efficiency=_part_of(part.attention_efficiency, others.attention),
            memory_efficiency=_part_of(part.memory_efficiency, others.memory),
            fused_efficiency=part.memory_efficiency if others.fused is None else others.fused,
        )

    def step_per_layer(self, part: Accelerator) -> Number:
        """Time of the optimizer's step on *part* per layer, whatever its tensors' sizes [s]."""
        return self.reached.get(part.generation, self.others).step_per_layer


def _part_of(best: Number, share: Number) -> Number:
    """What is reached of the *best* that a single kernel reaches; as sure as the less sure of the two."""
    return replace(share, value=best.value * share.value, name=f"{best.name} x {share.name}")


class ReachedSection(Section):
    """Under ``reached`` of a stack."""

    matrix: dict[str, Any]
    attention: dict[str, Any]
    memory: dict[str, Any]
    step_per_layer: dict[str, Any]
    fused: dict[str, Any] | None = None
    quantize: dict[str, Any] | None = None


class StackSection(Section):
    """A file of ``topologies/stacks``."""

    kind: Literal["stack"]
    title: str
    read: dict[str, str]
    reached: dict[Generation, ReachedSection]
    others: ReachedSection


def software_stack(name: str, file: object = None) -> Stack:
    """Load ``topologies/stacks/<name>.yaml``.

    Raises
    ------
    InputError
        There is none of that name.
    """
    folder = data_directory("topologies") / "stacks"
    path = folder / f"{name}.yaml"
    if not path.is_file():
        names = sorted(item.stem for item in folder.glob("*.yaml"))
        raise UnknownNameError("software stack", name, names, file=file, key="compute.stack")
    return _stack(name, path)


@cache
def _stack(name: str, path: Path) -> Stack:
    section = read_section(path, StackSection)
    reached = {generation: _reached(raw, f"{name}.{generation}", path) for generation, raw in section.reached.items()}
    return Stack(name=name, reached=reached, others=_reached(section.others, f"{name}.others", path))


def _reached(section: ReachedSection, name: str, path: Path) -> Reached:
    def read(key: str) -> Number:
        return number(getattr(section, key), "s" if key == "step_per_layer" else "", f"{name}.{key}", path)

    def read_if_there(key: str) -> Number | None:
        return None if getattr(section, key) is None else read(key)

    return Reached(
        matrix=read("matrix"),
        attention=read("attention"),
        memory=read("memory"),
        step_per_layer=read("step_per_layer"),
        fused=read_if_there("fused"),
        quantize=read_if_there("quantize"),
    )
