"""The figure of random times: bars are as long as what they stand for."""

from matplotlib.colors import to_hex

from simulator.readings.colours import colour
from simulator.readings.plots import jitter_figure

QUANTILES = ("p0", "p5", "p25", "p50", "p75", "p95", "p99", "p100")


def result(name, steps, by_cause, **others):
    """The step without jitter takes 8 s; *steps* are eight quantiles, of which the fourth is the mean too."""
    step = {"even": 8.0, "mean": steps[3], **dict(zip(QUANTILES, steps, strict=True))}
    jitter = {"step_time": step, "tail": {"longer": sum(by_cause.values()), "by_cause": by_cause}}
    return {"name": name, "failure": None, "jitter": jitter, **others}


RESULTS = [
    result("ddp", (8, 9, 10, 11, 12, 13, 14, 15), {"skew": 2.0, "compute": 0.5, "bandwidth": -0.5, "host": -0.25}),
    result("zero3", (10, 10, 10, 10, 10, 10, 10, 10), {"skew": 1.0}),
    {"name": "mics", "failure": "groups of 12 do not divide 16 ranks", "jitter": None},
]


def bars(axes, row):
    """(left, length, colour) of the bars in a row."""
    return [
        (bar.get_x(), bar.get_width(), to_hex(bar.get_facecolor()).upper())
        for bar in axes.patches
        if round(-bar.get_y() - bar.get_height() / 2) == row and bar.get_width()
    ]


def test_bands_reach_from_quantile_to_quantile():
    """8 to 15 s of 8 s are 0 to 87.5 % longer, 9 to 13 s are 12.5 to 62.5 %, 10 to 12 s are 25 to 50 %."""
    steps = jitter_figure(RESULTS, "x").axes[0]
    assert [bar[:2] for bar in bars(steps, 0)] == [(0.0, 87.5), (12.5, 50.0), (25.0, 25.0)]
    assert bars(steps, 1) == []
    assert steps.get_xlabel() == "longer than the step without jitter [%]"


def test_causes_that_take_longer_are_at_the_right_and_others_at_the_left():
    tails = jitter_figure(RESULTS, "x").axes[1]
    expected = [
        (0.0, -0.5, colour("bandwidth")),
        (-0.5, -0.25, colour("host")),
        (0.0, 2.0, colour("skew")),
        (2.0, 0.5, colour("compute")),
    ]
    assert bars(tails, 0) == expected
    assert bars(tails, 1) == [(0.0, 1.0, colour("skew"))]
    assert tails.get_xlabel() == "longer than the mean step [s]"


def test_variants_that_did_not_run_are_left_out():
    names = [label.get_text() for label in jitter_figure(RESULTS, "x").axes[0].get_yticklabels()]
    assert names == ["ddp", "zero3"]


def test_the_headline_says_who_loses_least_and_most():
    figure = jitter_figure(RESULTS, "four hosts")
    assert "+25.0 % with zero3, +37.5 % with ddp" in figure.get_suptitle()
    assert "four hosts" in [text.get_text() for text in figure.texts]
    assert jitter_figure(RESULTS[2:], "x").get_suptitle() == "No step has random times"
