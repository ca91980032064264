"""The clock: programs become timelines.  The only rooms that know SimPy."""
