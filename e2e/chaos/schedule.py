"""The faults of a run, drawn from its seed. Pure: the n-th fault of a seed is the same on every machine."""

import random
from collections.abc import Iterator

from chaos.faults import TRAITS, Fault, Kind, Target

METADATA_LEADER_PERCENT = 15
SEGMENT_LEADER_PERCENT = 15
SEVERAL_PERCENT = 25  # so many of the faults hit more than one node
THROUGH_PERCENT = 30  # so many of those that leave enough nodes last until writes go on without the others


def schedule(seed: int, *, nodes: int, copies: int, without: frozenset[Kind] = frozenset()) -> Iterator[Fault]:
    """Faults without an end, for a cluster of *nodes* whose segments have *copies*; *without* what cannot be done."""
    draw = random.Random(seed)
    kinds = [
        kind
        for kind, traits in TRAITS.items()
        if kind not in without and traits.copies <= copies and (traits.everyone or nodes > 1) and traits.weight > 0
    ]
    weights = [TRAITS[kind].weight for kind in kinds]
    while True:
        (kind,) = draw.choices(kinds, weights)
        yield drawn(draw, kind, nodes=nodes, copies=copies)


def drawn(draw: random.Random, kind: Kind, *, nodes: int, copies: int) -> Fault:
    """One fault of a kind."""
    traits = TRAITS[kind]
    most = nodes if traits.everyone else nodes - 1
    count = draw.randint(2, most) if most > 1 and draw.randrange(100) < SEVERAL_PERCENT else 1
    hit = tuple(sorted(draw.sample(range(1, nodes + 1), count)))
    target = _target(draw.randrange(100)) if count == 1 else Target.DRAWN
    spared = count <= spare(copies)
    return Fault(
        kind=kind,
        nodes=hit,
        lasting_ms=draw.randint(*traits.lasting_ms),
        rest_ms=draw.randint(0, 1_500),
        target=target,
        through=draw.randrange(100) < THROUGH_PERCENT and traits.through and spared,
    )


def spare(copies: int) -> int:
    """How many nodes may be gone while records are still acknowledged: copies beyond the write quorum."""
    return copies - write_quorum(copies)


def write_quorum(copies: int) -> int:
    """Copies that have a record on their disks before it is acknowledged."""
    return copies // 2 + 1


def _target(percent: int) -> Target:
    if percent < METADATA_LEADER_PERCENT:
        return Target.METADATA_LEADER
    return Target.SEGMENT_LEADER if percent < METADATA_LEADER_PERCENT + SEGMENT_LEADER_PERCENT else Target.DRAWN
