"""Scenarios: the same faults from the same seed, on nodes that are there, none that the cluster need not survive."""

import random

import pytest
from chaos.faults import TRAITS, Fault, Kind
from chaos.scenarios import KILLS, SCENARIOS, Cast


def faults(name: str, *, seed: int = 1, nodes: int = 3, copies: int = 3) -> list[Fault]:
    return list(SCENARIOS[name].faults(Cast(random.Random(seed), nodes, copies)))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_seed_gives_the_same_faults_again(name: str) -> None:
    assert faults(name) == faults(name)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize(("nodes", "copies"), [(3, 1), (3, 3), (5, 3), (5, 5)])
def test_nodes_that_are_hit_are_there(name: str, nodes: int, copies: int) -> None:
    hit = {node for fault in faults(name, nodes=nodes, copies=copies) for node in fault.nodes}
    assert hit
    assert hit <= set(range(1, nodes + 1))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_asks_for_as_many_copies_as_its_faults(name: str) -> None:
    assert SCENARIOS[name].copies == max(TRAITS[fault.kind].copies for fault in faults(name))


@pytest.mark.parametrize("name", SCENARIOS)
def test_with_one_copy_writes_may_wait(name: str) -> None:
    assert not any(fault.through for fault in faults(name, copies=1))


def test_every_kind_is_in_a_scenario() -> None:
    done = {fault.kind for name in SCENARIOS for fault in faults(name)}
    assert done == set(Kind) - {Kind.SLOW}


def test_nodes_are_killed_a_hundred_times() -> None:
    assert len(faults("kills")) == KILLS >= 100


@pytest.mark.parametrize("nodes", [3, 5])
def test_of_a_lost_majority_one_node_is_left_which_has_a_copy_of_everything(nodes: int) -> None:
    done = faults("lost-majority", nodes=nodes, copies=nodes)
    for away, lost in zip(done[::2], done[1::2], strict=True):
        assert (away.kind, lost.kind) == (Kind.KILL, Kind.LOST_MAJORITY)
        assert (len(lost.nodes), {*away.nodes, *lost.nodes}) == (nodes - 1, set(range(1, nodes + 1)))
    assert SCENARIOS["lost-majority"].everywhere


def test_the_metadata_of_all_nodes_go_back_behind_a_topic() -> None:
    assert {fault.nodes for fault in faults("rolled-back-topic")} == {(1, 2, 3)}


@pytest.mark.parametrize("kind", [Kind.LOST_MAJORITY, Kind.ROLLED_BACK_TOPIC])
def test_what_needs_a_prepared_workload_is_not_drawn(kind: Kind) -> None:
    assert TRAITS[kind].weight == 0


def test_one_clock_at_a_time_is_wrong_where_records_must_go_by_their_age() -> None:
    assert [name for name in SCENARIOS if SCENARIOS[name].vanishes] == ["topics"]
    assert all(len(fault.nodes) == 1 for fault in faults("topics") if fault.kind is Kind.CLOCK)
