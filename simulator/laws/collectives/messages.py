r"""Collectives as single messages: who sends how much to whom, and after what.

:mod:`simulator.laws.collectives.fabric` adds up what a collective puts on links; here its messages stay apart, in the
order in which a library's kernels send them.  Two things hold a message back:

``after``
    messages that must have arrived: they bring the bytes to send on, or to add to one's own;
``behind``
    the message before it on the same channel of the same rank, because a channel sends one thing at a time.

Every message may be cut into *pieces*, each a message of its own, as NCCL cuts what it passes on: the next rank sends a
piece on while the one behind it arrives.  In the limit of many pieces a chain of h hops takes the time of one hop.

The kernel of the next phase of a hierarchical collective starts on a rank when all messages of the phase before have
left it and have reached it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from simulator.errors import InputError
from simulator.laws.collectives.base import AbstractAlgorithm, Collective, CollectiveKind, ring_factor
from simulator.laws.collectives.channels import Layout, Path, rings, walks
from simulator.laws.collectives.direct import Direct
from simulator.laws.collectives.doubling import RecursiveDoubling
from simulator.laws.collectives.hierarchical import Hierarchical
from simulator.laws.collectives.quantized import Quantized
from simulator.laws.collectives.ring import Ring
from simulator.laws.collectives.tree import Tree

__all__ = ["Message", "messages"]


class Message(NamedTuple):
    """Bytes that one rank sends to another at once."""

    path: Path
    """Sender, ranks of the sender's host that hand it on without storing it (NCCL's PXN), receiver."""
    amount: float
    """[B]"""
    after: tuple[int, ...]
    """Numbers of the messages that must have arrived."""
    behind: int | None
    """Number of the message before it on its channel."""
    by_network: bool = False
    """Whether it keeps to the network and may not leave by another device's card."""


def messages(
    collective: Collective, algorithm: AbstractAlgorithm, laid: Layout, *, pieces: int = 1
) -> tuple[Message, ...]:
    """Messages of *collective* in one group; the first rank of the group is the root of a broadcast or reduce.

    Returns
    -------
    Numbered from 0; a message waits only for messages of smaller number.

    Raises
    ------
    InputError
        The algorithm is more than messages from rank to rank: switches add up (NVLS, SHARP), or a library chooses.
    """
    if pieces < 1:
        raise InputError("expected at least one", key="pieces", value=pieces, remedy="use 1 or more")
    score = _Score(pieces)
    _write(score, collective, algorithm, laid)
    return tuple(score.messages)


class _Score:
    """Messages written down so far, and what each rank waits for before it starts a phase."""

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces
        self.messages: list[Message] = []
        self._ready: Mapping[int, tuple[int, ...]] = {}
        self._phase_from = 0

    def send(
        self,
        path: Path,
        amount: float,
        after: tuple[int, ...] = (),
        behind: int | None = None,
        *,
        by_network: bool = False,
    ) -> int:
        """Write down a message; its number."""
        after = after or (self._ready.get(path[0], ()) if behind is None else ())
        self.messages.append(Message(path, amount, after, behind, by_network))
        return len(self.messages) - 1

    def end_phase(self) -> None:
        """What follows waits on each rank for what went on there."""
        of_rank: dict[int, list[int]] = defaultdict(list)
        for number in range(self._phase_from, len(self.messages)):
            path = self.messages[number].path
            of_rank[path[0]].append(number)
            of_rank[path[-1]].append(number)
        self._ready = {**self._ready, **{rank: tuple(numbers) for rank, numbers in of_rank.items()}}
        self._phase_from = len(self.messages)


def _write(score: _Score, collective: Collective, algorithm: AbstractAlgorithm, laid: Layout) -> None:
    match algorithm:
        case Quantized():
            on_wire = algorithm.quantization.bytes_per_element
            _write(score, replace(collective, bytes_per_element=on_wire), algorithm.inner, laid)
        case Hierarchical():
            _write_levels(score, collective, algorithm, laid)
        case Ring() if collective.kind in ("broadcast", "reduce"):
            _write_chain(score, collective, laid)
        case Ring():
            _write_ring(score, collective, laid)
        case RecursiveDoubling():
            _write_doubling(score, collective, laid)
        case Direct():
            _write_direct(score, collective, laid, pxn=algorithm.pxn)
        case Tree():
            _write_trees(score, collective, laid)
        case _:
            raise InputError(
                "is not made of messages from rank to rank",
                key="algorithm",
                value=type(algorithm).__name__,
                remedy="use ring, recursive_doubling, hierarchical, direct or tree",
            )


def _write_ring(score: _Score, collective: Collective, laid: Layout) -> None:
    """In step s a rank passes on what it got in step s - 1."""
    channels = rings(laid)
    for ring in channels:
        n = len(ring)
        amount = collective.payload / len(channels) / n / score.pieces
        before: list[list[int]] = []
        for _ in range(ring_factor(collective.kind) * (n - 1)):
            now: list[list[int]] = []
            for place, path in enumerate(ring):
                sent: list[int] = []
                for piece in range(score.pieces):
                    came = (before[place - 1][piece],) if before else ()
                    behind = sent[-1] if sent else (before[place][-1] if before else None)
                    sent.append(score.send(path, amount, came, behind))
                now.append(sent)
            before = now


def _write_chain(score: _Score, collective: Collective, laid: Layout) -> None:
    """From the root around the ring to the rank before it, or from the one after it back to the root."""
    channels, root = rings(laid), laid.ranks[0]
    for ring in channels:
        first = next(place for place, path in enumerate(ring) if path[0] == root)
        around = ring[first:] + ring[:first]
        chain = around[:-1] if collective.kind == "broadcast" else around[1:]
        last: list[int | None] = [None] * len(chain)
        for _ in range(score.pieces):
            came: tuple[int, ...] = ()
            for place, path in enumerate(chain):
                number = score.send(path, collective.payload / len(channels) / score.pieces, came, last[place])
                last[place], came = number, (number,)


def _write_doubling(score: _Score, collective: Collective, laid: Layout) -> None:
    """In step i a rank exchanges what it has with the rank 2^i places away; halving is the same backwards."""
    ranks = laid.ranks
    doubling = [1 << step for step in range((len(ranks) - 1).bit_length())]
    both = doubling[::-1] + doubling
    distances = {"all_gather": doubling, "reduce_scatter": doubling[::-1]}.get(collective.kind, both)
    came: dict[int, tuple[int, ...]] = dict.fromkeys(ranks, ())
    sent: dict[int, int] = {}
    for distance in distances:
        amount = collective.payload * min(distance, len(ranks) - distance) / len(ranks)
        for place, rank in enumerate(ranks):
            sent[rank] = score.send((rank, ranks[(place + distance) % len(ranks)]), amount, came[rank], sent.get(rank))
        for place, rank in enumerate(ranks):
            came[rank] += (sent[ranks[place - distance]],)


def _write_direct(score: _Score, collective: Collective, laid: Layout, *, pxn: bool) -> None:
    """Everything at once; to another host by way of the device on the receiver's rail, or by the network alone."""
    amount = collective.payload / len(laid.ranks)
    for here, there in product(laid.hosts, repeat=2):
        for sender, (rail, receiver) in product(here, enumerate(there)):
            if sender == receiver:
                continue
            hands_on = (here[rail],) if pxn and here != there and here[rail] != sender else ()
            score.send((sender, *hands_on, receiver), amount, by_network=not pxn and here != there)


def _write_levels(score: _Score, collective: Collective, algorithm: Hierarchical, laid: Layout) -> None:
    moved_on = 1 if collective.kind == "all_to_all" else 1 / len(laid.hosts[0])  # the part of the array between hosts
    inside = [(algorithm.inside, part, collective.elements) for part in laid.each_host()]
    between = [(algorithm.between, part, collective.elements * moved_on) for part in laid.each_rail()]
    kinds: tuple[CollectiveKind, ...] = (collective.kind, collective.kind)
    phases = [between, inside] if collective.kind == "all_gather" else [inside, between]
    if collective.kind == "all_reduce":
        kinds, phases = ("reduce_scatter", "all_reduce", "all_gather"), [inside, between, inside]
    for kind, phase in zip(kinds, phases, strict=True):
        for member, part, elements in phase:
            _write(score, replace(collective, kind=kind, elements=elements), member, part)
        score.end_phase()


def _write_trees(score: _Score, collective: Collective, laid: Layout) -> None:
    """On each channel two trees, half of the bytes each: up with sums, down with the result."""
    channels = walks(laid)
    amount = collective.payload / len(channels) / 2 / score.pieces
    for walk in channels:
        for tree in _double_tree(len(laid.hosts)):
            parents: dict[int, int] = {}
            for number, parent in tree.items():
                visit = [laid.hosts[number][place] for place in walk]
                parents |= dict(zip(visit[1:], visit[:-1], strict=True))
                if parent is not None:
                    parents[visit[0]] = laid.hosts[parent][walk[0]]
            _write_tree(score, _from_root(parents), amount)


def _write_tree(score: _Score, parents: dict[int, int], amount: float) -> None:
    """Sums go up and the result comes down, piece by piece; *parents* lists ranks from the root down."""
    behind: dict[Path, int] = {}
    for _ in range(score.pieces):
        came: dict[int, tuple[int, ...]] = defaultdict(tuple)
        for rank, parent in reversed(parents.items()):
            behind[rank, parent] = score.send((rank, parent), amount, came[rank], behind.get((rank, parent)))
            came[parent] += (behind[rank, parent],)
        for rank, parent in parents.items():
            behind[parent, rank] = score.send((parent, rank), amount, came[parent], behind.get((parent, rank)))
            came[rank] = (behind[parent, rank],)


def _from_root(parents: Mapping[int, int]) -> dict[int, int]:
    def depth(rank: int) -> int:
        return 1 + depth(parents[rank]) if rank in parents else 0

    return {rank: parents[rank] for rank in sorted(parents, key=depth)}


def _double_tree(hosts: int) -> tuple[dict[int, int | None], dict[int, int | None]]:
    """Parents in two trees; an inner host of one is a leaf of the other (``ncclGetDtree``, ``src/graph/trees.cc``)."""
    first: dict[int, int | None] = {0: None}
    for host in range(1, hosts):
        bit = host & -host
        upper = (host ^ bit) | (bit << 1)
        first[host] = upper if upper < hosts else host ^ bit

    def moved(host: int) -> int:
        return (host + 1) % hosts if hosts % 2 else hosts - 1 - host

    return first, {moved(host): None if parent is None else moved(parent) for host, parent in first.items()}
