"""NCCL's own model of its collectives: constants, graphs, times, choice, and what measurements add to it."""
