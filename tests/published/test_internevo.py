"""What a global group of ZeRO-1 costs InternEvo's 7B beyond one inside each host.

Source: InternEvo, ``doc/en/train_performance.md`` (commit c628a8c874): tokens/s per GPU with ``zero1=-1`` and with
``zero1=8``, two sequences of 2,048 tokens in each of four micro-steps.  Both rows of a number of GPUs differ in the
optimizer's group alone, so the difference of their step times is what the broadcasts over the network expose, less
what the smaller share of the update saves.  On 8 GPUs both are the same job and differ by 16 ms, which is what the
table is good for.
"""

import csv
import io

import pytest

from simulator.validate import validate
from simulator.world.measurements.training import COLUMNS
from tests.published.test_training import INTERN, cells

WITHIN = 0.25
TOKENS = 4 * 2 * 2048

TOO_FAST = "predicted 196 ms: broadcasts of 14.6 GB take 0.3 s over the 50 GB/s of a host, and 0.07 s inside one"

DIFFERENCES = [  # GPUs, seconds per step
    pytest.param(16, TOKENS / 3842 - TOKENS / 3939, marks=pytest.mark.xfail(strict=True, reason=TOO_FAST)),
    (32, TOKENS / 3752 - TOKENS / 3919),
    (64, TOKENS / 3690 - TOKENS / 3944),
    (1024, 2.7),  # rounded where it is stated
]


def predicted(tmp_path, gpus, *strategies):
    """Step times of *strategies* [s]."""
    text = io.StringIO()
    table = csv.DictWriter(text, sorted(COLUMNS))
    table.writeheader()
    common = INTERN | {"metric_name": "step_time_s"}
    table.writerows(cells(common, "InternLM-7B", gpus, 2, "none", 1, strategy) for strategy in strategies)
    (tmp_path / "runs.csv").write_text(text.getvalue(), encoding="utf-8")
    return [row.predicted for row in validate([tmp_path / "runs.csv"]).verdicts]


@pytest.mark.parametrize(("gpus", "measured"), DIFFERENCES)
def test_a_global_group_costs_as_much_as_was_measured(tmp_path, gpus, measured):
    everywhere, in_host = predicted(tmp_path, gpus, f"ZeRO-1, group={gpus} (all DP ranks)", "ZeRO-1, group=8")
    assert everywhere - in_host == pytest.approx(measured, rel=WITHIN)


def test_on_one_host_both_are_the_same_job(tmp_path):
    everywhere, in_host = predicted(tmp_path, 8, "ZeRO-1", "ZeRO-1, group=8")
    assert everywhere == in_host
