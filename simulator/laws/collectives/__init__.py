"""One file per collective algorithm, the tuner that chooses, and the fabric that turns messages into link usage."""
