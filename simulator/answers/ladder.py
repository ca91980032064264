r"""Which rung of the ladder a job needs: stages 0 to 3, checkpointing, offload, more GPUs.

Each rung saves memory and costs something: traffic, compute, copies, money.  So the first one that fits is taken, and
the others are shown beside it, because two that fit may differ in time.  With k micro-steps, DeepSpeed's stage 1
reduces gradients once and sends :math:`3\Psi` a step; its stage 2 reduces them in every micro-step and sends
:math:`(2k + 1)\Psi` (``runtime/zero/stage_1_and_2.py``).  On paper, reduce-scatters in place of all-reduces, these are
:math:`2\Psi` and :math:`(k + 1)\Psi`, and stage 3 sends :math:`3k\Psi` (Rajbhandari et al., "ZeRO: Memory
Optimizations Toward Training Trillion Parameter Models", SC 2020, section 7, times the micro-steps).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from simulator.answers.job import HEADROOM, Job, Setting, Tried, shortage, tried
from simulator.crowd import Crowd
from simulator.readings.report import Result

__all__ = ["Ladder", "Rung", "ladder", "traffic"]

MOST_HOSTS: Final = 64
"""Times the hosts of the scenario, at which the ladder ends."""

SAME: Final = 0.01
"""Definition: steps within one percent of each other are called equally fast."""

CLOSE: Final = 0.005
"""Definition: a volume within half a percent of a law is called by it."""

GB: Final = 1e9  # definition: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One way to run the job."""

    name: str
    tried: Tried
    passed: str | None
    """Why it is passed; None if it fits with headroom."""

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and mappings."""
        result = self.tried.result
        return {
            "name": self.name,
            "setting": asdict(self.tried.setting),
            "micro_steps": self.tried.micro_steps,
            "fits": self.passed is None,
            "passed": self.passed,
            "result": None if result is None else result.as_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """All rungs, and which one to take."""

    headroom: float
    rungs: tuple[Rung, ...]
    chosen: Rung | None
    """The first that fits with headroom; None if none does."""
    why: tuple[str, ...]
    """Why that one: what those before it need, and what the others that fit cost."""

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and mappings."""
        return {
            "headroom": self.headroom,
            "rungs": [rung.as_json() for rung in self.rungs],
            "chosen": None if self.chosen is None else self.chosen.name,
            "why": list(self.why),
        }


def ladder(job: Job, headroom: float = HEADROOM) -> Ladder:
    """Simulate the rungs of *job*; the number of hosts doubles on until something fits.

    Parameters
    ----------
    headroom
        Part of the memory of a GPU that is to stay free.
    """
    crowd = Crowd()
    rungs = _rungs(crowd, job, _settings(job), headroom)
    times = 4
    while times <= MOST_HOSTS and all(rung.passed is not None for rung in rungs):
        rungs += _rungs(crowd, job, {f"{times} x hosts": _more(job, times)}, headroom)
        times *= 2
    chosen = next((rung for rung in rungs if rung.passed is None), None)
    why = _why(rungs, chosen, headroom)
    return Ladder(headroom=headroom, rungs=tuple(rungs), chosen=chosen, why=why)


def _settings(job: Job) -> dict[str, Setting]:
    hosts, more = job.cluster.hosts, job.scenario.training.activation_checkpointing != "full"
    stages = {f"stage {stage}": Setting(stage=stage, hosts=hosts) for stage in range(4)}
    checkpointing = {"+ checkpointing": Setting(stage=3, hosts=hosts, checkpointing=True)} if more else {}
    offload = {"+ offload": Setting(stage=3, hosts=hosts, checkpointing=True, offload=True)}
    return stages | checkpointing | offload | {"2 x hosts": _more(job, 2)}


def _more(job: Job, times: int) -> Setting:
    """More hosts, with as many tokens in a step as long as there are micro-steps to share."""
    micro_steps = job.scenario.training.gradient_accumulation
    kept = micro_steps if micro_steps % times else None
    return Setting(stage=3, hosts=times * job.cluster.hosts, checkpointing=True, micro_steps=kept)


def _rungs(crowd: Crowd, job: Job, settings: Mapping[str, Setting], headroom: float) -> list[Rung]:
    found = tried(crowd, job, settings.values())
    return [
        Rung(name=name, tried=item, passed=shortage(item, headroom)) for name, item in zip(settings, found, strict=True)
    ]


def _why(rungs: Sequence[Rung], chosen: Rung | None, headroom: float) -> tuple[str, ...]:
    if chosen is None:
        last = rungs[-1]
        return (f"nothing fits, nor does {last.name}: {last.passed}", "lower micro_batch or sequence_length")
    place = rungs.index(chosen)
    before = [f"{rung.name} is passed: {rung.passed}" for rung in rungs[:place]]
    if place and rungs[place - 1].tried.result is not None:
        before[-1] += f". It {_compared(rungs[place - 1], chosen)}"
    after = [f"{rung.name} fits too: it {_compared(rung, chosen)}" for rung in rungs[place + 1 :] if not rung.passed]
    return (*before, f"{chosen.name} is the first that fits: {_need(chosen, headroom)}", *after)


def _need(rung: Rung, headroom: float) -> str:
    memory = _result(rung).memory
    most = (1 - headroom) * memory["capacity"]
    return (
        f"it needs {memory['needed'] / GB:.1f} GB of the {most / GB:.1f} GB that {100 * headroom:.0f} % headroom leaves"
    )


def _compared(rung: Rung, chosen: Rung) -> str:
    """How *rung* differs from *chosen* in throughput, and why."""
    one, other = _result(rung), _result(chosen)
    change = one.tokens_per_second_per_gpu / other.tokens_per_second_per_gpu - 1
    sent = f"sends {_sent(rung)} a step against {_sent(chosen)} of {chosen.name}"
    if abs(change) <= SAME:
        return f"is as fast within 1 % and {sent}"
    told = [f"has {100 * change:+.1f} % tokens/s/GPU and {sent}"]
    exposed = [result.exposed["stalled"] / result.step_time for result in (one, other)]
    if abs(exposed[0] - exposed[1]) > CLOSE:
        told.append(f"communication exposed for {100 * exposed[0]:.1f} % of the step against {100 * exposed[1]:.1f} %")
    waits = (one.copy_time + one.host_time) / one.step_time
    if waits > CLOSE:
        told.append(f"copies and the host hold up {100 * waits:.1f} % of the step")
    return "; ".join(told)


def _sent(rung: Rung) -> str:
    return traffic(_result(rung).volume["in_psi"], rung.tried.micro_steps)


def traffic(volume: float, micro_steps: int) -> str:
    """Say a volume in model sizes, and the law that it obeys.

    >>> traffic(3.0, 32), traffic(65.0, 32), traffic(91.3, 32)
    ('3 Ψ', '65 Ψ = (2k + 1)Ψ with k = 32', '91.3 Ψ')
    """
    laws = {"(k + 1)Ψ": micro_steps + 1, "(2k + 1)Ψ": 2 * micro_steps + 1, "3kΨ": 3 * micro_steps}
    told = f"{volume:.3g} Ψ"
    for name, law in laws.items():
        if micro_steps > 1 and abs(volume / law - 1) <= CLOSE:
            return f"{told} = {name} with k = {micro_steps}"
    return told


def _result(rung: Rung) -> Result:
    assert rung.tried.result is not None
    return rung.tried.result
