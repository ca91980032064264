"""What a framework's host code works on: modules, the order in which they run, groups, the price of its own time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from simulator.laws.collectives.base import Collective, CollectiveKind
from simulator.laws.kernels import Kernel
from simulator.schedules.program import Memory
from simulator.schedules.tape import SilentTape, Tape
from simulator.world.mesh import Group, Mesh
from simulator.world.model.execution import Execution
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module

__all__ = ["DTYPE_BYTES", "HostCosts", "Job", "collective"]

DTYPE_BYTES: Final = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8, "u8": 1, "i32": 4, "i64": 8}
"""definition: bytes of an element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCosts:
    """Time of the launching thread [s]."""

    kernel: float = 0.0
    """Per launched kernel."""
    collective: float = 0.0
    """Per launched collective."""
    hook: float = 0.0
    """Per hook that the framework runs on a module or gradient."""
    cpu_byte: float = 0.0
    """Per byte that DeepSpeed's kernels read or write on the CPU, while all ranks of the host do [s/B]."""
    torch_byte: float = 0.0
    """And that PyTorch's AdamW does [s/B]."""


@dataclass(kw_only=True, eq=False)
class Job:
    """One training step of one rank, before a framework has scheduled it.

    ``micro_batches`` and ``rehearses`` may change between two steps, and nothing else does once a step is recorded.
    """

    root: Module
    execution: Execution
    """Of every micro-batch."""
    micro_batches: int
    dtype: str
    """Of parameters and gradients in computation: bf16, fp16 or fp32."""
    mesh: Mesh
    kernels: Mapping[tuple[str, str], Kernel]
    """By module name and ``forward``, ``recompute`` or ``backward``; a module without own work is left out."""
    optimizer: Kernel
    """Update of what this rank owns."""
    activations: Mapping[tuple[str, str], tuple[Memory, Memory]] = field(default_factory=dict)
    """Memory that a module's kernel takes and gives back, by the same keys as ``kernels``."""
    step_temporaries: Memory = ()
    """Memory that the update takes and gives back."""
    costs: HostCosts = HostCosts()
    first_step: int = 0
    """Number of the step that is recorded first, as the frameworks' counters have it."""
    rehearses: bool = False
    """The step is only there for what the framework learns from it; its program is not recorded."""

    @cached_property
    def modules(self) -> Mapping[str, Module]:
        """All modules by name, in order of registration."""
        return {module.name: module for module in self.root.walk()}

    @cached_property
    def parameters(self) -> Mapping[str, Tensor]:
        """All parameters by name, each once, in order of registration (``named_parameters``)."""
        return {tensor.name: tensor for tensor in self.root.tensors()}

    @cached_property
    def trainable(self) -> Mapping[str, Tensor]:
        """The parameters that have gradients."""
        return {name: tensor for name, tensor in self.parameters.items() if tensor.trainable}

    @cached_property
    def gradients(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the gradients that come out of each module's backward."""
        found: dict[str, tuple[str, ...]] = {}
        for mark in self.execution.backward:
            if mark.kind == "gradient":
                module = mark.name.rpartition(".")[0]
                found[module] = (*found.get(module, ()), mark.name)
        return found

    @cached_property
    def world(self) -> Group:
        """The default process group."""
        return self.mesh.world()

    def cpu_update(self, *, fused: bool) -> float:
        """Time in which PyTorch's AdamW updates on the CPU what this rank owns [s]."""
        traffic = sum(work.constant_traffic for work in self.optimizer.works)
        return traffic * (self.costs.cpu_byte if fused else self.costs.torch_byte)

    def tape(self) -> Tape:
        """An empty tape with this job's launch costs."""
        if self.rehearses:
            return SilentTape()
        return Tape(self.costs.kernel, self.costs.collective)

    def update(self, tape: Tape, freed: Memory = ()) -> None:
        """Launch the update of the parameters, after which the memory *freed* is free."""
        memory = self.step_temporaries
        tape.launch(self.optimizer, "compute", label="optimizer", takes=memory, gives=memory + freed)

    def run(self, tape: Tape, module: str, direction: str, stream: str = "compute") -> None:
        """Launch the kernel of *module*, if it has work of its own; without gradients, nothing is kept for backward."""
        kernel = self.kernels.get((module, direction))
        if kernel is not None:
            keeps = tape.phase != "eval"
            takes, gives = self.activations.get((module, direction), ((), ())) if keeps else ((), ())
            tape.launch(kernel, stream, label=module, takes=takes, gives=gives)


def collective(kind: CollectiveKind, elements: float, dtype: str, group: Group, role: str) -> Collective:
    """Return the collective on an array of *elements* (of the whole array) of *dtype*."""
    return Collective(
        kind=kind, elements=elements, bytes_per_element=DTYPE_BYTES[dtype], group=group, role=role, dtype=dtype
    )
