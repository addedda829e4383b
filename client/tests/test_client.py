import itertools
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack

import grpc
import pytest
from walrus_client import (
    Client,
    Closed,
    FoundOffset,
    OffsetOutOfRange,
    OffsetPlace,
    OtherCluster,
    OutRecord,
    ProducerOptions,
    Unavailable,
    UnknownTopic,
)
from walrus_client.v1 import log_pb2


def test_what_is_appended_is_read_in_order(peer):
    with Client(peer.address) as client:
        client.create_topic("numbers")
        first = client.append("numbers", [b"0", b"1"])
        second = client.append(
            "numbers", [OutRecord(b"2", key=b"k", timestamp_ms=7, headers=[("h", b"x"), ("n", None)])]
        )
        records = list(client.read("numbers"))

    assert (first.base_offset, first.end_offset) == (0, 2)
    assert (second.base_offset, second.end_offset) == (2, 3)
    assert [record.offset for record in records] == [0, 1, 2]
    assert [record.value for record in records] == [b"0", b"1", b"2"]
    assert records[0].key is None
    assert records[2].key == b"k"
    assert records[2].timestamp_ms == 7
    assert records[2].headers == (("h", b"x"), ("n", None))


def test_an_empty_value_is_not_a_missing_value(peer):
    with Client(peer.address) as client:
        client.create_topic("t")
        client.append("t", [OutRecord(b"", key=b""), OutRecord(None, key=None)])
        assert [(r.key, r.value) for r in client.read("t")] == [(b"", b""), (None, None)]


def test_a_read_goes_on_at_another_node_where_the_first_one_broke_off(make_peer):
    first, second = make_peer(), make_peer()
    with Client(f"{first.address},{second.address}") as client:
        client.create_topic("t")
        client.append("t", [b"%d" % n for n in range(20)])

        def die_after_two_answers(request, answers):
            if answers == 2:
                threading.Thread(target=first.stop).start()
                raise ConnectionAbortedError

        first.on_read = die_after_two_answers
        assert [record.offset for record in client.read("t")] == list(range(20))


def test_the_next_requests_go_to_the_preferred_node_as_long_as_it_serves(make_peer):
    first, second = make_peer(), make_peer()
    with Client(first.address) as client:
        client.create_topic("t")
        client.append("t", [b"x"])
        client.prefer(second.address)
        asked = []
        second.on_read = lambda *read: asked.append(read)
        assert [record.value for record in client.read("t")] == [b"x"]
        assert asked
        second.stop()
        assert [record.value for record in client.read("t")] == [b"x"]


def test_a_node_that_takes_a_read_and_gives_no_answer_is_left_for_another(make_peer):
    """Its connection answers pings, so nothing but the time tells that no answer will come."""
    silent, other = make_peer(), make_peer()
    ends = threading.Event()
    with Client(f"{silent.address},{other.address}", request_timeout_ms=300) as client:
        client.create_topic("t")
        client.append("t", [b"x", b"y"])
        for silent_from in (0, 1):
            client.prefer(silent.address)
            silent.on_read = lambda _, answers, first=silent_from: answers < first or ends.wait(60)
            assert [record.value for record in client.read("t", bytes_max=1)] == [b"x", b"y"]
        ends.set()


def test_a_topic_is_told_with_its_segments_and_the_cluster_by_its_uuid(peer):
    with Client(peer.address) as client:
        created = client.create_topic("t", partitions=2)
        found = client.topic_segments("t")
        assert (found.topic, list(found.partitions)) == (created, client.segments("t"))
        assert client.cluster_id() == peer.cluster_id


def test_a_new_client_finds_a_node_that_another_client_has_just_missed(peer):
    peer.stop()
    with Client(peer.address, retry_timeout_ms=0) as earlier:
        with pytest.raises(Unavailable):
            earlier.topics()
        peer.start()
        with Client(peer.address, retry_timeout_ms=0) as later:
            assert later.topics() == []


def test_a_request_that_is_not_tried_again_has_the_whole_request_timeout_for_its_answer(peer):
    """It had a millisecond, so that it failed where the node or the machine was slow."""
    given_s = []
    peer.on_list_topics = lambda context: given_s.append(context.time_remaining())
    with Client(peer.address, retry_timeout_ms=0, request_timeout_ms=60_000) as client:
        assert client.topics() == []
    assert len(given_s) == 1
    assert given_s[0] > 30


def test_an_append_that_is_not_tried_for_longer_waits_for_its_answer(peer):
    """It was refused in words about an option of producers, which nobody had given."""
    with Client(peer.address, retry_timeout_ms=0) as client:
        client.create_topic("t")
        assert client.append("t", [b"0"]).base_offset == 0


def test_a_read_that_waits_follows_the_log(peer):
    with Client(peer.address) as client:
        client.create_topic("t")
        client.append("t", [b"0"])
        seen = []
        for record in client.read("t", end_offset=5, wait_ms=30_000):
            seen.append(record.value)
            client.append("t", [b"%d" % len(seen)])
        assert seen == [b"0", b"1", b"2", b"3", b"4"]


def test_a_read_may_be_left_in_the_middle(peer):
    with Client(peer.address) as client:
        client.create_topic("t")
        client.append("t", [b"%d" % n for n in range(20)])
        records = client.read("t", wait_ms=60_000)
        assert next(records).offset == 0
        records.close()
        assert next(client.read("t", offset=19)).value == b"19"


def test_unknown_topics_and_offsets_out_of_range_are_named(peer):
    with Client(peer.address) as client:
        with pytest.raises(UnknownTopic, match="unknown topic nothing"):
            list(client.read("nothing"))
        with pytest.raises(UnknownTopic):
            client.append("nothing", [b"x"])
        with client.producer("nothing") as producer:
            producer.send(b"x")
            with pytest.raises(UnknownTopic):
                producer.flush()
        client.create_topic("t")
        with pytest.raises(OffsetOutOfRange) as caught:
            list(client.read("t", offset=5))
        assert (caught.value.requested, caught.value.start, caught.value.end) == (5, 0, 0)


def test_a_node_that_is_down_is_left_for_the_next(make_peer):
    down, up = make_peer(), make_peer()
    down.stop()
    with Client(f"{down.address},{up.address}") as client:
        client.create_topic("t", partitions=3)
        assert [(topic.name, topic.partitions) for topic in client.topics()] == [("t", 3)]


def test_without_any_node_the_error_names_the_address(make_peer):
    down = make_peer()
    down.stop()
    with Client(down.address, retry_timeout_ms=200) as client, pytest.raises(Unavailable, match=down.address):
        client.topics()


def test_a_proxy_of_the_environment_is_not_used(peer, monkeypatch):
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with Client(peer.address, retry_timeout_ms=10_000) as client:
        assert client.topics() == []


@pytest.mark.parametrize("bootstrap", ["", "localhost", "localhost:", ":9090", "a:1,b", "a:0", "a:65536", "a:x"])
def test_a_bootstrap_that_is_no_address_is_refused(bootstrap):
    with pytest.raises(ValueError, match=r"host:port"):
        Client(bootstrap)


def test_an_error_without_a_reason_goes_by_its_status(peer):
    def not_ready(context):
        context.abort(grpc.StatusCode.UNAVAILABLE, "starting")

    peer.on_init_producer = not_ready
    with Client(peer.address, retry_timeout_ms=2_000) as client:
        client.create_topic("t")
        with pytest.raises(Unavailable, match="starting"):
            client.append("t", [b"x"])


def test_a_producer_goes_on_after_every_node_has_moved(make_peer, storage, monkeypatch):
    # The addresses of the start were all that a producer knew: it failed after 120 s.
    monkeypatch.setattr("walrus_client.transport.ADDRESSES_AGE_MAX_S", 0.02)
    monkeypatch.setattr("walrus_client.sender.ADDRESSES_AGE_MAX_S", 0.02)
    first, moved = make_peer(), make_peer()
    storage.create("t", 1)
    with Client(first.address) as client, client.producer("t") as producer:
        producer.send(b"x").result(timeout=60)
        first.named = [first.address, moved.address]
        with storage.lock:  # an idle producer hears of it, too
            asked = first.asked_for_nodes + 2
            assert storage.changed.wait_for(lambda: first.asked_for_nodes >= asked, timeout=60)
        first.stop()
        producer.send(b"y").result(timeout=60)
    assert storage.values("t") == [b"x", b"y"]
    assert moved.requests > 0


def test_addresses_behind_which_nobody_answers_hold_up_no_failover(make_peer, storage, monkeypatch):
    """Each of them took a second, one after the other: in a roll, the names of two brokers led to their former pods."""
    monkeypatch.setattr("walrus_client.transport._REFRESH_TIMEOUT_S", 600.0)
    first, moved = make_peer(), make_peer()
    storage.create("t", 1)
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        names = [f"127.0.0.1:{one.getsockname()[1]}" for one in silent]
        first.named = moved.named = [first.address, *names, moved.address]
        client = stack.enter_context(Client(first.address))
        producer = stack.enter_context(client.producer("t"))
        producer.send(b"x").result(timeout=60)
        client.append("t", [b"y"])
        first.stop()
        producer.send(b"z").result(timeout=60)
        client.append("t", [b"!"])
    assert sorted(storage.values("t")) == [b"!", b"x", b"y", b"z"]


def test_an_address_that_went_to_another_cluster_is_left(make_peer, storage):
    ours, foreign = make_peer(), make_peer()
    storage.create("t", 1)
    ours.named = [ours.address, foreign.address]
    with Client(ours.address) as client:
        client.topics()
        foreign.cluster_id = "another"
        foreign.on_list_topics = lambda context: context.abort(grpc.StatusCode.INTERNAL, "asked for its topics")
        ours.stop()
        waiting = threading.Thread(target=client.topics)
        waiting.start()
        with storage.lock:  # once it might ask a node that it does not know yet
            assert storage.changed.wait_for(lambda: foreign.asked_for_nodes > 2, timeout=60)
        ours.start()
        waiting.join()


@pytest.fixture
def old_addresses(monkeypatch):
    """Clients ask for the addresses of the nodes before each call."""
    monkeypatch.setattr("walrus_client.transport.ADDRESSES_AGE_MAX_S", 0.0)


@pytest.mark.usefixtures("old_addresses")
def test_a_client_follows_the_cluster_that_continues_its_own_and_does_not_go_back(make_peer, caplog):
    """Each call found a stranger, left it and asked the next one: thousands of warnings, and nobody knew what to do."""
    ours, left_behind = make_peer(), make_peer()
    former = ours.cluster_id
    with Client(f"{ours.address},{left_behind.address}", retry_timeout_ms=0) as client:
        client.create_topic("t")
        ours.cluster_id, ours.former_cluster_ids = "the-next-one", ["the-first-one", former]
        for _ in range(10):
            assert [topic.name for topic in client.topics()] == ["t"]
        (told,) = (record.getMessage() for record in caplog.records)
        assert told.startswith(f"cluster {former} goes on as the-next-one, since its metadata were recovered")
        ours.stop()
        with pytest.raises(OtherCluster, match=f"of another cluster by now, {left_behind.cluster_id}"):
            client.topics()


@pytest.mark.usefixtures("old_addresses")
def test_a_cluster_that_was_made_anew_at_the_same_addresses_is_told_as_another_one(make_peer, storage):
    first, second = make_peer(), make_peer()
    first.named = second.named = [first.address, second.address]
    with Client(f"{first.address},{second.address}", retry_timeout_ms=1000) as client:
        client.create_topic("t")
        client.append("t", [b"x"])
        for made_anew in (first, second):
            made_anew.stop()
            made_anew.cluster_id = "another"
            made_anew.start()
        for ask in (client.topics, lambda: list(client.read("t"))):
            with pytest.raises(OtherCluster, match="If the cluster was made anew, so must the client be"):
                ask()
        with pytest.raises(Unavailable, match="If the cluster was made anew, so must the client be"):
            client.append("t", [b"y"])
    assert storage.values("t") == [b"x"]


def test_the_reason_of_a_broker_is_not_hidden_by_a_last_try_that_had_no_time(peer, refuse_call):
    calls = itertools.count()

    def refuse_then_hang(context):
        if next(calls) == 0:
            refuse_call(context, grpc.StatusCode.UNAVAILABLE, "Unavailable", "no node is up to lead a segment")
        over.wait(60)

    over = threading.Event()
    peer.on_list_topics = refuse_then_hang
    with Client(peer.address, retry_timeout_ms=300) as client, pytest.raises(Unavailable, match="no node is up"):
        client.topics()
    over.set()
    assert next(calls) > 1


def test_a_closed_client_says_so_at_once(peer, storage):
    storage.create("t", 1)
    client = Client(peer.address)
    producer = client.producer("t", options=ProducerOptions(linger_ms=600_000, delivery_timeout_ms=600_000))
    pages = client.read("t", wait_ms=60_000)
    unsent = producer.send(b"x")
    client.close()
    for ask in (client.topics, lambda: next(pages), lambda: client.append("t", [b"x"])):
        with pytest.raises(Closed):
            ask()
    with pytest.raises(Closed):
        producer.close()
    with pytest.raises(Closed):
        unsent.result(timeout=0)
    with pytest.raises(Closed):
        producer.send(b"y")
    assert storage.values("t") == []


@pytest.mark.parametrize("ending", ["", "raise SystemExit(0)", "raise RuntimeError('an error')"])
def test_a_script_that_ends_without_closing_its_producer_loses_nothing(peer, storage, ending):
    storage.create("t", 1)
    script = f"""
from walrus_client import Client, ProducerOptions
producer = Client({peer.address!r}).producer("t", options=ProducerOptions(linger_ms=600_000))
for number in range(1000):
    producer.send(b"%d" % number)
{ending}
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert storage.values("t") == [b"%d" % number for number in range(1000)]
    assert "a producer was not closed" in ended.stderr


def test_a_script_whose_last_records_cannot_be_delivered_ends_and_says_so(peer, storage):
    storage.create("t", 1)
    script = f"""
import walrus_client.sender
from walrus_client import Client
walrus_client.sender.EXIT_TIMEOUT_S = 0.2
producer = Client({peer.address!r}).producer("t")
print("ready", flush=True)
input()
producer.send(b"x")
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        peer.stop()
        _, told = process.communicate("\n", timeout=60)
    assert "records of a producer that was not closed are lost, or may be: 49 bytes are not delivered yet" in told


def test_offsets_are_found_by_time_and_what_passes_is_asked_again(peer):
    with Client(peer.address) as client:
        client.create_topic("t", partitions=2)
        client.append("t", [OutRecord(b"x", timestamp_ms=time) for time in (5, 9, 7)])
        refused = []

        def refuse_once(question):
            if question.partition == 1 and not refused:
                refused.append(question)
                error = log_pb2.Error(code=14, reason="Unavailable", message="not sure yet", retryable=True)
                return log_pb2.OffsetAnswer(partition=1, error=error)
            return None

        peer.on_list_offsets = refuse_once
        assert client.list_offsets("t", {0: 6, 1: OffsetPlace.LATEST}) == {
            0: FoundOffset(1, 9),
            1: FoundOffset(0, None),
        }
        assert len(refused) == 1
        assert client.list_offsets("t", {0: OffsetPlace.MAX_TIMESTAMP, 1: 0}) == {
            0: FoundOffset(1, 9),
            1: FoundOffset(None, None),
        }
        assert client.list_offsets("t", {0: OffsetPlace.EARLIEST}) == {0: FoundOffset(0, None)}


def test_an_offset_that_cannot_be_found_raises_why(peer):
    gone = log_pb2.Error(code=5, reason="UnknownPartition", message="topic t has 1 partitions", retryable=False)
    peer.on_list_offsets = lambda question: log_pb2.OffsetAnswer(partition=question.partition, error=gone)
    with Client(peer.address) as client:
        client.create_topic("t")
        with pytest.raises(UnknownTopic, match="topic t has 1 partitions"):
            client.list_offsets("t", {1: OffsetPlace.LATEST})
