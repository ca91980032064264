"""Scenarios small enough to be reviewed in a test, with names that would do harm in a page that trusts them."""

from pathlib import Path

from tests.command import zerosim

__all__ = ["EVIL", "SCENARIO", "page_of", "written"]

EVIL = "<script>alert('x')</script>&\"zero3\""

SCENARIO = """
name: small </script><b>bold</b>
model:
  sequence_length: 1
  layers: [{name: layer, count: 4, parameters: 1e9, forward_time: 2 s, backward_time: 1500 ms}]
training: {micro_batch: 1, gradient_accumulation: 2}
topology: {cluster: flat, hosts: 2, links: {link: {bandwidth: 1 GB/s, latency: 0 s}}}
prices: {per_gpu_hour: 2 USD/h}
variants:
  - {name: zero0, zero_stage: 0}
  - {name: zero2, zero_stage: 2}
  - {name: "<script>alert('x')</script>&\\"zero3\\"", zero_stage: 3}
"""


def written(folder: Path) -> Path:
    """The scenario as a file."""
    path = folder / "small.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


def page_of(folder: Path, *options: str) -> Path:
    """The page of the scenario."""
    page = folder / "review.html"
    done = zerosim("report", written(folder), "-o", page, *options)
    assert done.returncode == 0, done.stderr
    return page
