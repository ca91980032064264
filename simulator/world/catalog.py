"""Numbers that know where they come from.

``topologies/parts/*.yaml`` hold what the world fixes.  Each number has a value with a unit, a basis (how it is
known), a source (a key of ``topologies/sources.yaml``) and the place in that source.  A report names every number of
basis ``assumed`` that it used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from simulator.errors import InputError, UnknownNameError
from simulator.units import quantity
from simulator.world.document import Section, convert, data_directory, read_mapping

__all__ = [
    "Accelerator", "Adjustment", "Basis", "Generation", "Host", "Number", "Tiles", "accelerator", "adjustment",
    "memory_number", "network_number", "number", "python_host", "sources", "tiles",
]  # fmt: skip

Basis = Literal["datasheet", "measured", "published", "derived", "assumed", "chosen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A value and its pedigree."""

    value: float
    """SI value; a pure number where it has no unit."""
    name: str
    """Where it stands: part and key."""
    unit: str
    basis: Basis
    """``chosen`` marks a number from the scenario rather than from the catalogue."""
    source: str = ""
    """Key of ``sources.yaml``."""
    at: str = ""
    """Page, table or function in the source, and how it was derived."""


class NumberSection(Section):
    """A number as it is written in a file."""

    value: str | float | int
    basis: Basis
    source: str
    at: str = ""


def number(raw: object, unit: str, name: str, file: object) -> Number:
    """Read a number with pedigree; *unit* is the SI unit expected, ``""`` for a fraction, ``"x"`` for a factor.

    Raises
    ------
    InputError
        Wrong unit, unknown basis, or a source that ``sources.yaml`` does not list.
    """
    section = convert(raw, NumberSection, file, name)
    if section.source not in sources():
        raise UnknownNameError("source", section.source, sources(), file=file, key=name)
    return Number(
        value=_value(section.value, unit, name, file),
        name=name,
        unit=unit,
        basis=section.basis,
        source=section.source,
        at=section.at,
    )


def _value(written: object, unit: str, name: str, file: object) -> float:
    if unit == "x":
        if isinstance(written, int | float) and not isinstance(written, bool) and written > 0:
            return float(written)
        raise InputError("expected a factor above 0", file=file, key=name, value=written)
    if not unit:
        if isinstance(written, int | float) and not isinstance(written, bool) and 0 < written <= 1:
            return float(written)
        raise InputError("expected a fraction above 0, at most 1", file=file, key=name, value=written)
    try:
        return float(quantity(unit).parse(written))
    except InputError as error:
        raise InputError(error.problem, file=file, key=name, value=error.value, remedy=error.remedy) from None


@cache
def sources() -> Mapping[str, Any]:
    """Return the bibliography of the catalogue, by key."""
    return read_mapping(data_directory("topologies") / "sources.yaml")


Generation = Literal["volta", "ampere", "ada", "hopper", "blackwell", "cdna"]
"""Family of GPUs, as far as communication libraries tell them apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One GPU type."""

    name: str
    generation: Generation
    memory: Number
    """Capacity [B]."""
    memory_bandwidth: Number
    """Peak [B/s]."""
    peak_flops: Mapping[str, Number]
    """Dense matrix rate by precision [FLOP/s]."""
    multiprocessors: Number
    """Streaming multiprocessors or compute units."""
    matrix_efficiency: Number
    """Fraction of the peak that large matrix products reach."""
    attention_efficiency: Number
    """Fraction of the peak that fused attention reaches."""
    memory_efficiency: Number
    """Fraction of the peak bandwidth that element-wise kernels reach."""
    flash3_efficiency: Number | None = None
    """``attention_efficiency`` of FlashAttention-3 and later, within a step; None where it does not run."""
    narrow_efficiency: Number | None = None
    """Fraction of the peak that matrix products in 8 bits reach; None: that of others."""
    fused_efficiency: Number | None = None
    """``memory_efficiency`` of compiled kernels; None: the same."""
    quantize_efficiency: Number | None = None
    """``memory_efficiency`` of kernels that quantise; None: the same."""

    def numbers(self) -> tuple[Number, ...]:
        """Every number of the part."""
        return (
            self.memory,
            self.memory_bandwidth,
            *self.peak_flops.values(),
            self.multiprocessors,
            self.matrix_efficiency,
            self.attention_efficiency,
            self.memory_efficiency,
            *(
                item
                for item in (
                    self.flash3_efficiency,
                    self.narrow_efficiency,
                    self.fused_efficiency,
                    self.quantize_efficiency,
                )
                if item is not None
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The thread that launches: Python and the framework on one CPU core."""

    kernel: Number
    """Per launched kernel [s]."""
    collective: Number
    """Per launched collective [s]."""
    hook: Number
    """Per hook that a framework runs on a module or gradient [s]."""

    def numbers(self) -> tuple[Number, ...]:
        """Every number of the host."""
        return (self.kernel, self.collective, self.hook)

    def with_chosen(self, times: Mapping[str, float]) -> Host:
        """Return a host on which *times* [s] take the place of the catalogue's."""
        chosen = {
            name: Number(value=time, name=f"host.{name}_time", unit="s", basis="chosen") for name, time in times.items()
        }
        return replace(self, **chosen)


class HostSection(Section):
    """A file of ``topologies/hosts``."""

    kind: Literal["host"]
    title: str
    read: dict[str, str]
    kernel: dict[str, Any]
    collective: dict[str, Any]
    hook: dict[str, Any]


@cache
def python_host() -> Host:
    """Load ``topologies/hosts/python.yaml``: eager PyTorch."""
    path = data_directory("topologies") / "hosts" / "python.yaml"
    section = convert(read_mapping(path), HostSection, path)
    return Host(
        kernel=number(section.kernel, "s", "python.kernel", path),
        collective=number(section.collective, "s", "python.collective", path),
        hook=number(section.hook, "s", "python.hook", path),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustment:
    """What measured collectives of one generation need beyond NCCL's estimate of them."""

    efficiency: Number
    """Bandwidth of a channel over NCCL's constant, inside a host."""
    copy: Number
    """Rate of the pass that moves a rank's own part [B/s]."""
    simple_call: Number
    """Per collective of protocol Simple [s]."""
    simple_message: Number
    """Per message of protocol Simple [s]."""
    ll128_message: Number
    """Per message of protocol LL128 [s]."""
    ll_call: Number
    """Per collective of protocol LL [s]."""
    ll_message: Number
    """Per message of protocol LL [s]."""
    nvls_efficiency: Number
    """Bandwidth of NVLS over NCCL's estimate."""
    nvls_rank: Number
    """Of NVLS, per rank of a host [s]."""
    direct_efficiency: Number
    """Bandwidth of point-to-point messages over NCCL's constant of the link."""
    direct_call: Number
    """Per exchange of point-to-point messages [s]."""
    direct_peer: Number
    """And per peer on the host [s]."""
    direct_copy: Number
    """Rate at which it copies a rank's own part [B/s]."""

    def numbers(self) -> tuple[Number, ...]:
        """Every number of the adjustment."""
        return tuple(getattr(self, item.name) for item in fields(self))


@cache
def adjustment(generation: Generation) -> Adjustment:
    """Load what ``topologies/libraries/nccl.yaml`` says of *generation*."""
    path = data_directory("topologies") / "libraries" / "nccl.yaml"
    # calls on L40S take what they take on H100
    raw = read_mapping(path)["hopper" if generation == "ada" else generation]
    unit = {"copy": "B/s", "direct_copy": "B/s"} | dict.fromkeys(
        ("efficiency", "nvls_efficiency", "direct_efficiency"), "x"
    )
    return Adjustment(
        **{
            item.name: number(raw[item.name], unit.get(item.name, "s"), f"nccl.{generation}.{item.name}", path)
            for item in fields(Adjustment)
        }
    )


@cache
def network_number(technology: str, what: Literal["efficiency", "latency"]) -> Number:
    """Load what ``topologies/libraries/networks.yaml`` says of links of *technology*."""
    path = data_directory("topologies") / "libraries" / "networks.yaml"
    raw = read_mapping(path)[technology][what]
    return number(raw, "s" if what == "latency" else "", f"networks.{technology}.{what}", path)


@cache
def memory_number(what: Literal["context", "communicator", "fragmentation"]) -> Number:
    """Load what ``topologies/libraries/memory.yaml`` says a process holds beside its arrays."""
    path = data_directory("topologies") / "libraries" / "memory.yaml"
    return number(read_mapping(path)[what], "" if what == "fragmentation" else "B", f"memory.{what}", path)


@dataclass(frozen=True, slots=True)
class Tiles:
    """How libraries cut matrix products."""

    sizes: tuple[tuple[int, int], ...]
    """Rows and columns of the result that a multiprocessor works out at a time."""
    operand_cost: float
    """Products per loaded element at which loading takes as long as multiplying."""
    shortest_sum: float
    """Terms of a sum below which its parts are not worth adding up."""
    numbers: tuple[Number, ...] = field(default=(), compare=False)
    """What these rest on."""


@cache
def tiles() -> Tiles:
    """Load ``topologies/libraries/gemm.yaml``."""
    path = data_directory("topologies") / "libraries" / "gemm.yaml"
    raw = read_mapping(path)
    cost, shortest = (number(raw[key], "x", f"gemm.{key}", path) for key in ("operand_cost", "shortest_sum"))
    return Tiles(
        sizes=tuple((a, b) for a, b in raw["tiles"]["sizes"]),
        operand_cost=cost.value,
        shortest_sum=shortest.value,
        numbers=(cost, shortest),
    )


class AcceleratorSection(Section):
    """A file of ``topologies/parts``."""

    kind: Literal["accelerator"]
    title: str
    read: dict[str, str]
    generation: Generation
    memory: dict[str, Any]
    memory_bandwidth: dict[str, Any]
    peak_flops: dict[str, dict[str, Any]]
    multiprocessors: dict[str, Any]
    matrix_efficiency: dict[str, Any]
    attention_efficiency: dict[str, Any]
    memory_efficiency: dict[str, Any]
    flash3_efficiency: dict[str, Any] | None = None
    narrow_efficiency: dict[str, Any] | None = None


@cache
def accelerator(name: str) -> Accelerator:
    """Load the part *name* from ``topologies/parts``.

    Raises
    ------
    InputError
        No such part, or a number without unit, basis or source.
    """
    folder = data_directory("topologies") / "parts"
    path = folder / f"{name}.yaml"
    if not path.is_file():
        raise UnknownNameError("accelerator", name, [file.stem for file in folder.glob("*.yaml")])
    return _accelerator(name, path)


def _accelerator(name: str, path: Path) -> Accelerator:
    section = convert(read_mapping(path), AcceleratorSection, path)
    narrow, flash3 = section.narrow_efficiency, section.flash3_efficiency

    def read(raw: object, unit: str, key: str) -> Number:
        return number(raw, unit, f"{name}.{key}", path)

    return Accelerator(
        name=name,
        generation=section.generation,
        memory=read(section.memory, "B", "memory"),
        memory_bandwidth=read(section.memory_bandwidth, "B/s", "memory_bandwidth"),
        peak_flops={
            precision: read(raw, "FLOP/s", f"peak_flops.{precision}") for precision, raw in section.peak_flops.items()
        },
        multiprocessors=read(section.multiprocessors, "x", "multiprocessors"),
        matrix_efficiency=read(section.matrix_efficiency, "", "matrix_efficiency"),
        attention_efficiency=read(section.attention_efficiency, "", "attention_efficiency"),
        memory_efficiency=read(section.memory_efficiency, "", "memory_efficiency"),
        flash3_efficiency=None if flash3 is None else read(flash3, "", "flash3_efficiency"),
        narrow_efficiency=None if narrow is None else read(narrow, "", "narrow_efficiency"),
    )
