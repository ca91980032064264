"""Speed and size, as ratios within one run; seconds of a noisy machine mean nothing."""

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import simpy

from simulator.clock.engine import simulate
from simulator.clock.stage import stage
from simulator.explore import compare
from simulator.schedules.record import record
from simulator.world.scenario import load_scenario
from tests.benchmark.timing import fastest

ROOT = Path(__file__).parents[2]
MAIN = ROOT / "scenarios" / "llama-2-13b-two-hosts.yaml"
FRAMEWORKS = ROOT / "scenarios" / "llama-2-7b-frameworks.yaml"


def python(*arguments):
    """Run Python as users do: with compiled files, which some test environments switch off."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT, env=environment)


def bare_timeouts(count=20_000):
    environment = simpy.Environment()

    def sleeper():
        for _ in range(count):
            yield environment.timeout(1.0)

    environment.process(sleeper())
    environment.run()


def test_the_main_job_takes_at_most_three_times_the_imports_of_its_libraries():
    imports, run = [], []
    for _ in range(7):  # in turn, so that both see the same neighbours on the machine
        imports.append(fastest(lambda: python("-c", "import simpy, numpy, networkx"), 1))
        run.append(fastest(lambda: python("-m", "simulator.cli", "run", str(MAIN), "--json"), 1))
    assert min(run) <= 3 * min(imports)


def test_an_operation_costs_at_most_25_bare_timeouts(benchmark):
    asked = load_scenario(ROOT / "scenarios" / "llama-2-7b-one-host.yaml")
    program = record(asked, asked.variant("zero3"))
    ready = stage(asked, program)
    timeout = fastest(bare_timeouts) / 20_000
    benchmark(simulate, ready)
    assert fastest(lambda: simulate(ready), 20) / len(program.launches) <= 25 * timeout


@pytest.mark.parametrize("name", ["zero3", "zero++"])
def test_131072_gpus_take_the_time_and_memory_of_16(name):
    few, many = (load_scenario(MAIN, [f"topology.hosts={hosts}"]) for hosts in (2, 16_384))
    assert many.mesh.ranks == 131_072

    def work(asked):
        return lambda: compare(asked, [asked.variant(name)])

    assert fastest(work(many), 10) <= 1.2 * fastest(work(few), 10)
    peaks = []
    for asked in (few, many):
        tracemalloc.start()
        work(asked)()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] <= 1.2 * peaks[0]


@pytest.mark.parametrize("name", ["zero3 textbook", "zero3 deepspeed", "fsdp2", "hsdp"])
@pytest.mark.parametrize("hosts", [2048, 16_384])
def test_one_slow_host_among_thousands_takes_three_times_a_uniform_cluster(name, hosts):
    sizes = ["training.gradient_accumulation=1", f"topology.hosts={hosts}"]
    even, uneven = (
        load_scenario(FRAMEWORKS, [*sizes, f"uneven={entries}"]) for entries in ("[]", "[{host: 7, slowdown: 1.1}]")
    )
    alone, beside = (lambda asked=asked: compare(asked, [asked.variant(name)]) for asked in (even, uneven))
    assert fastest(beside) <= 3 * fastest(alone)


@pytest.mark.parametrize("name", ["zero1 deepspeed", "zero3 textbook", "zero3 deepspeed", "fsdp1", "fsdp2", "hsdp"])
def test_256_micro_batches_take_four_times_four(name):
    short, long = (load_scenario(FRAMEWORKS, [f"training.gradient_accumulation={count}"]) for count in (4, 256))
    few, many = (lambda asked=asked: compare(asked, [asked.variant(name)]) for asked in (short, long))
    assert fastest(many, 3) <= 4 * fastest(few, 3)


def test_recording_costs_at_most_as_much_as_replaying():
    asked = load_scenario(MAIN, ["model.config=models/llama-2-70b.json", "topology.hosts=8"])
    variant = asked.variant("zero3")
    ready = stage(asked, record(asked, variant))
    assert fastest(lambda: record(asked, variant)) <= fastest(lambda: simulate(ready))


def test_help_does_not_load_what_it_does_not_need():
    code = "import sys, json, simulator.cli; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    assert not {"matplotlib", "pandas", "networkx", "simpy", "rich"} & set(json.loads(done.stdout))
