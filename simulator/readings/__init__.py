"""Readings: look at what was recorded.  Nothing here touches the engine."""
