"""A page for a design review: one self-contained HTML file from a scenario."""

from simulator.review.answer import LEFT_OUT_BY_QUICK, SECTIONS, Review, review
from simulator.review.page import rendered

__all__ = ["LEFT_OUT_BY_QUICK", "SECTIONS", "Review", "rendered", "review"]
