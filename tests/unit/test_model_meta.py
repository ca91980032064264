"""Models that transformers builds on the meta device, against the families that are written down."""

from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.world.model.execution import execution
from simulator.world.model.huggingface import model_from_mapping
from simulator.world.model.meta import available, from_transformers
from tests.unit.test_model_families import SMALL, described

pytestmark = pytest.mark.skipif(not available(), reason="PyTorch and transformers are not installed (zerosim[torch])")

FILE = Path("config.json")
BUILT = ["mistral", "qwen2", "qwen3", "gemma2", "phi", "falcon 7b", "falcon 40b", "gpt_neox", "opt", "bloom", "mpt"]
EXACTLY_KEPT = ["opt", "bloom", "mpt"]


def executed(layers):
    return [[(work.kind, work.flop) for work in layer.forward if work.flop] for layer in layers]


@pytest.mark.parametrize("name", BUILT)
def test_what_is_read_off_is_what_is_written_down(name):
    root, layers = from_transformers(SMALL[name], FILE, 8, 2)
    known, expected = model_from_mapping(SMALL[name], FILE, 8, 2)
    assert [described(module) for module in root.walk()] == [described(module) for module in known.walk()]
    assert execution(root) == execution(known)
    assert [layer.name for layer in layers] == [layer.name for layer in expected]
    assert [layer.model_flop for layer in layers] == [layer.model_flop for layer in expected]
    assert [sorted(layer) for layer in executed(layers)] == [sorted(layer) for layer in executed(expected)]
    for one, other in zip(layers, expected, strict=True):
        assert one.activation_bytes == pytest.approx(other.activation_bytes, rel=0 if name in EXACTLY_KEPT else 0.1)


def test_a_family_that_is_not_written_down():
    """OLMo 2, 64 wide: tables, two blocks of four square and three wide products, four norms each, and the last."""
    config = {
        "model_type": "olmo2",
        "hidden_size": 64,
        "intermediate_size": 176,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 256,
        "pad_token_id": 0,
        "eos_token_id": 1,
    }
    root, layers = model_from_mapping(config, FILE, 8, 2)
    block = 4 * 64 * 64 + 3 * 64 * 176 + 4 * 64
    assert [layer.elements for layer in layers] == [256 * 64, block, block, 256 * 64 + 64]
    assert sum(tensor.elements for tensor in root.tensors()) == 2 * 256 * 64 + 2 * block + 64


def test_a_config_that_transformers_refuses_is_one_line():
    with pytest.raises(InputError, match="transformers cannot build it") as error:
        model_from_mapping({"model_type": "olmo2", "hidden_size": "wide"}, FILE, 8, 2)
    assert "\n" not in str(error.value)
