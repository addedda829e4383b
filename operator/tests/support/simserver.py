"""The API server of a `SimKube` as a network shows it: slow, refusing, with webhooks, old lists, a former definition.

Every client has so many threads, as the real one, and asks its fence when a request leaves. A write of one who does not
hold the lease when it arrives is a mistake, and fails the test.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import wraps

from simapi import deepcopy
from simkube import SimKube
from walrus_operator.kube.api import READ_MAX_S, WRITE_MAX_S, Unreachable
from walrus_operator.objects import CLUSTER, LEASE, Ref, ref_of

CHANGES = (
    *("set_config", "set_log_level", "set_replication", "transfer_leadership"),
    *("make_topic", "set_topic_config", "set_topic_partitions", "remove_topic"),
)


class SimServer:
    """What clients of a `SimKube` meet."""

    def __init__(self, kube: SimKube):
        self.kube = kube
        self.seconds = 0.0  # how long a call takes
        self.lease_s = None  # how long one takes that is about the lease, if not as long
        self.faults = []  # (error, verbs or None, namespace or None, kinds or None)
        self.webhook = lambda _: None  # changes what was applied
        self.pruned = ()  # fields of the status that the definition does not know
        self.unwatched = set()  # namespaces whose watches are refused, and whose lists are not
        self.stale = False  # lists are those of before
        self.unheard = 0  # so many of the next writes are done, and their answers are lost
        self.log = []  # (time, verb, kind, namespace)
        self._lists = {}

    def fail(self, error, verbs=None, namespace=None, kinds=None):
        """From now on, such calls end so. Returns what ends it."""
        fault = (error, verbs, namespace, kinds)
        self.faults.append(fault)
        return lambda: self.faults.remove(fault)

    def meet(self, verb, kind, namespace):
        for error, verbs, where, kinds in self.faults:
            if (
                (verbs is None or verb in verbs)
                and (kinds is None or kind in kinds)
                and kind != LEASE.name
                and where in (None, namespace)
            ):
                raise error(f"{verb} {kind}: as the test wants it")

    def listed(self, kind, namespace, selector, fresh):
        """The list, or the one before it."""
        before = self._lists.get((kind.name, namespace, selector), fresh)
        if not self.stale:
            self._lists[kind.name, namespace, selector] = deepcopy(fresh)
        return deepcopy(before) if self.stale else fresh

    def holder(self):
        found = [found for ref, found in self.kube.objects.items() if ref.kind == LEASE.name]
        return found[0]["spec"]["holderIdentity"] if found else None

    def count(self, verbs, since, kind=None):
        return sum(at >= since and verb in verbs and kind in (None, of) for at, verb, of, _ in self.log)


def in_thread(call):
    """A call that is under way comes to its end, whoever waits for it."""

    @wraps(call)
    async def begin(client, *arguments, **named):
        task = asyncio.ensure_future(call(client, *arguments, **named))
        client.under_way.add(task)
        task.add_done_callback(client.under_way.discard)
        return await asyncio.shield(task)

    return begin


class SimClient:
    """One client of one operator."""

    def __init__(self, server, who, threads, fence, read_s=READ_MAX_S):
        self.server = server
        self.kube = server.kube
        self.who = who
        self.fence = fence
        self.threads = asyncio.Semaphore(threads)
        self.read_s = read_s
        self.under_way = set()

    async def close(self):
        ended = await asyncio.gather(*self.under_way, return_exceptions=True)
        assert not [error for error in ended if isinstance(error, AssertionError)], ended

    @asynccontextmanager
    async def _call(self, verb, kind, namespace):
        loop = asyncio.get_running_loop()
        async with self.threads:
            reading = verb in ("get", "list")
            if not reading:
                self.fence()
            if kind != LEASE.name:
                self.server.log.append((loop.time(), verb, kind, namespace))
            most = self.read_s if reading else WRITE_MAX_S
            quick = kind == LEASE.name and self.server.lease_s is not None
            seconds = self.server.lease_s if quick else self.server.seconds
            await asyncio.sleep(min(seconds, most))
            if seconds > most:
                raise Unreachable(f"{verb} {kind}: no answer in {most} s")
            self.server.meet(verb, kind, namespace)
            if not reading and kind != LEASE.name:
                assert self.server.holder() == self.who, f"{self.who} writes and does not hold the lease"
            yield
            if not reading and kind != LEASE.name and self.server.unheard:
                self.server.unheard -= 1
                raise Unreachable(f"{verb} {kind}: done, and the answer is lost")

    @in_thread
    async def get(self, ref):
        async with self._call("get", ref.kind, ref.namespace):
            return await self.kube.get(ref)

    @in_thread
    async def list(self, kind, namespace, selector=""):
        async with self._call("list", kind.name, namespace or "*"):
            equal, exists = selector if "=" in selector else "", selector if "=" not in selector else ""
            fresh = await self.kube.list(kind, namespace, equal)
            fresh = [one for one in fresh if not exists or exists in one["metadata"].get("labels", {})]
            return self.server.listed(kind, namespace, selector, fresh)

    @in_thread
    async def create(self, manifest):
        async with self._call("create", manifest["kind"], manifest["metadata"]["namespace"]):
            return await self.kube.create(manifest)

    @in_thread
    async def replace(self, manifest):
        async with self._call("update", manifest["kind"], manifest["metadata"]["namespace"]):
            return await self.kube.replace(manifest)

    @in_thread
    async def apply(self, manifest):
        async with self._call("patch", manifest["kind"], manifest["metadata"]["namespace"]):
            await self.kube.apply(manifest)
            self.server.webhook(self.kube.objects[ref_of(manifest)])
            return deepcopy(self.kube.objects[ref_of(manifest)])

    @in_thread
    async def try_apply(self, manifest):
        async with self._call("patch", manifest["kind"], manifest["metadata"]["namespace"]):
            await self.kube.try_apply(manifest)

    @in_thread
    async def apply_status(self, manifest):
        async with self._call("patch", f"{manifest['kind']}/status", manifest["metadata"]["namespace"]):
            known = {name: value for name, value in manifest["status"].items() if name not in self.server.pruned}
            return await self.kube.apply_status({**manifest, "status": known})

    @in_thread
    async def delete(self, ref, uid, *, orphan=False):
        async with self._call("delete", ref.kind, ref.namespace):
            await self.kube.delete(ref, uid, orphan=orphan)

    @in_thread
    async def evict(self, ref, uid):
        async with self._call("create", f"{ref.kind}/eviction", ref.namespace):
            await self.kube.evict(ref, uid)


class SimAdmin:
    """The brokers, as far away as the API server; a call that changes something asks the fence."""

    def __init__(self, server, fence, figures):
        self.server = server
        self.fence = fence
        self.figures = figures

    async def close(self):
        pass

    def __getattr__(self, name):
        call = getattr(self.server.kube.brokers, name)

        async def asked(*arguments):
            if name in CHANGES:
                self.fence()
            await asyncio.sleep(self.server.seconds)
            answer = await call(*arguments)
            return self.figures(answer) if name == "look" else answer

        return asked


def clusters(kube):
    """Every WalrusCluster that there is."""
    return {ref: found for ref, found in kube.objects.items() if ref.kind == CLUSTER.name}


__all__ = ["Ref", "SimAdmin", "SimClient", "SimServer", "clusters"]
