"""The tree is as CONTRIBUTING says: tests mirror the packages, share what is in
tests/support, and folders stay small.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.conftest import ROOT

FURTHER = {
    "bench",
    "documents",
    "packaging",
    "programs",
    "proof",
    "robustness",
    "support",
    "typing",
}
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def test_tests_mirror_the_packages() -> None:
    packages = {path.parent.relative_to(ROOT / "swarm") for path in (ROOT / "swarm").rglob("*.py")}
    folders = {path.parent.relative_to(ROOT / "tests") for path in TESTS}
    assert {
        folder for folder in folders if folder.parts and folder.parts[0] not in FURTHER
    } <= packages


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_test_takes_helpers_from_another_test(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            assert not node.module.rpartition(".")[2].startswith("test_"), (
                f"line {node.lineno}: move it to tests/support"
            )


@pytest.mark.parametrize("top", ["swarm", "tests"])
def test_no_folder_is_a_drawer(top: str) -> None:
    for folder in {path.parent for path in (ROOT / top).rglob("*.py")}:
        modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(modules) <= 22, f"{folder} has {len(modules)} modules: look for the second noun"


def modules_that_use(*names: str) -> set[str]:
    """The modules of swarm that name one of these: `environ`, `sys.stdout`, or a module
    by its dotted name.
    """
    return {
        str(path.relative_to(ROOT / "swarm"))
        for path in (ROOT / "swarm").rglob("*.py")
        if _named_in(path) & set(names)
    }


def _named_in(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found |= {node.attr, ast.unparse(node)}
        elif isinstance(node, ast.ImportFrom):
            found |= {
                name for alias in node.names for name in (alias.name, f"{node.module}.{alias.name}")
            } | {node.module or ""}
    return found


def test_only_settings_reads_the_environment() -> None:
    """`stores.default` changes it for --store, for the processes that a command starts."""
    assert modules_that_use("environ", "getenv") == {"settings.py", "stores/default.py"}


def test_only_commands_print_or_ask() -> None:
    users = modules_that_use(
        "print", "sys.stdout", "sys.stderr", "swarm.terminal.output", "swarm.terminal.prompt"
    )
    assert {name.partition("/")[0] for name in users} <= {"cli", "terminal"}
