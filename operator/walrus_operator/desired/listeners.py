"""Listeners as brokers are told of them: options of the nodes, and the file with what clients outside are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from walrus_operator.api.cluster import ClusterSpec
from walrus_operator.api.listeners import DEFAULT_ORG, DEFAULT_PORTS, Listener, Protocol
from walrus_operator.desired import names as n
from walrus_operator.objects import Manifest

_VOLUME = "advertised"
_FILE = "addresses"


def listener_inputs(spec: ClusterSpec) -> list[dict[str, Any]]:
    """What pods are made from because of the listeners, by name: nothing for what every broker has anyway.

    From where one is reached is not in it, but that clients are told of addresses that are found out later.
    """
    return [
        {
            "protocol": str(listener.speaks),
            "name": listener.name,
            "port": listener.serves_at,
            "org": listener.org,
            "admin": listener.lets_admin,
            "told": listener.names_brokers,
        }
        for listener in sorted(spec.listeners, key=lambda listener: listener.name)
        if not _is_there_anyway(listener)
    ]


def _is_there_anyway(listener: Listener) -> bool:
    is_default = listener.name == listener.speaks and listener.serves_at == DEFAULT_PORTS[listener.speaks]
    return is_default and listener.org == DEFAULT_ORG and listener.lets_admin and not listener.names_brokers


def ports(inputs: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Where brokers of these inputs listen for clients, by the name of the listener."""
    there = {str(protocol): port for protocol, port in DEFAULT_PORTS.items()}
    return there | {one["name"]: one["port"] for one in inputs}


def options(inputs: Sequence[dict[str, Any]]) -> list[Manifest]:
    """The variables of the broker's container."""
    made: list[Manifest] = []
    for protocol in Protocol:
        of_one = [_option(one) for one in inputs if one["protocol"] == protocol]
        if of_one:
            made.append({"name": f"WALRUS_{protocol.upper()}_LISTENER", "value": ";".join(of_one)})
    if any(one["told"] for one in inputs):
        made.append({"name": "WALRUS_ADVERTISED_FILE", "value": f"{n.ADVERTISED_DIR}/{_FILE}"})
    return made


def _option(one: dict[str, Any]) -> str:
    told = ",advertise=file" if one["told"] else ""
    admin = "" if one["admin"] else ",admin=off"
    return f"{one['name']}=0.0.0.0:{one['port']},org={one['org']}{told}{admin}"


def volumes(inputs: Sequence[dict[str, Any]]) -> list[Manifest]:
    """The annotation of the pod, as a file that follows it within a second or two."""
    if not any(one["told"] for one in inputs):
        return []
    annotation = {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{n.ADVERTISED}']"}
    return [{"name": _VOLUME, "downwardAPI": {"items": [{"path": _FILE, "fieldRef": annotation}]}}]


def mounts(inputs: Sequence[dict[str, Any]]) -> list[Manifest]:
    """Where the broker's container finds the file."""
    if not any(one["told"] for one in inputs):
        return []
    return [{"name": _VOLUME, "mountPath": n.ADVERTISED_DIR, "readOnly": True}]
