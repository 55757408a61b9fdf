"""Locales that are not UTF-8."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def latin_1(where: Path) -> dict[str, str]:
    """Return the environment of a locale that is not UTF-8, made here because few
    systems still have one.
    """
    made = where / "xx_XX.ISO-8859-1"
    # it exits with 1 and warns about categories that this small locale leaves out
    if shutil.which("localedef"):
        subprocess.run(
            ["localedef", "-c", "-i", "POSIX", "-f", "ISO-8859-1", str(made)],
            capture_output=True,
            timeout=30,
        )
    if not made.exists():
        pytest.fail("localedef cannot make a locale here: install Debian's locales")
    # Python 3.15 uses UTF-8 in every locale unless it is told not to
    return {"LC_ALL": made.name, "LOCPATH": str(where), "PYTHONUTF8": "0"}
