"""zerosim: a discrete-event simulator of collective communication in sharded data-parallel training."""

__version__ = "0.1.0"
