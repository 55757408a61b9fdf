"""The tree is as CONTRIBUTING says: tests mirror the packages, share what is in tests/support, and folders stay small."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.conftest import ROOT

FURTHER = {"bench", "documents", "packaging", "proof", "robustness", "support", "typing"}
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def test_tests_mirror_the_packages() -> None:
    packages = {path.parent.relative_to(ROOT / "swarm") for path in (ROOT / "swarm").rglob("*.py")}
    folders = {path.parent.relative_to(ROOT / "tests") for path in TESTS}
    assert {folder for folder in folders if folder.parts and folder.parts[0] not in FURTHER} <= packages


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_test_takes_helpers_from_another_test(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            assert not node.module.rpartition(".")[2].startswith("test_"), f"line {node.lineno}: move it to tests/support"


@pytest.mark.parametrize("top", ["swarm", "tests"])
def test_no_folder_is_a_drawer(top: str) -> None:
    for folder in {path.parent for path in (ROOT / top).rglob("*.py")}:
        modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(modules) <= 22, f"{folder} has {len(modules)} modules: look for the second noun"
