"""A disk that is full again and again, with repository and state directory on it.

The disk is a small tmpfs in a mount namespace of its own, so this module runs as a
process of its own: `python -m proof.landing.full_disk DIRECTORY SEED TASKS`. It prints
figures and violations as JSON. Linux only, as root.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from proof.landing import chaos
from proof.landing.crew import Crew
from proof.landing.scene import ROOT, Figures, Scene, Setup
from tests.support.disks import fill

_SIZE = "96m"
_FULL = (0.1, 0.5, 1.5)  # seconds for which the disk is full


def run(directory: Path, seed: int, tasks: int) -> tuple[Figures, list[str]]:
    """Run this module in a mount namespace of its own."""
    inside = ("unshare", "--mount", "--propagation", "private")
    words = (sys.executable, "-m", __name__, str(directory), str(seed), str(tasks))
    done = subprocess.run([*inside, *words], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return Figures(), [f"the run ended with {done.returncode}: {done.stderr[-1500:]}"]
    answer = json.loads(done.stdout)
    return Figures(**answer["figures"]), answer["violations"]


def main() -> None:
    directory, seed, tasks = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    scene = Scene(directory, Setup(seed=seed))
    disk = scene.checkouts[0]
    disk.mkdir(parents=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={_SIZE},mode=0755", "tmpfs", disk], check=True
    )
    times = 0

    def disturb(crew: Crew, chance: random.Random) -> None:
        nonlocal times
        ballast = disk / ".git" / "ballast"
        fill(ballast)
        try:
            time.sleep(chance.choice(_FULL))
            if chance.random() < 0.3:
                crew.disturb(chance)
        finally:
            ballast.unlink()
        times += 1

    figures, violations = chaos.run(
        scene,
        tasks,
        make_crew=lambda scene: Crew(scene, may_fail=True),
        with_person=False,
        disturb=disturb,
    )
    figures.more["times full"] = times
    print(json.dumps({"figures": asdict(figures), "violations": violations}))


if __name__ == "__main__":
    main()
