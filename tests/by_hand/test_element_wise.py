"""Bytes that kernels between products move per token, counted array by array; an element has 2 B."""

import pytest

from simulator.laws.kernels import Kernel, activation_bytes, kernel_time, rates
from simulator.world.catalog import accelerator
from simulator.world.compute import Compute
from simulator.world.model.huggingface import model_from_mapping
from simulator.world.model.layer import Product, Work

H, Q, V, F, S, HEADS = 64, 64, 32, 128, 32, 4
LLAMA = {
    "model_type": "llama", "hidden_size": H, "intermediate_size": F, "num_hidden_layers": 1,
    "num_attention_heads": HEADS, "num_key_value_heads": 2, "vocab_size": 256,
}  # fmt: skip
ROTARY = (6 * (Q + V), 2 * (Q + V), 2 * (Q + V))
GPT2 = {"model_type": "gpt2", "n_embd": H, "n_layer": 1, "n_head": HEADS, "n_positions": S, "vocab_size": 256}


def moved(config, module, direction):
    """Elements moved as Python, by kernels written by hand, and compiled."""
    root, _ = model_from_mapping(config, "config.json", S, 2)
    found = next(item for item in root.walk() if item.name == module)
    (work,) = (item for item in getattr(found, direction) if item.kind == "memory")
    python, compiled = (work.traffic if other is None else other for other in (work.python, work.fused))
    return [amount / 2 for amount in (python, work.traffic, compiled)]


@pytest.mark.parametrize(
    ("config", "module", "forward", "backward"),
    [
        # sum 3 h (read, read, write); square 2 h, mean h, scale 2 h, weight 2 h; or one kernel 2 h; or all in one 4 h
        (LLAMA, "model.layers.0.input_layernorm", (10 * H, 5 * H, 4 * H), (22 * H, 10 * H, 5 * H)),
        # a kernel of PyTorch's
        (GPT2, "transformer.h.0.ln_1", (5 * H, 5 * H, 4 * H), (10 * H, 10 * H, 5 * H)),
        # activation 2 f and product 3 f, or both in one: two read, one written; backward three read, two written
        (LLAMA, "model.layers.0.mlp.act_fn", (5 * F, 5 * F, 3 * F), (10 * F, 10 * F, 5 * F)),
        # to full precision and back: 2 B read, 4 written, 4 read, 2 written are 12 B, 6 elements
        (LLAMA, "model.layers.0.self_attn", ROTARY, ROTARY),
    ],
)
def test_elements_moved(config, module, forward, backward):
    assert moved(config, module, "forward") == pytest.approx(forward)
    assert moved(config, module, "backward") == pytest.approx(backward)


def test_attention_that_is_not_fused_keeps_the_softmax_in_both_precisions():
    """4 and 2 B for each head and pair of tokens, beside what fused attention keeps."""
    _, layers = model_from_mapping(LLAMA, "config.json", S, 2)
    block = next(layer for layer in layers if layer.checkpointed)
    fused, naive = (activation_bytes(block, Compute(precision="bf16", attention=how)) for how in ("flash", "naive"))
    assert naive - fused == 6 * HEADS * S


def test_conversions_to_8_bits_read_twice_and_write_once():
    """A product of 256 tokens with 64 x 64 weights: 5 B for each of 256 x 64 inputs."""
    part = accelerator("h100-sxm-80gb")
    at = rates(part, Compute(precision="bf16", matrix_precision="fp8"))
    work = Work("matrix", flop=2.0 * 64 * 64, product=Product(n=64, k=64))
    spent = kernel_time(Kernel(kind="forward", works=(work,), tokens=256, narrow=True), at)
    assert spent.movement == pytest.approx(5 * 256 * 64 / (part.memory_bandwidth.value * part.memory_efficiency.value))
