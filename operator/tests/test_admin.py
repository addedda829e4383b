"""The real client of the Admin API against a server that is slow: a change leaves only while it may, with the token."""

import asyncio
import hmac
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from walrus_client.admin import AdminClient
from walrus_client.v1 import admin_pb2, log_pb2
from walrus_operator.observe.admin import AdminBrokers
from walrus_operator.observe.brokers import BrokerError, LevelRefused
from walrus_operator.observe.connections import KEPT_S, Connections
from walrus_operator.observe.snapshot import Replication
from walrus_operator.runtime.lease import LeaseLost

ANSWERS = {
    "Status": admin_pb2.StatusResponse(),
    "CaughtUp": admin_pb2.CaughtUpResponse(),
    "SetConfig": admin_pb2.SetConfigResponse(version=3),
    "SetLogLevel": admin_pb2.SetLogLevelResponse(),
    "SetReplication": admin_pb2.SetReplicationResponse(),
    "TransferLeadership": admin_pb2.TransferLeadershipResponse(leader=2),
    "FinalizeLevel": admin_pb2.FinalizeLevelResponse(level=8),
}


class Server(grpc.GenericRpcHandler):
    """Answers once it is let; remembers what it was asked, and with what token."""

    def __init__(self, port=0):
        self.asked = []
        self.peers = []
        self.arrived = threading.Semaphore(0)
        self.answer = threading.Event()
        self.refuses = None
        self.grpc = grpc.server(ThreadPoolExecutor(8), handlers=[self])
        self.port = self.grpc.add_insecure_port(f"127.0.0.1:{port}")
        self.grpc.start()

    def service(self, call):
        method = call.method.rpartition("/")[2]

        def handle(_, context):
            self.peers.append(context.peer())
            self.asked.append((method, dict(call.invocation_metadata).get("authorization")))
            self.arrived.release()
            self.answer.wait(30)
            if self.refuses is not None:
                told = log_pb2.Error(reason=self.refuses, message="it needs the cluster's secret")
                context.set_trailing_metadata((("walrus-error-bin", told.SerializeToString()),))
                context.abort(grpc.StatusCode.UNAUTHENTICATED, told.message)
            return ANSWERS[method].SerializeToString()

        return grpc.unary_unary_rpc_method_handler(handle)


@pytest.fixture
def server():
    made = Server()
    yield made
    made.answer.set()
    made.grpc.stop(None).wait()


def changes(brokers, secrets=None):
    """Every call that changes something."""
    return [
        brokers.set_config("127.0.0.1", {"segments.max_entries": 7}, (), 2, secrets),
        brokers.set_replication("127.0.0.1", Replication(3, 2), secrets),
        brokers.transfer_leadership("127.0.0.1", secrets),
        brokers.set_log_level("127.0.0.1", "debug", secrets),
        brokers.finalize_level("127.0.0.1", 8, secrets),
    ]


def test_a_change_that_waited_for_a_thread_while_the_lease_was_lost_is_not_sent(server):
    held = True

    def fence():
        if not held:
            raise LeaseLost("not held")

    async def story():
        nonlocal held
        brokers = AdminBrokers(threads=1, port=server.port, fence=fence)
        first = asyncio.ensure_future(brokers.caught_up("127.0.0.1"))
        await asyncio.to_thread(server.arrived.acquire)
        waiting = [asyncio.ensure_future(change) for change in changes(brokers)]
        await asyncio.sleep(0)  # they wait behind the question
        held = False
        server.answer.set()
        await first
        for change in waiting:
            with pytest.raises(LeaseLost):
                await change
        assert await brokers.caught_up("127.0.0.1") == ()
        assert [method for method, _ in server.asked] == ["CaughtUp", "CaughtUp"]
        await brokers.close()

    asyncio.run(story())


def test_changes_carry_the_token_of_the_first_secret_and_questions_none(server, monkeypatch):
    monkeypatch.delenv("WALRUS_SECRET_FILE", raising=False)
    server.answer.set()
    token = hmac.digest(b"the first secret", b"admin", "sha256").hex()

    async def story():
        brokers = AdminBrokers(port=server.port)
        await brokers.caught_up("127.0.0.1")
        for change in changes(brokers, b"\nthe first secret\nthe second\n"):
            await change
        for change in changes(brokers):
            await change
        await brokers.close()

    asyncio.run(story())
    methods = ["SetConfig", "SetReplication", "TransferLeadership", "SetLogLevel", "FinalizeLevel"]
    assert server.asked == [
        ("CaughtUp", None),
        *((method, f"Bearer {token}") for method in methods),
        *((method, None) for method in methods),
    ]


def test_a_level_that_a_member_does_not_know_is_no_broker_that_is_silent(server):
    server.answer.set()
    server.refuses = "LevelUnknown"

    async def story():
        brokers = AdminBrokers(port=server.port)
        with pytest.raises(LevelRefused):
            await brokers.finalize_level("127.0.0.1", 8, None)
        await brokers.close()

    asyncio.run(story())


def test_brokers_that_do_not_take_the_secret_did_not_refuse_the_spec(server):
    """`ConfigRefused` would say that only another spec helps."""
    server.answer.set()
    server.refuses = "Unauthenticated"

    async def story():
        brokers = AdminBrokers(port=server.port)
        for change in changes(brokers, b"another secret"):
            with pytest.raises(BrokerError, match="needs the cluster's secret"):
                await change
        await brokers.close()

    asyncio.run(story())


def test_a_broker_is_asked_over_one_connection(server):
    server.answer.set()

    async def story():
        brokers = AdminBrokers(port=server.port)
        for _ in range(5):
            await brokers.look("127.0.0.1")
        await brokers.close()

    asyncio.run(story())
    assert len(server.peers) == 5
    assert len(set(server.peers)) == 1


def test_who_is_asked_at_once_has_connections_of_their_own(server):
    async def story():
        brokers = AdminBrokers(port=server.port)
        looks = [asyncio.ensure_future(brokers.look("127.0.0.1")) for _ in range(3)]
        for _ in looks:
            await asyncio.to_thread(server.arrived.acquire)
        server.answer.set()
        await asyncio.gather(*looks)
        await brokers.close()

    asyncio.run(story())
    assert len(set(server.peers)) == 3


def test_a_broker_that_was_started_again_is_asked_over_a_new_connection(server):
    server.answer.set()

    async def story():
        brokers = AdminBrokers(port=server.port)
        await brokers.look("127.0.0.1")
        server.grpc.stop(None).wait()
        with pytest.raises(BrokerError):
            await brokers.look("127.0.0.1")
        again = Server(server.port)
        again.answer.set()
        await brokers.look("127.0.0.1")
        again.grpc.stop(None).wait()
        another = Server(server.port)
        another.answer.set()
        await brokers.look("127.0.0.1")  # at once, though the connection that is kept has failed
        assert len(another.asked) == 1
        another.grpc.stop(None).wait()
        await brokers.close()

    asyncio.run(story())


def test_connections_that_nobody_uses_are_closed(server):
    server.answer.set()
    now = 0.0
    kept = Connections(3.0, lambda: now)
    addresses = [f"127.0.0.1:{server.port}", f"localhost:{server.port}"]
    for address in addresses:
        kept.ask(address, AdminClient.status)
    now = KEPT_S + 1
    kept.ask(addresses[0], AdminClient.status)
    assert len(set(server.peers)) == 2
    kept.ask(addresses[1], AdminClient.status)
    assert len(set(server.peers)) == 3
    kept.close()
    kept.ask(addresses[0], AdminClient.status)  # one that is late is not kept
    kept.ask(addresses[0], AdminClient.status)
    assert len(set(server.peers)) == 5
