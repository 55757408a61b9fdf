"""Run real processes on a store on a server, and disturb the server too.

The workers are disturbed as in `chaos`. In addition the server is stopped, killed and
started again. Half of the workers claim to be on another machine, so that leases are
judged by the server's clock and by stamps. The log is followed all the time.

- This part checks the promises that `history` lists, and that each control is caught.
- A run ends after a given number of acquisitions. The servers run with settings that
  keep confirmed changes; loss of power is not simulated.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from proof.chaos import TASKS, WORKERS, run, run_directory, with_violations
from proof.report import Report
from proof.server_controls import caught, controls_of
from proof.worker import Plan
from tests.support.servers.etcd import EtcdServer
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.server import Server, running
from tests.support.servers.valkey import ValkeyServer


class Kind(NamedTuple):
    """How to start a server in a directory, and the acquisitions of the full and the
    short form.
    """

    make: Callable[[Path], Server]
    full: int
    short: int


SERVERS = {
    "Valkey": Kind(ValkeyServer, 45_000, 1_000),
    "etcd": Kind(EtcdServer, 10_000, 250),
    # a long delay, so that only commits write the WAL
    "PostgreSQL": Kind(lambda _: PostgresServer(wal_writer_delay="10s"), 35_000, 400),
}


def prove(name: str, report: Report, *, short: bool, seed: int | None = None) -> None:
    """Add the rows of one server."""
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    part = f"real processes on {name}"
    kind = SERVERS[name]
    with (
        tempfile.TemporaryDirectory(prefix="swarm-server-") as directory,
        running(kind.make(Path(directory))) as server,
    ):
        _prove_at_random(part, server, report, seed, kind.short if short else kind.full)
        for control in controls_of(name):
            answer = caught(control, seed, server)
            figures = f"caught: {control.sign}" if answer else f"not caught, seed {seed}"
            report.row(part, f"control: {control.name}", figures, held=bool(answer))


def _prove_at_random(
    part: str, server: Server, report: Report, seed: int, acquisitions: int
) -> None:
    with run_directory() as (directory, wrong):
        plan = Plan(
            directory, seed, TASKS, server=server.url("chaos"), machines=2, leases=(0.03, 0.1, 0.3)
        )
        chaos = run(plan, acquisitions, report, server)
        wrong.extend(chaos.violations)
        history = chaos.history
        figures = (
            f"{len(history.holds):,} acquisitions, {sum(map(len, history.appended.values())):,} "
            f"appends, {chaos.kills:,} kills, "
            f"{chaos.stops:,} stops, {chaos.jumps:,} clock jumps, {chaos.removals:,} locks "
            f"removed by a person, "
            f"{chaos.pauses:,} server pauses, {chaos.restarts:,} server kills, "
            f"{history.refused:,} late writes refused, "
            f"{history.unknown.total():,} outcomes unknown ({history.unknown['append']:,} of "
            f"appends)"
        )
        what = f"{WORKERS} workers and the server, killed and stopped at random, clock jumps"
        report.row(part, what, with_violations(figures, wrong, directory, seed), held=not wrong)
