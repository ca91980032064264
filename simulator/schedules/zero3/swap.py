"""Asynchronous files on NVMe: a parameter's share is read into one of few buffers, gradients are written from others.

Reads and writes run on threads of their own (``aio``), here streams; the host waits for them where DeepSpeed does.

Source: DeepSpeed ``runtime/swap_tensor``: ``AsyncPartitionedParameterSwapper``, ``AsyncTensorSwapper``;
``partitioned_param_coordinator.py``, ``__prefetch_nvme_param_partitions``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from simulator.errors import InputError
from simulator.laws.offload import Transfer
from simulator.schedules.zero3.parameters import ShardedParameter
from simulator.schedules.zero3.rank import Rank
from simulator.world.policy.zero import ParameterOffload

__all__ = ["MIN_AIO_BYTES", "READS", "WRITES", "GradientSwapper", "ParameterSwapper"]

READS: Final = "nvme read"
WRITES: Final = "nvme write"
"""Streams."""

MIN_AIO_BYTES: Final = 2**20  # source: swap_tensor/utils.py; what is smaller is not swapped
FP32: Final = 4  # definition: bytes


class ParameterSwapper:
    """Shares of parameters that live on NVMe.

    Raises
    ------
    InputError
        A share is larger than a buffer, or a fetch needs more buffers than there are: DeepSpeed stops there, too.
    """

    def __init__(self, rank: Rank, offload: ParameterOffload, parameters: Iterable[ShardedParameter]) -> None:
        self._rank, self._offload = rank, offload
        self._on_nvme = frozenset(parameters)
        self._available: set[ShardedParameter] = set()
        self._inflight: list[ShardedParameter] = []
        largest = max(self._on_nvme, key=lambda item: item.share, default=None)
        if largest is not None and largest.share > offload.buffer_size:
            problem = f"smaller than the {largest.share} elements that a rank keeps of {largest.name}"
            raise self._error("buffer_size", offload.buffer_size, problem)

    def is_away(self, parameter: ShardedParameter) -> bool:
        """Whether the share of *parameter* is on NVMe and nobody has begun to read it."""
        return parameter in self._on_nvme and parameter not in self._available and parameter not in self._inflight

    def ensure(self, parameters: Sequence[ShardedParameter]) -> None:
        """``_ensure_availability_of_partitioned_params``: have the shares in memory, for which the host waits."""
        missing = [item for item in parameters if self.is_away(item)]
        if missing:
            self._swap_in(missing)
        if missing or any(item in self._inflight for item in parameters):
            self._synchronize_reads()

    def prefetch(self, uses: Iterable[ShardedParameter], in_flight: int) -> None:
        """Begin to read what comes next while *in_flight* elements are being gathered."""
        wanted: dict[ShardedParameter, None] = {}
        considered = 0
        for parameter in uses:
            if considered > 2 * in_flight or len(wanted) >= self._free:
                break
            if self.is_away(parameter):
                wanted[parameter] = None
            considered += parameter.elements
        if wanted:
            self._swap_in(list(wanted))

    def release(self, parameter: ShardedParameter) -> None:
        """Give the buffer of *parameter* free."""
        self._available.discard(parameter)

    @property
    def _free(self) -> int:
        return self._offload.buffer_count - len(self._available) - len(self._inflight)

    def _swap_in(self, parameters: Sequence[ShardedParameter]) -> None:
        if len(parameters) > self._free:
            problem = f"{self._free} buffers are free where {len(parameters)} are needed, for {parameters[0].name}"
            raise self._error("buffer_count", self._offload.buffer_count, problem)
        amount = sum(item.share for item in parameters) * self._rank.element_bytes
        read = Transfer(route="nvme_read", amount=float(amount), role="parameters_from_nvme")
        self._rank.tape.launch(read, READS, label=parameters[0].name)
        self._inflight += parameters

    def _synchronize_reads(self) -> None:
        tape = self._rank.tape
        tape.synchronize(tape.record(READS), "data")
        self._available.update(self._inflight)
        self._inflight = []

    def _error(self, name: str, value: int, problem: str) -> InputError:
        return InputError(problem, key=f"zero_optimization.offload_param.{name}", value=value, remedy="increase it")


class GradientSwapper:
    """Gradients on their way to NVMe: written when a buffer is full, and at the latest before the update."""

    def __init__(self, rank: Rank, elements: int, count: int) -> None:
        self._rank, self._elements, self._count = rank, elements, count
        self._filled, self._full = 0.0, 0

    def insert(self, elements: float, label: str) -> None:
        """Add *elements* to the current buffer, or to the next one if it is full."""
        if self._filled + elements > self._elements:
            self._write(label)
            if self._full == self._count:
                self._wait()
        self._filled += elements

    def flush(self) -> None:
        """Write what is left and wait for everything."""
        self._write("gradients")
        self._wait()

    def _write(self, label: str) -> None:
        if self._filled:
            write = Transfer(route="nvme_write", amount=FP32 * self._filled, role="gradients_to_nvme")
            self._rank.tape.launch(write, WRITES, label=label)
            self._filled, self._full = 0.0, self._full + 1

    def _wait(self) -> None:
        if self._full:
            self._rank.tape.synchronize(self._rank.tape.record(WRITES), "data")
            self._full = 0
