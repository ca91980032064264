"""Sharding policies: what is sharded over what, from each format that people write."""
