"""What the data plane asks of the control plane: topics, successors, seals, on real nodes."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from node_process import NodeProcess
from text_client import say, state
from waiting import wait_until

Make = Callable[..., NodeProcess]


def three(node: Make, *flags: str) -> list[NodeProcess]:
    first = node("--bootstrap", *flags).start()
    nodes = [first, *(node("--join", first.raft_address, *flags).start() for _ in range(2))]
    for each in nodes:
        each.wait_ready()
    return nodes


def test_a_topic_made_on_one_node_is_there_on_all(node: Make) -> None:
    nodes = three(node)
    assert say(nodes[1], "REGISTER flights") == "OK"
    for each in nodes:
        assert say(each, "PUT flights hello") == "OK"
    assert sorted(say(each, "GET flights") for each in nodes) == ["OK hello"] * 3


def test_a_topic_is_known_at_once_on_every_node_and_gone_at_once_too(node: Make) -> None:
    nodes = three(node, "--no-auto-create-topics")
    for number in range(20):
        maker, asked = nodes[number % 3], nodes[(number + 1) % 3]
        assert say(maker, f"REGISTER quick-{number}") == "OK"
        assert say(asked, f"GET quick-{number}") == "EMPTY"
        assert say(asked, f"DELETE quick-{number}") == "OK"
        assert say(maker, f"STATE quick-{number}") == f"ERR unknown topic quick-{number}"


def test_a_topic_made_on_all_nodes_at_once_is_one_topic(node: Make) -> None:
    nodes = three(node)
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda number: say(nodes[number % 3], "REGISTER same"), range(12)))
    assert answers == ["OK"] * 12
    for number in range(6):
        assert say(nodes[number % 3], f"PUT same {number}") == "OK"
    assert len(state(nodes[0], "same")["segment_leaders"]) == 1
    assert {say(nodes[0], "GET same") for _ in range(6)} == {f"OK {number}" for number in range(6)}


def test_segments_roll_and_every_node_leads_some(node: Make) -> None:
    nodes = three(node, "--segment-entries-max", "5", "--monitor-check-ms", "200")
    for number in range(40):
        assert say(nodes[number % 3], f"PUT rolling {number}") == "OK"
    facts = state(nodes[2], "rolling")
    assert set(facts["segment_leaders"].values()) == {1, 2, 3}
    assert set(facts["sealed_segments"].values()) == {5}
    assert [say(nodes[1], "GET rolling") for _ in range(40)] == [f"OK {number}" for number in range(40)]


def test_appends_go_on_over_the_death_and_return_of_each_node(node: Make) -> None:
    nodes = three(node, "--segment-entries-max", "5")
    number = 0
    for victim in nodes:
        for _ in range(7):
            assert say(nodes[number % 3], f"PUT hard {number}") == "OK"
            number += 1
        victim.kill()
        victim.start()
        victim.wait_ready()
    assert [say(nodes[0], "GET hard") for _ in range(number)] == [f"OK {place}" for place in range(number)]


def test_metrics_of_the_text_protocol_show_raft(node: Make) -> None:
    nodes = three(node)

    def names_members() -> bool:
        facts = json.loads(say(nodes[1], "METRICS"))
        return facts.get("current_leader") == 1 and facts["membership"]["voters"] == [1, 2, 3]

    wait_until("it names leader and voters", names_members)
    assert json.loads(say(nodes[0], "METRICS"))["state"] == "Leader"
