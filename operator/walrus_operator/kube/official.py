"""`KubeApi` over the official client. It blocks, so every call runs in a thread."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient, Resource

from walrus_operator.kube.api import (
    FIELD_MANAGER,
    READ_MAX_S,
    STATUS_MANAGER,
    WRITE_MAX_S,
    Conflict,
    Denied,
    Disrupting,
    KubeError,
    Missing,
    Refused,
    Unreachable,
)
from walrus_operator.kube.deadline import deadline, pools
from walrus_operator.objects import KINDS, POD, Kind, Manifest, Ref, ref_of

log = logging.getLogger(__name__)

_TIMEOUT_S = (3.0, 10.0)
_WRITE_TIMEOUT_S = (1.0, WRITE_MAX_S - 1.0)
"""To connect, and to be answered at all: together not longer than the lease allows a write."""
_READS = frozenset({"get", "list"})
_PAGE = 500
_APPLY = "application/apply-patch+yaml"

Told = Callable[[str, str, str, float], None]
"""Told of each call: verb, kind, outcome, seconds."""


class OfficialApi:
    """Talks to the API server as the pod's service account says, or the kubeconfig of a developer."""

    def __init__(
        self,
        told: Told = lambda *_: None,
        threads: int = 8,
        fence: Callable[[], None] = lambda: None,
        read_s: float = READ_MAX_S,
        configuration: client.Configuration | None = None,
    ) -> None:
        """`fence` is asked in the moment in which a write is sent; what it raises, the write raises.

        A read is given up after `read_s`, a write after `WRITE_MAX_S`, however slowly an answer drips in. Without a
        `configuration` it is the one of the pod, or of the kubeconfig.
        """
        configuration = configuration or _configured()
        configuration.retries = 0  # the loop tries again, with patience; a call that hangs would only hide it
        self._client = client.ApiClient(configuration)
        self._client.rest_client.pool_manager.pool_classes_by_scheme = pools()
        # The kinds are known: nothing is discovered, nothing is cached on disk.
        self._dynamic = DynamicClient(self._client, discoverer=lambda *_: None)
        self._resources = {name: _resource(kind, self._dynamic) for name, kind in KINDS.items()}
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="kube")
        self._told = told
        self._fence = fence
        self._read_s = read_s

    async def close(self) -> None:
        """End the threads; calls under way are waited for, as whoever was cancelled did not."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        self._client.close()

    async def get(self, ref: Ref) -> Manifest | None:
        """The object, or None where there is none."""
        try:
            return await self._call("get", ref.kind, lambda: self._ask("get", ref.kind, ref.namespace, ref.name))
        except Missing:
            return None

    async def list(self, kind: Kind, namespace: str | None, selector: str = "") -> list[Manifest]:
        """All pages of the objects."""
        found: list[Manifest] = []
        position = None
        while True:
            ask = partial(self._ask, "get", kind.name, namespace, None)
            page = await self._call(
                "list", kind.name, partial(ask, label_selector=selector, limit=_PAGE, _continue=position)
            )
            # Items of a list do not say what they are.
            found += [{**item, "kind": kind.name, "apiVersion": kind.api_version} for item in page["items"]]
            position = page["metadata"].get("continue")
            if not position:
                return found

    async def logs(self, namespace: str, pod: str, *, lines: int, previous: bool) -> str:
        """The last lines that the pod's containers wrote, or those before it was started again."""
        path = self._resources[POD.name].path(name=pod, namespace=namespace) + "/log"
        query = [("tailLines", lines), ("previous", str(previous).lower())]

        def ask() -> Manifest:
            answer = self._dynamic.request(
                "get", path, serialize=False, _request_timeout=_TIMEOUT_S, query_params=query
            )
            return {"text": answer.data.decode(errors="replace")}

        return str((await self._call("get", "Pod/log", ask))["text"])

    def connecting(
        self, namespace: str, pod: str, port: int, told: Callable[[str], None]
    ) -> Callable[[], socket.socket]:
        """What connects to a port of a pod through the API server, and tells what keeps it from that. It blocks."""
        # The operator never does this; and whoever connects has no time for what takes long to be imported.
        from kubernetes.client import CoreV1Api
        from kubernetes.stream import portforward

        def connect() -> socket.socket:
            # A client of its own: the call takes its client's transport away as long as it lasts.
            core = CoreV1Api(client.ApiClient(self._client.configuration))
            try:
                forward = portforward(core.connect_get_namespaced_pod_portforward, pod, namespace, ports=str(port))
            except ApiException as error:
                told(f"port-forward to {pod}: {error.reason}")
                raise ConnectionError(error.reason) from error
            connected: socket.socket = forward.socket(port)
            return connected

        return connect

    async def create(self, manifest: Manifest) -> Manifest:
        """Make the object."""
        ref = ref_of(manifest)
        return await self._call(
            "create",
            ref.kind,
            lambda: self._ask("post", ref.kind, ref.namespace, None, body=manifest, field_manager=FIELD_MANAGER),
        )

    async def replace(self, manifest: Manifest) -> Manifest:
        """Replace the object at its resource version."""
        ref = ref_of(manifest)
        return await self._call(
            "update",
            ref.kind,
            lambda: self._ask("put", ref.kind, ref.namespace, ref.name, body=manifest, field_manager=FIELD_MANAGER),
        )

    async def apply(self, manifest: Manifest) -> Manifest:
        """Server-side apply, with force: what the operator wants, it owns."""
        return await self._apply(manifest)

    async def try_apply(self, manifest: Manifest) -> None:
        """Server-side apply as a dry run: admission is asked, and nothing is stored."""
        await self._apply(manifest, dry_run="All")

    async def _apply(self, manifest: Manifest, **params: Any) -> Manifest:
        ref = ref_of(manifest)
        return await self._call(
            "patch",
            ref.kind,
            lambda: self._ask(
                "patch",
                ref.kind,
                ref.namespace,
                ref.name,
                body=manifest,
                content_type=_APPLY,
                field_manager=FIELD_MANAGER,
                force_conflicts=True,
                **params,
            ),
        )

    async def apply_status(self, manifest: Manifest) -> Manifest:
        """Server-side apply of the status."""
        ref = ref_of(manifest)
        return await self._call(
            "patch",
            f"{ref.kind}/status",
            lambda: self._ask(
                "patch",
                ref.kind,
                ref.namespace,
                ref.name,
                "/status",
                body=manifest,
                content_type=_APPLY,
                field_manager=STATUS_MANAGER,
                force_conflicts=True,
            ),
        )

    async def delete(self, ref: Ref, uid: str, *, orphan: bool = False) -> None:
        """Delete exactly this object."""
        body: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        if orphan:
            body["propagationPolicy"] = "Orphan"
        with suppress(Missing):
            await self._call(
                "delete", ref.kind, lambda: self._ask("delete", ref.kind, ref.namespace, ref.name, body=body)
            )

    async def evict(self, ref: Ref, uid: str) -> None:
        """Evict exactly this pod."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": ref.name, "namespace": ref.namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        with suppress(Missing):
            await self._call(
                "create",
                f"{ref.kind}/eviction",
                lambda: self._ask("post", ref.kind, ref.namespace, ref.name, "/eviction", body=body),
            )

    def _ask(
        self, method: str, kind: str, namespace: str | None, name: str | None, below: str = "", **params: Any
    ) -> Manifest:
        path = self._resources[kind].path(name=name, namespace=namespace) + below
        timeout = _TIMEOUT_S if method == "get" else _WRITE_TIMEOUT_S
        answer = self._dynamic.request(method, path, serialize=False, _request_timeout=timeout, **params)
        told: Manifest = json.loads(answer.data)
        return told

    async def _call(self, verb: str, kind: str, call: Callable[[], Manifest]) -> Manifest:
        def send() -> Manifest:
            if verb not in _READS:
                self._fence()
            with deadline(self._read_s if verb in _READS else WRITE_MAX_S):
                return call()

        began = time.monotonic()
        outcome = "ok"
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, send)
        except ApiException as error:
            mapped = _mapped(f"{verb} {kind}", error)
            outcome = type(mapped).__name__
            raise mapped from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            outcome = "Unreachable"
            raise Unreachable(f"{verb} {kind}: {error}") from error
        finally:
            self._told(verb, kind, outcome, time.monotonic() - began)


def of_user(context: str | None) -> tuple[client.Configuration, str]:
    """What a context of the kubeconfig says, by default the current one, and its namespace. Raises `Refused`."""
    configuration = client.Configuration()
    try:
        config.load_kube_config(context=context, client_configuration=configuration)
        contexts, active = config.list_kube_config_contexts()
    except config.ConfigException as error:
        raise Refused(f"the kubeconfig cannot be used: {error}") from error
    chosen = next((one for one in contexts if one["name"] == context), active)
    return configuration, chosen["context"].get("namespace", "default")


def _configured() -> client.Configuration:
    try:
        config.load_incluster_config()
    except config.ConfigException:
        config.load_kube_config()
    return client.Configuration.get_default_copy()


def _resource(kind: Kind, dynamic: DynamicClient) -> Resource:
    return Resource(
        prefix="apis" if kind.group else "api",
        group=kind.group,
        api_version=kind.api_version.rpartition("/")[2],
        kind=kind.name,
        namespaced=kind.namespaced,
        verbs=[],
        name=kind.plural,
        client=dynamic,
    )


def _mapped(what: str, error: ApiException) -> KubeError:
    """The one place that reads HTTP codes."""
    try:
        told = json.loads(error.body or "{}")
        said = told.get("message") or error.reason
        causes = {cause.get("reason") for cause in (told.get("details") or {}).get("causes") or ()}
    except (ValueError, AttributeError):
        said, causes = error.reason, set()
    text = f"{what}: {said}"
    match error.status:
        case 429 if "DisruptionBudget" in causes:
            return Disrupting(text)
        case 404:
            return Missing(text)
        case 409 | 410 | 412:
            return Conflict(text)
        case 401 | 403:
            return Denied(text)
        case 400 | 405 | 415 | 422:
            return Refused(text)
        case _:
            return Unreachable(text)
