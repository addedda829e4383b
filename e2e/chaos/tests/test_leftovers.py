"""What no topic has any more must leave the disks."""

from chaos.leftovers import judge_leftovers


def test_disks_may_lack_what_is_listed_and_have_nothing_else() -> None:
    found = judge_leftovers({"a", "b"}, {1: {"a", "b"}, 2: {"a"}, 3: set()})
    assert found
    assert found.logs == 3


def test_a_segment_that_nobody_lists_is_found_where_it_is() -> None:
    found = judge_leftovers({"a"}, {1: {"a"}, 2: {"a", "gone"}})
    assert not found
    assert found.by_node == {2: ["gone"]}
    assert "node-2" in str(found)


def test_disks_without_any_log_prove_nothing() -> None:
    assert not judge_leftovers({"a"}, {1: set()})
