"""The tower of Qwen 3.5 that sees images: patches, blocks that look both ways, a merger into the text's width.

Each sequence holds one image of as many patches as the table of positions has (48 x 48 patches are an image of 768
pixels a side), or fewer where its tokens would not fit: the merger makes one token of ``spatial_merge_size`` squared
patches.  Work is counted per token of the sequence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

from msgspec import Meta

from simulator.world.document import Section
from simulator.world.model.assembly import Sizes, head_size, kept, matrix, plain_feed_forward, stack
from simulator.world.model.decoder import Block, element_wise, embedding, norm
from simulator.world.model.encoder import attends, per_token
from simulator.world.model.layer import Tensor, Work
from simulator.world.model.module import Module

__all__ = ["VisionConfig", "tower"]

Size = Annotated[int, Meta(ge=1)]

NAME: Final = "model.visual"
PREFIX: Final = "Qwen3_5Vision"


class VisionConfig(Section, forbid_unknown_fields=False):
    """``vision_config``: the keys that decide shapes."""

    depth: Size
    hidden_size: Size
    intermediate_size: Size
    num_heads: Size
    num_position_embeddings: Size
    out_hidden_size: Size
    patch_size: Size = 16
    temporal_patch_size: Size = 2
    spatial_merge_size: Size = 2
    in_channels: Size = 3

    @property
    def patch(self) -> tuple[int, int, int, int]:
        """Channels, frames, rows and columns of a patch."""
        return self.in_channels, self.temporal_patch_size, self.patch_size, self.patch_size

    @property
    def pixels(self) -> int:
        """Elements of a patch."""
        return self.in_channels * self.temporal_patch_size * self.patch_size**2

    @property
    def merged(self) -> int:
        """Width of the patches that become one token."""
        return self.hidden_size * self.spatial_merge_size**2


def tower(config: VisionConfig, sequence_length: int, element_bytes: int) -> tuple[Module, list[Block]]:
    """Return the tower's module and its units, with work and memory per token of the text."""
    head_size(config.hidden_size, config.num_heads, "vision_config.num_heads")
    patches = min(config.num_position_embeddings, sequence_length * config.spatial_merge_size**2)
    share = patches / sequence_length
    sizes = Sizes(
        hidden=config.hidden_size,
        query=config.hidden_size,
        heads=config.num_heads,
        key_value=config.hidden_size,
        wide=config.intermediate_size,
        sequence_length=patches,
        element_bytes=element_bytes,
    )
    blocks = [_block(f"{NAME}.blocks.{index}", sizes) for index in range(config.depth)]
    rotary = Module(name=f"{NAME}.rotary_pos_emb", kind=f"{PREFIX}RotaryEmbedding", has_gradient=False)
    patched, places, merger = _patches(config, sizes), _places(config, sizes), _merger(config, sizes)
    module = Module(
        name=NAME,
        kind=f"{PREFIX}Model",
        children=(patched, places, rotary, stack(f"{NAME}.blocks", blocks), merger),
        calls=(patched, places, rotary, *blocks, merger),
    )
    scaled = per_token(module, share)
    return scaled, _units(config, scaled, sizes, share)


def _units(config: VisionConfig, module: Module, sizes: Sizes, share: float) -> list[Block]:
    hidden = sizes.hidden
    patched, places, _, blocks, merger = module.children

    def part(name: str, modules: tuple[Module, ...], given: float, kept_elements: float) -> Block:
        size = share * sizes.element_bytes
        return Block(name=name, modules=modules, input_bytes=size * given, activation_bytes=size * kept_elements)

    flop = share * 3 * 4.0 * sizes.sequence_length * sizes.query
    inner = [
        replace(part(f"visual.blocks.{index}", (block,), hidden, kept(sizes)), attention_flop=flop)
        for index, block in enumerate(blocks.children)
    ]
    first = part("visual.patch_embed", (patched, places), config.pixels, config.pixels)
    # inputs of the norm, of both products and of the activation function
    last = part("visual.merger", (merger,), 4 * hidden, 4 * hidden)
    return [replace(first, checkpointed=False), *inner, replace(last, checkpointed=False)]


def _patches(config: VisionConfig, sizes: Sizes) -> Module:
    """A product with the pixels of each patch, which need no gradient."""
    name = f"{NAME}.patch_embed.proj"
    product = matrix(name, (sizes.hidden, config.pixels), sizes.element_bytes, bias=True, kind="Conv3d")
    weight = Tensor(f"{name}.weight", (sizes.hidden, *config.patch))
    product = replace(product, parameters=(weight, product.parameters[1]), backward=product.forward)
    return Module(name=f"{NAME}.patch_embed", kind=f"{PREFIX}PatchEmbed", children=(product,), calls=(product,))


def _places(config: VisionConfig, sizes: Sizes) -> Module:
    name, rows = f"{NAME}.pos_embed", config.num_position_embeddings
    module = embedding(name, Tensor(f"{name}.weight", (rows, sizes.hidden)), sizes.hidden, sizes.element_bytes)
    # the model's width is that of the first table of numbers, which is to be the text's
    return replace(module, takes_numbers=False)


def _block(name: str, sizes: Sizes) -> Module:
    first, second = (
        norm(f"{name}.{which}", "LayerNorm", sizes.hidden, sizes.element_bytes, bias=True)
        for which in ("norm1", "norm2")
    )
    parts = "linear_fc1", "act_fn", "linear_fc2"
    fed = plain_feed_forward(f"{name}.mlp", f"{PREFIX}MLP", parts, sizes, activation="GELUTanh", bias=True)
    up, act, down = fed.children
    fed = replace(fed, children=(up, down, act))
    attended = _attention(f"{name}.attn", sizes)
    return Module(
        name=name,
        kind=f"{PREFIX}Block",
        children=(first, second, attended, fed),
        calls=(first, attended, second, fed),
    )


def _attention(name: str, sizes: Sizes) -> Module:
    hidden, width = sizes.hidden, sizes.element_bytes
    joint = matrix(f"{name}.qkv", (3 * hidden, hidden), width, bias=True)
    out = matrix(f"{name}.proj", (hidden, hidden), width, bias=True)
    module = Module(name=name, kind=f"{PREFIX}Attention", children=(joint, out), calls=(joint, out))
    module = attends(module, sizes.sequence_length, sizes.query)
    rotated = 2.0 * (sizes.query + sizes.key_value) * width
    return replace(
        module,
        forward=(*module.forward, Work("memory", traffic=rotated)),
        backward=(*module.backward, Work("memory", traffic=2 * rotated)),
    )


def _merger(config: VisionConfig, sizes: Sizes) -> Module:
    """Patches side by side become one token of the text's width; work here is per patch."""
    name, merged, width = f"{NAME}.merger", config.merged, sizes.element_bytes
    normed = norm(f"{name}.norm", "LayerNorm", sizes.hidden, width, bias=True)
    up = matrix(f"{name}.linear_fc1", (merged, merged), width, bias=True)
    act = element_wise(f"{name}.act_fn", "GELU", 2.0 * merged * width)
    down = matrix(f"{name}.linear_fc2", (config.out_hidden_size, merged), width, bias=True)
    part = 1 / config.spatial_merge_size**2
    first, middle, last = (per_token(each, part) for each in (up, act, down))
    return Module(
        name=name,
        kind=f"{PREFIX}PatchMerger",
        children=(normed, first, middle, last),
        calls=(normed, first, middle, last),
    )
