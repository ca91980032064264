"""Our sharing of links over time against SimGrid's, on the same flows."""

import json

import pytest
import simpy

from simulator.clock.network import Network
from simulator.laws.collectives.fabric import Link, Phase

TOLERANCE = 1e-9
"""SimGrid's own rounding is below 1e-15 on these cases."""


def finished(case):
    """Finish times of the flows: each waits for its latency, then shares links max-min fairly."""
    env = simpy.Environment()
    links = [Link(name=link["name"], kind="link", bandwidth=link["capacity"]) for link in case["links"]]
    number = {link.name: index for index, link in enumerate(links)}
    latency = {link["name"]: link["latency"] for link in case["links"]}
    network = Network(env, links)
    ends = {}

    def flow(index, item):
        yield env.timeout(item["start"] + sum(latency[name] for name in item["path"]))
        rate = min(links[number[name]].bandwidth for name in item["path"])
        usage = tuple((number[name], 1.0) for name in item["path"])
        yield network.carry(Phase(payload=float(item["bytes"]), usage=usage, latency=0.0, rate=rate))
        ends[index] = env.now

    for index, item in enumerate(case["flows"]):
        env.process(flow(index, item))
    env.run()
    return [ends[index] for index in range(len(case["flows"]))]


def test_thirty_networks_of_flows_finish_when_simgrid_says(shared):
    path = shared / "reference" / "simgrid_oracle.json"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    cases = [case for case in json.loads(path.read_text())["cases"] if case["pure_maxmin"]]
    assert len(cases) >= 30
    for case in cases:
        expected = [flow["finish"] for flow in case["flows"]]
        assert finished(case) == pytest.approx(expected, rel=TOLERANCE), case["name"]
