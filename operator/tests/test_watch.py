"""kopf as the event source, against a server with gaps: it tells, it changes nothing, and deafness is found."""

import asyncio

import kopf
import yaml
from driving import KEY, Operator
from examples import SMALLEST
from simkube import SimKube
from simserver import SimClient, SimServer
from simwatch import SimWatch
from walrus_operator.handlers import watch
from walrus_operator.handlers.listener import Listener
from walrus_operator.kube.api import Unreachable
from walrus_operator.kube.official import OfficialApi
from walrus_operator.objects import Key, Ref, TopicsKey
from walrus_operator.reconcile import Reconciler
from walrus_operator.runtime import resync
from walrus_operator.runtime.events import EventRecorder
from walrus_operator.runtime.health import Health
from walrus_operator.runtime.loop import Loop
from walrus_operator.runtime.metrics import Metrics
from walrus_operator.runtime.queue import WorkQueue
from walrus_operator.runtime.resync import Resync

DEADLINE_S = 100


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
        async with asyncio.timeout(DEADLINE_S):
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


def test_a_status_wakes_nobody_and_a_wish_does(tmp_path, monkeypatch):
    async def story(server, heard):
        await heard.until(lambda: server.streams["walrusclusters"])
        await heard.until(lambda: heard.looked)
        looked = len(heard.looked)
        written = server.put("walrusclusters", "orders")
        server.tell("walrusclusters", "MODIFIED", {**written, "status": {"phase": "Running"}})
        await heard.until(lambda: heard.heard["uid-orders"] == written["metadata"]["resourceVersion"])
        assert len(heard.looked) == looked
        wished = server.put("walrusclusters", "orders")
        wished["metadata"]["annotations"] = {"walrus.dev/pause": "why"}
        server.tell("walrusclusters", "MODIFIED", wished)
        await heard.until(lambda: len(heard.looked) == looked + 1)

    run(tmp_path, monkeypatch, story)


def test_a_topic_is_told_by_its_cluster_when_it_is_wished_otherwise_and_when_it_is_gone(tmp_path, monkeypatch):
    async def story(server, heard):
        topics = TopicsKey("shop", "orders")
        await heard.until(lambda: server.streams["walrustopics"])
        made = server.put("walrustopics", "billing")
        made["spec"] = {"cluster": "orders"}
        server.tell("walrustopics", "ADDED", made)
        await heard.until(lambda: heard.looked.count(topics) == 1)
        written = {**made, "metadata": {**made["metadata"], "resourceVersion": "900"}, "status": {"phase": "Ready"}}
        server.tell("walrustopics", "MODIFIED", written)
        await heard.until(lambda: heard.heard["uid-billing"] == "900")
        assert heard.looked.count(topics) == 1
        server.tell("walrustopics", "DELETED", written)
        await heard.until(lambda: heard.looked.count(topics) == 2)
        assert heard.heard["uid-billing"] is None

    run(tmp_path, monkeypatch, story)


def test_the_listener_listens_to_what_answers_and_begins_anew_with_what_opens(tmp_path, monkeypatch):
    """kopf's own watch of a namespace that forbids it dies for good, without a word."""

    async def story(server, heard):
        loops = set()

        def look(key):
            loops.add(asyncio.get_running_loop())
            heard.look(key)

        listener = Listener(look, heard.hear, everywhere=False)
        listening = asyncio.ensure_future(listener.run())
        try:
            heard.looked.clear()
            listener.listen("shop", True)
            await heard.until(lambda: Key("shop", "orders") in heard.looked)
            heard.looked.clear()
            listener.listen("shop", False)
            listener.listen("shop", True)
            await heard.until(lambda: Key("shop", "orders") in heard.looked)
            assert loops == {asyncio.get_running_loop()}
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    run(tmp_path, monkeypatch, story)


def test_a_namespace_that_was_forbidden_is_heard_again_once_it_answers(tmp_path, monkeypatch):
    """A watch of kopf that is refused ends without a word (nolar/kopf#1145): lists notice when it can begin anew."""
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(resync, "FIRST_S", 0.05)

    async def story(server, _):
        told, metrics = Story(), Metrics()
        kube, listener = OfficialApi(), Listener(told.look, told.hear, everywhere=False)
        lists = Resync(
            kube,
            "shop",
            look=lambda _: None,
            listen=listener.listen,
            health=Health(lambda: 0.0),
            metrics=metrics,
        )
        listener.listen("shop", True)
        running = [asyncio.ensure_future(listener.run())]
        try:
            await until(lambda: len(server.streams["walrusclusters"]) == 2)  # the listener's, and that of the story
            server.forbidden = True
            server.cut("walrusclusters")
            await until(lambda: server.refusals >= 2)
            running.append(asyncio.ensure_future(lists.run()))
            closed = metrics.closed.labels("shop")._value
            await until(lambda: closed.get() == 1)
            told.looked.clear()
            server.forbidden = False
            await told.until(lambda: Key("shop", "orders") in told.looked)
            await until(lambda: server.streams["walrusclusters"])
            server.tell("walrusclusters", "ADDED", server.put("walrusclusters", "payments"))
            await told.until(lambda: Key("shop", "payments") in told.looked)
            assert closed.get() == 0
        finally:
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await kube.close()

    run(tmp_path, monkeypatch, story)


def test_a_watch_that_tells_nothing_any_more_is_deaf(tmp_path, monkeypatch):
    async def story(server, heard):
        health = Health(lambda: 0.0)
        await heard.until(lambda: "uid-orders" in heard.heard)
        server.put("walrusclusters", "orders")  # nobody is told of this change
        for uid, version in heard.heard.items():
            health.heard(uid, version)
        for _ in range(3):
            health.resynced("shop", {"uid-orders": str(server.version)})
        assert "deaf" in health.troubles()[0]

    run(tmp_path, monkeypatch, story)


def looping(kube):
    queue, health, metrics = WorkQueue(), Health(lambda: 0.0), Metrics()

    operator = Operator(kube)
    recorder = EventRecorder(kube, instance="test", monotonic=lambda: 0.0, now=operator._tick)
    reconciler = Reconciler(kube, kube.brokers, recorder, operator._tick, "walrus/walrus-node", "walrus-system")
    return Loop(reconciler, queue, health, metrics, operator._tick), queue, metrics


def listing(kube, look):
    """The lists of a namespace, which tell of what is new there."""
    client = SimClient(SimServer(kube), "one", 1, lambda: None)
    health = Health(lambda: 0.0)
    return Resync(client, "shop", look=look, listen=lambda *_: None, health=health, metrics=Metrics())


async def until(condition):
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


def passes(metrics, outcome):
    return metrics.registry.get_sample_value("walrus_operator_passes_total", {"outcome": outcome}) or 0


def test_a_cluster_that_no_event_told_of_is_found_by_the_list():
    async def story():
        kube = SimKube()
        kube.put("orders", SMALLEST)
        loop, queue, metrics = looping(kube)
        lists = listing(kube, queue.add)
        tasks = [asyncio.ensure_future(task) for task in (loop.work(), lists.run())]
        await until(lambda: passes(metrics, "ok"))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        queue.close()
        assert Ref("StatefulSet", "shop", "orders-general") in kube.objects

    asyncio.run(story())


def test_lists_remember_nothing_of_what_is_gone():
    """A thousand topics that were deleted would stay in the operator's memory; what comes back is looked at anew."""

    async def story():
        kube, looked = SimKube(), []
        kube.put("orders", SMALLEST)
        lists = listing(kube, looked.append)
        cluster = Ref("WalrusCluster", "shop", "orders")
        for _ in range(2):
            await lists.once()
        assert looked == [Key("shop", "orders")]
        found = kube.objects.pop(cluster)
        await lists.once()
        kube.objects[cluster] = found
        await lists.once()
        assert looked == 2 * [Key("shop", "orders")]

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
