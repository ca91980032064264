"""Nemotron-H: blocks of one mixer each, Mamba-2, attention or feed-forward as a pattern of letters says.

``hybrid_override_pattern`` has a letter per block: ``M`` Mamba-2, ``*`` attention without positions, ``-`` feed-forward
with a squared ReLU.  Names and order as ``NemotronHForCausalLM`` has them (Hugging Face transformers 5,
``modeling_nemotron_h.py``); the convolution, whose weight its kernel takes, is called like a module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Final

from msgspec import Meta

from simulator.errors import InputError
from simulator.world.document import Section
from simulator.world.model.assembly import (
    Built,
    Sizes,
    attention,
    head,
    language_model,
    matrix,
    plain_feed_forward,
    stack,
    unit,
)
from simulator.world.model.decoder import Block, element_wise, embedding, norm
from simulator.world.model.family import Reader, family
from simulator.world.model.layer import Tensor
from simulator.world.model.llama import Style, grouped_attention
from simulator.world.model.module import Module
from simulator.world.model.recurrent import Scan, convolution, mamba_scan, with_scan

__all__ = ["READERS", "NemotronHConfig", "nemotron_h"]

Size = Annotated[int, Meta(ge=1)]

LETTERS: Final = {"M": "Mamba-2", "*": "attention", "-": "feed-forward"}


class NemotronHConfig(Section, forbid_unknown_fields=False):
    """The keys of ``config.json`` that decide shapes."""

    hybrid_override_pattern: str
    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    num_key_value_heads: Size
    head_dim: Size
    vocab_size: Size
    mamba_num_heads: Size
    mamba_head_dim: Size
    ssm_state_size: Size
    n_groups: Size
    conv_kernel: Size = 4
    chunk_size: Size = 128
    attention_bias: bool = False
    mlp_bias: bool = False
    use_bias: bool = False
    """Of the projections of Mamba-2."""
    use_conv_bias: bool = True
    tie_word_embeddings: bool = False

    @property
    def inner(self) -> int:
        """Width of all heads of Mamba-2."""
        return self.mamba_num_heads * self.mamba_head_dim

    @property
    def channels(self) -> int:
        """What the convolution runs over: the heads, and B and C of each group."""
        return self.inner + 2 * self.n_groups * self.ssm_state_size

    @property
    def projected(self) -> int:
        """Width that Mamba-2's first product makes: channels, a gate, a time step per head."""
        return self.channels + self.inner + self.mamba_num_heads

    @property
    def scan(self) -> Scan:
        """Work of Mamba-2 itself."""
        return mamba_scan(
            heads=self.mamba_num_heads,
            size=self.mamba_head_dim,
            state=self.ssm_state_size,
            groups=self.n_groups,
            chunk=self.chunk_size,
        )


def nemotron_h(config: NemotronHConfig, sequence_length: int, element_bytes: int) -> Built:
    """Return the module tree and the layers: embedding, blocks, head.

    Raises
    ------
    InputError
        A pattern of another length, or with a letter that stands for no mixer.
    """
    _check(config)
    hidden, width = config.hidden_size, element_bytes
    sizes = Sizes(
        hidden=hidden,
        query=config.head_dim * config.num_attention_heads,
        heads=config.num_attention_heads,
        key_value=config.head_dim * config.num_key_value_heads,
        wide=config.intermediate_size,
        sequence_length=sequence_length,
        element_bytes=width,
    )
    table = Tensor("model.embeddings.weight", (config.vocab_size, hidden))
    embed = embedding("model.embeddings", table, hidden, width)
    pattern = config.hybrid_override_pattern
    units = [_unit(config, f"model.layers.{index}", letter, sizes) for index, letter in enumerate(pattern)]
    last = norm("model.norm_f", "NemotronHRMSNorm", hidden, width, bias=False)
    blocks = [block.modules[0] for block in units]
    trunk = Module(
        name="model",
        kind="NemotronHModel",
        children=(embed, stack("model.layers", blocks), last),
        calls=(embed, *blocks, last),
    )
    top = head((config.vocab_size, hidden), width, table if config.tie_word_embeddings else None)
    return language_model("NemotronHForCausalLM", trunk, (embed,), units, (last, top), sizes)


def _check(config: NemotronHConfig) -> None:
    pattern, key = config.hybrid_override_pattern, "hybrid_override_pattern"
    for letter in pattern:
        if letter not in LETTERS:
            known = ", ".join(f"{each} {name}" for each, name in LETTERS.items())
            raise InputError("unknown kind of block", key=key, value=letter, remedy=f"known: {known}")
    if len(pattern) != config.num_hidden_layers:
        problem = f"expected {config.num_hidden_layers} letters, one per layer"
        raise InputError(problem, key=key, value=len(pattern), remedy="check num_hidden_layers")


def _unit(config: NemotronHConfig, name: str, letter: str, sizes: Sizes) -> Block:
    """A block, with what its backward needs: inputs of the norm and of the mixer, and what the mixer keeps."""
    mixer, flop = f"{name}.mixer", 0.0
    if letter == "M":
        inner, flop = _mamba(config, mixer, sizes), config.scan.model_flop
        elements = config.projected + config.channels + 2 * config.inner
    elif letter == "*":
        inner, flop = _attention(config, mixer, sizes), 3 * 4.0 * sizes.sequence_length * sizes.query
        elements = 2 * sizes.query + 2 * sizes.key_value
    else:
        inner, elements = _feed_forward(config, mixer, sizes), 2 * sizes.wide
    before = norm(f"{name}.norm", "NemotronHRMSNorm", sizes.hidden, sizes.element_bytes, bias=False)
    module = Module(name=name, kind="NemotronHBlock", children=(before, inner), calls=(before, inner))
    return replace(unit(module, sizes, sizes.rms * sizes.hidden + elements), attention_flop=flop)


def _attention(config: NemotronHConfig, name: str, sizes: Sizes) -> Module:
    style = Style(prefix="NemotronH", input_bias=config.attention_bias, output_bias=config.attention_bias)
    return attention(grouped_attention(name, sizes, style, config.head_dim), sizes, rotary=False)


def _feed_forward(config: NemotronHConfig, name: str, sizes: Sizes) -> Module:
    parts = "up_proj", "act_fn", "down_proj"
    activation = "ReLUSquaredActivation"
    module = plain_feed_forward(name, "NemotronHMLP", parts, sizes, activation=activation, bias=config.mlp_bias)
    up, act, down = module.children
    return replace(module, children=(up, down, act))


def _mamba(config: NemotronHConfig, name: str, sizes: Sizes) -> Module:
    hidden, width, inner = sizes.hidden, sizes.element_bytes, config.inner
    into = matrix(f"{name}.in_proj", (config.projected, hidden), width, bias=config.use_bias)
    out = matrix(f"{name}.out_proj", (hidden, inner), width, bias=config.use_bias)
    mixed = convolution(f"{name}.conv1d", config.channels, config.conv_kernel, width, bias=config.use_conv_bias)
    # the norm of the output reads a gate instead of a residual
    gated = norm(f"{name}.norm", "Zamba2RMSNormGated", inner, width, bias=False)
    act = element_wise(f"{name}.act", "SiLUActivation", 0.0)
    module = Module(
        name=name,
        kind="NemotronHMamba2Mixer",
        parameters=tuple(Tensor(f"{name}.{own}", (config.mamba_num_heads,)) for own in ("dt_bias", "A_log", "D")),
        children=(act, mixed, into, gated, out),
        calls=(into, mixed, gated, out),
    )
    return with_scan(module, config.scan, width)


READERS: Final[Mapping[str, Reader]] = {
    "nemotron_h": family(NemotronHConfig, nemotron_h, renamed={"attention_head_dim": "head_dim"}),
}
"""By ``model_type``."""
