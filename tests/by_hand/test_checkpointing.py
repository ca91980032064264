"""What a block keeps and computes again, written down by hand."""

import pytest

from simulator.world.model.checkpointing import computed_again
from simulator.world.model.huggingface import model_from_mapping
from simulator.world.model.module import Model
from simulator.world.training import Training

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
}  # fmt: skip


def again(mode, share=1.0):
    root, layers = model_from_mapping(LLAMA, "config.json", 32, 2)
    model = Model(name="llama", sequence_length=32, layers=layers, root=root)
    training = Training(
        micro_batch=1,
        gradient_accumulation=1,
        activation_checkpointing=mode,
        precision="bf16",
        checkpointed_share=share,
    )
    return computed_again(model, training)


def test_without_checkpointing_nothing_runs_again():
    assert again("none") == {}


def test_full_keeps_the_input_and_runs_all_of_forward_again():
    block = again("full")["layers.0"]
    products = 2 * (64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 128)
    attention = 2 * 32 * 64  # half of two products of 32 x 64 for each token
    assert block.kept == 2 * 64
    assert block.flop == products + attention


def test_selective_runs_every_second_product_again():
    """Calls: q, k, v, o, gate, up, down.  q, v, gate, down and attention stay; k, o and up run again."""
    block = again("selective")["layers.0"]
    assert block.kept == 2 * (64 + 64 + 32 + 64 + 128 + 64)  # input, q, v, attention, gate, down
    assert block.flop == 2 * (32 * 64 + 64 * 64 + 128 * 64)
    names = {name.rpartition(".")[2] for name, works in block.works.items() if any(work.flop for work in works)}
    assert names == {"k_proj", "o_proj", "up_proj"}


@pytest.mark.parametrize(
    ("share", "blocks"), [(1.0, [0, 1, 2, 3, 4, 5]), (0.5, [0, 2, 4]), (1 / 3, [1, 4]), (0.25, [1, 5]), (0.1, [4])]
)
def test_a_share_of_the_blocks_is_spread_evenly(share, blocks):
    """Block i, from 1 on, where share x i passes the next of 1/2, 3/2, ...: 1/3 x 2 = 0.67, 1/3 x 5 = 1.67."""
    assert list(again("full", share)) == [f"layers.{index}" for index in blocks]
