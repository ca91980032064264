"""How much of a resource is enough: the smallest value of a knob with which a step reaches a goal, and its proof."""

from simulator.require.answer import Answer, Requirement, require
from simulator.require.goal import GOALS, Goal, goal
from simulator.require.knobs import Knob, default_knobs, knob
from simulator.require.search import Floor, Trial, narrowed

__all__ = [
    "GOALS",
    "Answer",
    "Floor",
    "Goal",
    "Knob",
    "Requirement",
    "Trial",
    "default_knobs",
    "goal",
    "knob",
    "narrowed",
    "require",
]
