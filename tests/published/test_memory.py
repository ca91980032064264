"""Measured memory.

Sources: torchtitan, ``benchmarks/llama3_h100_202412_torchtitan.md`` (commit b5bcd76c66), tables 1 and 3, whose
"peak memory" is what the allocator has reserved (``torchtitan/components/metrics.py``, ``max_reserved_gib``), and
``llama3-8b_h200_202506_trainy-whitefiber.md``, of a version that compiles the loss as well;
BigScience, log of ``zero3 52B`` on 64 V100 of 2021-05-27 (``see_memory_usage``, GB of 2**30 B).
"""

from pathlib import Path

import pytest

from simulator.explore import run_variant
from simulator.laws.memory import MIXED, kept_states
from simulator.world.scenario import resolve_scenario

GIB = 2**30

LLAMA_8B = {
    "model_type": "torchtitan", "dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256,
    "multiple_of": 1024, "ffn_dim_multiplier": 1.3,
}  # fmt: skip

FSDP2 = {  # torchtitan/parallelisms/parallelize_llama.py of that time: blocks and the rest, the last block stays
    "param_dtype": "bf16",
    "reduce_dtype": "fp32",
    "units": ["TransformerBlock"],
    "unit_reshard_after_forward": {"layers.31": False},
}

PEAKS = [  # cluster, hosts of 8 GPUs, element-wise kernels, whether the loss is compiled, GiB
    ("dgx-h100", 1, "python", False, 82.4),
    ("dgx-h100", 1, "compiled", False, 77.0),
    ("dgx-h100", 16, "python", False, 67.0),
    ("dgx-h100", 16, "compiled", False, 62.0),
    ("hgx-h200", 8, "compiled", True, 46.97),
]


def simulated(cluster, hosts, element_wise, fused_loss=False):
    """Llama-3.1-8B with selective checkpointing, two sequences of 8192 tokens on each GPU."""
    content = {
        "name": "torchtitan",
        "model": {"config": LLAMA_8B, "sequence_length": 8192},
        "training": {"micro_batch": 2, "activation_checkpointing": "selective", "fused_loss": fused_loss},
        "topology": {"cluster": cluster, "hosts": hosts},
        "compute": {"element_wise": element_wise},
        "variants": [{"name": "v", "fsdp2": FSDP2}],
    }
    found = resolve_scenario(content, Path("row"))
    return run_variant(found, found.variants[0]).result.memory


@pytest.mark.parametrize(("cluster", "hosts", "element_wise", "fused_loss", "measured"), PEAKS)
def test_torchtitans_peaks_are_met(cluster, hosts, element_wise, fused_loss, measured):
    reserved = simulated(cluster, hosts, element_wise, fused_loss)["reserved"]
    assert reserved / GIB == pytest.approx(measured, rel=0.10)


def test_the_peak_of_torchtitan_is_the_backward_of_the_loss():
    """States 12 B x 8.03e9 / 8; loss 12 B x 128256 words; 16384 tokens.

    A block keeps its input (4096), wq (4096), wv (1024), attention (4096), w1 (14336) and w2 (4096), in bf16.
    """
    memory = simulated("dgx-h100", 1, "python")
    items, tokens = memory["items"], 16384
    assert (memory["peak_phase"], memory["peak_module"]) == ("backward", "output")
    assert items["weights"] + items["optimizer states"] == pytest.approx(12 * 8.030261248e9 / 8)
    assert items["logits and loss"] == 12 * 128256 * tokens
    last_norm = 4 * 4096
    assert items["activations"] == 2 * (32 * (4 * 4096 + 1024 + 14336) + last_norm) * tokens


def test_states_of_bigscience_are_met():
    """Weights in fp16 and optimizer states of 811,977,088 elements: 10.6 GB, after a step 10.603 without gradients."""
    share = 811_977_088
    kept = sum(kept_states(share, 0, share, MIXED["fp16"]).values()) / GIB
    assert kept == pytest.approx(10.6, abs=0.05)
    assert kept == pytest.approx(10857.5625 / 1024, rel=0.002)
