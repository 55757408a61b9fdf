"""The simulated parts of the proof: every interleaving, the broken variants, random
depth.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

from proof import scenarios, variants
from proof.explorer import Exploration, explore
from proof.random_depth import CROWD, Total, run_seeds
from proof.report import Report

T = TypeVar("T")

_SEEDS = 2000
_SEEDS_AT_ONCE = 50


def prove(report: Report, *, short: bool) -> None:
    """Add the rows of these parts.

    The short form has fewer scenarios and seeds, but all variants.
    """
    chosen = scenarios.SHORT if short else scenarios.ALL
    explored = []
    for number, seen in _at_once(_explored, range(len(chosen)), short):
        name = chosen[number].name
        explored.append(seen)
        figures = f"{seen.states:,} states, {seen.transitions:,} steps, depth {seen.depth}"
        held = seen.complete and not seen.violation
        report.row("interleavings", name, figures, held=held, seconds=seen.seconds)
        for line in _failure(seen):
            report.say(line)
    total = sum(seen.states for seen in explored)
    report.row("interleavings", "together", f"{total:,} states", held=short or total >= 1_000_000)
    for number, seen in _at_once(_searched, range(len(variants.ALL)), short):
        figures = (
            f"found after {seen.states:,} states in {len(seen.trace)} steps"
            if seen.violation
            else "SURVIVED"
        )
        report.row(
            "broken on purpose",
            variants.ALL[number].name,
            figures,
            held=bool(seen.violation),
            seconds=seen.seconds,
        )
    if not short:
        found = run_seeds(range(100_000), variants.IN_A_CROWD.code)
        figures = f"found after {found.seeds:,} seeds" if found.failed else "SURVIVED"
        report.row("broken on purpose", variants.IN_A_CROWD.name, figures, held=bool(found.failed))
    first = 0 if short else random.randrange(10**9)
    batches = range(first, first + (40 if short else _SEEDS), _SEEDS_AT_ONCE)
    totals = [total for _, total in _at_once(_sampled, batches, short)]
    failed = [total.failed for total in totals if total.failed]
    figures = (
        f"{sum(total.seeds for total in totals):,} seeds from {first}, "
        f"{sum(total.moves for total in totals):,} steps"
    )
    report.row("random depth", CROWD.name, figures, held=not failed)
    for seed, run in failed:
        report.say(f"seed {seed}: {run.violation}", *run.trace)


def _explored(number: int, short: bool) -> Exploration:
    return explore((scenarios.SHORT if short else scenarios.ALL)[number])


def _searched(number: int, short: bool) -> Exploration:
    variant = variants.ALL[number]
    return explore(variant.scenario, variant.code)


def _sampled(first: int, short: bool) -> Total:
    return run_seeds(range(first, first + _SEEDS_AT_ONCE), length=400 if short else 1500)


def _failure(seen: Exploration) -> Iterator[str]:
    if seen.violation:
        yield seen.violation
        yield from seen.trace


def _at_once(
    work: Callable[[int, bool], T], items: Iterable[int], short: bool
) -> Iterator[tuple[int, T]]:
    """Yield each item with its result, computed on all processors.

    Each item has a process of its own, so that its memory is freed.
    """
    items = list(items)
    with ProcessPoolExecutor(
        os.cpu_count(), mp_context=get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        yield from zip(items, pool.map(work, items, [short] * len(items)), strict=True)
