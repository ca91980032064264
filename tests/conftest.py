"""Settings that hold for all tests, and how tests write scenarios."""

import os
from pathlib import Path

import matplotlib as mpl
import msgspec
import pytest
from hypothesis import settings

from simulator.explore import run_variant
from simulator.readings.report import states_of
from simulator.world.scenario import Scenario, load_scenario

# Derandomised: the same commit passes or fails everywhere. No deadline: machines differ in speed.
settings.register_profile("default", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile("default")

mpl.use("Agg")

LAYERS = [{"name": "layer", "count": 4, "parameters": 1e9, "forward_time": "2 s", "backward_time": "4 s"}]

SMALL = """
name: small
model:
  sequence_length: 1
  layers: [{name: layer, count: 4, parameters: 1e9, forward_time: 2 s, backward_time: 1500 ms}]
training: {micro_batch: 1}
topology: {cluster: flat, hosts: 2, links: {link: {bandwidth: 1 GB/s, latency: 0 s}}}
variants:
  - {name: zero0, zero_stage: 0}
  - {name: zero3, zero_stage: 3}
"""
"""Backward is shorter than communication, so that something is exposed at every stage."""


@pytest.fixture
def small(tmp_path):
    """The file of :data:`SMALL`."""
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def content(**sections):
    """A scenario on two ranks of `flat` whose collectives take exactly 1 s per 1e9 parameters."""
    return {
        "name": "test",
        "model": {"sequence_length": 1, "layers": LAYERS},
        "training": {"micro_batch": 1},
        "topology": flat(hosts=2, bandwidth="1 GB/s"),
        "variants": [{"name": "zero3", "zero_stage": 3}],
        **sections,
    }


def flat(hosts, bandwidth, latency="0 s"):
    """One switch, one link per rank; N = 2 sends half of the payload, which is 1e9 B for 1e9 bf16 parameters."""
    return {"cluster": "flat", "hosts": hosts, "links": {"link": {"bandwidth": bandwidth, "latency": latency}}}


@pytest.fixture(scope="session")
def scenario(tmp_path_factory):
    """Write a scenario file and load it: `scenario(topology=...)` replaces whole sections."""
    folder = tmp_path_factory.mktemp("scenarios")

    def make(**sections) -> Scenario:
        path = folder / "scenario.yaml"
        path.write_bytes(msgspec.yaml.encode(content(**sections)))
        return load_scenario(path)

    return make


@pytest.fixture(scope="session")
def shared() -> Path:
    """Files of the field that are not part of the repository."""
    folder = Path(os.environ.get("ZEROSIM_SHARED", Path(__file__).parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there; set ZEROSIM_SHARED")
    return folder


def most_held(changes):
    """Most that each item takes, at the ends of instants [B]."""
    held, most = {}, {}
    ends = {change.at: number for number, change in enumerate(changes)}
    for number, change in enumerate(changes):
        held[change.item] = held.get(change.item, 0.0) + change.amount
        if number == ends[change.at]:
            most |= {item: max(amount, most.get(item, 0.0)) for item, amount in held.items()}
    return most


def kept_by(asked):
    """Weights, gradients and optimizer states of a rank, those gradients included that live for a step only [B]."""
    outcome = run_variant(asked, asked.variants[0])
    kept = states_of(asked, outcome.variant)
    changes = outcome.timeline.classes[0].memory
    fresh = sum(change.amount for change in changes if change.item == "gradients" and change.amount > 0)
    return {name: kept[name] + (fresh if name == "gradients" else 0.0) for name in kept}
