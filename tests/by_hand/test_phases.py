"""Forward, backward and optimizer as a timer would tell them.  Two ranks of `flat` at 1 GB/s, integers of seconds."""

import pytest

from simulator.explore import run_variant

LAYERS = [{"name": "l", "count": 2, "parameters": 1e9, "forward_time": "2 s", "backward_time": "4 s"}]


@pytest.mark.parametrize(("micro_batches", "forward"), [(1, 4.0), (2, 7.0)])
def test_backward_ends_when_gradients_are_reduced(scenario, micro_batches, forward):
    """Textbook ZeRO-2: forward 2 + 2; backward 4 + 4 and the last of two reductions of 1 s.

    compute  F0 F0 F1 F1 B1 B1 B1 B1 B0 B0 B0 B0 .. | F0 F0 F1 F1 ...
    reduce                           R1          R0   then the update, and gathers of 2 s

    A second forward begins beside R0, whose second is backward's already: 3 are left for it.
    """
    asked = scenario(
        model={"sequence_length": 1, "layers": LAYERS},
        training={"micro_batch": 1, "gradient_accumulation": micro_batches},
        variants=[{"name": "zero2", "zero_stage": 2}],
    )
    result = run_variant(asked, asked.variants[0]).result
    assert result.phases == {"forward": forward, "backward": 9.0 * micro_batches, "optimizer": 2.0}
    assert sum(result.phases.values()) == result.step_time
