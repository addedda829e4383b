"""The reference page of a custom resource, from its definition. Pure."""

from collections.abc import Iterator
from typing import Any

import yaml

Schema = dict[str, Any]

HEAD = """\
# {kind}

`{group}/{version}`, short name `{short}`. Generated from the definition in `{source}`
by `make charts`. Required fields are marked with a star. What breaks one of the rules below the tables is refused by
Kubernetes, with the sentence that stands there.
"""


def page(definition: str) -> str:
    """The reference page, in Markdown."""
    crd = yaml.safe_load(definition)
    names, (version,) = crd["spec"]["names"], crd["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    head = HEAD.format(
        kind=names["kind"],
        group=crd["spec"]["group"],
        version=version["name"],
        short=names["shortNames"][0],
        source=f"crds/{crd['spec']['group']}_{names['plural']}.yaml",
    )
    parts = [head]
    if rules := _rules(schema):
        parts += ["## metadata\n", rules]
    for name in ("spec", "status"):
        parts += _sections(name, schema["properties"][name], heading="##")
    return "\n".join(parts)


def _sections(path: str, schema: Schema, heading: str) -> Iterator[str]:
    """The section of an object, then those of the objects in it."""
    yield f"{heading} {path}\n"
    if text := schema.get("description"):
        yield f"{text}\n"
    yield _table(schema)
    if rules := _rules(schema) + _rules_of_values(schema):
        yield rules
    for name, field in schema["properties"].items():
        inner = field.get("items", field)
        if "properties" in inner:
            yield from _sections(f"{path}.{name}" + ("[]" if "items" in field else ""), inner, heading="###")


def _rules(schema: Schema) -> str:
    return "".join(f"- {rule['message']}\n" for rule in _of(schema))


def _rules_of_values(schema: Schema) -> str:
    """How the fields that are no objects are spelled; an item of a map or a list as the field itself."""
    lines = []
    for name, field in schema["properties"].items():
        value = field.get("additionalProperties", field)
        if "properties" not in value:
            lines += [f"- `{name}` {rule['message']}\n" for rule in _of(value)]
    return "".join(lines)


def _of(schema: Schema) -> list[dict[str, str]]:
    found: list[dict[str, str]] = schema.get("x-kubernetes-validations", [])
    return found


def _table(schema: Schema) -> str:
    required = schema.get("required", [])
    rows = [
        f"| `{name}`{'*' if name in required else ''} | {_type(field)} | {_default(field)} | {_cell(field)} |"
        for name, field in schema["properties"].items()
    ]
    return "\n".join(["| field | type | default | meaning |", "| --- | --- | --- | --- |", *rows, ""])


def _type(field: Schema) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if "enum" in field:
        return ", ".join(f"`{choice}`" for choice in field["enum"])
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    if field.get("type") == "object" and "additionalProperties" in field:
        return f"map of {_type(field['additionalProperties'])}"
    low, high = field.get("minimum"), field.get("maximum")
    if low is not None and high is not None:
        return f"{field['type']}, {low} to {high}"
    return str(field["type"])


def _default(field: Schema) -> str:
    """Defaults of objects stand at their own fields."""
    value = field.get("default")
    if value is None or isinstance(value, dict | list):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _cell(field: Schema) -> str:
    return " ".join(str(field.get("description", "")).split()).replace("|", "\\|")
