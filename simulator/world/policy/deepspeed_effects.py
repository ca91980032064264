"""What each key of a ``ds_config.json`` does to communication, by ZeRO stage, in one sentence.

Source: DeepSpeed runtime/engine.py, runtime/zero/stage_1_and_2.py, runtime/zero/stage3.py,
runtime/zero/partitioned_param_coordinator.py.
"""

from __future__ import annotations

from typing import Final

__all__ = ["NO_EFFECT", "effect"]

NO_EFFECT: Final = "no effect on communication"

_AT: Final[dict[str, dict[tuple[int, ...], str]]] = {
    "stage": {
        (0,): "gradients are all-reduced; nothing is sharded",
        (1,): "optimizer states are sharded; weights are gathered after each step",
        (2,): "gradients are sharded too; they are reduced in every micro-batch",
        (3,): "weights are sharded too; they are gathered in forward and backward",
    },
    "overlap_comm": {
        (1, 2): "reductions run beside backward on a stream of their own, with two buckets",
        (3,): "gathers and reductions run beside compute on streams of their own",
    },
    "reduce_bucket_size": {(1, 2, 3): "gradients collected before one reduction [elements]"},
    "reduce_scatter": {
        (1, 2): "gradients are all-reduced either way; false skips one copy",
        (3,): "true: reduce-scatter, false: all-reduce of twice the bytes",
    },
    "use_multi_rank_bucket_allreduce": {(1, 2): "true: one all-reduce per bucket, false: one reduce per owner"},
    "contiguous_gradients": {
        (1, 2): "false reduces from scattered gradients and makes the host wait",
        (3,): "true copies gradients into one flat bucket first",
    },
    "round_robin_gradients": {(1, 2): "changes only which rank owns which gradient"},
    "stage3_prefetch_bucket_size": {(3,): "weights fetched ahead of the module that runs, per fetch; 0: none"},
    "stage3_max_live_parameters": {(3,): "bounds how far ahead weights are fetched and how long they are kept"},
    "stage3_max_reuse_distance": {(3,): "weights that are used again within this distance are not released"},
    "stage3_param_persistence_threshold": {(3,): "smaller weights stay whole; each is gathered once after a step"},
    "stage3_model_persistence_threshold": {(3,): "bounds how many weights stay whole"},
    "stage3_module_granularity_threshold": {(3,): "modules with smaller weights are fetched as one"},
    "stage3_allgather_sequential": {(3,): "true: one gather per weight, nothing is coalesced"},
    "stage3_use_all_reduce_for_fetch_params": {(3,): "true: weights are gathered by all-reduce, twice the bytes"},
    "leaf_module": {(3,): "these modules are fetched as one"},
    "sub_group_size": {(3,): "one all-reduce of the gradient norm, and one update on the host, per group of this size"},
    "zero_hpz_partition_size": {(3,): "gathers after a step's first forward use a copy held by this many neighbours"},
    "zero_quantized_weights": {(3,): "weights travel in 8 bits"},
    "zero_quantized_nontrainable_weights": {(3,): "frozen weights are kept and travel in 8 bits"},
    "zero_quantized_gradients": {(3,): "gradients travel in 4 bits by two all-to-all hops"},
    "offload_optimizer": {
        (1, 2): "reduced gradients are copied to the host, which updates; weights come back before they are gathered",
        (3,): "reduced gradients are copied to the host, which updates, sub-group by sub-group",
    },
    "offload_param": {(3,): "shares of weights are copied to the device before each gather, and the host waits"},
    "enable_sanity_checks": {(3,): "every reduction is checked across ranks first, which is slow"},
    "compute_grad_norm": {(1, 2): "false drops the all-reduce of the gradient norm"},
    "parameter_alignment": {(1, 2): "true pads between parameters, so slightly more travels"},
    "train_batch_size": {(0, 1, 2, 3): "with the other two batch keys decides how often gradients are reduced"},
    "train_micro_batch_size_per_gpu": {(0, 1, 2, 3): "decides how much compute there is to hide communication"},
    "gradient_accumulation_steps": {
        (0, 1): "gradients are reduced once per this many micro-batches",
        (2,): "gradients are reduced in each of the micro-batches, weights gathered once",
        (3,): "weights are gathered and gradients reduced in each of the micro-batches",
    },
    "gradient_clipping": {(0,): "above 0, fp32 training all-reduces the gradient norm"},
    "communication_data_type": {(0, 1, 2, 3): "precision in which gradients travel; none: that of the model"},
    "data_types.grad_accum_dtype": {
        (1,): "fp32 with bf16 weights selects another optimizer with a step of its own",
        (2, 3): "precision in which gradients are kept",
    },
    "bf16.check_grad_overflow": {(1, 2): "one more all-reduce per step, for which the host waits"},
    "comms_logger.enabled": {(0, 1, 2, 3): "makes the host wait for every collective"},
    "wall_clock_breakdown": {(0, 1, 2, 3): "makes the host wait around every phase"},
    "timers.throughput": {(0, 1, 2, 3): "makes the host wait twice per micro-batch from the third step on"},
}


def effect(name: str, stage: int) -> str:
    """Return the sentence for the key *name* at *stage*.

    >>> effect("reduce_bucket_size", 0), effect("allgather_bucket_size", 2)
    ('no effect on communication at stage 0', 'no effect on communication')
    """
    sentences = _AT.get(name, {})
    for stages, sentence in sentences.items():
        if stage in stages:
            return sentence
    return f"{NO_EFFECT} at stage {stage}" if sentences else NO_EFFECT
