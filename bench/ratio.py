"""Measure ratios: the candidates alternate, round by round, and each is judged by its
median.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def medians(
    candidates: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    repeat: int = 1,
    before: Mapping[str, Callable[[], object]] | None = None,
) -> dict[str, float]:
    """Return the seconds for one call of each candidate.

    `before` is called before each round of a candidate, and its time is not measured.
    """
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, call in candidates.items():
            if before and name in before:
                before[name]()
            begun = time.perf_counter()
            for _ in range(repeat):
                call()
            taken[name].append((time.perf_counter() - begun) / repeat)
    return {name: statistics.median(times) for name, times in taken.items()}
