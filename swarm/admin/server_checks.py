"""Checks for `swarm doctor`: could a server lose a change that it has confirmed?

A driver reports the settings of its server, and this module judges the settings. Each
warning or fault has a command that shows or fixes the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from swarm.admin.check import FAULT, OK, WARNING, Check
from swarm.errors import StoreError
from swarm.stores.address import Address
from swarm.stores.registry import driver_of
from swarm.stores.server.base import ServerStore

_NAME = "store"
_ETCD_LOSING = ("3.5.0", "3.5.1", "3.5.2")  # may lose confirmed writes when a member is killed
_ETCD_LARGE = 1_500_000_000  # bytes of a database; etcd's default quota is 2 GiB


def check_server(store: ServerStore[Any]) -> Iterator[Check]:
    """Judge the settings of a store's server."""
    engine = _engine(store.address)
    try:
        settings = store.server_settings()
    except StoreError:
        if not engine.settings_command:
            raise
        text = (
            "its settings cannot be read, so it is unknown whether a crash loses what it confirmed"
        )
        yield Check(_NAME, WARNING, text, engine.settings_command)
        return
    yield from engine.judge(settings)


def reach_command(address: Address) -> str:
    """Return the command that shows whether the server can be reached at all."""
    return _engine(address).reach(address)


def _reach_redis(address: Address) -> str:
    (host, port), *_ = address.hosts_and_ports(6379)
    return (
        f"redis-cli -h {host} -p {port} ping"
        if address.hosts
        else f"redis-cli -s {address.path} ping"
    )


def _reach_postgres(address: Address) -> str:
    host, port = address.options.get("host", ""), address.options.get("port", "")
    if address.hosts:
        host, _, written = address.hosts.partition(",")[0].partition(":")
        port = written or port
    return "pg_isready" + (f" -h {host}" if host else "") + (f" -p {port}" if port else "")


def _reach_etcd(address: Address) -> str:
    scheme = "https" if address.scheme == "etcds" else "http"
    endpoints = ",".join(
        f"{scheme}://{host}:{port}" for host, port in address.hosts_and_ports(2379)
    )
    return f"etcdctl --endpoints={endpoints} endpoint health"


def _check_redis(settings: Mapping[str, Any]) -> Iterator[Check]:
    yield Check(_NAME, OK, settings["version"])
    if settings["appendonly"] != "yes":
        text = "it has no append-only file: a crash loses what it confirmed, also locks"
        yield Check(
            _NAME, WARNING, text, "redis-cli CONFIG SET appendonly yes  # and in its configuration"
        )
    elif settings["appendfsync"] != "always":
        sync = settings["appendfsync"]
        text = (
            f"it syncs its append-only file {sync}: a crash of the machine loses the last changes"
        )
        yield Check(
            _NAME,
            WARNING,
            text,
            "redis-cli CONFIG SET appendfsync always  # and in its configuration",
        )
    else:
        text = "what it confirms survives a crash (appendonly yes, appendfsync always)"
        yield Check(_NAME, OK, text)
    eviction = settings["maxmemory-policy"]
    if eviction.startswith("volatile"):
        text = (
            f"when memory is short it deletes sessions ({eviction}): a change could be made twice"
        )
        yield Check(_NAME, WARNING, text, "redis-cli CONFIG SET maxmemory-policy noeviction")
    elif eviction != "noeviction":
        text = f"when memory is short it deletes keys ({eviction}), also locks"
        yield Check(_NAME, FAULT, text, "redis-cli CONFIG SET maxmemory-policy noeviction")
    if 0 < int(settings["maxmemory"]) <= int(settings["used_memory"]):
        text = "its memory is full: it refuses writes"
        yield Check(_NAME, FAULT, text, "redis-cli CONFIG SET maxmemory 0  # or more than it has")
    if int(settings["connected_slaves"]):
        text = "it has replicas: a failover may lose confirmed changes (docs/reference/stores.md)"
        yield Check(_NAME, WARNING, text, "redis-cli INFO replication")


def _check_postgres(settings: Mapping[str, Any]) -> Iterator[Check]:
    yield Check(_NAME, OK, f"PostgreSQL {settings['server_version'].partition(' ')[0]}")
    unsafe = [f"{name} = off" for name in ("fsync", "full_page_writes") if settings[name] == "off"]
    for setting in unsafe:
        text = (
            f"{setting}: a crash of the machine loses confirmed changes, and may damage the "
            f"database"
        )
        fix = (
            f"psql -c 'ALTER SYSTEM SET {setting.replace('off', 'on')}' -c 'SELECT "
            f"pg_reload_conf()'"
        )
        yield Check(_NAME, FAULT, text, fix)
    if not unsafe:
        commit = settings["synchronous_commit"]
        text = (
            f"what it confirms survives a crash (fsync on, synchronous_commit {commit} for swarm)"
        )
        yield Check(_NAME, OK, text)
    if settings["standbys"] and not settings["synchronous_standby_names"]:
        text = (
            "its standbys are asynchronous: a failover may lose confirmed changes "
            "(docs/reference/stores.md)"
        )
        yield Check(_NAME, WARNING, text, "psql -c 'SHOW synchronous_standby_names'")


def _check_etcd(settings: Mapping[str, Any]) -> Iterator[Check]:
    version = settings["version"]
    if version in _ETCD_LOSING:
        text = (
            f"etcd {version} may lose confirmed writes when a member is killed (etcd's issue 13766)"
        )
        yield Check(
            _NAME, FAULT, text, "etcd --version  # install 3.5.6 or newer, or 3.4.22 or newer"
        )
    else:
        yield Check(_NAME, OK, f"etcd {version}")
    for error in settings["errors"]:
        yield Check(_NAME, FAULT, f"it reports {error}", "etcdctl alarm list")
    if settings["database_bytes"] > _ETCD_LARGE:
        text = "its database is close to its quota, after which it refuses writes"
        fix = "etcd --auto-compaction-retention=1h  # or in its configuration; then etcdctl defrag"
        yield Check(_NAME, WARNING, text, fix)


class _Engine(NamedTuple):
    """The advice for one kind of server."""

    judge: Callable[[Mapping[str, Any]], Iterator[Check]]
    reach: Callable[[Address], str]
    settings_command: str = ""
    """The command that shows settings which the server may hide from swarm."""


_ENGINES = {  # by the name of the driver
    "redis": _Engine(_check_redis, _reach_redis, "redis-cli CONFIG GET append*"),
    "postgres": _Engine(_check_postgres, _reach_postgres),
    "etcd": _Engine(_check_etcd, _reach_etcd),
}


def _engine(address: Address) -> _Engine:
    return _ENGINES[driver_of(address.scheme).name]
