"""The real client of Kubernetes against a server that is slow: a write leaves only while it may."""

import asyncio
import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from urllib3.connection import HTTPConnection
from walrus_operator.kube import deadline, official
from walrus_operator.kube.api import WRITE_MAX_S, Unreachable
from walrus_operator.kube.official import _WRITE_TIMEOUT_S, OfficialApi
from walrus_operator.objects import SERVICE, Ref
from walrus_operator.runtime import lease

MANIFEST = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "shop", "uid": "u"}}


class Server:
    """Answers once it is let; remembers what it was asked."""

    def __init__(self):
        self.asked = []
        self.paths = []
        self.bodies = []
        self.arrived = threading.Semaphore(0)
        self.answer = threading.Event()
        self.drips = threading.Event()  # ends them
        self.drip_s = 0.0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def _any(self):
                server.bodies.append(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
                server.asked.append(self.command)
                server.paths.append(self.path.partition("?")[0])
                server.arrived.release()
                server.answer.wait(30)
                body = json.dumps({**MANIFEST, "items": [], "metadata": {}}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with suppress(OSError):  # whoever asked has given up
                    for byte in body:
                        self.wfile.write(bytes([byte]))
                        server.drips.wait(server.drip_s)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any  # noqa: N815

            def log_message(self, *arguments):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server(tmp_path, monkeypatch):
    made = Server()
    address = f"http://127.0.0.1:{made.http.server_port}"
    kubeconfig = {
        "current-context": "sim",
        "contexts": [{"name": "sim", "context": {"cluster": "sim", "user": "sim"}}],
        "clusters": [{"name": "sim", "cluster": {"server": address}}],
        "users": [{"name": "sim", "user": {"token": "t"}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    yield made
    made.answer.set()
    made.drips.set()
    made.http.shutdown()
    made.http.server_close()


def test_a_write_that_waited_for_a_thread_while_the_lease_was_lost_is_not_sent(server):
    held = True

    def fence():
        if not held:
            raise lease.LeaseLost("not held")

    async def story():
        nonlocal held
        kube = OfficialApi(threads=1, fence=fence)
        first = asyncio.ensure_future(kube.list(SERVICE, "shop"))
        await asyncio.to_thread(server.arrived.acquire)
        writes = [
            asyncio.ensure_future(write)
            for write in (
                kube.create(MANIFEST),
                kube.replace(MANIFEST),
                kube.apply(MANIFEST),
                kube.apply_status(MANIFEST),
                kube.delete(Ref("Service", "shop", "a"), "u"),
                kube.evict(Ref("Pod", "shop", "a-0"), "u"),
            )
        ]
        await asyncio.sleep(0)  # they wait behind the list
        held = False
        server.answer.set()
        await first
        for write in writes:
            with pytest.raises(lease.LeaseLost):
                await write
        assert server.asked == ["GET"]
        await kube.get(Ref("Service", "shop", "a"))
        await kube.close()

    asyncio.run(story())


def test_an_eviction_is_of_the_pod_that_was_looked_at_and_no_later_one(server):
    async def story():
        kube = OfficialApi()
        server.answer.set()
        await kube.evict(Ref("Pod", "shop", "a-0"), "u")
        assert server.paths == ["/api/v1/namespaces/shop/pods/a-0/eviction"]
        sent = json.loads(server.bodies[0])
        assert (sent["kind"], sent["deleteOptions"]) == ("Eviction", {"preconditions": {"uid": "u"}})
        await kube.close()

    asyncio.run(story())


def test_the_end_waits_for_a_write_that_is_under_way_though_nobody_else_does(server):
    async def story():
        kube = OfficialApi()
        write = asyncio.ensure_future(kube.apply(MANIFEST))
        await asyncio.to_thread(server.arrived.acquire)
        write.cancel()
        end = asyncio.ensure_future(kube.close())
        ended, _ = await asyncio.wait([end], timeout=0.2)
        assert not ended
        server.answer.set()
        await end
        assert server.asked == ["PATCH"]

    asyncio.run(story())


@pytest.mark.parametrize("reads", [True, False], ids=["read", "write"])
def test_a_call_whose_answer_drips_in_is_given_up_as_a_whole(server, monkeypatch, reads):
    """Time-outs of sockets count from byte to byte: such a call could outlast the lease."""
    monkeypatch.setattr(official, "WRITE_MAX_S", 0.3)
    server.answer.set()
    server.drip_s = 0.1

    async def story():
        kube = OfficialApi(read_s=0.3)
        call = kube.list(SERVICE, "shop") if reads else kube.apply(MANIFEST)
        with pytest.raises(Unreachable):
            await call
        server.drip_s = 0.0
        assert await kube.list(SERVICE, "shop") == []
        await kube.close()

    asyncio.run(story())


def test_a_write_whose_time_is_over_before_it_has_a_connection_is_not_sent(server, monkeypatch):
    monkeypatch.setattr(official, "WRITE_MAX_S", 0.0)
    connects = HTTPConnection.connect

    def connect(self):
        assert deadline._calls.current.over.wait(30)
        connects(self)

    async def story():
        kube = OfficialApi(threads=1)
        monkeypatch.setattr(HTTPConnection, "connect", connect)
        with pytest.raises(Unreachable, match="over before it was sent"):
            await kube.apply(MANIFEST)
        assert server.asked == []
        await kube.close()

    asyncio.run(story())


def test_a_write_is_given_up_before_another_operator_may_begin():
    assert sum(_WRITE_TIMEOUT_S) <= WRITE_MAX_S < lease._MARGIN_S


def test_a_lease_that_is_read_and_renewed_as_slowly_as_may_be_is_still_held_then():
    assert lease.READ_S + WRITE_MAX_S < lease.DURATION_S - lease._MARGIN_S
