"""Software stacks whose speed was measured: files of ``topologies/stacks``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from simulator.errors import UnknownNameError
from simulator.world.catalog import Accelerator, Generation, Number, number
from simulator.world.document import Section, convert, data_directory, read_mapping

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
    narrow: Number | None
    """Of matrix products in 8 bits; None where it was not measured."""
    step_per_layer: Number
    """Of the optimizer's step per layer of the model: launches for many tensors, clipping, logging [s]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A software stack whose speed was measured."""

    name: str
    reached: Mapping[str, Reached]
    """By generation."""

    def on(self, part: Accelerator) -> Accelerator:
        """Return *part* with what is reached on it; as it is, if its generation was not measured."""
        known = self.reached.get(part.generation)
        if known is None:
            return part
        return replace(
            part,
            matrix_efficiency=known.matrix,
            attention_efficiency=known.attention,
            memory_efficiency=known.memory,
            fused_efficiency=known.fused,
            narrow_efficiency=known.narrow or part.narrow_efficiency,
        )

    def step_per_layer(self, part: Accelerator) -> float:
        """Time of the optimizer's step on *part* per layer, whatever its tensors' sizes [s]."""
        known = self.reached.get(part.generation)
        return 0.0 if known is None else known.step_per_layer.value


class ReachedSection(Section):
    """Under ``reached`` of a stack."""

    matrix: dict[str, Any]
    attention: dict[str, Any]
    memory: dict[str, Any]
    step_per_layer: dict[str, Any]
    fused: dict[str, Any] | None = None
    narrow: dict[str, Any] | None = None


class StackSection(Section):
    """A file of ``topologies/stacks``."""

    kind: Literal["stack"]
    title: str
    read: dict[str, str]
    reached: dict[Generation, ReachedSection]


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
    section = convert(read_mapping(path), StackSection, path)
    return Stack(
        name=name,
        reached={
            generation: Reached(
                matrix=number(raw.matrix, "", f"{name}.{generation}.matrix", path),
                attention=number(raw.attention, "", f"{name}.{generation}.attention", path),
                memory=number(raw.memory, "", f"{name}.{generation}.memory", path),
                fused=None if raw.fused is None else number(raw.fused, "", f"{name}.{generation}.fused", path),
                narrow=None if raw.narrow is None else number(raw.narrow, "", f"{name}.{generation}.narrow", path),
                step_per_layer=number(raw.step_per_layer, "s", f"{name}.{generation}.step_per_layer", path),
            )
            for generation, raw in section.reached.items()
        },
    )
