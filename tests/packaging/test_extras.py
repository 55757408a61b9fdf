"""The extras name every package that swarm imports, with the version that is tested."""

from __future__ import annotations

import ast
import re
import sys
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.conftest import ROOT

PACKAGES = {"yaml": "PyYAML"}  # modules whose package has another name
NOT_IMPORTED = {"h11"}  # uvicorn imports it, because swarm asks for it by name


def declared() -> dict[str, Version]:
    """Return each package of the extras with its lowest version."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    del extras["all"]
    requirements = [Requirement(text) for extra in extras.values() for text in extra]
    return {
        canonicalize_name(requirement.name): Version(
            next(iter(requirement.specifier)).version if requirement.specifier else "0"
        )
        for requirement in requirements
    }


def imported() -> set[str]:
    """Return the packages that swarm imports and that do not come with Python."""
    modules: set[str] = set()
    for path in (ROOT / "swarm").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                modules.update(name.name.partition(".")[0] for name in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module.partition(".")[0])
    return {
        canonicalize_name(PACKAGES.get(module, module))
        for module in modules - sys.stdlib_module_names - {"swarm"}
    }


def test_every_package_that_swarm_imports_is_declared_in_an_extra() -> None:
    assert imported() | NOT_IMPORTED == set(declared())


def test_the_lowest_version_of_every_extra_is_the_one_that_is_tested() -> None:
    text = (ROOT / "requirements" / "lowest.txt").read_text()
    tested: dict[str, set[Version]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE):
        tested.setdefault(canonicalize_name(name), set()).add(Version(version))
    for name, lowest in declared().items():
        assert lowest in tested[name], name
