"""Recordings of real frameworks: what they issued, and the job that we schedule for comparison.

The marks of a recording (which module ran when, which gradient came when) are autograd's doing, not the framework's;
they are the input of our schedule.  The collectives are the framework's answer, and ours must be the same.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from simulator.laws.collectives.base import Collective
from simulator.laws.kernels import Kernel
from simulator.schedules.job import Job
from simulator.schedules.program import Program
from simulator.world.mesh import Group, Mesh
from simulator.world.model.execution import Execution, Mark
from simulator.world.model.layer import Tensor
from simulator.world.model.module import Module

FOLDER = Path(os.environ.get("ZEROSIM_RECORDED", Path(__file__).parent / "files"))

STEPS = ("first_step", "second_step", "last_step")
KINDS = {"F+": "enter", "F-": "leave", "Fx": "abort", "B+": "backward", "B-": "end_backward", "G": "gradient"}
OPS = {
    "all_gather_into_tensor": "all_gather",
    "all_gather_list": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_reduce": "all_reduce",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
PHASES = {"fwd": "forward", "bwd": "backward"}
KERNEL = Kernel(kind="nothing", time=0.0)


class Issued(NamedTuple):
    """One collective."""

    kind: str
    given: int
    """Elements that a rank hands in."""
    received: int
    """Elements that it gets."""
    dtype: str
    group: tuple[int, ...]
    is_default: bool
    phase: str


@dataclass(frozen=True)
class Recording:
    """One file."""

    path: Path
    content: dict

    @property
    def system(self) -> str:
        return self.content["system"]

    @property
    def config(self) -> dict:
        return self.content["config"]

    def steps(self):
        """Numbers of the recorded steps, with their events."""
        return {
            self.content[name]["step_index"]: self.content[name]["events"] for name in STEPS if self.content.get(name)
        }

    def issued(self, events) -> list[tuple[Issued, str]]:
        """The collectives of one step in issue order, each with the id of its communicator."""
        groups = self.content["groups"]
        found = []
        for event in events:
            if event[0] == "C":
                item = event[1]
                group = groups[item["g"]]
                phase = PHASES.get(item["ph"], item["ph"])
                ranks, default = tuple(group["ranks"]), bool(group.get("default"))
                issued = Issued(OPS[item["op"]], item["in"], item["out"], item["dt"], ranks, default, phase)
                found.append((issued, item["g"]))
        return found

    def job(self) -> Job:
        """The model, the order in which its modules ran, and the ranks; nothing takes time."""
        world = self.content["world_size"]
        mesh = self.content["config"].get("fsdp1", self.content["config"].get("fsdp2", {})) or {}
        hosts = mesh["mesh"][0] if mesh.get("mesh") else 1
        return Job(
            root=self.root(),
            execution=self.execution(),
            micro_batches=self.content["micro_batches"],
            dtype=self.content["compute_dtype"],
            mesh=Mesh(hosts=hosts, devices_per_host=world // hosts),
            kernels={},
            optimizer=KERNEL,
        )

    def root(self) -> Module:
        """The module tree."""
        tensors = {
            name: Tensor(name, tuple(shape), trainable)
            for name, shape, _, trainable, _ in self.content["model"]["params"]
        }
        rows = {("" if row[0] == "<root>" else row[0]): row for row in self.content["model"]["modules"]}

        def build(name: str) -> Module:
            prefix = f"{name}." if name else ""
            below = [other for other in rows if other != name and other.startswith(prefix)]
            children = [other for other in below if "." not in other[len(prefix) :]]
            return Module(
                name=name,
                kind=rows[name][1],
                parameters=tuple(tensors[parameter] for parameter in rows[name][2]),
                children=tuple(build(child) for child in children),
                buffers=sum(buffer[1] for buffer in rows[name][3]),
            )

        return build("")

    def execution(self) -> Execution:
        """The marks of the first micro-batch of the last step; all micro-batches are alike."""
        marks: dict[str, list[Mark]] = {"fwd": [], "bwd": []}
        phase = None
        for event in self.content["last_step"]["events"]:
            if event[0] == "P":
                phase = event[1] if event[2] == 0 else None
            elif event[0] in KINDS and phase in marks:
                name = "" if event[1] == "<root>" else event[1]
                recompute = phase == "bwd" and event[0] in ("F+", "F-", "Fx")
                marks[phase].append(Mark(KINDS[event[0]], name, recompute))
        return Execution(forward=tuple(marks["fwd"]), backward=tuple(marks["bwd"]))


def recordings() -> list[Recording]:
    """All recordings of the folder, by name."""
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        content = json.loads(path.read_text())
        if content.get("format") == "schedule-recording/1":
            found.append(Recording(path, content))
    return found


def ours(program: Program) -> list[tuple[Issued, Group]]:
    """The collectives of our program in issue order, each with its group."""
    found = []
    for launch in program.launches:
        operation = program.operations[launch.operation]
        if isinstance(operation, Collective):
            group = operation.group
            whole, part = int(operation.elements), int(operation.elements) // group.size
            given = part if operation.kind == "all_gather" else whole
            received = part if operation.kind == "reduce_scatter" else whole
            members = group.members(0)
            issued = Issued(
                operation.kind, given, received, operation.dtype, members, group.name == "world", launch.phase
            )
            found.append((issued, group))
    return found
