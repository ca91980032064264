"""Dense model families against transformers 5.24, published counts, and counts made by hand."""

import csv
import hashlib
import json
from importlib import import_module
from math import prod
from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.explore import run_variant
from simulator.world.model.execution import execution
from simulator.world.model.huggingface import FAMILIES, model_from_config, model_from_mapping
from simulator.world.model.module import Model

MODELS = Path(__file__).parents[2] / "scenarios" / "models"


def built(config, sequence_length=64):
    return model_from_mapping(dict(config), Path("config.json"), sequence_length, 2)


def counted(root):
    """Parameters, tensors, and parameters in tensors that ZeRO-3 keeps whole by default (at most 1e5 elements)."""
    sizes = [tensor.elements for tensor in root.tensors()]
    return sum(sizes), len(sizes), sum(size for size in sizes if size <= 1e5)


def llama_like(model_type, hidden, wide, layers, heads, pairs, vocabulary, **more):
    return {
        "model_type": model_type,
        "hidden_size": hidden,
        "intermediate_size": wide,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": pairs,
        "vocab_size": vocabulary,
        **more,
    }


def sized(model_type, hidden, layers, heads, vocabulary, **more):
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    return {
        "model_type": model_type,
        **dict(zip(names, (hidden, layers, heads, vocabulary), strict=True)),
        **more,
    }


# The published sizes of a model, and what named_parameters() of its transformers 5.24 class has on the meta device,
# tied weights once. Qwen 1, which is remote code, as the sizes in its checkpoint's index.
COUNTED = {
    "bloom-176b": (
        {"model_type": "bloom", "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112, "vocab_size": 250880},
        (176_247_271_424, 845, 13_103_104),
    ),
    "bloom-560m": (
        {"model_type": "bloom", "hidden_size": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 250880},
        (559_214_592, 293, 323_584),
    ),
    "falcon-40b": (
        {
            "model_type": "RefinedWeb",
            "hidden_size": 8192,
            "n_layer": 60,
            "n_head": 128,
            "n_head_kv": 8,
            "vocab_size": 65024,
        },
        (41_303_293_952, 483, 1_982_464),
    ),
    "falcon-7b": (sized("falcon", 4544, 32, 71, 65024), (6_921_720_704, 195, 299_904)),
    "gemma-2b": (
        llama_like("gemma", 2048, 16384, 18, 8, 1, 256_000, head_dim=256),
        (2_506_172_416, 164, 75_776),
    ),
    "gemma-7b": (
        llama_like("gemma", 3072, 24576, 28, 16, 16, 256_000, head_dim=256),
        (8_537_680_896, 254, 175_104),
    ),
    "gemma-2-2b": (
        llama_like("gemma2", 2304, 9216, 26, 8, 4, 256_000, head_dim=256),
        (2_614_341_888, 288, 241_920),
    ),
    "gpt-neox-20b": (
        sized("gpt_neox", 6144, 44, 64, 50432, intermediate_size=24576),
        (20_554_567_680, 532, 3_526_656),
    ),
    "redpajama-7b": (
        sized("gpt_neox", 4096, 32, 32, 50432, intermediate_size=16384, use_parallel_residual=False),
        (6_857_302_016, 388, 1_712_128),
    ),
    "mistral-7b": (llama_like("mistral", 4096, 14336, 32, 32, 8, 32_000), (7_241_732_096, 291, 266_240)),
    "mpt-7b": (
        {"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432},
        (6_649_286_656, 194, 266_240),
    ),
    "opt-125m": (
        sized("opt", 768, 12, 12, 50272, ffn_dim=3072, word_embed_proj_dim=768),
        (125_239_296, 196, 121_344),
    ),
    "opt-350m": (
        sized("opt", 1024, 24, 16, 50272, ffn_dim=4096, word_embed_proj_dim=512, do_layer_norm_before=False),
        (331_196_416, 388, 319_488),
    ),
    "phi-1.5": (
        sized("phi", 2048, 24, 32, 51200, intermediate_size=8192),
        (1_418_270_720, 341, 595_968),
    ),
    "phi-2": (
        {
            "model_type": "mixformer-sequential",
            "n_embd": 2560,
            "n_head": 32,
            "n_head_kv": None,
            "n_inner": None,
            "n_layer": 32,
            "vocab_size": 51200,
        },
        (2_779_683_840, 453, 957_440),
    ),
    "phi-3-mini": (llama_like("phi3", 3072, 8192, 32, 32, 32, 32_064), (3_821_079_552, 195, 199_680)),
    "qwen-72b": (
        sized("qwen", 8192, 80, 64, 152_064, intermediate_size=49_152, kv_channels=128, no_bias=True),
        (72_287_920_128, 643, 3_284_992),
    ),
    "qwen2-0.5b": (
        llama_like("qwen2", 896, 4864, 24, 14, 2, 151_936, tie_word_embeddings=True),
        (494_032_768, 290, 71_552),
    ),
    "qwen2.5-14b": (llama_like("qwen2", 5120, 13824, 48, 40, 8, 151_665), (14_765_947_904, 579, 840_704)),
    "qwen3-0.6b": (
        llama_like("qwen3", 1024, 3072, 28, 16, 8, 151_936, head_dim=128, tie_word_embeddings=True),
        (596_049_920, 310, 65_536),
    ),
    "starcoder2-3b": (
        llama_like("starcoder2", 3072, 12288, 30, 24, 2, 49_152),
        (3_030_371_328, 483, 1_035_264),
    ),
}


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_and_tensors_are_counted_exactly(name):
    config, expected = COUNTED[name]
    root, layers = built(config)
    assert counted(root) == expected
    assert sum(layer.elements for layer in layers) == expected[0]


SHIPPED = {  # parameters as the models' pages on Hugging Face have them
    "mistral-7b": 7_241_732_096,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "gemma-2-9b": 9_241_705_984,
    "falcon-7b": 6_921_720_704,
    "gpt-neox-20b": 20_554_567_680,
    "mpt-7b": 6_649_286_656,
}


@pytest.mark.parametrize("name", SHIPPED)
def test_the_models_that_ship_are_the_published_ones(name):
    root, _ = model_from_config(MODELS / f"{name}.json", 2048, 2)
    assert counted(root)[0] == SHIPPED[name]


DENSE = {"bloom", "RefinedWeb", "gemma", "gpt_neox", "llama", "mixformer-sequential", "opt", "qwen", "qwen2", "qwen3"}


def test_the_files_of_other_people_are_counted_exactly(shared):
    folder = shared / "data" / "hf_config"
    rows = list(csv.DictReader((folder / "expected_params.csv").read_text().splitlines()))
    checked = 0
    for row in rows:
        if json.loads((folder / row["file"]).read_text())["model_type"] in DENSE:
            root, _ = model_from_config(folder / row["file"], 1024, 2)
            keys = ("total_params", "n_param_tensors", "params_in_tensors_le_1e5_elements")
            assert counted(root) == tuple(int(row[key]) for key in keys), row["file"]
            checked += 1
    assert checked == 14


def test_blocks_that_a_search_found_add_up_to_the_published_size(shared):
    """Llama-Nemotron Super: 49,867,145,216 parameters on its page."""
    root, layers = model_from_config(shared / "data/hf_config/llama-nemotron-super-49b-nas.json", 4096, 2)
    assert counted(root)[0] == sum(layer.elements for layer in layers) == 49_867_145_216


# Small models. Digests of what transformers 5.24 has: modules in order of registration with classes and shapes; calls
# of modules in one forward; parameters in the order in which backward on a CPU completes their gradients.
TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256}
WIDE = {**TINY, "intermediate_size": 176}
PAIRS = {**WIDE, "num_key_value_heads": 2}
OPT = {**TINY, "ffn_dim": 176, "max_position_embeddings": 32}

IMPLEMENTED = {
    "mistral": ("mistral", PAIRS, "302e2d872c29", "4c62d5b4945c", "1798ff852b1e"),
    "qwen2": ("qwen2", PAIRS, "42fbe0f821e8", "4c62d5b4945c", "70323d70a46a"),
    "qwen3": ("qwen3", {**PAIRS, "head_dim": 32}, "0df9a5833c23", "593debccb45e", "7f95555635d5"),
    "gemma": (
        "gemma",
        {**PAIRS, "num_key_value_heads": 1, "head_dim": 32},
        "3fe314221f5d",
        "4c62d5b4945c",
        "557c0f1b6bb4",
    ),
    "gemma2": ("gemma2", {**PAIRS, "head_dim": 32}, "845c7e5705f0", "9005f6233c66", "ad45c97f2ebf"),
    "phi": ("phi", PAIRS, "5b058525c35f", "1442077ef321", "f570dae7759c"),
    "phi, norms of heads": (
        "phi",
        {**PAIRS, "qk_layernorm": True},
        "bc453057b6d8",
        "0b5cb3b81dec",
        "50fa1e2e4bde",
    ),
    "phi3": ("phi3", PAIRS, "ff3af0e4bb50", "5df48f2c5d0b", "9351cc26625f"),
    "falcon 7b": ("falcon", TINY, "7ccab5a6c574", "fb8261300f12", "9422d344a354"),
    "falcon 40b": (
        "falcon",
        {**TINY, "num_kv_heads": 2, "new_decoder_architecture": True},
        "6a7b0b3cc58f",
        "2eb682ba7f7e",
        "98d437cffc49",
    ),
    "falcon 11b": (
        "falcon",
        {**TINY, "num_kv_heads": 2, "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1},
        "84affb39bc3b",
        "fb8261300f12",
        "9422d344a354",
    ),
    "falcon rw": (
        "falcon",
        {**TINY, "multi_query": False, "parallel_attn": False, "bias": True, "alibi": True},
        "c193780d6b4b",
        "c34de3ca9803",
        "e046207fbdca",
    ),
    "gpt_neox": ("gpt_neox", WIDE, "2a72f22ee8b2", "3d19ea98d33a", "1fa7b628f9cc"),
    "opt": ("opt", OPT, "178e4e545465", "e151fc910c62", "fd82ca2f5848"),
    "opt, narrow table": (
        "opt",
        {**OPT, "word_embed_proj_dim": 32, "do_layer_norm_before": False},
        "0f6d9a84cb79",
        "9e679de454e3",
        "9e760da976ab",
    ),
    "bloom": (
        "bloom",
        {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 256},
        "bcf0f5640c02",
        "320f812b7777",
        "4e4d55b89d09",
    ),
    "starcoder2": ("starcoder2", PAIRS, "f0b91aa7092f", "3bfb7f31b29e", "87dface4a6f6"),
    "mpt": (
        "mpt",
        {"d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 32, "vocab_size": 256},
        "2843f9c1d7af",
        "fd1b29904a3d",
        "b9c779fa2e27",
    ),
}


def digest(lines):
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def described(module):
    shapes = (f"{tensor.name.rpartition('.')[2]}{tensor.shape}" for tensor in module.parameters)
    return " ".join([module.name, module.kind, *shapes])


@pytest.mark.parametrize("case", IMPLEMENTED)
def test_modules_calls_and_gradients_are_those_of_the_implementation(case):
    family, sizes, modules, calls, gradients = IMPLEMENTED[case]
    root, _ = built({"model_type": family, **sizes}, 8)
    run = execution(root)
    assert digest(described(module) for module in root.walk()) == modules
    assert digest(mark.name for mark in run.forward if mark.kind == "enter") == calls
    assert digest(mark.name for mark in run.backward if mark.kind == "gradient") == gradients


SMALL = {name: {"model_type": family, **sizes} for name, (family, sizes, *_) in IMPLEMENTED.items()}
SMALL["qwen"] = {**WIDE, "model_type": "qwen"}
SMALL["nanogpt"] = {"n_layer": 2, "n_head": 4, "n_embd": 64, "vocab_size": 256}
SMALL["megatron"] = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 256}
SMALL["torchtitan"] = {"dim": 64, "n_layers": 2, "n_heads": 4, "vocab_size": 256}
SMALL["internlm"] = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 256}
SMALL["internlm"] |= {"model_type": "INTERNLM", "mlp_ratio": 8 / 3}
SMALL["llama"] = {**PAIRS, "model_type": "llama"}


@pytest.mark.parametrize("name", SMALL)
def test_every_matrix_costs_two_flop_an_element_forward_and_four_backward(name):
    """And MFU counts 6 per element plus 12 s q per layer (PaLM, appendix B), a table that is looked up as well."""
    root, layers = built(SMALL[name], 8)
    tables = {module.parameters[0].name for module in root.walk() if module.takes_numbers}
    products = [module for module in root.walk() if any(work.kind == "matrix" for work in module.forward)]
    weights = [module.parameters[0] for module in products]
    flop = {
        way: sum(work.flop for layer in layers for work in getattr(layer, way) if work.kind == "matrix")
        for way in ("forward", "backward")
    }
    elements = sum(prod(weight.shape) for weight in weights)
    assert flop == {"forward": 2 * elements, "backward": 4 * elements}
    held = {tensor.name for tensor in root.tensors() if len(tensor.shape) == 2}
    assert held == {weight.name for weight in weights} | tables
    query = 4 * SMALL[name].get("head_dim", 16)
    inside = layers[1:-1]
    matrices = sum(work.flop for layer in inside for work in layer.forward if work.kind == "matrix")
    assert sum(layer.model_flop for layer in inside) == 3 * matrices + 2 * 12 * 8 * query


def test_a_window_limits_attention():
    """Sequence 8, window 4: of the triangle of 8 x 8 / 2 scores, one of 4 x 4 / 2 lies too far back.

    That leaves 24 of 32; a score costs 4 FLOP per element of the queries, and 8 tokens share them.
    """
    _, whole = built(SMALL["mistral"], 8)
    _, window = built({**SMALL["mistral"], "sliding_window": 4}, 8)
    before, after = (
        next(work.flop for work in layers[1].forward if work.kind == "attention") for layers in (whole, window)
    )
    assert (before, after) == (32 * 4 * 64 / 8, 24 * 4 * 64 / 8)


def test_gemma_2_windows_every_other_layer():
    _, layers = built({**SMALL["gemma2"], "sliding_window": 4}, 8)
    flop = [next(work.flop for work in layer.forward if work.kind == "attention") for layer in layers[1:-1]]
    assert flop == [24 * 4 * 128 / 8, 32 * 4 * 128 / 8]


def test_kept_activations_by_hand():
    """Elements of bf16 per token: h 64, q 64, v 32, f 176; parallel halves behind one norm keep two arrays of h."""
    _, sequential = built(SMALL["starcoder2"], 8)
    _, parallel = built(SMALL["phi"], 8)
    assert sequential[1].activation_bytes == 2 * (4 * 64 + 2 * 64 + 2 * 32 + 2 * 176)
    assert parallel[1].activation_bytes == 2 * (2 * 64 + 2 * 64 + 2 * 32 + 2 * 176)


def test_nanogpt_by_hand():
    """GPT-2 small with 50,304 words: tables, 12 blocks of 12 h h + 13 h, and the last norm."""
    h = 768
    root, _ = built({"n_layer": 12, "n_head": 12, "n_embd": h}, 1024)
    assert counted(root)[0] == (50_304 + 1024) * h + 12 * (12 * h * h + 13 * h) + 2 * h == 124_475_904
    without, _ = built({"n_layer": 12, "n_head": 12, "n_embd": h, "bias": False}, 1024)
    assert counted(without)[0] == (50_304 + 1024) * h + 12 * (12 * h * h + 2 * h) + h


def test_internlm_by_hand():
    """InternLM-7B: 32 blocks of 4 h h + 3 h f and 6 h of biases and norms, table, head, last norm; 291 tensors."""
    h, f, v = 4096, 11_008, 103_168
    sizes = {"hidden_size": h, "num_layers": 32, "num_attention_heads": 32, "vocab_size": v, "mlp_ratio": 8 / 3}
    root, _ = built({"model_type": "INTERNLM", **sizes}, 2048)
    assert counted(root)[0] == 32 * (4 * h * h + 3 * h * f + 6 * h) + 2 * v * h + h == 7_321_948_160
    assert len(list(root.tensors())) == 32 * (2 + 2 + 2 + 3) + 3


@pytest.mark.parametrize(("layers", "hidden", "heads"), [(24, 2304, 24), (96, 12_288, 96), (128, 25_600, 160)])
def test_megatron_by_its_formula(layers, hidden, heads):
    """Narayanan et al. 2021 (arXiv:2104.04473), equation 2, which leaves out the last norm: 1.7B, 175B, 1T."""
    config = {"num_layers": layers, "hidden_size": hidden, "num_attention_heads": heads, "vocab_size": 51_200}
    root, _ = built(config, 2048)
    formula = 12 * layers * hidden**2 * (1 + 13 / (12 * hidden) + (51_200 + 2048) / (12 * layers * hidden))
    assert counted(root)[0] == round(formula) + 2 * hidden


def test_the_width_is_the_models_where_the_table_of_words_is_narrower():
    root, layers = built(SMALL["opt, narrow table"], 8)
    assert Model(name="opt", sequence_length=8, layers=layers, root=root).hidden_size == 64


def test_megatron_with_llamas_switches_has_llamas_size():
    config = {
        "num_layers": 32,
        "hidden_size": 4096,
        "ffn_hidden_size": 14336,
        "num_attention_heads": 32,
        "num_query_groups": 8,
        "padded_vocab_size": 128_256,
        "swiglu": True,
        "add_bias_linear": False,
        "normalization": "RMSNorm",
        "position_embedding_type": "rope",
        "untie_embeddings_and_output_weights": True,
    }
    assert counted(built(config)[0])[0] == 8_030_261_248


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"dim": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 32_000}, 6_738_415_616),
        (
            {
                "dim": 8192,
                "n_layers": 80,
                "n_heads": 64,
                "n_kv_heads": 8,
                "ffn_dim_multiplier": 1.3,
                "multiple_of": 4096,
                "vocab_size": 128_256,
            },
            70_553_706_496,
        ),
        (
            {"emb_dim": 4096, "nlayers": 32, "nheads": 32, "kvheads": 0, "src_vocab_size": 32_000},
            6_738_415_616,
        ),
        (
            {
                "emb_dim": 4096,
                "nlayers": 32,
                "nheads": 32,
                "kvheads": 8,
                "hidden_grow_factor": 3.5,
                "multiple_of": 1024,
                "src_vocab_size": 128_256,
            },
            8_030_261_248,
        ),
    ],
)
def test_llamas_described_by_their_width_have_the_published_sizes(config, expected):
    assert counted(built(config)[0])[0] == expected


def test_mpt_in_llm_foundrys_words_by_hand():
    """h 64, 4 heads of 16, 2 of keys: positions, joint product h x (h + 2 x 32), biases everywhere."""
    config = {
        "d_model": 64,
        "n_heads": 4,
        "n_layers": 1,
        "max_seq_len": 32,
        "vocab_size": 256,
        "attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": 2},
    }
    block = (64 + 1) * 128 + (64 + 1) * 64 + (64 + 1) * 256 + (256 + 1) * 64 + 2 * 2 * 64
    assert counted(built(config, 32)[0])[0] == (256 + 32) * 64 + block + 2 * 64


NAS = {
    "model_type": "nemotron-nas",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 256,
    "block_configs": [
        {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 5.25}},
        {"attention": {"no_op": True}, "ffn": {"ffn_mult": 7.0}},
        {"attention": {"replace_with_linear": True}, "ffn": {"no_op": True}},
        {"attention": {"n_heads_in_group": 4}, "ffn": {"replace_with_linear": True}},
    ],
}


def test_blocks_without_one_of_their_halves_by_hand():
    """Widths of the feed-forward: 2 x 5.25 x 64 / 3 = 224 becomes 256, 2 x 7 x 64 / 3 = 298 becomes 512."""
    _, layers = built(NAS, 8)
    assert [layer.elements for layer in layers] == [
        256 * 64,
        2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 256 + 2 * 64,
        3 * 64 * 512 + 64,
        64 * 64 + 64,
        2 * 64 * 64 + 2 * 64 * 16 + 64 * 64 + 2 * 64,
        256 * 64 + 64,
    ]
    attends = [any(work.kind == "attention" for work in layer.forward) for layer in layers]
    assert attends == [False, True, False, False, True, False]


def without(config, key):
    return {name: value for name, value in config.items() if name != key}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (without(SMALL["opt"], "ffn_dim"), "the key 'ffn_dim' is missing"),
        (without(SMALL["bloom"], "n_layer"), "the key 'n_layer' is missing"),
        ({**SMALL["gpt_neox"], "num_attention_heads": 5}, "num_attention_heads: 5: does not divide the width of 64"),
        ({**SMALL["llama"], "num_attention_heads": 5, "num_key_value_heads": 5}, "does not divide the width of 64"),
        ({**SMALL["qwen2"], "num_key_value_heads": 3}, "num_key_value_heads: 3: does not divide the 4 query heads"),
        ({**SMALL["torchtitan"], "n_kv_heads": 3}, "n_kv_heads: 3: does not divide the 4 query heads"),
        ({**SMALL["qwen"], "intermediate_size": 177}, "intermediate_size: 177: twice a width is even"),
        ({**SMALL["gemma2"], "layer_types": ["full_attention"]}, "layer_types: 1: expected 2 entries"),
        ({**SMALL["opt"], "max_position_embeddings": 7}, "the model has no more positions; use at most 7"),
        ({**SMALL["nanogpt"], "block_size": 7}, "the model has no more positions; use at most 7"),
        ({**NAS, "num_hidden_layers": 5}, "block_configs: 4: expected 5 entries"),
        ({**SMALL["mpt"], "attn_config": {"attn_type": "linear"}}, "'linear': unknown choice"),
        ({**SMALL["falcon 40b"], "model_type": "falcn"}, "did you mean 'falcon'? Known: "),
        ({"hidden": 64}, "'': unknown model_type"),
    ],
)
def test_a_wrong_config_is_one_line_that_names_the_file(config, expected):
    with pytest.raises(InputError) as error:
        built(config, 8)
    assert str(error.value).startswith("config.json: ")
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("key", ["n_heads_in_group", "ffn_mult"])
def test_a_block_that_lacks_a_size_is_named(key):
    half = "attention" if key == "n_heads_in_group" else "ffn"
    blocks = [{**NAS["block_configs"][0], half: {}}, *NAS["block_configs"][1:]]
    with pytest.raises(InputError, match=key) as error:
        built({**NAS, "block_configs": blocks}, 8)
    assert f"block_configs[0].{half}" in str(error.value)


BF16 = {"bf16": {"enabled": True}}
VARIANTS = [
    {"name": "ddp", "ddp": {}},
    {"name": "zero3", "deepspeed": {**BF16, "zero_optimization": {"stage": 3}}},
    {"name": "fsdp2", "fsdp2": {}},
]
SCENARIOS = {
    "qwen3": llama_like("qwen3", 1024, 3072, 4, 16, 8, 32_000, head_dim=128, tie_word_embeddings=True),
    "falcon": sized("falcon", 1024, 4, 16, 32_000),
    "nemotron-nas": {**NAS, "hidden_size": 1024, "vocab_size": 32_000},
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_family_runs_under_the_frameworks(scenario, tmp_path, name):
    """Two ranks send half of every collective's payload, in bf16, so as many bytes as elements per gather."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SCENARIOS[name]))
    asked = scenario(
        model={"config": str(path), "sequence_length": 512},
        training={"micro_batch": 1, "activation_checkpointing": "full"},
        topology={"cluster": "dgx-a100-80gb", "hosts": 1, "accelerators_per_host": 2},
        variants=VARIANTS,
    )
    results = {variant.name: run_variant(asked, variant).result for variant in asked.variants}
    sent = {name: result.volume["sent_per_rank"] for name, result in results.items()}
    layers, every = asked.model.layers, asked.model.elements
    # the root of FSDP2, all but the blocks, stays gathered from forward to backward
    blocks = sum(layer.elements for layer in layers if layer.checkpointed)
    small = counted(asked.model.root)[2]
    assert [result.failure for result in results.values()] == [None] * 3
    assert sent["ddp"] == pytest.approx(2 * every)
    assert sent["fsdp2"] == pytest.approx(2 * every + blocks)
    assert sent["zero3"] > 2 * every - small
    for result in results.values():
        assert result.step_time >= result.compute_time > 0


def test_every_reader_is_registered():
    for file in set(FAMILIES.values()):
        readers = import_module(f"simulator.world.model.{file}").READERS
        assert set(readers) == {name for name, other in FAMILIES.items() if other == file}
