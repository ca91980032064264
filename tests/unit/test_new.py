"""`zerosim new`: what it writes runs, says what was given, and mistakes are told before anything is written."""

import json

import pytest

from simulator.world.scenario import load_scenario
from tests.command import ROOT, zerosim

GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "vocab_size": 256}


@pytest.fixture
def here(tmp_path):
    """A folder with a model and DeepSpeed configs."""
    (tmp_path / "config.json").write_text(json.dumps(GPT2))
    return tmp_path


def new(folder, *arguments, model="config.json", cluster="dgx-a100-80gb", output="mine.yaml"):
    return zerosim("new", "--model", model, "--cluster", cluster, *arguments, "-o", output, cwd=folder)


def trained(folder, **config):
    """Write a scenario beside a DeepSpeed config; what it asks for."""
    (folder / "ds.json").write_text(json.dumps(config | {"zero_optimization": {"stage": 2}}))
    done = new(folder, "--hosts", "2", "--deepspeed", "ds.json")
    assert done.returncode == 0, done.stderr
    found = load_scenario(folder / "mine.yaml")
    return found.training.micro_batch, found.training.gradient_accumulation, found.training.precision


def test_a_name_of_a_file_is_no_markup(here):
    done = new(here, "--hosts", "2", output="my [red].yaml")
    assert (done.returncode, done.stdout) == (0, "written to my [red].yaml; next: zerosim run 'my [red].yaml'\n")


@pytest.mark.parametrize("name", ["true", "a: b", "c #d", "it's"])
def test_any_name_of_a_file_is_understood(here, name):
    (here / f"{name}.json").write_text(json.dumps(GPT2))
    (here / f"{name}.yaml").write_text((ROOT / "topologies" / "dgx-a100-80gb.yaml").read_text())
    done = new(here, model=f"{name}.json", cluster=f"{name}.yaml")
    assert done.returncode == 0, done.stderr
    assert load_scenario(here / "mine.yaml").name == f"{name} on 1 x dgx-a100-80gb"


def test_a_linked_folder_is_left_where_it_leads(here, tmp_path_factory):
    (here / "linked").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    done = new(here, output="linked/mine.yaml")
    assert done.returncode == 0, done.stderr
    done = new(here, output="nowhere/mine.yaml")
    assert (done.returncode, "no such folder" in done.stderr) == (2, True)


def test_what_is_written_runs(here):
    done = new(here, "--hosts", "2")
    assert (done.returncode, done.stdout) == (0, "written to mine.yaml; next: zerosim run mine.yaml\n")
    results = json.loads(zerosim("run", here / "mine.yaml", "--json").stdout)["results"]
    assert [result["name"] for result in results] == ["zero1", "zero2", "zero3", "zero++"]
    assert [result["ranks"] for result in results] == [16] * 4
    assert [result["failure"] for result in results] == [None] * 4


def test_every_shipped_model_and_a_cluster_of_each_kind_will_do(tmp_path):
    for path in (ROOT / "scenarios/models").glob("*.json"):
        done = new(tmp_path, model=path.stem, output=f"{path.stem}.yaml")
        assert done.returncode == 0, done.stderr
    for name in ("dgx-2", "cloud-100gbe", "gb200-nvl72", "mi300x"):
        assert new(tmp_path, model="gpt2-xl", cluster=name, output=f"on-{name}.yaml").returncode == 0
    precisions = {name: load_scenario(tmp_path / f"on-{name}.yaml").training.precision for name in ("dgx-2", "mi300x")}
    assert precisions == {"dgx-2": "fp16", "mi300x": "bf16"}


def test_sequences_are_as_long_as_the_model_takes_and_no_longer_than_usual(here):
    new(here)
    new(here, model="llama-3.1-8b", output="llama.yaml")
    lengths = [load_scenario(here / name).model.sequence_length for name in ("mine.yaml", "llama.yaml")]
    assert lengths == [128, 4096]


def test_files_are_named_from_where_the_scenario_is(here):
    (here / "jobs").mkdir()
    (here / "ds.json").write_text("{}")
    done = new(here, "--hosts", "1", "--deepspeed", here / "ds.json", output="jobs/mine.yaml")
    assert done.returncode == 0, done.stderr
    raw = load_scenario(here / "jobs/mine.yaml").raw
    assert raw["model"]["config"] == "../config.json"
    assert raw["variants"][0] == {"name": "mine", "deepspeed": "../ds.json"}
    assert zerosim("run", "jobs/mine.yaml", cwd=here).returncode == 0


def test_a_deepspeed_config_says_batch_and_precision(here):
    batch = {"train_batch_size": 96, "train_micro_batch_size_per_gpu": 2}
    assert trained(here, **batch, bf16={"enabled": True}) == (2, 3, "bf16")
    (here / "mine.yaml").unlink()
    assert trained(here, fp16={"enabled": True}) == (1, 8, "fp16")
    (here / "mine.yaml").unlink()
    left_open = dict.fromkeys(("train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), "auto")
    assert trained(here, **left_open, bf16={"enabled": "auto"}) == (1, 8, "bf16")
    (here / "mine.yaml").unlink()
    assert trained(here, train_micro_batch_size_per_gpu=4) == (4, 1, "fp32")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"model": "meta-llama/Llama-2-13b"}, "--model: 'meta-llama/Llama-2-13b': unknown model; give the path of its"),
        ({"model": "lama-2-13b"}, "did you mean 'llama-2-13b'?"),
        ({"cluster": "dgx-h10"}, "--cluster: 'dgx-h10': unknown name in topologies/; did you mean 'dgx-h100'?"),
        ({"output": "dgx-a100-80gb.yaml"}, "would be taken for the cluster dgx-a100-80gb; name another file"),
        ({"cluster": "topo.xml"}, "translate it first: zerosim topology import topo.xml -o my-cluster.yaml"),
    ],
)
def test_mistakes_are_told_and_nothing_is_written(here, asked, said):
    done = new(here, **asked)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (here / "mine.yaml").exists()


def test_a_config_that_is_missing_or_contradicts_the_cluster(here):
    (here / "ds.json").write_text('{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 3}')
    assert "is not 3 × 2 × 8 = 48" in new(here, "--hosts", "1", "--deepspeed", "ds.json").stderr
    assert "--deepspeed: 'none.json': no such file" in new(here, "--deepspeed", "none.json").stderr
    assert not (here / "mine.yaml").exists()


def test_a_scenario_that_is_there_stays(here):
    (here / "mine.yaml").write_text("mine")
    done = new(here)
    assert (done.returncode, (here / "mine.yaml").read_text()) == (2, "mine")
    assert "is there already" in done.stderr
