import random
import socket
import socketserver
import threading
from collections import Counter
from contextlib import contextmanager, suppress

import grpc
import pytest
from walrus_client import (
    Client,
    Closed,
    OutcomeUnknown,
    OutOfOrderSequence,
    OutRecord,
    ProducerOptions,
    RejectedError,
    TooLarge,
    Unavailable,
)
from walrus_client.outbox import Batch, Identity, Target

SMALL = ProducerOptions(batch_records_max=10, linger_ms=0)


def values(count):
    return [b"%d" % n for n in range(count)]


def test_records_are_delivered_in_order(peer, storage):
    with Client(peer.address) as client:
        client.create_topic("t")
        with client.producer("t", options=SMALL) as producer:
            deliveries = [producer.send(value) for value in values(1000)]
        assert storage.values("t") == values(1000)
        assert [delivery.result().base_offset for delivery in deliveries] == sorted(
            delivery.result().base_offset for delivery in deliveries
        )
        assert deliveries[-1].result().end_offset == 1000


def test_a_lost_answer_does_not_store_a_batch_twice(peer, storage, drop):
    seen = Counter()

    def store_then_drop(request, store):
        answer = store()
        seen[request.correlation] += 1
        if request.correlation % 3 == 0 and seen[request.correlation] == 1:
            raise drop
        return answer

    peer.on_append = store_then_drop
    with Client(peer.address) as client:
        client.create_topic("t")
        with client.producer("t", options=SMALL) as producer:
            for value in values(500):
                producer.send(value)
        stats = producer.stats()
    assert storage.values("t") == values(500)
    assert stats.resent_batches > 0
    assert stats.duplicate_batches > 0
    assert stats.connections > 1
    assert stats.delivered_records == 500
    assert stats.undelivered_bytes == 0


def test_batches_behind_a_refused_one_wait_for_it(peer, storage, refuse):
    refused = Counter()

    def refuse_some(request, store):
        refused[request.correlation] += 1
        if request.correlation % 4 == 1 and refused[request.correlation] <= 2:
            return refuse(request, "NotLeader", "the leader moved", retryable=True)
        return store()

    peer.on_append = refuse_some
    with Client(peer.address) as client:
        client.create_topic("t")
        with client.producer("t", options=SMALL) as producer:
            for value in values(300):
                producer.send(value)
    assert storage.values("t") == values(300)


def test_an_answer_that_says_unknown_is_asked_again(peer, storage, refuse):
    told = Counter()

    def store_and_say_unknown(request, store):
        told[request.correlation] += 1
        answer = store()
        if told[request.correlation] == 1 and random.random() < 0.3:
            return refuse(request, "OutcomeUnknown", "lost sight of it", retryable=True)
        return answer

    peer.on_append = store_and_say_unknown
    with Client(peer.address) as client:
        client.create_topic("t")
        with client.producer("t", options=SMALL) as producer:
            for value in values(300):
                producer.send(value)
    assert storage.values("t") == values(300)


def test_nodes_that_are_killed_and_restarted_under_load_lose_and_repeat_nothing(make_peer, storage):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    choice = random.Random(seed)
    peers = [make_peer(), make_peer()]
    stop_now = threading.Semaphore(0)

    def count_down(request, store):
        if choice.random() < 0.05:
            stop_now.release()
        return store()

    def kill_and_restart():
        for _ in range(12):
            assert stop_now.acquire(timeout=30)
            for victim in choice.sample(peers, k=choice.choice([1, 2])):
                victim.stop()
                victim.start()

    for peer in peers:
        peer.on_append = count_down
    chaos = threading.Thread(target=kill_and_restart)
    sent = 0
    with Client(",".join(peer.address for peer in peers)) as client:
        client.create_topic("t", partitions=3)
        with client.producer("t", options=SMALL) as producer:
            chaos.start()
            while chaos.is_alive():
                producer.send(b"%d" % sent, key=b"%d" % (sent % 7))
                sent += 1
        stats = producer.stats()

    assert stats.connections > 1
    assert stats.resent_batches > 0
    stored = [storage.values("t", partition) for partition in range(3)]
    assert sorted(int(value) for partition in stored for value in partition) == list(range(sent))
    for key in range(7):
        of_key = [int(v) for partition in stored for v in partition if int(v) % 7 == key]
        assert of_key == sorted(of_key)


def test_a_rejected_batch_fails_alone_and_those_behind_it_are_stored(peer, storage, refuse):
    def refuse_big(request, store):
        if any(record.value == b"big" for record in request.records.records):
            return refuse(request, "TooLarge", "at most 1 MiB")
        return store()

    peer.on_append = refuse_big
    with Client(peer.address) as client:
        client.create_topic("t")
        producer = client.producer("t", options=ProducerOptions(batch_records_max=1, linger_ms=0))
        deliveries = [producer.send(b"big" if n in (7, 8, 40) else b"%d" % n) for n in range(60)]
        with pytest.raises(TooLarge, match="1 MiB"):
            producer.flush()
        producer.close()
    assert [n for n, delivery in enumerate(deliveries) if delivery.exception()] == [7, 8, 40]
    assert storage.values("t") == [b"%d" % n for n in range(60) if n not in (7, 8, 40)]


def test_without_a_node_the_delivery_fails_after_its_timeout_and_is_known_not_to_be_stored(peer):
    with Client(peer.address) as client:
        client.create_topic("t")
        producer = client.producer("t", options=ProducerOptions(delivery_timeout_ms=300))
        peer.stop()
        delivery = producer.send(b"x")
        with pytest.raises(Unavailable, match=r"could not be delivered within 0\.3 s"):
            delivery.result(timeout=20)
        with pytest.raises(Unavailable):
            producer.close()


def test_what_a_node_said_is_not_hidden_by_a_last_try_that_had_no_time(peer, refuse_call):
    """The time that was left for the last try ended it, and "Deadline Exceeded" was all that anybody was told."""
    release = threading.Event()
    tries = []

    def refuse_once_then_hang(context):
        tries.append(context)
        if len(tries) == 1:
            refuse_call(context, grpc.StatusCode.UNAVAILABLE, "Unavailable", "nobody leads the metadata")
        release.wait(30)

    peer.on_init_producer = refuse_once_then_hang
    with Client(peer.address) as client:
        client.create_topic("t")
        producer = client.producer("t", options=ProducerOptions(delivery_timeout_ms=2_000))
        with pytest.raises(Unavailable, match=r"the last try: .*nobody leads the metadata"):
            producer.send(b"x").result(timeout=20)
        release.set()
        with pytest.raises(Unavailable):
            producer.close()
    assert len(tries) > 1


def test_a_node_that_takes_a_batch_and_never_answers_leaves_the_outcome_unknown(peer, storage):
    release = threading.Event()

    def hang(request, store):
        answer = store()
        release.wait(30)
        return answer

    peer.on_append = hang
    with Client(peer.address) as client:
        client.create_topic("t")
        options = ProducerOptions(delivery_timeout_ms=3_000, request_timeout_ms=500)
        producer = client.producer("t", options=options)
        delivery = producer.send(b"x")
        with pytest.raises(OutcomeUnknown, match="may be stored or not"):
            delivery.result(timeout=20)
        release.set()
        peer.on_append = lambda _request, store: store()
        with pytest.raises(OutcomeUnknown):
            producer.flush()
        # It goes on under a new identity.
        assert producer.send(b"y").result(timeout=20).base_offset >= 1
        producer.close()
    assert storage.values("t")[-1] == b"y"
    assert storage.values("t").count(b"x") == 1


def test_a_node_that_hangs_is_left_for_another(make_peer, storage):
    hanging, serving = make_peer(), make_peer()
    release = threading.Event()
    hanging.on_append = lambda _request, store: release.wait(30) and store()
    with Client(f"{hanging.address},{serving.address}") as client:
        client.create_topic("t")
        with client.producer("t", options=ProducerOptions(request_timeout_ms=200)) as producer:
            assert producer.send(b"x").result(timeout=20).base_offset == 0
        release.set()
    assert storage.values("t") == [b"x"]


@contextmanager
def freezing(address):
    """An address that leads to *address*, and an event from which on nothing comes through, as with a frozen host."""
    frozen = threading.Event()

    def pass_on(source, sink):
        with suppress(OSError):
            while (part := source.recv(1 << 16)) and not frozen.is_set():
                sink.sendall(part)

    class Connection(socketserver.BaseRequestHandler):
        def handle(self):
            host, _, port = address.rpartition(":")
            with socket.create_connection((host, int(port))) as there:
                threading.Thread(target=pass_on, args=(there, self.request), daemon=True).start()
                pass_on(self.request, there)
                over.wait(120)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    over = threading.Event()
    with Server(("127.0.0.1", 0), Connection) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}", frozen
        over.set()
        server.shutdown()


def test_a_host_that_falls_silent_is_left_long_before_its_answer_is_overdue(make_peer, storage):
    silent, serving = make_peer(), make_peer()
    options = ProducerOptions(request_timeout_ms=600_000, delivery_timeout_ms=600_000)
    with freezing(silent.address) as (address, frozen), Client(f"{address},{serving.address}") as client:
        silent.named = [address, serving.address]
        client.create_topic("t")
        with client.producer("t", options=options) as producer:
            producer.send(b"x").result(timeout=60)
            frozen.set()
            producer.send(b"y").result(timeout=120)
    assert storage.values("t") == [b"x", b"y"]
    assert serving.requests > 0


def test_a_node_that_only_refuses_is_left_for_another(make_peer, storage, refuse):
    cut_off, serving = make_peer(), make_peer()
    cut_off.on_append = lambda request, _store: refuse(request, "Unavailable", "no leader", retryable=True)
    with Client(f"{cut_off.address},{serving.address}") as client:
        client.create_topic("t")
        assert client.append("t", [b"x"]).base_offset == 0
    assert storage.values("t") == [b"x"]
    assert serving.requests > 0


def test_a_node_that_lacks_acknowledged_records_is_left_for_another(make_peer, storage, refuse):
    # A leader that was cut off and replaced, and had not heard of it, told a producer that it had left records out.
    former, serving = make_peer(), make_peer()
    with Client(f"{former.address},{serving.address}") as client:
        client.create_topic("t")
        with client.producer("t", options=SMALL) as producer:
            producer.send(b"x").result(timeout=60)
            former.on_append = lambda request, _store: refuse(request, "OutOfOrderSequence", "expected 0")
            assert producer.send(b"y").result(timeout=60).base_offset == 1
    assert storage.values("t") == [b"x", b"y"]


def test_acknowledged_records_that_every_node_lacks_are_said_to_be_lost(peer, storage, refuse):
    peer.on_append = lambda request, _store: refuse(request, "OutOfOrderSequence", "expected 0")
    with Client(peer.address) as client:
        client.create_topic("t")
        producer = client.producer("t", options=SMALL)
        with pytest.raises(OutOfOrderSequence):
            producer.send(b"x").result(timeout=60)
        with pytest.raises(OutOfOrderSequence):
            producer.close()


def test_send_blocks_instead_of_filling_the_memory(peer, storage):
    go_on = threading.Event()

    def wait(request, store):
        go_on.wait(30)
        return store()

    peer.on_append = wait
    with Client(peer.address) as client:
        client.create_topic("t")
        options = ProducerOptions(batch_bytes_max=1000, buffer_bytes_max=10_000, linger_ms=0)
        producer = client.producer("t", options=options)
        sent = 0
        blocked = threading.Event()

        def send_all():
            nonlocal sent
            for _ in range(100):
                producer.send(bytes(952))
                sent += 1
                if sent == 10:
                    blocked.set()

        thread = threading.Thread(target=send_all)
        thread.start()
        assert blocked.wait(20)
        thread.join(0.2)  # time in which a producer without a bound would have taken all
        assert thread.is_alive()
        assert sent == 10
        assert producer.stats().undelivered_bytes <= 10_000
        go_on.set()
        thread.join(20)
        producer.close()
    assert len(storage.values("t")) == 100


def test_a_record_larger_than_the_buffer_goes_alone(peer, storage):
    with Client(peer.address) as client:
        client.create_topic("t")
        with client.producer("t", options=ProducerOptions(buffer_bytes_max=100)) as producer:
            for size in (10, 10_000, 10):
                producer.send(bytes(size))
    assert [len(value) for value in storage.values("t")] == [10, 10_000, 10]


def test_a_value_of_a_wrong_type_is_refused_and_spoils_nothing(peer, storage):
    with Client(peer.address) as client:
        client.create_topic("t")
        with client.producer("t") as producer:
            for wrong in ("text", 5):
                with pytest.raises(TypeError):
                    producer.send(wrong)
            producer.send(b"a")
            with pytest.raises(TypeError):
                producer.send(b"b", headers=[("h", "text")])
            producer.send(b"c")
    assert storage.values("t") == [b"a", b"c"]


def test_what_no_node_would_take_is_refused_at_once(peer, storage):
    with Client(peer.address) as client:
        client.create_topic("t")
        with client.producer("t") as producer:
            producer.send(b"a")
            with pytest.raises(TooLarge, match="the limit is 16777216"):
                producer.send(bytes(16 << 20))
            with pytest.raises(TooLarge):
                producer.send_batch([bytes(9 << 20), bytes(9 << 20)])
            producer.send(b"b")
    assert storage.values("t") == [b"a", b"b"]


def test_no_request_is_longer_than_a_node_takes():
    record = OutRecord(b"", b"", 2**62, [("ü", b""), ("h" * 200, None)])
    for count in (1, 1000):
        batch = Batch(Target("t" * 249, 2**31), correlation=2**62, created_at=0.0)
        for _ in range(count):
            batch.add(record, record.size())
        batch.encode()
        batch.sequence = 2**31 - 1
        assert len(batch.request(Identity(2**62, 2**15))) <= batch.bytes + 1000


def test_records_of_one_key_go_to_one_partition_and_others_are_spread(peer, storage):
    with Client(peer.address) as client:
        client.create_topic("t", partitions=4)
        with client.producer("t", options=SMALL) as producer:
            for n in range(400):
                producer.send(b"keyed", key=b"%d" % (n % 10))
                producer.send(b"loose")
    stored = [Counter(storage.values("t", partition)) for partition in range(4)]
    assert sum(counter[b"keyed"] for counter in stored) == 400
    assert all(counter[b"keyed"] % 40 == 0 for counter in stored)
    assert all(counter[b"loose"] > 0 for counter in stored)


def test_the_callback_sees_each_batch_once(peer):
    done = []
    with Client(peer.address) as client:
        client.create_topic("t")
        with client.producer("t", options=SMALL, on_delivery=done.append) as producer:
            for value in values(95):
                producer.send(value)
    assert sum(delivery.result().end_offset - delivery.result().base_offset for delivery in done) == 95


def test_many_threads_may_send(peer, storage):
    with Client(peer.address) as client:
        client.create_topic("t")
        with client.producer("t", options=SMALL) as producer:

            def send(first):
                for n in range(200):
                    producer.send(b"%d" % (first + n))

            threads = [threading.Thread(target=send, args=(1000 * n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    stored = [int(value) for value in storage.values("t")]
    assert len(stored) == len(set(stored)) == 1600
    for first in range(8):
        of_thread = [value for value in stored if value // 1000 == first]
        assert of_thread == sorted(of_thread)


def test_a_closed_producer_takes_nothing_more(peer):
    with Client(peer.address) as client:
        client.create_topic("t")
        producer = client.producer("t")
        producer.close()
        with pytest.raises(Closed, match="closed"):
            producer.send(b"x")


def test_an_error_in_the_block_is_not_hidden_by_a_failed_delivery(peer, refuse):
    peer.on_append = lambda request, _store: refuse(request, "TooLarge", "at most 1 MiB")
    with Client(peer.address) as client:
        client.create_topic("t")

        def fail_after_sending():
            with client.producer("t") as producer:
                producer.send(b"x")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as caught:
            fail_after_sending()
    assert "not everything that was sent is delivered" in caught.value.__notes__[0]


def test_a_batch_is_stored_in_one_piece(peer, storage):
    with Client(peer.address) as client:
        client.create_topic("t")
        with client.producer("t", options=SMALL) as producer:
            producer.send(b"before")
            appended = producer.send_batch(values(50)).result(timeout=20)
        with pytest.raises(ValueError, match="at least one record"):
            client.append("t", [])
    assert (appended.base_offset, appended.end_offset) == (1, 51)
    assert [len(batch.records) for batch in storage.partitions["t", 0].batches] == [1, 50]


def test_a_rejection_is_final(peer, refuse):
    def reject(request, store):
        return refuse(request, "SomethingNew", "a kind that this client does not know")

    peer.on_append = reject
    with Client(peer.address) as client:
        client.create_topic("t")
        with pytest.raises(RejectedError) as caught:
            client.append("t", [b"x"])
    assert caught.value.reason == "SomethingNew"
