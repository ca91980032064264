"""What 10,000 points of a sweep cost, from the command to the table.

Times are those of processors, which do not depend on what else a machine does.
"""

import json
import resource
import subprocess
import sys
from time import process_time

from simulator.explore import run_variant
from simulator.sweep import axis, grid, load_study, tasks
from simulator.world.scenario import resolve_scenario
from tests.command import ROOT

SCENARIO = "llama-2-7b-cloud-ethernet"
ONE_MICRO_BATCH = "training.gradient_accumulation=1"
VARIANTS = ("zero1", "zero2", "zero3", "zero3 prefetch 4")
AXES = (
    "topology.hosts=2,4,8,16,32",
    "topology.links.network.bandwidth=25..800Gbit/s:50:log",
    "training.micro_batch=1..10",
)
POINTS = 10_000
EVERY = 400
"""Of the points one in so many is simulated alone."""


def of_children():
    """Time that all ended children, and theirs, have had of processors [s]."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def swept(place):
    """Time of the command and its two workers [s]."""
    options = [option for text in AXES for option in ("--over", text)]
    options += [option for name in VARIANTS for option in ("--variant", name)]
    command = [sys.executable, "-m", "simulator.cli", "sweep", SCENARIO, "--set", ONE_MICRO_BATCH, *options]
    start = of_children()
    done = subprocess.run(
        [*command, "--workers", "2", "--store", str(place)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    took = of_children() - start
    assert done.returncode == 0, done.stderr
    assert f"{POINTS} results: {POINTS} simulated now, 0 known before; 0 failed" in done.stdout
    return took


def alone():
    """Time of one point by itself, the average of a sample [s], and how many points there are."""
    study = load_study(SCENARIO, [ONE_MICRO_BATCH])
    asked = tasks(study, grid([axis(text) for text in AXES]), VARIANTS)
    sample = asked[::EVERY]
    start = process_time()
    for task in sample:
        scenario = resolve_scenario(study.at(task.point, task.variant), study.file)
        json.dumps(run_variant(scenario, scenario.variant(task.variant)).result.as_json())
    return (process_time() - start) / len(sample), len(asked)


def test_10_000_points_on_two_cores_take_less_than_a_minute(tmp_path):
    """Stored and printed; a point costs at most half of what it costs alone."""
    took = swept(tmp_path / "r.sqlite")
    each, count = alone()
    assert count == POINTS
    assert took / 2 < 60
    assert took / count < each / 2
