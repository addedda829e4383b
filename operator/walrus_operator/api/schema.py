"""Building blocks of the models: camelCase names, strict about what they do not know, CEL rules beside the fields."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Quantity = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,12}(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?$", max_length=16)]
"""An amount of bytes, as Kubernetes writes it: `200Gi`."""

Duration = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,4}(ms|s|m|h|d)$", max_length=8)]
"""A time: `500ms`, `10s`, `5m`, `12h`, `7d`."""

Label = Annotated[str, Field(max_length=63)]


class Model(BaseModel):
    """A part of the resource. Parsed once at the edge; a field nobody knows is refused, never dropped in silence."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid", use_attribute_docstrings=True
    )


def rules(*pairs: tuple[str, str]) -> dict[str, Any]:
    """CEL rules with their messages, in the shape that goes into `json_schema_extra`."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in pairs]}


def keyed_by(field: str) -> dict[str, Any]:
    """Mark a list as a map: elements are told apart by this field, also by server-side apply."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [field]}


ATOMIC: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}
