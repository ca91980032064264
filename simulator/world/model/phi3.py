"""Phi 3: Llama with one product for queries, keys and values and one for gate and input of the feed-forward.

Names, shapes and order as ``Phi3ForCausalLM`` has them (Hugging Face transformers, ``modeling_phi3.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from simulator.world.model.assembly import Built, Sizes, dropout, joint_attention, kept, matrix, unit
from simulator.world.model.decoder import element_wise, norm
from simulator.world.model.family import Reader, family
from simulator.world.model.llama import LlamaConfig, Style, llama_layers, llama_trunk
from simulator.world.model.module import Module

__all__ = ["READERS", "phi3"]


def phi3(config: LlamaConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, blocks, head."""
    layers = llama_layers(config, sequence_length, element_bytes, slides=lambda _: True)
    units = [
        unit(_block(f"model.layers.{index}", sizes), sizes, kept(sizes, streams=2 * sizes.rms, gated=True))
        for index, sizes in enumerate(layers)
    ]
    style = Style(prefix="Phi3", tied=bool(config.tie_word_embeddings))
    return llama_trunk(config.vocab_size, style, layers[0], units)


def _block(name: str, sizes: Sizes) -> Module:
    before = norm(f"{name}.input_layernorm", "Phi3RMSNorm", sizes.hidden, sizes.element_bytes, bias=False)
    after = norm(f"{name}.post_attention_layernorm", "Phi3RMSNorm", sizes.hidden, sizes.element_bytes, bias=False)
    drops = dropout(f"{name}.resid_attn_dropout"), dropout(f"{name}.resid_mlp_dropout")
    parts = "qkv_proj", "o_proj"
    attention = joint_attention(f"{name}.self_attn", "Phi3Attention", parts, sizes, biases=(False, False), rotary=True)
    attention, mlp = replace(attention, children=attention.children[::-1]), _feed_forward(f"{name}.mlp", sizes)
    return Module(
        name=name,
        kind="Phi3DecoderLayer",
        children=(attention, mlp, before, after, *drops),
        calls=(before, attention, drops[0], after, mlp, drops[1]),
    )


def _feed_forward(name: str, sizes: Sizes) -> Module:
    hidden, wide, width = sizes.hidden, sizes.wide, sizes.element_bytes
    both = matrix(f"{name}.gate_up_proj", (2 * wide, hidden), width, bias=False)
    down = matrix(f"{name}.down_proj", (hidden, wide), width, bias=False)
    act = element_wise(f"{name}.activation_fn", "SiLUActivation", 5.0 * wide * width, gated=True)
    return Module(name=name, kind="Phi3MLP", children=(both, down, act), calls=(both, act, down))


READERS: Final[Mapping[str, Reader]] = {
    "phi3": family(LlamaConfig, phi3),
}
"""By ``model_type``."""
