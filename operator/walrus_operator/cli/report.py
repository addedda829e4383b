"""A bundle of what there is of a cluster, for whoever looks into it elsewhere: YAML and logs, and no secrets."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from walrus_operator.desired.names import ACCEPTED_SPEC, LABEL_CLUSTER, RENDERED_FROM
from walrus_operator.kube.api import KubeError
from walrus_operator.kube.official import OfficialApi
from walrus_operator.objects import (
    BUDGET,
    CLAIM,
    CLUSTER,
    CONFIG_MAP,
    EVENT,
    POD,
    SERVICE,
    STATEFUL_SET,
    TOPIC,
    Manifest,
)

_OF_CLUSTER = (STATEFUL_SET, POD, CLAIM, SERVICE, CONFIG_MAP, BUDGET)
"""Kinds that bear the cluster's label. Secrets are not among them: they are neither asked for nor written."""
LOG_LINES = 5_000
_LEFT_OUT = "left out of the report"
_COPIES = ("kubectl.kubernetes.io/last-applied-configuration", RENDERED_FROM)
"""Annotations that hold specs once more, as texts in which nothing can be left out."""


async def gather(kube: OfficialApi, namespace: str, name: str) -> dict[str, str]:
    """The files of the bundle by name; what may not be read is told in one of them."""
    files: dict[str, str] = {}
    untold: list[str] = []
    listed: dict[str, list[Manifest]] = {}
    for kind in (CLUSTER, TOPIC, EVENT, *_OF_CLUSTER):
        selector = f"{LABEL_CLUSTER}={name}" if kind in _OF_CLUSTER else ""
        try:
            listed[kind.name] = await kube.list(kind, namespace, selector)
        except KubeError as error:
            untold.append(str(error))
    listed[CLUSTER.name] = [one for one in listed.get(CLUSTER.name, ()) if one["metadata"]["name"] == name]
    listed[TOPIC.name] = [one for one in listed.get(TOPIC.name, ()) if one["spec"].get("cluster") == name]
    for kind_name, found in listed.items():
        if found:
            files[f"{kind_name.lower()}s.yaml"] = yaml.safe_dump_all(map(shown, found), sort_keys=False)
    for pod in listed.get(POD.name, ()):
        for previous in (False, True):
            file = f"logs/{pod['metadata']['name']}{'-previous' if previous else ''}.log"
            try:
                files[file] = await kube.logs(namespace, pod["metadata"]["name"], lines=LOG_LINES, previous=previous)
            except KubeError as error:
                if not previous:  # most containers ran only once
                    untold.append(str(error))
    if untold:
        files["not-read.txt"] = "\n".join(untold) + "\n"
    return files


def shown(found: Manifest) -> Manifest:
    """An object without what only its writers need, and without values that may be secret."""
    metadata = {name: value for name, value in found["metadata"].items() if name != "managedFields"}
    told = {name: value for name, value in metadata.get("annotations", {}).items() if name not in _COPIES}
    made: Manifest = _without_values({**found, "metadata": {**metadata, "annotations": told}})
    if found["kind"] == CONFIG_MAP.name:
        made["data"] = {**found.get("data", {}), ACCEPTED_SPEC: _LEFT_OUT}
    return made


def _without_values(node: Any) -> Any:
    """Values of variables of containers are left out, but for those that the operator sets."""
    if isinstance(node, list):
        return [_without_values(item) for item in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("env"), list):
        node = {**node, "env": [_variable(one) for one in node["env"]]}
    return {key: _without_values(value) for key, value in node.items()}


def _variable(one: Mapping[str, Any]) -> Mapping[str, Any]:
    ours = str(one.get("name", "")).startswith("WALRUS_")
    return one if ours or "value" not in one else {**one, "value": _LEFT_OUT}


def write(files: Mapping[str, str], path: Path) -> None:
    """Write the bundle. Raises `FileExistsError` where there is such a file."""
    root = path.name.removesuffix(".tar.gz")
    with path.open("xb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as bundle:
        for name, content in _encoded(files):
            entry = tarfile.TarInfo(f"{root}/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
            bundle.addfile(entry, io.BytesIO(content))


def _encoded(files: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    for name in sorted(files):
        yield name, files[name].encode()
