"""Topologies that others wrote down: one file per format, each read into an inventory."""
