"""Real processes on a store on a server: the same chaos as on files, and the server itself is stopped, killed and started again.

Half of the workers say that they are of another machine, so that leases are judged by the server's clock as well as by stamps.
The log is followed all the while. Servers are started here, with settings that keep what was confirmed.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from proof.chaos import TASKS, WORKERS, kept_if_wrong, run, with_wrong
from proof.etcd_server import EtcdServer
from proof.postgres_server import PostgresServer
from proof.report import Report
from proof.server_controls import caught, controls_of
from proof.servers import Server, running
from proof.valkey_server import ValkeyServer
from proof.worker import Plan

SERVERS: dict[str, Callable[[Path], Server]] = {
    "Valkey": ValkeyServer,
    "etcd": EtcdServer,
    "PostgreSQL": lambda _: PostgresServer(wal_writer_delay="10s"),  # nothing is written but what a commit waits for
}
ACQUISITIONS = {True: 1_500, False: 40_000}  # by whether it is the short form


def prove(name: str, report: Report, *, short: bool, seed: int | None = None) -> None:
    """Adds the rows of the part of one server."""
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    part = f"real processes on {name}"
    with tempfile.TemporaryDirectory(prefix="swarm-server-") as directory, running(SERVERS[name](Path(directory))) as server:
        _prove_at_random(part, server, report, seed, ACQUISITIONS[short])
        for control in controls_of(name):
            answer = caught(control, seed, server)
            figures = f"caught: {control.sign}" if answer else f"not caught, seed {seed}"
            report.row(part, f"control: {control.name}", figures, held=bool(answer))


def _prove_at_random(part: str, server: Server, report: Report, seed: int, acquisitions: int) -> None:
    with kept_if_wrong() as (directory, wrong):
        plan = Plan(directory, seed, TASKS, server=server.url("chaos"), machines=2, leases=(0.03, 0.1, 0.3))
        chaos = run(plan, acquisitions, report, server)
        wrong.extend(chaos.violations)
        history = chaos.history
        figures = (
            f"{len(history.holds):,} acquisitions, {sum(map(len, history.appended.values())):,} appends, {chaos.kills:,} kills, "
            f"{chaos.stops:,} stops, {chaos.jumps:,} clock jumps, {chaos.removals:,} locks removed by hand, "
            f"{chaos.pauses:,} server pauses, {chaos.restarts:,} server kills, {history.refused:,} late writes refused, "
            f"{history.unknown.total():,} outcomes unknown ({history.unknown['append']:,} of appends)"
        )
        what = f"{WORKERS} workers and the server, killed and stopped at random, clock jumps"
        report.row(part, what, with_wrong(figures, wrong, directory, seed), held=not wrong)
