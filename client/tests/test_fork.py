"""A client belongs to the process that made it: a forked child has its locks and connections, but not the threads that
serve them. It hung, for ever, where it used the client or merely left its block."""

import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest
from walrus_client import Client, Forked, ProducerOptions
from walrus_client.admin import AdminClient

LONG_S = 60.0
WAITS = ProducerOptions(linger_ms=3_600_000)


def in_child(work: Callable[[], object]) -> int:
    """Forks, works in the child, and gives its exit code: 0 after the work, 1 after an error. Kills one that hangs."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:  # a child must not go on as its parent
            sys.stderr.write(f"child: {error!r}\n")
        finally:
            os._exit(code)
    descriptor = os.pidfd_open(child)
    try:
        if not select.select([descriptor], [], [], LONG_S)[0]:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_every_call_of_a_child_is_refused_and_the_parent_goes_on(peer, storage):
    with Client(peer.address) as client, AdminClient(peer.address) as admin:
        client.create_topic("t")
        client.append("t", [b"before"] * 3)
        records = client.read("t", bytes_max=1)
        next(records)
        with client.producer("t", options=WAITS) as producer:
            delivery = producer.send(b"parent's")

            def child() -> None:
                for call in (
                    lambda: client.create_topic("u"),
                    lambda: client.topics(),
                    lambda: client.segments("t"),
                    lambda: client.append("t", [b"child's"]),
                    lambda: client.producer("t"),
                    lambda: next(client.read("t")),
                    lambda: next(client.read_batches("t")),
                    lambda: list(records),
                    lambda: client.close(),
                    lambda: producer.send(b"child's"),
                    lambda: producer.send_batch([b"child's"]),
                    lambda: producer.flush(),
                    lambda: producer.stats(),
                    lambda: producer.close(),
                    lambda: delivery.result(),
                    lambda: delivery.exception(),
                    lambda: admin.status(),
                    lambda: admin.close(),
                ):
                    with pytest.raises(Forked, match="before the process was forked"):
                        call()
                with admin, client, producer:
                    pass

            assert in_child(child) == 0
            producer.flush()
        assert delivery.result().base_offset == 3
        assert [record.offset for record in records] == [1, 2]
    assert storage.values("t") == [b"before"] * 3 + [b"parent's"]


def test_a_child_makes_a_client_of_its_own(peer, storage):
    """In a program of its own: gRPC starts anew in a child only where its parent has no call under way."""
    with Client(peer.address) as client:
        client.create_topic("t")
    program = f"""
        import os
        from walrus_client import Client

        parents = Client({peer.address!r})
        child = os.fork()
        if child == 0:
            with Client({peer.address!r}) as own:
                own.append("t", [b"child's"])
            raise SystemExit(0)
        assert os.waitpid(child, 0)[1] == 0
        parents.append("t", [b"parent's"])
        parents.close()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=LONG_S)
    assert storage.values("t") == [b"child's", b"parent's"]


@pytest.mark.parametrize("end", ["raise SystemExit(0)", "sys.exit(0)", "pass", "os._exit(0)"])
def test_a_child_that_ends_does_not_wait_for_the_records_of_its_parent(peer, storage, end):
    """At its exit a program delivers what its producers hold; a child did so for those of its parent, whose threads it
    has not."""
    with Client(peer.address) as client:
        client.create_topic("t")
    program = f"""
        import os, sys
        from walrus_client import Client, ProducerOptions

        client = Client({peer.address!r})
        with client.producer("t", options=ProducerOptions(linger_ms=3_600_000)) as producer:
            client.append("t", [b"first"])
            producer.send(b"second")
            child = os.fork()
            if child == 0:
                {end}
            else:
                assert os.waitpid(child, 0)[1] == 0
        if child:
            client.close()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], check=False, timeout=LONG_S, capture_output=True
    )
    assert (done.returncode, b"producer" in done.stderr) == (0, False), done.stderr
    assert storage.values("t") == [b"first", b"second"]
