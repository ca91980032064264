"""Questions asked from Python: each is a function that returns data, with a table, a figure and a DataFrame on request.

>>> from simulator import ask
>>> answer = ask.run("llama-2-7b-one-host", {"topology.cluster": "dgx-h100"}, variants="zero3")
>>> answer.results[0]["memory"]["fits"], answer.frame().attrs["units"]["step_time"]
(True, 's')

What is asked about is a *source*: the name or path of a scenario, its content as a mapping, or a loaded one.
``changes`` are values by dotted key, as ``--set`` takes them.  The answers hold what ``--json`` prints.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from simulator.ask.answer import Answer
    from simulator.ask.differences import Comparison, compare
    from simulator.ask.gains import Gains, whatif
    from simulator.ask.needs import Needs, require
    from simulator.ask.renting import Offers, rent
    from simulator.ask.runs import Run, run
    from simulator.ask.sizing import Rungs, job, ladder
    from simulator.ask.sweeps import Points, sweep
    from simulator.ask.tuning import Settings, tune

__all__ = [
    "Answer",
    "Comparison",
    "Gains",
    "Needs",
    "Offers",
    "Points",
    "Run",
    "Rungs",
    "Settings",
    "compare",
    "job",
    "ladder",
    "rent",
    "require",
    "run",
    "sweep",
    "tune",
    "whatif",
]

_PLACES: Final = {
    **dict.fromkeys(("Answer",), "answer"),
    **dict.fromkeys(("Comparison", "compare"), "differences"),
    **dict.fromkeys(("Gains", "whatif"), "gains"),
    **dict.fromkeys(("Needs", "require"), "needs"),
    **dict.fromkeys(("Offers", "rent"), "renting"),
    **dict.fromkeys(("Run", "run"), "runs"),
    **dict.fromkeys(("Rungs", "job", "ladder"), "sizing"),
    **dict.fromkeys(("Points", "sweep"), "sweeps"),
    **dict.fromkeys(("Settings", "tune"), "tuning"),
}


def __getattr__(name: str) -> Any:
    """Load a question when it is asked, and none of the others: the command asks one at a time."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
