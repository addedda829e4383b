"""The rules of resending against a model of the broker, under every order of answers, losses and refusals."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st
from walrus_client import OutcomeUnknown, RejectedError, Unavailable
from walrus_client.errors import NoAnswer
from walrus_client.model import Appended
from walrus_client.outbox import SEQUENCES, Identity, Limits, Outbox, OutRecord, Target
from walrus_client.v1 import log_pb2

LIMITS = Limits(
    batch_records_max=2, batch_bytes_max=1000, linger_s=1.0, in_flight_batches_max=5, delivery_timeout_s=100.0
)
TARGET = Target("t", 0)


class Broker:
    """One partition with the memory of a broker: five batches of each producer."""

    def __init__(self):
        self.stored = []
        self.last_five = {}
        self.expected = {}

    def append(self, request, fate):
        answer = log_pb2.AppendResponse(correlation=request.correlation)
        values = [record.value for record in request.records.records]
        producer, sequence = request.producer.id, request.producer.base_sequence
        if fate == "refuse":
            answer.error.reason, answer.error.retryable = "NotLeader", True
        elif b"poison" in values:
            answer.error.reason = "TooLarge"
        elif sequence in self.last_five.setdefault(producer, deque(maxlen=5)):
            answer.duplicate = True
        elif sequence != self.expected.get(producer, 0):
            answer.error.reason = "OutOfOrderSequence"
        else:
            self.stored += values
            self.last_five[producer].append(sequence)
            self.expected[producer] = (sequence + len(values)) % SEQUENCES
            if fate == "doubt":
                answer.error.reason = "OutcomeUnknown"
        return answer


class Run:
    """An outbox, the connection and the broker, moved on step by step."""

    def __init__(self):
        self.outbox = Outbox(LIMITS)
        self.broker = Broker()
        self.now = 0.0
        self.sent = 0
        self.identities = 0
        self.requests = deque()  # on the way to the broker
        self.answers = deque()  # on the way back
        self.results = {}

    def send(self, value):
        record = OutRecord(value)
        self.outbox.add(TARGET, record, size=record.size(), now=self.now)

    def step(self, action):
        match action:
            case "send":
                self.send(b"%d" % self.sent)
                self.sent += 1
            case "send poison":
                self.send(b"poison")
            case "transmit":
                if self.outbox.needs_identity():
                    self.identities += 1
                    self.outbox.give_identity(Identity(self.identities, 0))
                request = self.outbox.next_request(self.now)
                if request is not None:
                    self.requests.append(log_pb2.AppendRequest.FromString(request))
            case "store" | "refuse" | "doubt":
                if self.requests:
                    self.answers.append(self.broker.append(self.requests.popleft(), action))
            case "answer":
                if self.answers:
                    self.take(self.outbox.answered(self.answers.popleft(), now=self.now, pause_s=0.5))
            case "lose":
                # Some of what was on the way still arrived.
                for request in list(self.requests)[: len(self.requests) // 2]:
                    self.broker.append(request, "store")
                self.requests.clear()
                self.answers.clear()
                self.outbox.connection_lost(Unavailable("reset"))
            case "wait":
                self.now += 0.7
            case "wait long":
                self.now += 60
                self.take(self.outbox.expire(self.now))

    def take(self, outcomes):
        for batch, result in outcomes:
            values = [r.value for r in log_pb2.AppendRequest.FromString(batch.payload).records.records]
            for value in values:
                if value != b"poison":
                    assert value not in self.results
                    self.results[value] = result
            self.outbox.forget(batch)

    def finish(self):
        for _ in range(10_000):
            if self.outbox.is_empty():
                return
            for action in ("transmit", "store", "answer", "wait"):
                self.step(action)
        raise AssertionError("the outbox does not get empty although everything works")


ACTIONS = ["send", "send", "transmit", "transmit", "store", "store", "answer", "answer", "refuse", "doubt", "lose"]


def values_with(run, kind):
    return {value for value, result in run.results.items() if isinstance(result, kind)}


@given(st.lists(st.sampled_from([*ACTIONS, "wait"]), max_size=120))
def test_what_may_pass_loses_nothing_repeats_nothing_and_keeps_the_order(actions):
    run = Run()
    for action in actions:
        run.step(action)
    run.outbox.close_all()
    run.finish()
    assert run.broker.stored == [b"%d" % n for n in range(run.sent)]
    assert values_with(run, Appended) == set(run.broker.stored)
    assert run.outbox.bytes == 0


@given(st.lists(st.sampled_from([*ACTIONS, "wait", "send poison", "wait long"]), max_size=150))
def test_every_result_is_true_when_batches_fail_for_good(actions):
    run = Run()
    for action in actions:
        run.step(action)
    run.outbox.close_all()
    run.finish()
    stored = run.broker.stored
    assert len(stored) == len(set(stored)), "stored twice"
    assert set(run.results) == {b"%d" % n for n in range(run.sent)}
    assert values_with(run, Appended) <= set(stored)
    assert not values_with(run, RejectedError | Unavailable) & set(stored)
    assert set(stored) <= values_with(run, Appended | OutcomeUnknown)
    delivered = [int(value) for value in stored if value in values_with(run, Appended)]
    assert delivered == sorted(delivered)


def test_sequences_wrap_as_in_kafka():
    run = Run()
    run.step("send")
    run.finish()
    partition = run.outbox._partitions[TARGET]
    partition.next_sequence = run.broker.expected[1] = SEQUENCES - 1
    for _ in range(4):
        run.step("send")
    run.finish()
    assert partition.next_sequence == 3
    assert run.broker.stored == [b"0", b"1", b"2", b"3", b"4"]


def test_a_batch_whose_last_try_got_no_answer_tells_what_an_earlier_one_was_told():
    run = Run()
    batch, _ = run.outbox.add(TARGET, OutRecord(b"v"), size=1, now=0.0)
    run.outbox.close_all()
    run.outbox.give_identity(Identity(1, 0))
    assert run.outbox.next_request(1.0) is not None
    refusal = log_pb2.AppendResponse(correlation=batch.correlation)
    refusal.error.reason, refusal.error.message, refusal.error.retryable = "NoSpace", "the disk is full", True
    assert run.outbox.answered(refusal, now=2.0, pause_s=0.0) == []
    assert run.outbox.next_request(3.0) is not None
    run.outbox.connection_lost(NoAnswer("Deadline Exceeded"))
    (outcome,) = run.outbox.expire(LIMITS.delivery_timeout_s)
    assert "the disk is full" in str(outcome.result)
