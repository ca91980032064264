"""StarCoder 2: grouped queries and rotary positions as in Llama, layer norms, plain feed-forward, biases, tied head.

Names, shapes and order as ``Starcoder2ForCausalLM`` has them (Hugging Face transformers, ``modeling_starcoder2.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from simulator.world.model.assembly import Built, Sizes, head, kept, language_model, plain_feed_forward, stack, unit
from simulator.world.model.decoder import embedding, norm
from simulator.world.model.family import Reader, family
from simulator.world.model.layer import Tensor
from simulator.world.model.llama import LlamaConfig, Style, grouped_attention, llama_layers
from simulator.world.model.module import Module

__all__ = ["READERS", "starcoder2"]


def starcoder2(config: LlamaConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, blocks, head."""
    hidden, vocabulary = config.hidden_size, config.vocab_size
    layers = llama_layers(config, sequence_length, element_bytes, slides=lambda _: True)
    size = layers[0].query // config.num_attention_heads
    table = Tensor("model.embed_tokens.weight", (vocabulary, hidden))
    embed = embedding("model.embed_tokens", table, hidden, element_bytes)
    rotary = Module(name="model.rotary_emb", kind="Starcoder2RotaryEmbedding", has_gradient=False)
    blocks = [_block(f"model.layers.{index}", sizes, config.use_bias, size) for index, sizes in enumerate(layers)]
    last = norm("model.norm", "LayerNorm", hidden, element_bytes, bias=True)
    trunk = Module(
        name="model",
        kind="Starcoder2Model",
        children=(embed, stack("model.layers", blocks), last, rotary),
        calls=(embed, rotary, *blocks, last),
    )
    top = head((vocabulary, hidden), element_bytes, None if config.tie_word_embeddings is False else table)
    units = [unit(block, sizes, kept(sizes)) for block, sizes in zip(blocks, layers, strict=True)]
    return language_model("Starcoder2ForCausalLM", trunk, (embed,), units, (last, top), layers[0])


def _block(name: str, sizes: Sizes, bias: bool, size: int) -> Module:
    before = norm(f"{name}.input_layernorm", "LayerNorm", sizes.hidden, sizes.element_bytes, bias=True)
    after = norm(f"{name}.post_attention_layernorm", "LayerNorm", sizes.hidden, sizes.element_bytes, bias=True)
    style = Style(prefix="Starcoder2", input_bias=bias, output_bias=bias)
    attention = grouped_attention(f"{name}.self_attn", sizes, style, size)
    parts = "c_fc", "act", "c_proj"
    mlp = plain_feed_forward(f"{name}.mlp", "Starcoder2MLP", parts, sizes, activation="GELUTanh", bias=bias)
    up, act, down = mlp.children
    mlp = replace(mlp, children=(up, down, act))
    return Module(
        name=name,
        kind="Starcoder2DecoderLayer",
        children=(attention, mlp, before, after),
        calls=(before, attention, after, mlp),
    )


READERS: Final[Mapping[str, Reader]] = {
    "starcoder2": family(LlamaConfig, starcoder2),
}
"""By ``model_type``."""
