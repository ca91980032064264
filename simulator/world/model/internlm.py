"""InternLM as InternEvo trains it: Llama's blocks with one product for queries, keys and values, and with biases.

The feed-forward's width is ``mlp_ratio`` times the width, rounded up to a multiple of 256.  Names and order as
``InternLM1`` has them (InternLM/InternEvo 0.5.2, ``model/modeling_internlm.py``, ``model/modules/mlp.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta

from simulator.world.document import Section
from simulator.world.model.assembly import (
    Built,
    Size,
    Sizes,
    decoder_layers,
    dropout,
    head,
    head_size,
    joint_attention,
    kept,
    stack,
    unit,
)
from simulator.world.model.decoder import embedding, norm
from simulator.world.model.family import Reader, family
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module
from simulator.world.model.torchtitan import feed_forward

__all__ = ["READERS", "InternLMConfig", "internlm"]

MULTIPLE_OF: Final = 256  # source: modules/mlp.py, multiple_of


class InternLMConfig(Section, forbid_unknown_fields=False):
    """The keys of ``model`` in a config of InternEvo that decide shapes."""

    hidden_size: Size
    num_layers: Size
    num_attention_heads: Size
    vocab_size: Size
    mlp_ratio: Annotated[float, Meta(gt=0)] = 4.0

    @property
    def wide(self) -> int:
        """Width of the feed-forward."""
        return -(-int(self.hidden_size * self.mlp_ratio) // MULTIPLE_OF) * MULTIPLE_OF


def internlm(config: InternLMConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, blocks, head."""
    hidden = config.hidden_size
    head_size(hidden, config.num_attention_heads)
    sizes = Sizes(
        hidden=hidden,
        query=hidden,
        heads=config.num_attention_heads,
        key_value=hidden,
        wide=config.wide,
        sequence_length=sequence_length,
        element_bytes=element_bytes,
    )
    embed = embedding("embedding", Tensor("embedding.weight", (config.vocab_size, hidden)), hidden, element_bytes)
    blocks = [_block(f"blocks.{index}", sizes) for index in range(config.num_layers)]
    last = norm("norm", "RMSNorm", hidden, element_bytes, bias=False)
    top = head((config.vocab_size, hidden), element_bytes, None, name="head")
    root = Module(
        name="",
        kind="InternLM1",
        children=(embed, stack("blocks", blocks), last, top),
        calls=(embed, *blocks, last, top),
    )
    units = [unit(block, sizes, kept(sizes, streams=2 * sizes.rms, gated=True)) for block in blocks]
    return root, decoder_layers((embed,), units, (last, top), sizes)


def _block(name: str, sizes: Sizes) -> Module:
    parts = "wqkv", "out_proj"
    mixer = joint_attention(f"{name}.mixer", "MHA", parts, sizes, biases=(True, True), rotary=True)
    drops = dropout(f"{name}.dropout1"), dropout(f"{name}.dropout2")
    before = norm(f"{name}.norm1", "RMSNorm", sizes.hidden, sizes.element_bytes, bias=False)
    after = norm(f"{name}.norm2", "RMSNorm", sizes.hidden, sizes.element_bytes, bias=False)
    mlp = feed_forward(f"{name}.mlp", sizes)
    return Module(
        name=name,
        kind="InternLM1Decoder",
        children=(mixer, *drops, before, after, mlp),
        calls=(drops[0], before, mixer, drops[1], after, mlp),
    )


READERS: Final[Mapping[str, Reader]] = {
    "INTERNLM": family(InternLMConfig, internlm),
}
"""By ``model_type``."""
