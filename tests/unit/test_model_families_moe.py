"""Mixtures of experts, hybrids, encoders: counts, order and work that are known without our code.

Counts of whole models: Hugging Face transformers 5.24 on torch's meta device, tabulated in ``expected_params.csv``.
Names, classes and order of calls: observed with hooks on small models of transformers 5.18.
"""

from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.explore import run_variant, volume_of
from simulator.world.model.execution import execution
from simulator.world.model.huggingface import model_from_config, model_from_mapping

COUNTED = {  # parameters, tensors, parameters in tensors of at most 1e5 elements
    "bert-base-uncased": (109_482_240, 199, 123_648),
    "deepseek-v3-671b": (671_026_404_352, 909, 1_006_592),
    "gpt-oss-120b-mxfp4": (116_829_156_672, 615, 505_152),
    "mixtral-8x22b-wizardlm2": (140_620_634_112, 507, 3_446_784),
    "mixtral-8x7b": (46_702_792_704, 291, 1_314_816),
    "nemotron-h-56b-mamba-hybrid": (56_324_350_464, 701, 7_430_656),
    "qwen3-30b-a3b": (30_532_122_624, 531, 210_944),
    "qwen3.5-27b-multimodal": (27_356_728_560, 1184, 3_054_832),
    "t5-small": (60_506_624, 131, 16_896),
}

EXPERTS = {  # in a block, and those that a token works with
    "mixtral-8x7b": (8, 2), "mixtral-8x22b-wizardlm2": (8, 2), "qwen3-30b-a3b": (128, 8), "deepseek-v3-671b": (256, 8),
    "gpt-oss-120b-mxfp4": (128, 4),
}  # fmt: skip

WORDS = {"vocab_size": 64}
LLAMA = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, **WORDS,
}  # fmt: skip
CONFIGS = {
    "mixtral": LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": LLAMA | {
        "num_hidden_layers": 3, "head_dim": 8, "moe_intermediate_size": 12, "num_experts": 4,
        "num_experts_per_tok": 2, "mlp_only_layers": [1],
    },
    "gpt_oss": LLAMA | {
        "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "attention_bias": True,
        "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"],
    },
    "deepseek_v3": LLAMA | {
        "moe_intermediate_size": 12, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
        "first_k_dense_replace": 1, "q_lora_rank": 12, "kv_lora_rank": 8, "qk_nope_head_dim": 4,
        "qk_rope_head_dim": 4, "v_head_dim": 4, "num_nextn_predict_layers": 1,
    },
    "nemotron_h": LLAMA | {
        "hybrid_override_pattern": "M-*-", "num_hidden_layers": 4, "attention_head_dim": 8, "mamba_num_heads": 4,
        "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 8, "chunk_size": 8, "conv_kernel": 4,
    },
    "qwen3_5": {
        "text_config": LLAMA | {
            "head_dim": 8, "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2,
            "linear_num_value_heads": 4, "linear_key_head_dim": 4, "linear_value_head_dim": 4,
        },
        "vision_config": {
            "depth": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 20, "patch_size": 4,
            "out_hidden_size": 16, "num_position_embeddings": 16,
        },
    },
    "bert": LLAMA | {"max_position_embeddings": 32},
    "t5": {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4, **WORDS},
}  # fmt: skip

BY_HAND = {
    # queries and output 2 * 256, keys and values 2 * 128; router 64; experts 4 * 3 * 16 * 24; norms 32
    "mixtral": 2 * (768 + 64 + 4608 + 32) + 2 * 1024 + 16,
    # 16 * 32 * 2 + 16 * 16 * 2 and two norms of 8; router 64 and experts 4 * 3 * 16 * 12, once 3 * 16 * 24 instead
    "qwen3_moe": 3 * (1536 + 16 + 32) + 2 * (64 + 2304) + 1152 + 2 * 1024 + 16,
    # as above with biases 32 + 16 + 16 + 16 and 4 sinks; router 64 + 4; experts 4608 with biases 4 * (48 + 16)
    "gpt_oss": 2 * (1536 + 80 + 4 + 68 + 4608 + 256 + 32) + 2 * 1024 + 16,
    # latent attention 192 + 12 + 384 + 192 + 8 + 256 + 256; dense 1152; router 64, experts 2304, shared 576
    "deepseek_v3": 2 * (1300 + 32) + 1152 + 64 + 2304 + 576 + 2 * 1024 + 16,
    # Mamba-2: 100 * 16, convolution 64 * 5, three vectors of 4, norm 32, output 512; attention 1536; MLP 768 each
    "nemotron_h": 1600 + 320 + 12 + 32 + 512 + 1536 + 2 * 768 + 4 * 16 + 2 * 1024 + 16,
    # delta rule (32 + 16 + 8) * 16 + 32 * 4 + 8 + 4 + 256; attention 64 * 16 + 2 * 256 + 512 + 16; MLPs 1152 each;
    # vision: patches 16 * 96 + 16, places 256, blocks 64 + 816 + 272 + 340 + 336, merger 32 + 64 * 65 + 16 * 65
    "qwen3_5": 1292 + 2064 + 2 * (1152 + 32) + 2 * 1024 + 16 + 1552 + 256 + 2 * 1828 + 32 + 4160 + 1040,
    # words, 32 positions, 2 kinds, norm; blocks 4 * 272 + 32, 24 * 17 + 16 * 25 + 32; pooler
    "bert": 1024 + 512 + 32 + 32 + 2 * (1088 + 32 + 408 + 400 + 32) + 272,
    # one table; attention 1024, feed-forward 768, a norm each, biases of 32 * 4 in both halves
    "t5": 1024 + 2 * (1024 + 768 + 32) + 2 * (2 * 1024 + 768 + 48) + 2 * 128 + 2 * 16,
}


def built(family, sequence_length=16, **changes):
    raw = {"model_type": family, **CONFIGS[family], **changes}
    return model_from_mapping(raw, Path("config.json"), sequence_length, 2)


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_and_tensors_are_counted_exactly(name, shared):
    root, layers = model_from_config(shared / "data" / "hf_config" / f"{name}.json", 512, 2)
    tensors = root.tensors()
    small = sum(tensor.elements for tensor in tensors if tensor.elements <= 100_000)
    assert (sum(tensor.elements for tensor in tensors), len(tensors), small) == COUNTED[name]
    assert sum(layer.elements for layer in layers) == COUNTED[name][0]


@pytest.mark.parametrize("name", EXPERTS)
def test_mfu_counts_active_parameters_only(name, shared):
    """By hand: every matrix but the table of words, of the experts (three dimensions) the chosen part."""
    root, layers = model_from_config(shared / "data" / "hf_config" / f"{name}.json", 4096, 2)
    count, chosen = EXPERTS[name]
    _, *others = root.tensors()
    matrices = sum(item.elements for item in others if len(item.shape) == 2 and "bias" not in item.name)
    experts = sum(item.elements for item in others if len(item.shape) == 3)
    assert matrix_flop(layers) == 2 * (matrices + experts * chosen / count)


def matrix_flop(layers):
    return sum(work.flop for layer in layers for work in layer.forward if work.kind == "matrix")


def attention_flop(layers, direction="forward"):
    return sum(work.flop for layer in layers for work in getattr(layer, direction) if work.kind == "attention")


@pytest.mark.parametrize("family", BY_HAND)
def test_small_models_are_counted_by_hand(family):
    root, layers = built(family)
    assert sum(tensor.elements for tensor in root.tensors()) == BY_HAND[family]
    assert sum(layer.elements for layer in layers) == BY_HAND[family]


TORCH_FLOP = {  # torch's FlopCounterMode, Linear, routers, experts and patches, per token of 128; 16 patches
    "mixtral": 14_592, "qwen3_moe": 18_432, "deepseek_v3": 13_056, "gpt_oss": 17_664, "nemotron_h": 12_416,
    "qwen3_5": 14_592, "bert": 7_172, "t5": 20_480,
}  # fmt: skip


@pytest.mark.parametrize("family", TORCH_FLOP)
def test_matrix_products_are_those_that_torch_counts(family):
    changes = {"max_position_embeddings": 128} if family == "bert" else {}
    assert matrix_flop(built(family, 128, **changes)[1]) == TORCH_FLOP[family]


@pytest.mark.parametrize("family", ["mixtral", "gpt_oss"])
def test_more_experts_are_more_to_gather_and_hardly_more_work(family):
    few, many = built(family)[1], built(family, num_local_experts=8)[1]
    grown = matrix_flop(many) - matrix_flop(few)
    assert grown == 2 * 2 * 4 * 16  # four more rows of two routers
    assert sum(layer.elements for layer in many) - sum(layer.elements for layer in few) > 2 * 4 * 3 * 16 * 24


def test_latent_attention_has_wider_keys_than_values():
    """16 tokens, 4 heads: 16 / 2 * 2 * 4 * (8 + 4) forward; scores again, and two products of each width, backward."""
    _, layers = built("deepseek_v3")
    assert attention_flop(layers) == 2 * 8 * 2 * 4 * (8 + 4)
    assert attention_flop(layers, "backward") == 2 * 8 * 2 * 4 * (3 * 8 + 2 * 4)
    assert layers[1].model_flop == 3 * (2 * (1280 + 1152) + 2 * 16 * 4 * (8 + 4))  # norms multiply nothing


def test_a_window_leaves_out_scores():
    """16 tokens, window 8: 16 * 8 - 8 * 8 / 2 pairs in place of 16 * 16 / 2, each 4 * 32 FLOP."""
    _, layers = built("gpt_oss")
    flop = [attention_flop([layer]) for layer in layers[1:3]]
    assert flop == [96 * 4 * 32 / 16, 128 * 4 * 32 / 16]


def test_encoders_look_both_ways():
    assert attention_flop(built("bert")[1]) == 2 * 4 * 16 * 16  # blocks, products, tokens, width
    # two halves and the attention of one to the other; the decoder's own is masked
    assert attention_flop(built("t5")[1]) == 2 * (4 + 4 + 2) * 16 * 16


def test_mamba_scans_in_chunks():
    """Groups share B and C: 2 * 8 * 8 * 2; four heads: 2 * 8 * 8 + 4 * 8 * 8 each."""
    _, layers = built("nemotron_h")
    assert attention_flop([layers[1]]) == 256 + 4 * 384
    assert layers[1].model_flop == 3 * (2 * (1600 + 512) + 1792)


def entered(root, block):
    """Modules that the forward of *block* enters, by their names inside it."""
    marks = [mark.name for mark in execution(root).forward if mark.kind == "enter"]
    return " ".join(name.removeprefix(f"{block}.") for name in marks if name.startswith(f"{block}."))


ATTENTION = "input_layernorm self_attn self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj"
NORMED = (
    "input_layernorm self_attn self_attn.q_proj self_attn.q_norm self_attn.k_proj self_attn.k_norm self_attn.v_proj"
    " self_attn.o_proj post_attention_layernorm"
)
LATENT = (
    "input_layernorm self_attn self_attn.q_a_proj self_attn.q_a_layernorm self_attn.q_b_proj"
    " self_attn.kv_a_proj_with_mqa self_attn.kv_a_layernorm self_attn.kv_b_proj self_attn.o_proj"
    " post_attention_layernorm"
)
GATED = "mlp mlp.gate_proj mlp.act_fn mlp.up_proj mlp.down_proj"
SPARSE = "mlp mlp.gate mlp.experts mlp.experts.act_fn"
SHARED = " ".join(f"mlp.shared_experts{part}" for part in ("", ".gate_proj", ".act_fn", ".up_proj", ".down_proj"))
ORDER = {
    ("mixtral", "model.layers.1"): f"{ATTENTION} post_attention_layernorm {SPARSE}",
    ("qwen3_moe", "model.layers.0"): f"{NORMED} {SPARSE}",
    ("qwen3_moe", "model.layers.1"): f"{NORMED} {GATED}",
    ("gpt_oss", "model.layers.0"): f"{ATTENTION} post_attention_layernorm mlp mlp.router mlp.experts",
    ("deepseek_v3", "model.layers.0"): f"{LATENT} {GATED}",
    ("deepseek_v3", "model.layers.1"): f"{LATENT} {SPARSE} {SHARED}",
    ("nemotron_h", "model.layers.1"): "norm mixer mixer.up_proj mixer.act_fn mixer.down_proj",
    ("nemotron_h", "model.layers.2"): "norm mixer mixer.q_proj mixer.k_proj mixer.v_proj mixer.o_proj",
    ("qwen3_5", "model.language_model.layers.1"): f"{NORMED} {GATED}",
    (
        "qwen3_5",
        "model.visual.blocks.0",
    ): "norm1 attn attn.qkv attn.proj norm2 mlp mlp.linear_fc1 mlp.act_fn mlp.linear_fc2",
    ("bert", "embeddings"): "word_embeddings token_type_embeddings position_embeddings LayerNorm dropout",
    ("bert", "encoder.layer.1.attention"): "self self.query self.key self.value output output.dense output.dropout"
    " output.LayerNorm",
    ("t5", "decoder.block.0.layer.0"): "layer_norm SelfAttention SelfAttention.q SelfAttention.k SelfAttention.v"
    " SelfAttention.relative_attention_bias SelfAttention.o dropout",
    ("t5", "decoder.block.1.layer.1"): "layer_norm EncDecAttention EncDecAttention.q EncDecAttention.k"
    " EncDecAttention.v EncDecAttention.o dropout",
    ("t5", "encoder.block.1.layer.1"): "layer_norm DenseReluDense DenseReluDense.wi DenseReluDense.act"
    " DenseReluDense.dropout DenseReluDense.wo dropout",
}


@pytest.mark.parametrize(("family", "block"), ORDER)
def test_modules_run_in_the_order_that_hooks_saw(family, block):
    assert entered(built(family)[0], block) == ORDER[family, block]


KINDS = {
    ("mixtral", "model.layers.0.mlp"): "MixtralSparseMoeBlock",
    ("mixtral", "model.layers.0.mlp.experts"): "MixtralExperts",
    ("qwen3_moe", "model.layers.0.mlp"): "Qwen3MoeSparseMoeBlock",
    ("gpt_oss", "model.layers.0.mlp.router"): "GptOssTopKRouter",
    ("deepseek_v3", "model.layers.1.mlp"): "DeepseekV3MoE",
    ("nemotron_h", "model.layers.0"): "NemotronHBlock",
    ("nemotron_h", "model.layers.0.mixer"): "NemotronHMamba2Mixer",
    ("qwen3_5", "model.language_model.layers.0"): "Qwen3_5DecoderLayer",
    ("qwen3_5", "model.language_model.layers.0.linear_attn"): "Qwen3_5GatedDeltaNet",
    ("qwen3_5", "model.visual.blocks.0"): "Qwen3_5VisionBlock",
    ("bert", "encoder.layer.0"): "BertLayer",
    ("t5", "decoder.block.0"): "T5Block",
}


@pytest.mark.parametrize(("family", "name"), KINDS)
def test_classes_are_those_that_wrapping_policies_name(family, name):
    kinds = {module.name: module.kind for module in built(family)[0].walk()}
    assert kinds[name] == KINDS[family, name]


@pytest.mark.parametrize("family", CONFIGS)
def test_every_parameter_gets_one_gradient(family):
    root, _ = built(family)
    gradients = [mark.name for mark in execution(root).backward if mark.kind == "gradient"]
    assert sorted(gradients) == sorted(tensor.name for tensor in root.tensors())


def test_a_shared_table_has_its_gradient_last():
    root, _ = built("t5")
    assert [mark.name for mark in execution(root).backward if mark.kind == "gradient"][-1] == "shared.weight"


def test_images_of_a_short_sequence_are_small():
    """A merger of 2 x 2 makes one token of four patches, so that 2 tokens are at most 8 of 16 patches."""
    layers = {length: built("qwen3_5", length)[1] for length in (2, 4, 8)}
    block = {length: next(item for item in found if item.name == "visual.blocks.0") for length, found in layers.items()}
    assert matrix_flop([block[2]]) == matrix_flop([block[4]]) == 2 * matrix_flop([block[8]])


def leaf(name, classes):
    zero = {
        "stage": 3, "stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0,
        "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0, "leaf_module": {"classes": classes},
    }  # fmt: skip
    return {
        "name": name,
        "deepspeed": {
            "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": True}, "zero_optimization": zero,
        },
    }  # fmt: skip


@pytest.fixture
def mixtral(scenario):
    return scenario(
        model={"config": {"model_type": "mixtral", **CONFIGS["mixtral"]}, "sequence_length": 16},
        training={"micro_batch": 2},
        topology={"cluster": "dgx-a100-80gb", "accelerators_per_host": 4},
        variants=[leaf("plain", []), leaf("leaf", ["MixtralSparseMoeBlock"]), {"name": "fsdp2", "fsdp2": {}}],
    )


def traffic(scenario, name):
    roles = volume_of(scenario, scenario.variant(name)).roles
    return {role.role: (role.count, role.payload) for role in roles if role.role != "norm"}


def test_all_experts_travel_under_zero3_and_leaves_travel_in_one(mixtral):
    """Four projections, two norms, router and experts make 8 gathers a block, 7 where the mixture is a leaf."""
    psi = 2 * BY_HAND["mixtral"]
    for name, gathers in (("plain", 2 * 8 + 3), ("leaf", 2 * 7 + 3)):
        moved = traffic(mixtral, name)
        assert moved["forward_all_gather"] == moved["backward_all_gather"] == (gathers, psi)
        assert moved["reduce_scatter"][1] == psi
        assert run_variant(mixtral, mixtral.variant(name)).result.step_time > 0


def test_all_experts_travel_under_fsdp2(mixtral):
    """Two blocks and the root; the root keeps its weights for backward."""
    psi, blocks = 2 * BY_HAND["mixtral"], 2 * 2 * 5472
    assert traffic(mixtral, "fsdp2") == {
        "forward_all_gather": (3, psi), "backward_all_gather": (2, blocks), "reduce_scatter": (3, psi),
    }  # fmt: skip
    assert run_variant(mixtral, mixtral.variant("fsdp2")).result.step_time > 0


def test_fsdp2_pads_experts_to_the_ranks(scenario):
    """It shards rows, which are experts here: 4 of them, and 4 rows of the router, become 8 on 8 ranks."""
    made = scenario(
        model={"config": {"model_type": "mixtral", **CONFIGS["mixtral"]}, "sequence_length": 16},
        topology={"cluster": "dgx-a100-80gb"},
        variants=[{"name": "fsdp2", "fsdp2": {}}],
    )
    blocks, root = 2 * 2 * (5472 + 64 + 4608), 2 * (2 * 1024 + 16)
    moved = traffic(made, "fsdp2")
    assert moved["forward_all_gather"] == moved["reduce_scatter"] == (3, blocks + root)
    assert moved["backward_all_gather"] == (2, blocks)


POLICIES = [
    *({"name": f"zero{stage}", "zero_stage": stage} for stage in range(4)),
    leaf("deepspeed", ["BertLayer", "DeepseekV3MoE", "NemotronHBlock", "T5Block"]),
    {"name": "ddp", "ddp": {}},
    {"name": "fsdp1", "fsdp1": {}},
    {"name": "fsdp2", "fsdp2": {}},
]


@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize("family", CONFIGS)
def test_every_family_runs_under_every_framework(family, checkpointing, scenario):
    made = scenario(
        model={"config": {"model_type": family, **CONFIGS[family]}, "sequence_length": 16},
        training={"micro_batch": 2, "activation_checkpointing": checkpointing},
        topology={"cluster": "dgx-a100-80gb", "hosts": 2, "accelerators_per_host": 2},
        variants=POLICIES,
    )
    for variant in made.variants:
        assert run_variant(made, variant).result.step_time > 0


WRONG = [
    ("mixtral", {"num_experts_per_tok": 5}, "num_experts_per_tok: 5: more experts per token"),
    ("mixtral", {"num_local_experts": 0}, "num_local_experts: 0"),
    ("qwen3_moe", {"moe_intermediate_size": "12"}, "moe_intermediate_size: '12'"),
    ("gpt_oss", {"layer_types": ["full_attention"]}, "layer_types: 1: expected 2"),
    ("deepseek_v3", {"kv_lora_rank": None}, "kv_lora_rank"),
    ("nemotron_h", {"hybrid_override_pattern": "M-E-"}, "hybrid_override_pattern: 'E': unknown kind of block"),
    ("nemotron_h", {"hybrid_override_pattern": "M-"}, "hybrid_override_pattern: 2: expected 4 letters"),
    ("qwen3_5", {"vision_config": {}}, "vision_config"),
    ("bert", {"max_position_embeddings": 8}, "model.sequence_length: 16: the model has no more positions"),
    ("bert", {"num_attention_heads": 3}, "num_attention_heads: 3: does not divide"),
    ("t5", {"d_ff": 0}, "d_ff: 0"),
]


@pytest.mark.parametrize(("family", "changes", "expected"), WRONG)
def test_a_wrong_config_is_one_line_that_names_the_key(family, changes, expected):
    with pytest.raises(InputError) as caught:
        built(family, **changes)
    line = str(caught.value)
    assert line.startswith("config.json: ")
    assert expected in line
    assert "\n" not in line


def test_a_kind_of_layer_that_is_not_known_is_named():
    text = CONFIGS["qwen3_5"]["text_config"] | {"layer_types": ["full_attention", "linear_atention"]}
    with pytest.raises(InputError, match="'linear_atention'"):
        built("qwen3_5", text_config=text)
