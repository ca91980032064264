"""Better settings for a job: what to change in its configuration, why, and what that gains."""

from simulator.tune.answer import Line, Tuned, tune
from simulator.tune.target import Target, load_target, target_of

__all__ = ["Line", "Target", "Tuned", "load_target", "target_of", "tune"]
