"""Tables of measured layers as a user meets them: what is wrong is one line that names it, what is right is shown."""

import json

import pytest

from tests.command import zerosim

SCENARIO = """
name: small
model: {sequence_length: 16, config: models/llama-2-7b.json}
training: {micro_batch: 2}
topology: {cluster: dgx-a100-80gb, hosts: 1}
compute: {measured: layers.csv}
variants: [{name: zero3, zero_stage: 3}]
"""

GOOD = """layer,forward_ms,backward,recompute,activations_MB,tokens,notes
model.layers.[0-9],3.5,7 ms,3 ms,40,32,"a profile, by hand"
lm_head,1.5,3 ms,,,,
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    (tmp_path / "layers.csv").write_text(GOOD)
    return tmp_path


def test_show_lists_what_the_table_gives_and_the_report_names_it(folder):
    numbers = json.loads(zerosim("show", folder / "scenario.yaml", "--json").stdout)["numbers"]
    measured = {
        item["name"]: item["value"] for item in numbers if (item["basis"], item["source"]) == ("measured", "layers.csv")
    }
    assert measured == {
        "model.layers.[0-9] forward": 0.0035,
        "model.layers.[0-9] backward": 0.007,
        "model.layers.[0-9] recompute": 0.003,
        "model.layers.[0-9] activations": 40e6,
        "lm_head forward": 0.0015,
        "lm_head backward": 0.003,
    }
    (result,) = json.loads(zerosim("run", folder / "scenario.yaml", "--json").stdout)["results"]
    assert result["measured"] == ["model.layers.[0-9]", "lm_head"]
    assert "measured times used: model.layers.[0-9], lm_head" in zerosim("run", folder / "scenario.yaml").stdout


def test_a_table_that_measures_everything_leaves_only_the_optimizer_to_assumptions(folder):
    names = ("model.embed_tokens", "model.layers.*", "model.norm", "lm_head")
    (folder / "layers.csv").write_text(lines(*(f"{name},3 ms,6 ms" for name in names)))
    (result,) = json.loads(zerosim("run", folder / "scenario.yaml", "--json").stdout)["results"]
    assert [name for name in result["assumed"] if "attention" in name or "matrix" in name] == []


def lines(*rows, head="layer,forward,backward"):
    return "\n".join([head, *rows]) + "\n"


MISTAKES = {
    "no such file": (None, ["scenario.yaml", "layers.csv", "no such file"]),
    "empty": ("", ["layers.csv", "empty"]),
    "not UTF-8": (b"\xff\xfe\x00", ["layers.csv", "cannot be read"]),
    "no rows": (lines(), ["layers.csv", "no row"]),
    "a column twice": (lines("lm_head,1 s,1 s,1 s", head="layer,forward,backward,forward"), ["'forward'", "twice"]),
    "two columns for one thing": (
        lines("lm_head,1 s,1 s,1", head="layer,forward,backward,forward_ms"), ["'forward_ms'", "second column"]
    ),
    "no column for backward": (lines("lm_head,1 s", head="layer,forward"), ["no column 'backward'"]),
    "unknown column": (
        lines("lm_head,1 s,1 s,1 s", head="layer,forward,backward,recompue"), ["'recompue'", "did you mean 'recompute'"]
    ),
    "a column with a unit that it cannot have": (
        lines("lm_head,1 s,1 s,1", head="layer,forward,backward,tokens_k"), ["'tokens_k'", "did you mean 'tokens'"]
    ),
    "unknown unit in a column": (
        lines("lm_head,1,1 s", head="layer,forward_min,backward"), ["'forward_min'", "'min' is not a unit", "'us'"]
    ),
    "no unit": (lines("lm_head,3.2,1 s"), ["row 1, forward", "'3.2'", "unit is missing", "'4 us'"]),
    "wrong unit": (lines("lm_head,1 s,3 GB"), ["row 1, backward", "'3 GB'", "not a unit", "'4 us'"]),
    "unit in cell and column": (
        lines("lm_head,3 ms,1 s", head="layer,forward_ms,backward"), ["row 1, forward_ms", "'3 ms'", "column says ms"]
    ),
    "no number": (lines("lm_head,fast,1 s"), ["row 1, forward", "'fast'", "not a number"]),
    "negative": (lines("lm_head,-1 s,1 s"), ["row 1, forward", "'-1 s'", "finite"]),
    "empty cell": (lines("lm_head,1 s,"), ["row 1, backward", "empty", "leave the row out"]),
    "no name": (lines(",1 s,1 s"), ["row 1, layer", "unknown layer or module"]),
    "more cells than columns": (lines("lm_head,1 s,1 s,1 s"), ["row 1", "more cells"]),
    "unknown name": (
        lines("lm_head,1 s,1 s", "model.layer.*,1 s,1 s"),
        ["row 2, layer", "'model.layer.*'", "did you mean 'model.layers.*'?", "lm_head"],
    ),
    "a number that no layer has": (lines("model.layers.32,1 s,1 s"), ["'model.layers.32'", "'model.layers.*'"]),
    "the same twice": (
        lines("model.layers.*,1 s,1 s", "model.layers.3,1 s,1 s"), ["row 2", "row 1 measures model.layers.3 too"]
    ),
    "a module inside another": (
        lines("model.layers.3.mlp,1 s,1 s", "model.layers.[0-4],1 s,1 s"), ["row 2", "model.layers.3.mlp too"]
    ),
    "several layers in one": (lines("model,1 s,1 s"), ["row 1", "model has several layers", "each of them"]),
    "nothing that launches a kernel": (
        lines("model.rotary_emb,1 s,1 s"), ["row 1", "model.rotary_emb launches no kernel", "the module around it"]
    ),
    "no whole number of tokens": (
        lines("lm_head,1 s,1 s,2k", head="layer,forward,backward,tokens"), ["row 1, tokens", "'2k'"]
    ),
    "other tokens": (
        lines("lm_head,1 s,1 s,64", head="layer,forward,backward,tokens"),
        ["row 1, tokens", "64", "32 tokens", "compute.scale_measured: true"],
    ),
    "activations of a part of a layer": (
        lines("model.layers.0.mlp,1 s,1 s,1 GB", head="layer,forward,backward,activations"),
        ["row 1, activations", "whole layer"],
    ),
    "less activations than a layer's input": (
        lines("model.layers.0,1 s,1 s,1 kB", head="layer,forward,backward,activations"),
        ["row 1, activations", "less than the input of layers.0"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_that_names_it(folder, mistake):
    content, expected = MISTAKES[mistake]
    table = folder / "layers.csv"
    table.unlink()
    if content is not None:
        table.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = zerosim("run", folder / "scenario.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    for part in expected:
        assert part in done.stderr, done.stderr
