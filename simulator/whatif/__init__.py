"""What if a resource were better: the step by resource, simulated again and foreseen from the critical path."""

from simulator.whatif.answer import FACTORS, Answer, Gain, Sensitivity, whatif

__all__ = ["FACTORS", "Answer", "Gain", "Sensitivity", "whatif"]
