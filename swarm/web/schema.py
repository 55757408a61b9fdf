"""Derive JSON Schema from a record class, so that the shape of an answer is declared
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

Schema = dict[str, Any]

_TYPES: dict[object, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def schema_of(record: type, **extra: Schema) -> Schema:
    """Return the schema of an object with the annotated fields of `record`.

    All fields are required, except those that a TypedDict declares with `total=False`.
    `extra` has additions to the schemas of single fields, by name. In `Annotated[T,
    X]`, a dict X adds to the schema of T. A record class X replaces the schema of T
    with a reference: the value is a dict with the fields of X. Raise TypeError for a
    type that this module cannot describe, and for an `extra` that names no field.
    """
    hints = get_type_hints(record, include_extras=True)
    if unknown := extra.keys() - hints.keys():
        raise TypeError(f"{record.__name__} has no field {min(unknown)}.")
    required = getattr(record, "__required_keys__", hints)
    return {
        "type": "object",
        "properties": {
            name: {**_schema(hint), **extra.get(name, {})} for name, hint in hints.items()
        },
        "required": [name for name in hints if name in required],
        "additionalProperties": False,
    }


def reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _schema(hint: Any) -> Schema:
    kind, arguments = get_origin(hint), get_args(hint)
    if kind is Annotated:
        schema = _schema(arguments[0])
        for added in arguments[1:]:
            schema = reference(added.__name__) if isinstance(added, type) else {**schema, **added}
        return schema
    if kind is Literal:
        return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
    if kind in (UnionType, Union):
        return {"type": [_schema(member)["type"] for member in arguments]}
    if kind in (list, tuple):
        return {"type": "array", "items": _schema(arguments[0])}
    if kind in (dict, Mapping):
        return {"type": "object"}
    if hint in _TYPES:
        return {"type": _TYPES[hint]}
    if isinstance(hint, type) and hasattr(hint, "__required_keys__"):
        return reference(hint.__name__)
    raise TypeError(f"there is no schema for {hint!r}.")
