"""kopf as the event source, against a server with gaps: it tells, it changes nothing, and deafness is found."""

import asyncio

import kopf
import yaml
from driving import KEY, Operator
from examples import SMALLEST
from simkube import SimKube
from simwatch import SimWatch
from walrus_operator.handlers import watch
from walrus_operator.kube.api import Unreachable
from walrus_operator.objects import Key, Ref
from walrus_operator.reconcile import Reconciler
from walrus_operator.runtime.events import EventRecorder
from walrus_operator.runtime.health import Health
from walrus_operator.runtime.loop import Loop
from walrus_operator.runtime.metrics import Metrics
from walrus_operator.runtime.queue import WorkQueue

DEADLINE_SECONDS = 100


class Story:
    """What was heard, and waiting for more."""

    def __init__(self):
        self.looked = []
        self.heard = {}
        self.news = asyncio.Event()

    def look(self, key):
        self.looked.append(key)
        self.news.set()

    def hear(self, uid, version):
        self.heard[uid] = version
        self.news.set()

    async def until(self, condition):
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not condition():
                self.news.clear()
                await self.news.wait()


def run(tmp_path, monkeypatch, story):
    """`story(server, heard)` beside kopf, which listens to the server."""

    async def main():
        server, heard = SimWatch(), Story()
        kubeconfig = {
            "current-context": "sim",
            "contexts": [{"name": "sim", "context": {"cluster": "sim", "user": "sim"}}],
            "clusters": [{"name": "sim", "cluster": {"server": await server.start()}}],
            "users": [{"name": "sim", "user": {"token": "t"}}],
        }
        (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        monkeypatch.setattr(kopf, "login_with_service_account", lambda **_: None)  # the tests may run in a pod
        server.put("walrusclusters", "orders")
        stop = asyncio.Event()
        listening = asyncio.ensure_future(
            kopf.operator(
                registry=watch.registry(heard.look, heard.hear),
                settings=watch.settings(),
                standalone=True,
                namespaces=["shop"],
                stop_flag=stop,
            )
        )
        try:
            await story(server, heard)
        finally:
            stop.set()
            await listening
            await server.stop()
        assert server.methods == {"GET"}

    asyncio.run(main())


def test_a_gap_in_the_watch_is_followed_by_a_list_and_nothing_is_ever_written(tmp_path, monkeypatch):
    async def story(server, heard):
        await heard.until(lambda: Key("shop", "orders") in heard.looked)
        await heard.until(lambda: server.streams["statefulsets"])
        server.tell(
            "statefulsets", "MODIFIED", server.put("statefulsets", "bills-general", {"walrus.dev/cluster": "bills"})
        )
        await heard.until(lambda: Key("shop", "bills") in heard.looked)
        server.put("walrusclusters", "payments")  # in the gap
        server.cut("walrusclusters")
        await heard.until(lambda: Key("shop", "payments") in heard.looked)
        assert heard.heard["uid-payments"] == str(server.version)

    run(tmp_path, monkeypatch, story)


def test_a_watch_that_tells_nothing_any_more_is_deaf(tmp_path, monkeypatch):
    async def story(server, heard):
        health = Health(lambda: 0.0)
        await heard.until(lambda: "uid-orders" in heard.heard)
        server.put("walrusclusters", "orders")  # and nobody is told
        for uid, version in heard.heard.items():
            health.heard(uid, version)
        for _ in range(2):
            health.resynced({"uid-orders": str(server.version)})
        assert "deaf" in health.troubles()[0]

    run(tmp_path, monkeypatch, story)


def looping(kube):
    queue, health, metrics = WorkQueue(), Health(lambda: 0.0), Metrics()

    operator = Operator(kube)
    recorder = EventRecorder(kube, instance="test", monotonic=lambda: 0.0, now=operator._tick)
    reconciler = Reconciler(kube, kube.brokers, recorder, operator._tick, "walrus/walrus-node")
    return Loop(reconciler, queue, health, metrics), queue, metrics


async def until(condition):
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


def passes(metrics, outcome):
    return metrics.registry.get_sample_value("walrus_operator_passes_total", {"outcome": outcome}) or 0


def test_a_cluster_that_no_event_told_of_is_found_by_the_list():
    async def story():
        kube = SimKube()
        kube.put("orders", SMALLEST)
        loop, _, metrics = looping(kube)
        tasks = [asyncio.ensure_future(task) for task in (loop.work(), loop.resync(kube, ["shop"]))]
        await until(lambda: passes(metrics, "ok"))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert Ref("StatefulSet", "shop", "orders-general") in kube.objects

    asyncio.run(story())


def test_a_pass_that_fails_is_tried_again_and_the_worker_lives_on(caplog):
    class Flaky(SimKube):
        def __init__(self):
            super().__init__()
            self.failures = [Unreachable("no answer"), ValueError("a mistake of ours")]

        async def get(self, ref):
            if self.failures:
                raise self.failures.pop(0)
            return await super().get(ref)

    async def story():
        kube = Flaky()
        kube.put("orders", SMALLEST)
        loop, queue, metrics = looping(kube)
        queue.add(KEY)
        working = asyncio.ensure_future(loop.work())
        await until(lambda: passes(metrics, "ok"))
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        queue.close()
        assert passes(metrics, "Unreachable") == passes(metrics, "mistake") == 1
        assert "a mistake of ours" in caplog.text

    asyncio.run(story())
