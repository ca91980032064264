"""Frozen parameters: gathered, but without gradients and optimizer states."""

import pytest

from simulator.errors import InputError
from simulator.explore import run_variant

LLAMA = {"config": "models/llama-2-7b.json", "sequence_length": 128}
EMBEDDING = 32_000 * 4096
BF16 = {"bf16": {"enabled": True}}
VARIANTS = [
    {"name": "textbook", "zero_stage": 3},
    {"name": "zero1", "zero_stage": 1},
    {"name": "ddp", "ddp": {}},
    {"name": "zero2", "deepspeed": {**BF16, "zero_optimization": {"stage": 2}}},
    {"name": "zero3", "deepspeed": {**BF16, "zero_optimization": {"stage": 3}}},
    {"name": "fsdp1", "fsdp1": {"use_orig_params": True}},
    {"name": "fsdp2", "fsdp2": {}},
]


def results(scenario, **model):
    asked = scenario(model={**LLAMA, **model}, variants=VARIANTS)
    return {variant.name: run_variant(asked, variant).result for variant in asked.variants}


def test_a_frozen_embedding_is_not_reduced_and_has_no_optimizer_states(scenario):
    whole, frozen = results(scenario), results(scenario, frozen=["model.embed_tokens"])
    for name in whole:
        before, after = whole[name].memory["items"], frozen[name].memory["items"]
        assert after["optimizer states"] < before["optimizer states"]
        less = frozen[name].volume["sent_per_rank"] < whole[name].volume["sent_per_rank"]
        assert less == (name != "fsdp1")  # whose root reduces one flat gradient, frozen parts and all
    saved = whole["ddp"].volume["sent_per_rank"] - frozen["ddp"].volume["sent_per_rank"]
    assert saved == pytest.approx(2 * EMBEDDING)  # two ranks send half of twice the bf16 gradient


@pytest.mark.parametrize(("names", "expected"), [
    (["model.embed_token"], "did you mean 'model.embed_tokens'?"),
    (["model", "lm_head"], "nothing is left to train"),
])  # fmt: skip
def test_wrong_names_and_nothing_to_train_are_refused(scenario, names, expected):
    with pytest.raises(InputError) as error:
        scenario(model={**LLAMA, "frozen": names})
    assert expected in str(error.value)
