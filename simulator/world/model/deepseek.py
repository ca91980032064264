r"""DeepSeek-V3: latent attention, a shared expert beside the chosen ones, plain feed-forward in the first blocks.

Latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1) makes queries, keys and values from narrow vectors.  With
n heads, a query and key of u + r elements (r rotary, the key's shared by all heads) and a value of v elements:

==========  ====================================================================================================
scores      2 s n (u + r + v) FLOP per token, executed half because of the causal mask; backward 3 n (u + r) + 2 n v
            in place of 1 + 1, as it computes the scores again
memory      queries and keys are put together of two parts each: 4 n (u + r)
kept        narrow vectors in front of and behind their norms, queries, keys, values, output
==========  ====================================================================================================

The block that predicts a second token (``num_nextn_predict_layers``) is not part of the model that Hugging Face
trains, and not of this one.  Names and order as ``DeepseekV3ForCausalLM`` has them (transformers 5,
``modeling_deepseek_v3.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Final

from msgspec import Meta

from simulator.world.document import Section
from simulator.world.model.assembly import Built, Sizes, head_norm, matrix, unit
from simulator.world.model.decoder import Block
from simulator.world.model.family import Reader, family
from simulator.world.model.layer import Work
from simulator.world.model.llama import Style, gated_feed_forward, llama_trunk
from simulator.world.model.module import Module
from simulator.world.model.moe import Experts, bank, decoder_block, kept_sparse, router

__all__ = ["READERS", "DeepseekV3Config", "deepseek_v3"]

Size = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]


class DeepseekV3Config(Section, forbid_unknown_fields=False):
    """The keys of ``config.json`` that decide shapes."""

    hidden_size: Size
    intermediate_size: Size
    moe_intermediate_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    vocab_size: Size
    kv_lora_rank: Size
    qk_nope_head_dim: Size
    qk_rope_head_dim: Size
    v_head_dim: Size
    n_routed_experts: Size
    num_experts_per_tok: Size
    n_shared_experts: Count = 1
    first_k_dense_replace: Count = 3
    """Blocks without experts at the beginning."""
    q_lora_rank: Size | None = None
    """Without it queries are made of the whole width."""
    tie_word_embeddings: bool = False
    attention_bias: bool = False

    @property
    def query(self) -> int:
        """Width of all query heads, and of all key heads."""
        return self.num_attention_heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)

    @property
    def value(self) -> int:
        """Width of all value heads."""
        return self.num_attention_heads * self.v_head_dim

    @property
    def narrow(self) -> int:
        """Elements of the vectors in front of and behind their norms, that of the keys with its rotary part."""
        return 2 * (self.q_lora_rank or 0) + 2 * self.kv_lora_rank + self.qk_rope_head_dim


def deepseek_v3(config: DeepseekV3Config, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, blocks, head."""
    style = Style(prefix="DeepseekV3", tied=config.tie_word_embeddings)
    sizes = Sizes(
        hidden=config.hidden_size,
        query=config.query,
        heads=config.num_attention_heads,
        key_value=config.value,
        wide=config.intermediate_size,
        sequence_length=sequence_length,
        element_bytes=element_bytes,
    )
    units = [_unit(config, f"model.layers.{index}", index, sizes, style) for index in range(config.num_hidden_layers)]
    return llama_trunk(config.vocab_size, style, sizes, units)


def _unit(config: DeepseekV3Config, name: str, index: int, sizes: Sizes, style: Style) -> Block:
    count, wide = config.n_routed_experts, config.moe_intermediate_size
    experts = Experts(count=count, chosen=config.num_experts_per_tok, wide=wide)
    shared = wide * config.n_shared_experts
    attention = 2 * config.query + 2 * config.value + config.narrow
    if index < config.first_k_dense_replace:
        fed, elements = gated_feed_forward(f"{name}.mlp", sizes, style), 2 * sizes.rms * sizes.hidden + 4 * sizes.wide
    else:
        fed = _mixture(f"{name}.mlp", replace(sizes, wide=shared), experts, style)
        elements = kept_sparse(replace(sizes, query=0, key_value=0), experts) + 4 * shared
    module = decoder_block(name, style.prefix, _attention(config, f"{name}.self_attn", sizes), fed, sizes)
    flop = 3 * 2.0 * sizes.sequence_length * (config.query + config.value)
    return replace(unit(module, sizes, elements + attention), attention_flop=flop)


def _mixture(name: str, sizes: Sizes, experts: Experts, style: Style) -> Module:
    """The chosen experts and the shared one, which is as wide as *sizes* says."""
    inner = bank(f"{name}.experts", "DeepseekV3Experts", sizes, experts)
    gate = router(f"{name}.gate", "DeepseekV3TopkRouter", sizes, experts)
    gate = replace(gate, buffers=experts.count)  # what corrects the scores so that experts are equally busy
    shared = gated_feed_forward(f"{name}.shared_experts", sizes, style)
    return Module(name=name, kind="DeepseekV3MoE", children=(inner, gate, shared), calls=(gate, inner, shared))


def _attention(config: DeepseekV3Config, name: str, sizes: Sizes) -> Module:
    width, heads = sizes.element_bytes, config.num_attention_heads

    def part(which: str, rows: int, columns: int, *, bias: bool = False) -> Module:
        return matrix(f"{name}.{which}", (rows, columns), width, bias=bias)

    rank, pair = config.kv_lora_rank, config.qk_nope_head_dim + config.v_head_dim
    parts = (
        *_queries(config, name, width),
        part("kv_a_proj_with_mqa", rank + config.qk_rope_head_dim, sizes.hidden, bias=config.attention_bias),
        head_norm(f"{name}.kv_a_layernorm", "DeepseekV3RMSNorm", rank, rank, width),
        part("kv_b_proj", heads * pair, rank),
        part("o_proj", sizes.hidden, config.value, bias=config.attention_bias),
    )
    traffic = 4.0 * width * config.query
    length = float(sizes.sequence_length)
    return Module(
        name=name,
        kind="DeepseekV3Attention",
        children=parts,
        calls=parts,
        forward=(
            Work("attention", flop=length * (config.query + config.value), result=config.value, scores=length * heads),
            Work("memory", traffic=traffic, python=3 * traffic),
        ),
        backward=(
            Work("attention", flop=length * (3 * config.query + 2 * config.value), scores=length * heads),
            Work("memory", traffic=traffic, python=3 * traffic),
        ),
    )


def _queries(config: DeepseekV3Config, name: str, width: int) -> tuple[Module, ...]:
    """Queries by way of a narrow vector, or directly."""
    hidden, rank = config.hidden_size, config.q_lora_rank
    if rank is None:
        return (matrix(f"{name}.q_proj", (config.query, hidden), width, bias=False),)
    return (
        matrix(f"{name}.q_a_proj", (rank, hidden), width, bias=config.attention_bias),
        head_norm(f"{name}.q_a_layernorm", "DeepseekV3RMSNorm", rank, rank, width),
        matrix(f"{name}.q_b_proj", (config.query, rank), width, bias=False),
    )


READERS: Final[Mapping[str, Reader]] = {
    "deepseek_v3": family(DeepseekV3Config, deepseek_v3),
}
"""By ``model_type``."""
