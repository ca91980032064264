"""Clusters: the description, the graph built from it, the routes through it."""
