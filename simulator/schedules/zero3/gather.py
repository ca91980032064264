"""All-gathers of sharded parameters: what is sent, and what has to be copied before and after.

One parameter is gathered straight into its place.  Two or more are *coalesced* (Z3-14): their shares are concatenated
into a flat buffer, gathered by one collective, and cut into parameters when somebody waits for any of them (Z3-16).
With qwZ (ZP-9, ZP-11, ZP-12) the shares are quantised before, and two collectives carry int8 and scales.  Where a
secondary copy exists the gather stays inside the hpZ group (ZP-2).

Source: DeepSpeed ``partition_parameters.py``: ``all_gather_coalesced`` and what it calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.laws.kernels import Kernel
from simulator.laws.offload import Transfer
from simulator.schedules.program import Event, Memory
from simulator.schedules.tape import COMPUTE
from simulator.schedules.zero3.parameters import ShardedParameter, Status
from simulator.schedules.zero3.quantized import weight_groups
from simulator.schedules.zero3.rank import Rank, label_of
from simulator.schedules.zero3.swap import ParameterSwapper
from simulator.world.mesh import Group

__all__ = ["GATHERED", "Gatherer", "Handle"]

GATHERED = "gathered weights"
FLAT = "all-gather buffers"
QUANTIZED = "quantization buffers"
"""Items of memory."""

SCALE_BYTES = 4  # definition: fp32
HALF_BYTES = 2  # source: CUDAQuantizer, which converts to fp16 first and hands fp16 back


@dataclass(frozen=True, slots=True)
class _Copy:
    """A kernel that completes a gather."""

    kernel: Kernel
    label: str
    takes: Memory = ()
    gives: Memory = ()


@dataclass(frozen=True, slots=True)
class _Arrival:
    """Collectives of which parameters are made."""

    events: tuple[Event, ...]
    parameters: tuple[ShardedParameter, ...]
    copies: tuple[_Copy, ...] = ()
    blocks: bool = False
    """Whether who waits blocks the host: ``NoGatherHandle.wait``, which matters for parameters on the host."""


class Handle:
    """A submitted gather; waiting for it makes all its parameters available."""

    __slots__ = ("_arrivals", "_complete", "_rank")

    def __init__(self, rank: Rank, arrivals: Sequence[_Arrival]) -> None:
        self._rank, self._arrivals, self._complete = rank, arrivals, False

    def wait(self, stream: str) -> None:
        """Let *stream* wait for the collectives and run the copies that complete them."""
        if self._complete:
            return
        tape = self._rank.tape
        for arrival in self._arrivals:
            for event in arrival.events:
                tape.wait(stream, event)
                if arrival.blocks:
                    tape.synchronize(event, "data")
            for copy in arrival.copies:
                tape.launch(copy.kernel, stream, label=copy.label, takes=copy.takes, gives=copy.gives)
            for parameter in arrival.parameters:
                parameter.status = Status.AVAILABLE
        self._complete = True


class Gatherer:
    """Submits gathers on the all-gather stream."""

    def __init__(self, rank: Rank, swapper: ParameterSwapper | None = None) -> None:
        self._rank, self._policy, self._stream = rank, rank.policy, rank.gather_stream
        self.swapper = swapper
        """Of shares that live on NVMe."""
        size = min(self._policy.zero_hpz_partition_size, rank.world.size)
        self._hpz = rank.job.mesh.group("hpz", size) if self._policy.zero_hpz_partition_size > 1 else None  # ZP-1

    def submit(self, parameters: Sequence[ShardedParameter], *, quantize: bool) -> Handle:
        """``all_gather_coalesced`` of parameters that are alike in storage and in having a secondary copy."""
        for parameter in parameters:
            parameter.status = Status.INFLIGHT
        if self._rank.world.size == 1:  # _no_gather_coalesced: the share is the parameter
            return Handle(self._rank, [self._copied(parameters)])
        ordered = sorted(parameters, key=lambda parameter: parameter.ds_id)  # Z3-15
        group = self._hpz if self._hpz is not None and ordered[0].has_secondary else self._rank.world
        if group is self._rank.world:
            self._shares_to_device(ordered, self._stream)
        if self._policy.stage3_allgather_sequential or len(ordered) == 1:  # Z3-25
            arrivals = [self._alone(parameter, group, quantize=quantize) for parameter in ordered]
        elif self._policy.stage3_use_all_reduce_for_fetch_params and not quantize and group is self._rank.world:
            arrivals = [self._all_reduced(ordered)]
        elif quantize:
            arrivals = [self._quantized(ordered, group)]
        else:
            arrivals = [self._coalesced(ordered, group)]
        return Handle(self._rank, arrivals)

    def regather(self, parameters: Sequence[ShardedParameter]) -> None:
        """``_all_gather``: each of *parameters* by its own collective, as it is stored (ZP-13), and an empty device."""
        missing = [item for item in parameters if item.status is Status.NOT_AVAILABLE]
        if not missing or self._rank.world.size == 1:
            for item in missing:
                item.status = Status.AVAILABLE
            return
        if self._policy.stage3_allgather_sequential or len(missing) == 1:  # _allgather_params_sequential
            for item in missing:
                Handle(self._rank, [self._on_compute(item, asynchronous=False)]).wait(COMPUTE)
            self._rank.device_synchronize()
            return
        for stored_quantized in (False, True):  # _allgather_params_coalesced, which coalesces nothing
            alike = [item for item in missing if item.stored_quantized is stored_quantized]
            Handle(self._rank, [self._on_compute(item, asynchronous=True) for item in alike]).wait(COMPUTE)
            if alike:
                self._rank.device_synchronize()

    def _shares_to_device(self, parameters: Sequence[ShardedParameter], stream: str) -> None:
        """Copy shares that live elsewhere, for which the host waits: ``ds_tensor.to(device)``."""
        if self._policy.offload_param is not None:
            self._rank.tape.synchronize(self._to_device(parameters, stream), "data")

    def _to_device(self, parameters: Sequence[ShardedParameter], stream: str, takes: Memory = ()) -> Event:
        """Have shares in memory and launch their copy."""
        if self.swapper is not None:
            self.swapper.ensure(parameters)
        label, amount = label_of(item.name for item in parameters), sum(item.share for item in parameters)
        copy = Transfer(
            route="to_device", amount=float(amount * self._rank.element_bytes), role="parameters_to_device"
        )  # param_groups_fp16_flat_cpu_memory is pinned whatever pin_memory says
        return self._rank.tape.launch(copy, stream, label=label, takes=takes)

    def _copied(self, parameters: Sequence[ShardedParameter]) -> _Arrival:
        """Alone, a rank copies whole parameters if they live elsewhere; the host waits when somebody needs them."""
        if self._policy.offload_param is None:
            return _Arrival((), tuple(parameters))
        for parameter in parameters:
            parameter.held = float(parameter.elements * self._rank.element_bytes)
        takes = ((GATHERED, sum(parameter.held for parameter in parameters)),)
        return _Arrival((self._to_device(parameters, self._stream, takes),), tuple(parameters), blocks=True)

    def _on_compute(self, parameter: ShardedParameter, *, asynchronous: bool) -> _Arrival:
        rank, whole = self._rank, self._whole(parameter)
        self._shares_to_device([parameter], COMPUTE)
        launch = rank.asynchronous if asynchronous else rank.blocking
        parts: list[tuple[int, str, Memory]] = [
            (whole, rank.job.dtype, ((GATHERED, float(whole * rank.element_bytes)),))
        ]
        copies: tuple[_Copy, ...] = ()
        if parameter.stored_quantized:
            scales = weight_groups(parameter.share) * rank.world.size
            wire = whole + scales * SCALE_BYTES
            parts = [(whole, "u8", ((QUANTIZED, float(wire)),)), (scales, "fp32", ())]
            copies = self._restored([parameter], whole, wire, parameter.name)
        events = []
        for elements, dtype, takes in parts:
            operation = rank.collective("all_gather", elements, dtype, rank.world, rank.gather_role)
            events.append(launch(operation, COMPUTE, parameter.name, takes))
        parameter.held = whole * rank.element_bytes
        return _Arrival(tuple(events), (parameter,), copies)

    def _alone(self, parameter: ShardedParameter, group: Group, *, quantize: bool) -> _Arrival:
        """``_all_gather_sequential``: without a copy (Z3-14)."""
        if quantize:
            return self._quantized([parameter], group)
        whole = self._whole(parameter)
        parameter.held = whole * self._rank.element_bytes
        event = self._gather(whole, self._rank.job.dtype, group, parameter.name, ((GATHERED, parameter.held),))
        return _Arrival((event,), (parameter,))

    def _coalesced(self, parameters: Sequence[ShardedParameter], group: Group) -> _Arrival:
        """Concatenate shares, gather, and concatenate the pieces of each parameter when waited for."""
        label, size = label_of(item.name for item in parameters), self._rank.element_bytes
        whole = sum(self._whole(item) for item in parameters)
        self._copy_in("copy in", 2 * whole / group.size * size, label)
        flat = ((FLAT, float(whole * size)),)
        event = self._gather(whole, self._rank.job.dtype, group, label, flat)
        return _Arrival((event,), tuple(parameters), self._copies_out(parameters, flat))

    def _all_reduced(self, parameters: Sequence[ShardedParameter]) -> _Arrival:
        """Gather by a sum over buffers that are zero but for the own share; parameters are views of it (Z3-25)."""
        rank, label = self._rank, label_of(item.name for item in parameters)
        whole = sum(self._whole(item) for item in parameters)
        self._copy_in("copy in", (whole + 2 * whole / rank.world.size) * rank.element_bytes, label)
        operation = rank.collective("all_reduce", whole, rank.job.dtype, rank.world, rank.gather_role)
        takes = ((GATHERED, whole * rank.element_bytes),)
        event = rank.asynchronous(operation, self._stream, label, takes)
        for parameter in parameters:
            parameter.held = self._whole(parameter) * rank.element_bytes
        return _Arrival((event,), tuple(parameters))

    def _quantized(self, parameters: Sequence[ShardedParameter], group: Group) -> _Arrival:
        """Quantise the concatenated shares, or take them as stored; send int8 and scales; restore (ZP-10 to ZP-12)."""
        label, size = label_of(item.name for item in parameters), self._rank.element_bytes
        whole = sum(self._whole(item) for item in parameters)
        share = whole // group.size
        if parameters[0].stored_quantized:
            groups = sum(weight_groups(self._whole(item) // group.size) for item in parameters)
        else:
            groups = weight_groups(share)
        if len(parameters) > 1:
            stored = 1 if parameters[0].stored_quantized else size
            self._copy_in("copy in", 2 * share * stored, label)
        if not parameters[0].stored_quantized:
            self._copy_in("quantize", share * (self._conversion + HALF_BYTES + 1) + groups * SCALE_BYTES, label)
        scales = groups * group.size
        wire = whole + scales * SCALE_BYTES
        payload = self._gather(whole, "u8", group, label, ((QUANTIZED, float(wire)),))
        events = (payload, self._gather(scales, "fp32", group, label, ()))
        return _Arrival(events, tuple(parameters), self._restored(parameters, whole, wire, label))

    def _restored(
        self, parameters: Sequence[ShardedParameter], whole: int, wire: float, label: str
    ) -> tuple[_Copy, ...]:
        """Dequantise to fp16, convert, and cut into parameters."""
        rank = self._rank
        traffic = wire + whole * (HALF_BYTES + self._conversion)
        kernel = rank.copy_kernel("dequantize", traffic, rank.gather_role)
        size, sent = float(whole * rank.element_bytes), ((QUANTIZED, float(wire)),)
        if len(parameters) > 1:
            flat = ((FLAT, size),)
            return (_Copy(kernel, label, flat, sent), *self._copies_out(parameters, flat))
        parameters[0].held = size
        return (_Copy(kernel, label, ((GATHERED, size),), sent),)

    def _copies_out(self, parameters: Sequence[ShardedParameter], flat: Memory) -> tuple[_Copy, ...]:
        """One concatenation per parameter; then the flat buffer is free (M-2)."""
        rank, copies = self._rank, []
        for parameter in parameters:
            parameter.held = parameter.elements * rank.element_bytes
            kernel = rank.copy_kernel("copy out", 2 * parameter.held, rank.gather_role)
            gives = flat if parameter is parameters[-1] else ()
            copies.append(_Copy(kernel, parameter.name, ((GATHERED, parameter.held),), gives))
        return tuple(copies)

    def _gather(self, elements: int, dtype: str, group: Group, label: str, takes: Memory) -> Event:
        operation = self._rank.collective("all_gather", elements, dtype, group, self._rank.gather_role)
        return self._rank.asynchronous(operation, self._stream, label, takes)

    def _copy_in(self, kind: str, traffic: float, label: str) -> None:
        kernel = self._rank.copy_kernel(kind, traffic, self._rank.gather_role)
        self._rank.tape.launch(kernel, self._stream, label=label)

    @property
    def _conversion(self) -> int:
        """Traffic per element of a conversion to or from fp16: read one, write the other."""
        return 0 if self._rank.job.dtype == "fp16" else self._rank.element_bytes + HALF_BYTES

    def _whole(self, parameter: ShardedParameter) -> int:
        """Elements with the padding of all shares; a secondary copy is cut from the same array."""
        return parameter.share * self._rank.world.size
