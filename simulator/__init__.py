"""zerosim: a discrete-event simulator of collective communication in sharded data-parallel training."""
