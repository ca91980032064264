"""Answers for who sizes or rents a cluster: the ladder of stages, and what GPUs cost."""
