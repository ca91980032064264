"""Settings that hold for all tests."""

import matplotlib as mpl
from hypothesis import settings

# Derandomised: the same commit passes or fails everywhere. No deadline: machines differ in speed.
settings.register_profile("default", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile("default")

mpl.use("Agg")
