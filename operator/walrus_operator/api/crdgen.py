"""The CRDs and the chart's values schema, from the models.

Kubernetes takes *structural* schemas: no references, no titles, one type for each value. What pydantic says is brought
into that shape here; everything that is specific to Kubernetes stands in the models already.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import yaml
from pydantic import BaseModel

from walrus_operator.api import topic
from walrus_operator.api.cluster import GROUP, KIND, PLURAL, VERSION, ClusterSpec
from walrus_operator.api.schema import RULES, rules
from walrus_operator.api.status import NOT_WATCHED, ClusterStatus
from walrus_operator.api.topic_status import TopicStatus

Schema = dict[str, Any]

_VOLUME_KINDS = ("claim", "local")


def _not_below_its_claims(kind: str) -> str:
    """A size that changes may go back to what the claims have, as the status tells, and never below."""
    size = f"p.storage.{kind}.size"
    same = f"oldSelf.spec.pools.exists(o, o.name == p.name && has(o.storage.{kind}) && o.storage.{kind}.size == {size})"
    told = "self.status.pools.exists(s, s.name == p.name && has(s.storage)"
    smaller = f"quantity({size}).compareTo(quantity(s.storage)) < 0)"
    known = "has(self.status) && has(self.status.pools)"
    return f"self.spec.pools.all(p, !has(p.storage.{kind}) || {same} || !({known} && {told} && {smaller}))"


_ROOT_RULES = rules(
    *(
        (
            _not_below_its_claims(kind),
            f"a volume never gets smaller: {kind}.size must not be below status.pools[].storage",
        )
        for kind in _VOLUME_KINDS
    ),
    (
        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "metadata.name must start with a letter and hold only small letters, digits and '-': Services bear it",
    ),
    (
        "self.spec.pools.all(p, size(self.metadata.name) + size(p.name) <= 45)",
        "metadata.name and the name of a pool must not be longer than 45 characters together: pods bear both",
    ),
)

_COLUMNS = (
    ("Brokers", "integer", ".status.replicas", "Brokers that the spec asks for", 0),
    ("Ready", "integer", ".status.readyReplicas", "Brokers that serve", 0),
    ("Leader", "string", ".status.leader", "Pod that leads the metadata", 0),
    ("Version", "string", ".status.version", "Version that runs", 0),
    ("Backend", "string", ".status.backend", "Backend in use", 0),
    ("Replicated", "string", '.status.conditions[?(@.type=="Replicated")].status', "Whether all copies are there", 0),
    ("Spec", "string", '.status.conditions[?(@.type=="SpecAccepted")].status', "Whether the spec is accepted", 0),
    ("Phase", "string", ".status.phase", "Summary of the conditions", 0),
    ("Next", "string", ".status.plan.next", "Next action", 1),
    ("Blocked", "string", ".status.plan.blockedBy", "Gate that holds it up", 1),
    ("Age", "date", ".metadata.creationTimestamp", "Time since it was created", 0),
)

_TOPIC_RULES = rules(
    (
        (
            "self.spec.partitions >= oldSelf.spec.partitions || !has(self.status) || !has(self.status.partitions)"
            " || self.spec.partitions >= self.status.partitions"
        ),
        "partitions are never taken away: spec.partitions must not be below status.partitions",
    ),
)

_TOPIC_COLUMNS = (
    ("Cluster", "string", ".spec.cluster", "The WalrusCluster that has it", 0),
    ("Topic", "string", ".status.name", "Organisation and name of the topic", 0),
    ("Partitions", "integer", ".status.partitions", "Partitions that it has", 0),
    ("Copies", "integer", ".status.replicationFactor", "Brokers that store each record", 0),
    ("Size", "string", ".status.size", "Bytes of its sealed segments", 0),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', "Whether it is there as the spec says", 0),
    ("Phase", "string", ".status.phase", "Summary of the conditions", 0),
    ("Policy", "string", ".spec.managementPolicy", "Whether it is kept as the spec says", 1),
    ("Message", "string", '.status.conditions[?(@.type=="Ready")].message', "Why it is not ready", 1),
    ("Age", "date", ".metadata.creationTimestamp", "Time since it was created", 0),
)

Columns = tuple[tuple[str, str, str, str, int], ...]


def crd() -> Schema:
    """The CustomResourceDefinition of `WalrusCluster`."""
    schemas = structural(ClusterSpec), structural(ClusterStatus)
    return _definition((KIND, PLURAL, "wc"), "A cluster of Walrus brokers.", schemas, _ROOT_RULES, _COLUMNS)


def topic_crd() -> Schema:
    """The CustomResourceDefinition of `WalrusTopic`."""
    schemas = structural(topic.TopicSpec), structural(TopicStatus)
    names = topic.KIND, topic.PLURAL, "wt"
    return _definition(names, "A topic of a Walrus cluster.", schemas, _TOPIC_RULES, _TOPIC_COLUMNS)


def _definition(
    names: tuple[str, str, str], what: str, schemas: tuple[Schema, Schema], root_rules: Schema, told: Columns
) -> Schema:
    """A CustomResourceDefinition. *names*: its kind, that in the plural and in short; *schemas*: spec and status."""
    kind, plural, short = names
    spec, status = schemas
    schema = {
        "type": "object",
        "description": what,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            # The phase is what every status has: nothing of this is left once an operator has written one.
            "status": {**status, "default": {"phase": NOT_WATCHED}},
        },
        **root_rules,
    }
    columns = [
        {"name": name, "type": type_, "jsonPath": path, "description": text, "priority": priority}
        for name, type_, path, text, priority in told
    ]
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["walrus"],
            },
            "versions": [version],
        },
    }


def definitions() -> dict[str, str]:
    """The files of `crds/` by name, in the order in which they are printed."""
    return {f"{GROUP}_{one['spec']['names']['plural']}.yaml": _yaml(one) for one in (crd(), topic_crd())}


def _yaml(definition: Schema) -> str:
    return (
        "# Made by `python -m walrus_operator crds` from operator/walrus_operator/api: do not edit.\n"
        + yaml.safe_dump(definition, sort_keys=False, width=120)
    )


def values_schema() -> Schema:
    """JSON schema of the values of `charts/walrus`: the spec of the cluster it installs, its topics, what Helm adds."""
    spec, of_topic = (
        _json_schema(_inline(model.model_json_schema(by_alias=True))) for model in (ClusterSpec, topic.TopicSpec)
    )
    del of_topic["properties"]["cluster"]
    of_topic["required"] = ["name"]
    properties: Schema = {
        "nameOverride": {"type": "string", "description": "Name of the WalrusCluster; without it the release's name."},
        "global": {"type": "object", "description": "What a parent chart gives to all its charts."},
        "topics": {
            "type": "array",
            "description": "Topics of the cluster: the spec of a WalrusTopic each, without its cluster.",
            "items": of_topic,
        },
        **spec["properties"],
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart walrus",
        "type": "object",
        "properties": properties,
        "required": ["pools"],
        "additionalProperties": False,
    }


def structural(model: type[BaseModel]) -> Schema:
    """The structural schema of a model."""
    return _structural(_inline(model.model_json_schema(by_alias=True)))


def _inline(schema: Schema) -> Schema:
    """Put definitions where they are referred to; what stands beside a reference (default, description) wins."""
    definitions = schema.pop("$defs", {})

    def expand(node: Any) -> Any:
        if isinstance(node, list):
            return [expand(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            beside = {key: value for key, value in node.items() if key != "$ref"}
            return expand({**deepcopy(definitions[node["$ref"].rpartition("/")[2]]), **beside})
        return {key: expand(value) for key, value in node.items()}

    expanded: Schema = expand(schema)
    return expanded


def _structural(node: Schema) -> Schema:
    """One value: without what structural schemas do not know, with one type."""
    node = _without_null(node)
    if node.get("x-kubernetes-int-or-string"):
        kept = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
        return {**kept, **{name: node[name] for name in ("maxLength", RULES) if name in node}}
    made = {key: value for key, value in node.items() if key not in ("title", "additionalProperties", "properties")}
    if isinstance(made.get("default"), dict):
        made["default"] = {key: value for key, value in made["default"].items() if value is not None}
    if "const" in made:
        made["enum"] = [made.pop("const")]
    if "properties" in node:
        made["properties"] = {name: _structural(value) for name, value in node["properties"].items()}
    if isinstance(node.get("additionalProperties"), dict):
        made["additionalProperties"] = _structural(node["additionalProperties"])
    if "items" in made:
        made["items"] = _structural(made["items"])
    return made


def _json_schema(node: Schema) -> Schema:
    """The same for Helm: closed objects, `null` allowed where a value may be left out, nothing of Kubernetes."""
    optional = any(option.get("type") == "null" for option in node.get("anyOf", []))
    node = _without_null(node)
    if node.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    made = {key: value for key, value in node.items() if key != "title" and not key.startswith("x-kubernetes-")}
    if "properties" in made:
        made["properties"] = {name: _json_schema(value) for name, value in made["properties"].items()}
    if isinstance(made.get("additionalProperties"), dict):
        made["additionalProperties"] = _json_schema(made["additionalProperties"])
    if "items" in made:
        made["items"] = _json_schema(made["items"])
    if optional and "type" in made:
        made["type"] = [made["type"], "null"]
        if "enum" in made:
            made["enum"] = [*made["enum"], None]
    return made


def _without_null(node: Schema) -> Schema:
    """`T or null` as T; the API server does not keep nulls."""
    options = node.get("anyOf")
    if not options or {"type": "null"} not in options:
        return node
    beside = {key: value for key, value in node.items() if key != "anyOf" and not (key == "default" and value is None)}
    left = [option for option in options if option != {"type": "null"}]
    if len(left) > 1:
        return {"anyOf": left, **beside}
    return {**left[0], **beside}
