"""The part of an API server that kopf talks to: discovery, lists and watches over HTTP, with gaps and refusals."""

from __future__ import annotations

import asyncio
import json

from aiohttp import web

WATCHED = {
    ("walrus.dev", "v1alpha1", "walrusclusters"): "WalrusCluster",
    ("walrus.dev", "v1alpha1", "walrustopics"): "WalrusTopic",
    ("apps", "v1", "statefulsets"): "StatefulSet",
}

# kopf wants to know that they are there, although it is told not to look at them.
DISCOVERED = {
    **WATCHED,
    ("", "v1", "namespaces"): "Namespace",
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions"): "CustomResourceDefinition",
}


class SimWatch:
    """Objects by plural; `tell` sends an event to the watches, `cut` ends them with 410 Gone."""

    def __init__(self):
        self.objects = {plural: {} for _, _, plural in WATCHED}
        self.streams = {plural: [] for _, _, plural in WATCHED}
        self.forbidden = False  # nothing may be listed or watched
        self.refusals = 0
        self.methods = set()
        self.version = 1
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self.runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    async def start(self):
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self.runner.addresses[0][1]}"

    async def stop(self):
        for streams in self.streams.values():
            for stream in streams:
                stream.put_nowait(None)
        await self.runner.cleanup()

    def put(self, plural, name, labels=None):
        """Make or change an object without telling anyone."""
        self.version += 1
        metadata = {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "resourceVersion": str(self.version),
            "labels": labels or {},
        }
        self.objects[plural][name] = {"metadata": metadata}
        return self.objects[plural][name]

    def tell(self, plural, kind, found):
        for stream in self.streams[plural]:
            stream.put_nowait({"type": kind, "object": found})

    def cut(self, plural):
        for stream in self.streams[plural]:
            stream.put_nowait({"type": "ERROR", "object": {"code": 410, "reason": "Expired", "kind": "Status"}})
            stream.put_nowait(None)

    async def _answer(self, request):
        self.methods.add(request.method)
        parts = request.path.strip("/").split("/")
        if parts == ["version"]:
            return web.json_response({"major": "1", "minor": "36"})
        if parts == ["api"]:
            return web.json_response({"versions": ["v1"]})
        if parts == ["apis"]:
            groups = [_group(*one) for one in sorted({(group, version) for group, version, _ in DISCOVERED if group})]
            return web.json_response({"groups": groups})
        if parts == ["api", "v1"] or len(parts) == 3:
            asked = ("", "v1") if parts[0] == "api" else (parts[1], parts[2])
            return web.json_response({"resources": [_resource(*key) for key in DISCOVERED if key[:2] == asked]})
        plural = parts[-1]
        if plural not in self.objects:
            return web.json_response({"code": 404}, status=404)
        if self.forbidden:
            self.refusals += 1
            told = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": f"{plural} is forbidden"}
            return web.json_response(told, status=403)
        if "watch" not in request.query:
            items = list(self.objects[plural].values())
            return web.json_response(
                {"kind": "List", "metadata": {"resourceVersion": str(self.version)}, "items": items}
            )
        return await self._watch(request, plural)

    async def _watch(self, request, plural):
        response = web.StreamResponse()
        await response.prepare(request)
        stream = asyncio.Queue()
        self.streams[plural].append(stream)
        try:
            while (event := await stream.get()) is not None:
                await response.write(json.dumps(event).encode() + b"\n")
        finally:
            self.streams[plural].remove(stream)
        return response


def _group(group, version):
    told = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [told], "preferredVersion": told}


def _resource(group, version, plural):
    kind = DISCOVERED[group, version, plural]
    return {
        "name": plural,
        "singularName": kind.lower(),
        "namespaced": (group, version, plural) in WATCHED,
        "kind": kind,
        "verbs": ["get", "list", "watch", "patch"],
    }
