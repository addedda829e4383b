from hypothesis import given
from hypothesis import strategies as st
from walrus_client.addresses import Addresses

NAMES = st.sampled_from("abcdef")


def test_an_address_that_is_left_twice_by_two_threads_is_left_once():
    addresses = Addresses("abc")
    addresses.leave("a")
    addresses.leave("a")
    assert addresses.in_use == "b"


def test_a_cluster_that_continues_the_first_one_is_followed_and_no_other():
    addresses = Addresses("a")
    assert addresses.are_of("", ()), "a node that tells no cluster"
    assert addresses.are_of("first", ())
    assert not addresses.are_of("stranger", ("nobody",))
    assert addresses.are_of("third", ("first", "second"))
    assert not addresses.are_of("first", ()), "whoever was left behind"
    assert not addresses.are_of("second", ("first",))
    assert addresses.cluster_id == "third"


def test_nodes_that_are_not_named_any_more_are_gone_and_those_that_were_given_stay():
    addresses = Addresses("a")
    addresses.replace(["b", "c"])
    addresses.leave("a")
    addresses.replace(["b", "d"])
    seen = []
    for _ in range(len(addresses)):
        seen.append(addresses.in_use)
        addresses.leave(addresses.in_use)
    assert seen == ["b", "d", "a"]
    assert addresses.in_use == "b"


@given(st.lists(NAMES, min_size=1), st.lists(st.one_of(NAMES.map(list), st.lists(st.sampled_from(["", *"uvw"])))))
def test_who_answered_stays_in_use_and_whoever_was_given_is_come_to(given_names, steps):
    addresses = Addresses(given_names)
    for step in steps:
        before = addresses.in_use
        addresses.replace(step)
        assert addresses.in_use == before
        addresses.leave(before)
    reached = set()
    for _ in range(len(addresses)):
        reached.add(addresses.in_use)
        addresses.leave(addresses.in_use)
    assert set(given_names) <= reached
    assert "" not in reached
