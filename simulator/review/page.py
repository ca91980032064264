"""The page itself: one file, nothing of which is fetched from anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from simulator.review.answer import Review

__all__ = ["rendered"]

HERE: Final = Path(__file__).parent

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""What a browser lets the page do: show itself and run its own script."""


def rendered(found: Review, *, command: str, date: str) -> str:
    """Return the HTML of *found*: the same for the same arguments, to the byte.

    Parameters
    ----------
    command
        What makes the page again.
    date
        When it was made.
    """
    world = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    world.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    script, style = ((HERE / name).read_text(encoding="utf-8") for name in ("page.js", "page.css"))
    page = world.get_template("page.html.j2")
    return page.render(review=found, command=command, date=date, policy=POLICY, script=script, style=style)
