"""Looks at everything that a person would look at by hand; what these rights hide is told as hidden."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from walrus_operator import __version__
from walrus_operator.api.crdgen import crd, topic_crd
from walrus_operator.cli.examining import Facts, Hidden
from walrus_operator.cli.reached import ReachedBrokers
from walrus_operator.cli.user import UserApi
from walrus_operator.clock import now
from walrus_operator.desired.names import LABEL_CLUSTER
from walrus_operator.desired.network import operator_namespace_of
from walrus_operator.kube.api import Denied, KubeError
from walrus_operator.objects import DEFINITION, LEASE, NETWORK_POLICY, POD, Key, Manifest, Ref
from walrus_operator.observe.observer import Observer
from walrus_operator.observe.pods import Pod
from walrus_operator.rbac import RULES

T = TypeVar("T")

_OPERATORS = "app.kubernetes.io/part-of=walrus,app.kubernetes.io/component=operator"
_NAMESPACE = "walrus-system"
_LEASE = "walrus-operator"
_LEASE_VARIABLE = "WALRUS_OPERATOR_LEASE_NAME"


async def look(kube: UserApi, cluster: Manifest, operator_namespace: str | None) -> Facts:
    """What there is of a cluster, its brokers and its operator. Raises `KubeError`."""
    metadata = cluster["metadata"]
    key = Key(metadata["namespace"], metadata["name"])
    listed = await _seen(kube.list(POD, key.namespace, f"{LABEL_CLUSTER}={key.name}"))
    pods = [] if isinstance(listed, Hidden) else listed
    brokers = ReachedBrokers(kube, key.namespace, {_address(pod): pod["metadata"]["name"] for pod in pods})
    snapshot = await Observer(kube, brokers, now).look(key)  # type: ignore[arg-type] # it only reads
    if snapshot is None:
        raise KubeError(f"{cluster['kind']} {key.name} was deleted meanwhile")
    policy = snapshot.objects.get(Ref(NETWORK_POLICY.name, key.namespace, snapshot.cluster.names.policy))
    where = operator_namespace or operator_namespace_of(policy) or _NAMESPACE
    operators = await _seen(kube.list(POD, where, _OPERATORS))
    told = [] if isinstance(operators, Hidden) else operators
    names = [made["metadata"]["name"] for made in (crd(), topic_crd())]
    definitions = await asyncio.gather(*(_seen(kube.get(Ref(DEFINITION.name, "", name))) for name in names))
    began = now()
    time = await kube.clock()
    return Facts(
        cluster=cluster,
        snapshot=snapshot,
        troubles=brokers.troubles,
        definitions=dict(zip(names, definitions, strict=True)),
        operator_namespace=where,
        lease=await _seen(kube.get(Ref(LEASE.name, where, _lease_of(told)))),
        operators=operators if isinstance(operators, Hidden) else [*map(Pod.parse, operators)],
        lacking=await _lacking(kube, key.namespace, where, told),
        now=time,
        ahead_s=(began - time).total_seconds(),
        own_version=__version__,
        images={one["metadata"]["name"]: one["spec"]["containers"][0]["image"] for one in told},
    )


async def _seen(ask: Awaitable[T]) -> T | Hidden:
    """What Kubernetes shows, or why it does not."""
    try:
        return await ask
    except KubeError as error:
        return str(error)


def _address(pod: Manifest) -> str:
    return str(pod.get("status", {}).get("podIP", ""))


def _lease_of(operators: Sequence[Manifest]) -> str:
    """The lease that the operators say they share, or the one of the chart's own name."""
    for pod in operators:
        for one in pod["spec"]["containers"][0].get("env", ()):
            if one["name"] == _LEASE_VARIABLE and one.get("value"):
                return str(one["value"])
    return _LEASE


async def _lacking(kube: UserApi, namespace: str, where: str, operators: Sequence[Manifest]) -> list[str] | Hidden:
    """Rights in the cluster's namespace that the operator's account should have and has not."""
    if not operators:
        return f"no pod of the operator in namespace {where} tells its account"
    user = f"system:serviceaccount:{where}:{operators[0]['spec'].get('serviceAccountName', 'default')}"
    asked = [(group, resource, verb) for group, resource, verbs in RULES for verb in verbs]
    try:
        may = await asyncio.gather(*(kube.may(user, namespace, *one) for one in asked))
    except Denied as error:
        return str(error)
    return [f"{verb} {resource}" for (_, resource, verb), allowed in zip(asked, may, strict=True) if not allowed]
