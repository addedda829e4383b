"""What users say of the pods of a pool, in the words of Kubernetes. What the operator sets itself is refused."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from walrus_operator.api.schema import Label, Model, Spelled, rules

OWN_VARIABLES = ("POD_NAME", "RAFKA_DATA_DIR", "RUST_LOG")
"""Variables besides `WALRUS_...` that the operator sets, or that would stand for one which it sets."""
_OWN_LABELS = ("walrus.dev/", "app.kubernetes.io/", "apps.kubernetes.io/", "statefulset.kubernetes.io/")
_OWN_ANNOTATIONS = ("walrus.dev/", "kubectl.kubernetes.io/")


def _not_beginning_with(prefixes: tuple[str, ...], *, also: str = "") -> str:
    told = " && ".join([*(f"!k.startsWith('{prefix}')" for prefix in prefixes), *([f"k != '{also}'"] if also else [])])
    return f"self.all(k, {told})"


Labels = Annotated[
    dict[str, Label],
    Field(
        max_length=32,
        json_schema_extra=rules(
            (
                _not_beginning_with(_OWN_LABELS, also="controller-revision-hash"),
                (
                    f"labels must not be those of the operator or of Kubernetes ({', '.join(_OWN_LABELS)}):"
                    " use others, for example example.com/team"
                ),
            )
        ),
    ),
]
Annotations = Annotated[
    dict[str, Annotated[str, Field(max_length=4096)]],
    Field(
        max_length=32,
        json_schema_extra=rules(
            (
                _not_beginning_with(_OWN_ANNOTATIONS),
                (
                    f"annotations must not be those of the operator or of kubectl ({', '.join(_OWN_ANNOTATIONS)}):"
                    " use others, for example example.com/owner"
                ),
            )
        ),
    ),
]


class PodSecurity(StrEnum):
    """Who says as which user brokers run."""

    OPERATOR = "Operator"
    PLATFORM = "Platform"


class KeyOf(Model):
    """A key of a Secret or ConfigMap of the cluster's namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Its name."""
    key: Annotated[str, Field(min_length=1, max_length=253)]
    """The key."""
    optional: bool | None = None
    """Whether brokers start without it."""


class ValueFrom(Model):
    """Where a value comes from: exactly one of the two."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "has(self.secretKeyRef) != has(self.configMapKeyRef)",
                "valueFrom must be exactly one of secretKeyRef and configMapKeyRef",
            )
        )
    )

    secret_key_ref: KeyOf | None = None
    """A key of a Secret."""
    config_map_key_ref: KeyOf | None = None
    """A key of a ConfigMap."""


class Variable(Model):
    """A variable of the broker's container."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "has(self.value) != has(self.valueFrom)",
                "a variable must have exactly one of value and valueFrom",
            ),
            (
                f"!self.name.startsWith('WALRUS_') && !(self.name in {list(OWN_VARIABLES)})",
                (
                    f"env must not have what the operator sets (WALRUS_..., {', '.join(OWN_VARIABLES)}):"
                    " options of brokers are fields of their own"
                ),
            ),
        )
    )

    name: Annotated[
        str,
        Field(max_length=128),
        Spelled("^[A-Za-z_][A-Za-z0-9_]*$", "must hold only letters, digits and '_', for example HTTPS_PROXY"),
    ]
    """Its name; not one that the operator sets."""
    value: Annotated[str, Field(max_length=4096)] | None = None
    """Its value. A `$(NAME)` in it stands for another variable."""
    value_from: ValueFrom | None = None
    """Where its value comes from instead. Pods do not restart when that changes."""


Amount = Annotated[
    int | str,
    Field(json_schema_extra={"x-kubernetes-int-or-string": True, "maxLength": 20}),
    Spelled(
        "^[0-9]{1,12}([.][0-9]{1,6})?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$",
        "must be an amount of 0 or more: 500m or 2 of cpu, 1.5Gi of memory",
    ),
]


class Resources(Model):
    """Compute resources of each broker's container."""

    requests: dict[str, Amount] | None = Field(default=None, max_length=8)
    """What a broker is guaranteed, for example `{cpu: 500m, memory: 1Gi}`. Without `cpu` it waits behind other pods."""
    limits: dict[str, Amount] | None = Field(default=None, max_length=8)
    """What a broker may use at most."""


class Toleration(Model):
    """A taint of nodes that the brokers of a pool accept."""

    key: Annotated[str, Field(max_length=316)] | None = None
    """Key of the taint; without it every key."""
    operator: Literal["Exists", "Equal"] | None = None
    """How `value` is compared; without it `Equal`."""
    value: Label | None = None
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; without it every effect."""
    toleration_seconds: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """How long a `NoExecute` taint is tolerated; without it for ever."""


class PullSecret(Model):
    """A Secret of the cluster's namespace that a registry of images asks for."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Its name; its type is `kubernetes.io/dockerconfigjson`."""
