"""What a configuration file of some trainer comes down to: a sharding policy and the few numbers around it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from simulator.errors import InputError, UnknownNameError
from simulator.world.model.module import Module
from simulator.world.policy.ddp import DdpPolicy
from simulator.world.policy.deepspeed_keys import DeepSpeedConfig
from simulator.world.policy.fsdp1 import Fsdp1Policy
from simulator.world.policy.fsdp2 import Fsdp2Policy

__all__ = ["Launch", "block_kinds", "known_kinds", "only_data_parallel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A trainer's file, read.  None: the file does not say."""

    policy: Fsdp1Policy | Fsdp2Policy | DdpPolicy | DeepSpeedConfig
    precision: str | None = None
    """In which the model computes: bf16, fp16 or fp32."""
    ranks: int | None = None
    hosts: int | None = None
    micro_batch: int | None = None
    """Sequences per rank and micro-batch."""
    gradient_accumulation: int | None = None
    """Micro-batches per optimizer step."""
    activation_checkpointing: Literal["none", "full", "selective"] | None = None
    notes: tuple[str, ...] = ()
    """Lines that the file's author should read: what is ignored, left open or has no effect."""


def block_kinds(root: Module) -> tuple[str, ...]:
    """Classes of the model's blocks, as ``_no_split_modules`` of a Hugging Face model names them.

    They are what the outermost lists of modules hold; a model without such lists consists of blocks only.
    """
    kinds = [child.kind for stack in _stacks(root) for child in stack.children]
    return tuple(dict.fromkeys(kinds or [child.kind for child in root.children if child.tensors()]))


def known_kinds(kinds: tuple[str, ...], root: Module, file: object, key: str) -> tuple[str, ...]:
    """Return *kinds* if modules of all of them are in the model.

    Raises
    ------
    UnknownNameError
        One of them is not, which a trainer refuses too.
    """
    present = {module.kind for module in root.walk() if module.tensors()}
    for kind in kinds:
        if kind not in present:
            raise UnknownNameError("class of a module in this model", kind, present, file=file, key=key)
    return kinds


def only_data_parallel(degrees: Mapping[str, tuple[str, int]], file: object) -> None:
    """Make sure that nothing but data is spread over ranks.

    Parameters
    ----------
    degrees
        By dotted key: kind of parallelism and its degree.

    Raises
    ------
    InputError
        A degree above 1.
    """
    for key, (kind, degree) in degrees.items():
        if degree > 1:
            problem = f"{kind} parallelism is not simulated, only data parallelism"
            raise InputError(problem, file=file, key=key, value=degree, remedy="set it to 1")


def _stacks(module: Module) -> Iterator[Module]:
    for child in module.children:
        if child.kind == "ModuleList":
            yield child
        else:
            yield from _stacks(child)
