"""A seed is a run: its faults are the same everywhere, and none asks more than the cluster promises."""

from itertools import islice

import pytest
from chaos.faults import TRAITS, Fault, Kind
from chaos.schedule import schedule, spare


def faults(seed: int, *, nodes: int = 3, count: int = 200, copies: int = 1) -> list[Fault]:
    return list(islice(schedule(seed, nodes=nodes, copies=copies), count))


def test_a_seed_gives_the_same_faults_again() -> None:
    assert faults(7) == faults(7)
    assert faults(7) != faults(8)


@pytest.mark.parametrize("nodes", [1, 3, 5])
def test_every_fault_hits_nodes_that_are_there_for_a_time_in_its_bounds(nodes: int) -> None:
    for fault in faults(1, nodes=nodes):
        least, most = TRAITS[fault.kind].lasting_ms
        assert least <= fault.lasting_ms <= most
        assert fault.nodes
        assert set(fault.nodes) <= set(range(1, nodes + 1))
        assert TRAITS[fault.kind].everyone or len(fault.nodes) < nodes


def test_every_kind_that_the_copies_allow_is_drawn() -> None:
    drawn = {kind for kind in Kind if TRAITS[kind].weight}
    assert {fault.kind for fault in faults(1, count=1_000)} == {kind for kind in drawn if TRAITS[kind].copies == 1}
    assert {fault.kind for fault in faults(1, count=1_000, copies=3)} == drawn


@pytest.mark.parametrize("copies", [1, 3, 5])
def test_writes_are_to_go_on_only_where_enough_copies_are_left(copies: int) -> None:
    held = [fault for fault in faults(1, nodes=5, count=1_000, copies=copies) if fault.through]
    assert bool(held) == (copies > 1)
    assert all(len(fault.nodes) <= spare(copies) and TRAITS[fault.kind].through for fault in held)


def test_every_kind_has_its_traits() -> None:
    assert set(TRAITS) == set(Kind)
