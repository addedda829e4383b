"""The faults of a run, drawn from its seed. Pure: the n-th fault of a seed is the same on every machine."""

import random
from collections.abc import Iterator

from chaos.faults import TRAITS, Fault, Kind, Target

METADATA_LEADER_PERCENT = 20
SEVERAL_PERCENT = 25  # of the faults hit more than one node


def schedule(seed: int, *, nodes: int, copies: int, without: frozenset[Kind] = frozenset()) -> Iterator[Fault]:
    """Faults without an end, for a cluster of *nodes* whose segments have *copies*; *without* what cannot be done."""
    draw = random.Random(seed)
    kinds = [
        kind
        for kind, traits in TRAITS.items()
        if kind not in without and traits.copies <= copies and (traits.everyone or nodes > 1)
    ]
    weights = [TRAITS[kind].weight for kind in kinds]
    while True:
        (kind,) = draw.choices(kinds, weights)
        yield _fault(draw, kind, nodes)


def _fault(draw: random.Random, kind: Kind, nodes: int) -> Fault:
    traits = TRAITS[kind]
    most = nodes if traits.everyone else nodes - 1
    count = draw.randint(2, most) if most > 1 and draw.randrange(100) < SEVERAL_PERCENT else 1
    hit = tuple(sorted(draw.sample(range(1, nodes + 1), count)))
    leads = count == 1 and draw.randrange(100) < METADATA_LEADER_PERCENT
    return Fault(
        kind=kind,
        nodes=hit,
        lasting_ms=draw.randint(*traits.lasting_ms),
        rest_ms=draw.randint(0, 1_500),
        target=Target.METADATA_LEADER if leads else Target.DRAWN,
    )
