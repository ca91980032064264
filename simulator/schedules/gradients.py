"""Gradients that autograd makes anew in every step, as ``zero_grad(set_to_none=True)`` frees them after the update."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from simulator.schedules.program import Memory

__all__ = ["GRADIENTS", "FreshGradients"]

GRADIENTS: Final = "gradients"
"""Item of memory."""


class FreshGradients:
    """Gradients, or equal parts of them, from the first backward of a step that reaches them to its update.

    Parameters
    ----------
    elements
        Of the parameters by name.
    element_bytes
        What is kept of an element [B].
    """

    def __init__(self, elements: Mapping[str, int], element_bytes: float) -> None:
        self._sizes = {name: float(element_bytes * size) for name, size in elements.items()}
        self._there: set[str] = set()

    def born(self, names: Iterable[str]) -> Memory:
        """Memory of those of *names* that are not there yet."""
        new = [name for name in names if name in self._sizes and name not in self._there]
        self._there.update(new)
        return ((GRADIENTS, sum(self._sizes[name] for name in new)),) if new else ()

    def freed(self) -> Memory:
        """Memory of all that are there, to give it back."""
        size = sum(self._sizes[name] for name in sorted(self._there))
        self._there.clear()
        return ((GRADIENTS, size),) if size else ()
