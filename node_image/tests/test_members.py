"""Members of real nodes: who may stop, who leads, drains, lost disks."""

import shutil
from collections.abc import Callable

import pytest
from node_process import NodeProcess
from text_client import say
from waiting import wait_until
from walrus_client import errors
from walrus_client.admin import AdminClient

pytest.importorskip("walrus_core")

Make = Callable[..., NodeProcess]
TIMEOUT_S = 60.0


def admin(node: NodeProcess) -> AdminClient:
    return AdminClient(f"127.0.0.1:{node.ports['admin']}", timeout=TIMEOUT_S)


def three(node: Make) -> list[NodeProcess]:
    first = node("--bootstrap", "--node-id", "1").start()
    nodes = [first, *(node("--join", first.raft_address, "--node-id", str(wanted)).start() for wanted in (2, 3))]
    for each in nodes:
        each.wait_ready()
    for each in nodes:
        wait_voters(each, {1, 2, 3})
    return nodes


def wait_voters(node: NodeProcess, expected: set[int]) -> None:
    with admin(node) as client:

        def voters() -> set[int]:
            metadata = client.status().metadata
            return set(metadata.voters) if metadata else set()

        wait_until(f"{expected} vote", lambda: voters() == expected, timeout_s=TIMEOUT_S)


def disk(node: NodeProcess) -> str:
    with admin(node) as client:
        return client.identity().disk


def leader(node: NodeProcess) -> int | None:
    with admin(node) as client:
        metadata = client.status().metadata
        return metadata.leader if metadata else None


def test_the_metadata_is_led_by_whom_it_is_handed_to_whoever_is_asked(node: Make) -> None:
    nodes = three(node)
    before = wait_until("somebody leads", lambda: leader(nodes[0]))
    other, third = (number for number in (1, 2, 3) if number != before)
    with admin(nodes[third - 1]) as client:
        wanted = disk(nodes[other - 1])
        assert wait_until("it leads", lambda: handed_over(client, wanted), timeout_s=TIMEOUT_S) == other
        wait_until("it has caught up", lambda: client.caught_up() == ())
        with pytest.raises(errors.UnknownNode):
            client.transfer_leadership("00000000-0000-0000-0000-000000000000")
    for each in nodes:
        wait_until("all know", lambda each=each: leader(each) == other)


def handed_over(client: AdminClient, to: str) -> int | None:
    """Who leads then; `None` where the answer was to ask again."""
    try:
        return client.transfer_leadership(to)
    except errors.Unavailable:
        return None


def test_who_leads_alone_cannot_hand_it_over(node: Make) -> None:
    founder = node("--bootstrap").start()
    observer = node("--join", founder.raft_address).start()
    for each in (founder, observer):
        each.wait_ready()
        with admin(each) as client, pytest.raises(errors.RejectedError, match="nobody else can lead") as refused:
            client.transfer_leadership()
        assert refused.value.reason == "NoSuchVoter"


def test_can_stop_tells_what_would_be_lost(node: Make) -> None:
    nodes = three(node)
    assert say(nodes[0], "PUT single copy") == "OK"
    with admin(nodes[0]) as client:
        led = next(seen for seen in (client.can_stop(disk(each)) for each in nodes) if seen.segments_led)
        assert not led.can_stop
        assert (led.open_without_quorum, led.topics) == (1, ("default/single",))
        wait_until("two are enough", lambda: not client.can_stop(disk(nodes[1])).metadata_without_majority)
        disks = [disk(each) for each in nodes]
        nodes[2].kill()
        wait_until(
            "the metadata needs both that are left",
            lambda: client.can_stop(disks[1]).metadata_without_majority and client.can_stop(disks[0]),
            timeout_s=TIMEOUT_S,
        )
        with pytest.raises(errors.UnknownNode, match="no member has the disk"):
            client.can_stop("nonsense")
        # Alone it may have missed what the others did: it said that all was well by what it knew.
        nodes[1].kill()
        alone = client.can_stop(disks[1])
        assert (alone.can_stop, alone.reasons) == (False, ("no majority of the metadata answered in time",))


def test_a_drained_node_passes_its_segments_on_and_takes_new_ones_when_it_is_cancelled(node: Make) -> None:
    nodes = three(node)
    topics = [f"t{number}" for number in range(6)]
    for topic in topics:
        assert say(nodes[0], f"PUT {topic} first") == "OK"
    with admin(nodes[2]) as client:
        # Topics are spread by their uuids: some node leads some of them, which is chance.
        drained = max((disk(each) for each in nodes), key=lambda each: client.drain(each).segments_led)
        assert client.drain(drained).segments_led > 0
        with pytest.raises(errors.RejectedError, match="still stores"):
            client.remove_member(drained)
        assert client.start_drain(drained).draining
        wait_until("it leads none", lambda: client.drain(drained).segments_led == 0, timeout_s=TIMEOUT_S)
        for topic in topics:
            assert say(nodes[1], f"PUT {topic} second") == "OK"
        wait_until("it stores nothing", lambda: client.drain(drained).done, timeout_s=TIMEOUT_S)
        assert {seen.state for seen in client.members() if seen.disk == drained} == {"draining"}
        assert not client.cancel_drain(drained).draining
    for topic in topics:
        assert {say(nodes[0], f"GET {topic}") for _ in range(2)} == {"OK first", "OK second"}


def test_a_lost_voter_is_replaced_and_its_old_disk_stays_out(node: Make) -> None:
    nodes = three(node)
    lost = nodes[2]
    old = disk(lost)
    lost.kill()
    elsewhere = node()
    shutil.copytree(lost.data, elsewhere.data, ignore=shutil.ignore_patterns("sockets"))
    shutil.rmtree(lost.data)
    lost.start("--join", nodes[0].raft_address)
    assert lost.wait_ready()["node_id"] == 4
    wait_voters(nodes[0], {1, 2, 3})
    with admin(nodes[1]) as client:
        with pytest.raises(errors.UnknownNode):
            client.remove_member(old, lost=True, replaced_by=old)
        client.remove_member(old, lost=True, replaced_by=disk(lost))
        client.remove_member(old, lost=True)
    wait_voters(lost, {1, 2, 4})

    elsewhere.start()
    wait_until(
        "the old disk is refused",
        lambda: elsewhere.alive() and f"disk {old} is not known here" in elsewhere.log.read_text(),
        timeout_s=TIMEOUT_S,
    )
    assert elsewhere.get("/readyz")[0] == 503


def test_the_last_voters_are_not_taken_out(node: Make) -> None:
    founder = node("--bootstrap").start()
    founder.wait_ready()
    with admin(founder) as client, pytest.raises(errors.RejectedError, match="no majority"):
        client.remove_member(disk(founder), lost=True)
