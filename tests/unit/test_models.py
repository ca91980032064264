"""Published parameter counts, and the order in which real implementations visit their modules."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.world.model.execution import execution
from simulator.world.model.gpt2 import GPT2Config, gpt2
from simulator.world.model.huggingface import model_from_config
from simulator.world.model.llama import LlamaConfig, llama
from simulator.world.scenario import load_scenario
from tests.recorded.recording import FOLDER, Recording

MODELS = Path(__file__).parents[2] / "scenarios" / "models"

PUBLISHED = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "gpt2-xl": 1_557_611_200,  # Hugging Face GPT2LMHeadModel, head tied
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_counted_exactly(name):
    root, layers = model_from_config(MODELS / f"{name}.json", 1024, 2)
    assert sum(tensor.elements for tensor in root.tensors()) == PUBLISHED[name]
    assert sum(layer.elements for layer in layers) == PUBLISHED[name]


def test_the_files_of_other_people_are_counted_exactly_too(shared):
    folder = shared / "data" / "hf_config"
    for name, expected in {"llama-2-7b-chat": 6_738_415_616, "llama-3.1-8b": 8_030_261_248}.items():
        _, layers = model_from_config(folder / f"{name}.json", 4096, 2)
        assert sum(layer.elements for layer in layers) == expected


LLAMA = LlamaConfig(
    hidden_size=64, intermediate_size=176, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=256,
)  # fmt: skip
GPT2 = GPT2Config(n_embd=64, n_layer=4, n_head=4, vocab_size=200, n_positions=32)

VISITED = {
    "ds3_llama_default_k2_n4": (llama, LLAMA, "none"),
    "ds3_llama_ckpt_default_k2_n2": (llama, LLAMA, "non-reentrant"),
    "ds3_llama_ckptreentrant_pf20k_live60k_reuse80k_k2_n2": (llama, LLAMA, "reentrant"),
    "ds2_gpt2tied_rb30k_overlap_k2_n4": (gpt2, GPT2, "none"),
}


def recording(name):
    path = FOLDER / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    return Recording(path, json.loads(path.read_text()))


@pytest.mark.parametrize("name", VISITED)
def test_modules_and_gradients_come_in_the_order_that_was_recorded(name):
    build, config, checkpointing = VISITED[name]
    root, _ = build(config, 32, 2)
    found = execution(root, checkpointing, lambda module: module.kind == "LlamaDecoderLayer")
    expected = recording(name).execution()
    assert found.forward == expected.forward
    assert found.backward == expected.backward


@pytest.mark.parametrize("name", VISITED)
def test_parameters_are_registered_in_the_order_that_was_recorded(name):
    build, config, _ = VISITED[name]
    root, _ = build(config, 32, 2)
    params = recording(name).content["model"]["params"]
    assert [(tensor.name, tensor.elements) for tensor in root.tensors()] == [(row[0], row[2]) for row in params]


def test_a20_mfu_by_two_conventions():
    """Llama-2-7B at 3,700 tokens/s on an A100 is 47.9 % by 6 P and 55.6 % with attention at sequence 4,096."""
    model = load_scenario("llama-2-7b-one-host").model
    assert 3700 * 6 * model.elements / 312e12 == pytest.approx(0.479, abs=5e-4)
    assert 3700 * model.model_flop / 312e12 == pytest.approx(0.556, abs=5e-4)


def test_behind_a_frozen_embedding_the_first_norm_has_no_input_gradient():
    """As recorded: neither the first block nor its first norm ends its backward, its attention does."""
    root, _ = llama(LLAMA, 32, 2)
    frozen = frozen_embedding(root)
    assert execution(frozen).backward == recording("ds3_frozen_pf20k_live60k_reuse0_k2_n2").execution().backward


def frozen_embedding(root):
    trunk, head = root.children
    embed = trunk.children[0]
    table = replace(embed, parameters=tuple(replace(tensor, trainable=False) for tensor in embed.parameters))
    swapped = replace(
        trunk,
        children=tuple(table if child is embed else child for child in trunk.children),
        calls=tuple(table if child is embed else child for child in trunk.calls),
    )
    return replace(root, children=(swapped, head), calls=(swapped, head))


def test_a_shipped_model_is_found_by_its_name(scenario):
    """Not only by its path in ``scenarios``, and a name that is not there is answered with those that are."""
    asked = scenario(model={"config": "llama-2-7b", "sequence_length": 64}, topology={"cluster": "dgx-h100"})
    assert asked.model.elements == 6738415616
    with pytest.raises(InputError, match="did you mean 'llama-2-7b'"):
        scenario(model={"config": "llama-2-6b", "sequence_length": 64})
