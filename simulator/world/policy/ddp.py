"""What one passes to PyTorch's ``DistributedDataParallel``, and how its training loop uses it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final, Literal

__all__ = ["DdpPolicy"]

MIB: Final = 2**20  # definition: bytes in a MiB, the unit of bucket_cap_mb
DEFAULT_FIRST_BUCKET_BYTES: Final = MIB  # source: reducer.hpp, kDefaultFirstBucketBytes
DEFAULT_BUCKET_CAP_MB: Final = 25  # source: nn/parallel/distributed.py, _DEFAULT_BUCKET_CAP_MB


@dataclass(frozen=True, slots=True, kw_only=True)
class DdpPolicy:
    """Options of ``DistributedDataParallel`` with their defaults.

    Examples
    --------
    >>> DdpPolicy().bucket_limits
    (1048576, 26214400)
    >>> DdpPolicy(bucket_cap_mb=25).bucket_limits
    (26214400,)
    """

    bucket_cap_mb: float | None = None
    """Size at which a bucket closes [MiB]; None: 1 MiB for the first and 25 MiB for all others."""
    bucket_cap_mb_list: tuple[float, ...] = ()
    """Sizes bucket by bucket, the last one for all that follow [MiB]; used instead of ``bucket_cap_mb``."""
    find_unused_parameters: bool = False
    """Look for parameters that a forward did not use; keeps the first assignment to buckets forever."""
    static_graph: bool = False
    """The same parameters are used in every iteration: what the first one finds holds for all."""
    gradient_as_bucket_view: bool = False
    """Gradients are views into the buckets: nothing is copied back and no second buffer is kept."""
    batched_grad_copy: bool = False
    """Copy the gradients of a bucket when all are there, with one kernel, and divide with another."""
    skip_all_reduce_unused_params: bool = False
    """Send no bucket of which no parameter was used."""
    broadcast_buffers: bool = True
    """Rank 0 sends the module buffers to all ranks before forward; the older name of ``forward_sync_buffers``."""
    forward_sync_buffers: bool | None = None
    """Overrules ``broadcast_buffers`` unless it is None."""
    no_sync: bool = False
    """The training loop runs all micro-batches of a step but the last inside ``no_sync()``."""
    evaluates: bool = False
    """The training loop runs one forward without gradients after each step."""
    last_bucket_cap: bool = False
    """Environment variable ``DDP_SET_LAST_BUCKET_CAP``: the small bucket holds the gradients that are ready last."""
    comm_hook: Literal["no", "fp16", "bf16"] = "no"
    """Registered communication hook: ``fp16_compress_hook``, ``bf16_compress_hook`` or none."""

    @property
    def syncs_buffers(self) -> bool:
        """Whether buffers are sent at all."""
        return self.broadcast_buffers if self.forward_sync_buffers is None else self.forward_sync_buffers

    @property
    def finds_unused(self) -> bool:
        """Whether the graph is searched in every iteration; ``dynamic_graph_find_unused``."""
        return self.find_unused_parameters and not self.static_graph

    @property
    def bucket_limits(self) -> tuple[float, ...]:
        """Sizes at which buckets close, in their order, the last one for all that follow [B] (D-1)."""
        if self.bucket_cap_mb_list:
            return tuple(int(cap * MIB) for cap in self.bucket_cap_mb_list)
        if self.bucket_cap_mb is None:
            return DEFAULT_FIRST_BUCKET_BYTES, DEFAULT_BUCKET_CAP_MB * MIB
        return (int(self.bucket_cap_mb * MIB),)

    @property
    def first_bucket_limits(self) -> tuple[float, ...]:
        """The same for the assignment that training starts with: one bucket if it will be rebuilt [B] (D-3).

        A list of sizes is used from the start.
        """
        return self.bucket_limits if self.finds_unused or self.bucket_cap_mb_list else (inf,)
