"""Models: what a layer holds and what it has to compute."""
