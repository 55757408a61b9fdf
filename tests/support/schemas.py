"""The schemas that ship with the package, by name."""

from __future__ import annotations

import json
from typing import Any

from tests.conftest import ROOT

_FOLDER = ROOT / "swarm" / "admin" / "schemas"
SCHEMAS: dict[str, dict[str, Any]] = {
    name: json.loads((_FOLDER / f"{name}.schema.json").read_text())
    for name in ("status-record", "lock", "sprint-return")
}
