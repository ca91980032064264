"""What a job costs, worked out by hand; and that the same job is run in other settings."""

import msgspec
import pytest

from simulator.answers.job import Setting, host_bandwidth, load_job, posed, tried
from simulator.answers.offers import market, offers
from simulator.crowd import Crowd
from simulator.world.prices import load_prices
from simulator.world.topology.cluster import load_cluster
from tests.conftest import content

LOADED = Setting(stage=3, hosts=2, offload=True)

DOLLAR_A_SECOND = {"per_gpu_hour": "3600 USD/h"}


@pytest.fixture
def price_list(tmp_path):
    """Write a list of prices: `price_list(**gpus)`; GPUs of the catalogue by name, with underscores."""

    def make(**gpus):
        path = tmp_path / "prices.yaml"
        lines = ["kind: prices", "title: mine", "date: 2026-01", "source: by hand", "gpus:"]
        for name, entry in gpus.items():
            lines.append(
                f"  {name.replace('_', '-')}: {{{', '.join(f'{key}: {text}' for key, text in entry.items())}}}"
            )
        path.write_text("\n".join(lines), encoding="utf-8")
        return load_prices(str(path))

    return make


def test_a_step_at_a_dollar_a_second(scenario, price_list):
    """Two ranks, one micro-batch of one token each, four layers; the textbook's stage 0:

    compute        F F F F  B4 - - - B3 - - - B2 - - - B1 - - -
    communication                  AR4 - -  AR3 - -  AR2 - -  AR1 - -    2 s each, the last one after backward
                   0     8         12       16       20       24      26

    Two GPUs cost 2 $/s, so a step of 26 s costs 52 $ and its last all-reduce 4 $.  A step has 2 tokens.
    """
    asked = scenario(prices=DOLLAR_A_SECOND)
    job = load_job(asked.file, textbook=True)
    gpu = job.scenario.accelerator.name
    found = market(job, price_list(**{gpu: {"cluster": "flat", "on_demand": "1 USD/h"}}))
    (offer,) = offers(Crowd(), job, [(found.own, "ZeRO-0", Setting(stage=0, hosts=2))], 0.0)
    assert (offer.gpus, offer.result.step_time) == (2, 26.0)
    assert offer.result.cost == {
        "per_hour": 7200.0, "per_step": 52.0, "per_billion_tokens": 26e9, "exposed_per_step": 4.0,
    }  # fmt: skip
    assert offer.exposed_share == offer.network_share == 2 / 26
    assert offer.exposed_per_billion_tokens == offer.network_per_billion_tokens == 2e9
    assert offer.tokens_per_second == 2 / 26


@pytest.mark.parametrize(("hosts", "micro_steps"), [(1, 8), (2, 4), (4, 2), (8, 1)])
def test_the_tokens_of_a_step_stay_the_same(scenario, hosts, micro_steps):
    asked = scenario(training={"micro_batch": 1, "gradient_accumulation": 4})
    there = posed(load_job(asked.file, textbook=True), Setting(stage=1, hosts=hosts))
    assert there.training.gradient_accumulation == micro_steps
    assert there.tokens_per_step * there.mesh.ranks == 8


@pytest.mark.parametrize("hosts", [3, 16])
def test_micro_batches_that_cannot_be_shared_are_a_reason(scenario, hosts):
    asked = scenario(training={"micro_batch": 1, "gradient_accumulation": 4})
    (found,) = tried(Crowd(), load_job(asked.file, textbook=True), [Setting(stage=1, hosts=hosts)])
    assert found.result is None
    assert "8 micro-batches of a step cannot be shared" in found.failure


def test_a_network_is_shared_by_the_cards_and_scales_the_switches_above(tmp_path):
    """DGX A100: 8 cards of 25 GB/s.  At 100 GB/s per host a card has 12.5 GB/s, and an uplink half of its 25 GB/s."""
    assert host_bandwidth(load_cluster("dgx-a100-80gb")) == 200e9
    job = load_job("llama-2-13b-two-hosts", textbook=True)
    links = {
        link.name: link.nominal.value for link in posed(job, Setting(stage=1, hosts=2, network=100e9)).cluster.links
    }
    assert links == {"nvlink": 300e9, "pcie": 31.5e9, "network": 12.5e9, "uplink": 12.5e9}


def test_a_stage_changes_and_the_rest_of_a_config_stays(tmp_path):
    given = {
        "train_batch_size": 2, "bf16": {"enabled": True}, "gradient_clipping": 0.5,
        "zero_optimization": {"stage": 3, "reduce_bucket_size": 1000, "zero_quantized_weights": True,
                              "overlap_comm": False, "offload_optimizer": {"device": "cpu", "pin_memory": False}},
    }  # fmt: skip
    path = tmp_path / "scenario.yaml"
    path.write_bytes(msgspec.yaml.encode(content(variants=[{"name": "mine", "deepspeed": given}])))
    job = load_job(path, textbook=False)
    low, offloading = (posed(job, setting).variants[0].config for setting in (Setting(stage=1, hosts=1), LOADED))
    assert (low.zero_optimization.stage, low.zero_optimization.reduce_bucket_size) == (1, 1000)
    assert (low.gradient_clipping, low.overlap_comm) == (0.5, False)
    assert not low.zero_optimization.zero_quantized_weights
    assert low.zero_optimization.offload_optimizer is None
    assert not offloading.zero_optimization.offload_optimizer.pin_memory
    assert offloading.zero_optimization.zero_quantized_weights
