"""What a program issues: its collectives, and copies to and from hosts, in issue order, as rows."""

from __future__ import annotations

from typing import Any

from simulator.laws.collectives.base import Collective
from simulator.laws.offload import Transfer
from simulator.schedules.program import Program

__all__ = ["issued"]


def issued(program: Program) -> list[dict[str, Any]]:
    """Return one row per collective or copy to or from the host, in the order in which they are issued."""
    rows = []
    for launch in program.launches:
        operation = program.operations[launch.operation]
        if isinstance(operation, Collective):
            rows.append(
                {
                    "phase": launch.phase,
                    "micro_batch": launch.micro_batch,
                    "kind": operation.kind,
                    "role": operation.role,
                    "module": launch.label,
                    "elements": operation.elements,
                    "dtype": operation.dtype or None,
                    "bytes": operation.wire_bytes,
                    "group": {"size": operation.group.size, "stride": operation.group.stride},
                    "stream": program.streams[launch.stream],
                    "communicator": operation.group.name,
                }
            )
        elif isinstance(operation, Transfer):
            rows.append(
                {
                    "phase": launch.phase,
                    "micro_batch": launch.micro_batch,
                    "kind": operation.route,
                    "role": operation.role,
                    "module": launch.label,
                    "elements": None,
                    "dtype": None,
                    "bytes": operation.amount,
                    "group": {"size": 1, "stride": 1},
                    "stream": program.streams[launch.stream],
                    "communicator": "host",
                }
            )
    return rows
