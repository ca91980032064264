"""One program for many scenarios at once: the engine's recurrence over vectors, one lane per scenario."""
