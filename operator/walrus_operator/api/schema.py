"""Building blocks of the models: camelCase names, strict about what they do not know, CEL rules beside the fields."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

RULES = "x-kubernetes-validations"
"""Where a schema has its CEL rules."""


@dataclass(frozen=True)
class Spelled:
    """How a value is written. One that is not so is refused with a sentence: nobody reads a regular expression.

    The sentence stands behind the name of the field, and has an example.
    """

    pattern: str
    """In the syntax that Python and CEL share; a dot is `[.]`, as a backslash would have to be doubled in CEL."""
    sentence: str
    also: tuple[tuple[str, str], ...] = ()
    """Further rules with their sentences, for the API server only; asked where the value is spelled so."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        made = handler(schema)
        # Kubernetes refuses a definition whose rules may take long, and does not know how long `string(self)` is.
        text = "string(self)" if "anyOf" in made else "self"
        spelled = f"{text}.matches('{self.pattern}')"
        further = ((f"!{spelled} || {rule}", message) for rule, message in self.also)
        return {**made, **rules((spelled, self.sentence), *further)}

    def _check(self, value: int | str) -> int | str:
        if not re.fullmatch(self.pattern, str(value)):
            raise ValueError(self.sentence)
        return value


_BYTES = "^[1-9][0-9]{0,12}([.][0-9]{1,3})?(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?$"
_AMOUNT = "must be an amount such as 500Mi, 10Gi or 1.5Gi"

Quantity = Annotated[str, Field(max_length=20), Spelled(_BYTES, _AMOUNT)]
"""An amount of bytes, as Kubernetes writes it: `200Gi`."""

VolumeSize = Annotated[
    str,
    Field(max_length=20),
    Spelled(
        _BYTES,
        _AMOUNT,
        (("quantity(self).compareTo(quantity('64Mi')) >= 0", "must be 64Mi or more, for example 10Gi"),),
    ),
]
"""An amount of bytes that a log fits into."""

Duration = Annotated[
    str,
    Field(max_length=32),
    Spelled(
        "^([0-9]{1,5}d)?([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}s)?([0-9]{1,5}ms)?$",
        "must be a time such as 500ms, 90s, 1h30m or 7d",
        (("self.matches('[1-9]')", "must be longer than nothing, for example 90s"),),
    ),
]
"""A time: `500ms`, `90s`, `1h30m`, `7d`."""

Label = Annotated[str, Field(max_length=63)]


class Model(BaseModel):
    """A part of the resource. Parsed once at the edge; a field nobody knows is refused, never dropped in silence."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid", use_attribute_docstrings=True
    )


def rules(*pairs: tuple[str, str]) -> dict[str, Any]:
    """CEL rules with their messages, in the shape that goes into `json_schema_extra`."""
    return {RULES: [{"rule": rule, "message": message} for rule, message in pairs]}


def keyed_by(field: str) -> dict[str, Any]:
    """Mark a list as a map: elements are told apart by this field, also by server-side apply."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [field]}


ATOMIC: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}
