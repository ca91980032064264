"""What a program issues: its collectives in issue order, as rows."""

from __future__ import annotations

from typing import Any

from simulator.laws.collectives.base import Collective
from simulator.schedules.program import Program

__all__ = ["issued"]


def issued(program: Program) -> list[dict[str, Any]]:
    """Return one row per collective, in the order in which the host issues them."""
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
    return rows
