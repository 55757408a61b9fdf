"""Private parts of the interpreter and of libraries: swarm uses few, each has a public
fallback, and a test shows that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.conftest import ROOT

# What is private by its name, and what makes it bearable.
KNOWN = {
    # falls back to json: tests/formats/test_json_codec.py
    ("swarm/formats/json_codec.py", "_json"),
    ("swarm/stores/redis.py", "_sock"),  # falls back to a polite end: tests/stores/test_redis.py
}
DOCUMENTED = {"_exit", "_asdict"}  # of os, of named tuples
MAY_BE_MISSING = {  # each is imported where its absence is caught: tests of the same names
    ("swarm/plans/replacing.py", "ctypes"),  # tests/plans/test_sprint_writer.py
    ("swarm/stores/file/line_reader.py", "ctypes"),
    ("swarm/system/child_side.py", "ctypes"),
    ("swarm/system/inotify.py", "ctypes"),
}


def test_every_private_part_is_known_and_no_other_is_used() -> None:
    found = {(file, name) for file, name in used() if name not in DOCUMENTED}
    assert found == KNOWN | MAY_BE_MISSING


def used() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "swarm").rglob("*.py")):
        file, tree = path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())
        own = {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        own |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and is_self(node)
        }
        for node in ast.walk(tree):
            for name in private_names(node):
                if name not in own:
                    yield file, name


def private_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module or ""] if (node.module or "").partition(".")[0] != "swarm" else []
    elif isinstance(node, ast.Attribute) and not is_self(node):
        names = [node.attr]
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr")
    ):
        names = [str(node.args[1].value)] if isinstance(node.args[1], ast.Constant) else []
    else:
        names = []
    for name in names:
        parts = name.split(".")
        if name == "ctypes" or any(
            part.startswith("_") and not part.endswith("__") for part in parts
        ):
            yield name


def is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
