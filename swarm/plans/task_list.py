"""Read tasks from a file in JSON Lines, JSON or YAML. Each entry has the fields of a
task.

If an entry is not a valid task, the error names the position of the entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.formats.yaml_codec import pyyaml_missing
from swarm.plans.item import Item, Plan
from swarm.queue.task import spec_from


def read(text: str, name: str, chosen: str) -> Plan:
    """Return the tasks in a file, in the format `jsonl`, `json` or `yaml`.

    Raise BadInput if an entry is invalid, and StoreError if the file is YAML and PyYAML
    is missing.
    """
    plan = Plan(name)
    if chosen == "yaml":
        entries = _listed(_yaml(text, name), name)
    elif chosen == "jsonl":
        entries = _json_lines(text, name)
    else:
        entries = _listed(_json(text, name), name)
    for where, line, task in entries:
        spec = spec_from(task, where)
        fields = spec.fields()
        plan.items.append(
            Item(fields.pop("id"), where, line, fields=fields, after=fields.pop("after", ()))
        )
    return plan


def _listed(value: Any, name: str) -> Iterator[tuple[str, int, Any]]:
    if isinstance(value, dict) and "tasks" in value and "id" not in value:
        value = value["tasks"]
    elif isinstance(value, dict):
        value = [value]
    if value is None:
        return
    if not isinstance(value, list):
        raise BadInput(f"{name} is not a list of tasks.")
    for number, task in enumerate(value, 1):
        yield f"{name}, task {number}", 0, task


def _json_lines(text: str, name: str) -> Iterator[tuple[str, int, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{name}, line {number}", number, _json(line, f"{name}, line {number},")


def _json(text: str, where: str) -> Any:
    if not text.strip(" \t\r\n"):
        return None
    try:
        return json_codec.loads(text, strict=True)
    except ValueError as error:
        raise BadInput(f"{where} is not JSON: {error}.") from None


def _yaml(text: str, name: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise pyyaml_missing(f"reading {name} as YAML", "JSON and JSON Lines") from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        # a few aliases of aliases expand to millions of values
        for event in yaml.parse(text, Loader=loader) if "*" in text else ():
            if isinstance(event, yaml.AliasEvent):
                line = event.start_mark.line + 1 if event.start_mark else "?"
                raise BadInput(f"{name} has an alias in line {line}. Write the value in full.")
        return yaml.load(text, Loader=loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInput(f"{name} is not YAML: {' '.join(str(error).split())[:200]}.") from None
