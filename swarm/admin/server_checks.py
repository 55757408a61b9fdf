"""What of a server's settings matters to the promises, and which command shows or fixes it. For `swarm doctor`.

A driver only reports its server's settings; whether they are good enough is judged here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from swarm.admin.state_dir_check import FAULT, OK, WARNING, Check
from swarm.errors import StoreError
from swarm.stores.address import Address
from swarm.stores.contract import ServerStore

_NAME = "store"
_ETCD_LOSING = ("3.5.0", "3.5.1", "3.5.2")  # versions that may lose confirmed writes when a member is killed
_ETCD_LARGE = 1_500_000_000  # bytes of a database; by default etcd takes 2 GiB


def check_server(store: ServerStore) -> Iterator[Check]:
    """Judge the settings of a store's server."""
    engine = _engine(store.address)
    try:
        settings = store.server_settings()
    except StoreError:
        if engine != "redis":
            raise
        text = "its settings may not be read: whether it keeps what it confirms is not known"
        yield Check(_NAME, WARNING, text, "redis-cli CONFIG GET append*")
        return
    yield from {"redis": _check_redis, "postgres": _check_postgres, "etcd": _check_etcd}[engine](settings)


def reach_command(address: Address) -> str:
    """The command that shows whether the server can be reached at all."""
    engine = _engine(address)
    if engine == "redis":
        (host, port), *_ = address.places(6379)
        return f"redis-cli -h {host} -p {port} ping" if address.hosts else f"redis-cli -s {address.path} ping"
    if engine == "etcd":
        scheme = "https" if address.scheme == "etcds" else "http"
        places = ",".join(f"{scheme}://{host}:{port}" for host, port in address.places(2379))
        return f"etcdctl --endpoints={places} endpoint health"
    return _pg_isready(address)


def _pg_isready(address: Address) -> str:
    host, port = address.options.get("host", ""), address.options.get("port", "")
    if address.hosts:
        host, _, written = address.hosts.partition(",")[0].partition(":")
        port = written or port
    return "pg_isready" + (f" -h {host}" if host else "") + (f" -p {port}" if port else "")


def _engine(address: Address) -> str:
    for engine, prefixes in {"redis": ("redis", "valkey"), "postgres": ("postgres",), "etcd": ("etcd",)}.items():
        if address.scheme.startswith(prefixes):
            return engine
    raise ValueError(f"{address.scheme}:// is no server that swarm knows")


def _check_redis(settings: Mapping[str, Any]) -> Iterator[Check]:
    yield Check(_NAME, OK, settings["version"])
    if settings["appendonly"] != "yes":
        text = "it keeps no append-only file: a crash loses what it confirmed, also locks"
        yield Check(_NAME, WARNING, text, "redis-cli CONFIG SET appendonly yes  # and in its configuration")
    elif settings["appendfsync"] != "always":
        sync = settings["appendfsync"]
        text = f"it syncs its append-only file {sync}, not always: a crash of the machine loses what it confirmed last"
        yield Check(_NAME, WARNING, text, "redis-cli CONFIG SET appendfsync always  # and in its configuration")
    else:
        yield Check(_NAME, OK, "what it confirms survives a crash (appendonly yes, appendfsync always)")
    eviction = settings["maxmemory-policy"]
    if eviction.startswith("volatile"):
        text = f"when memory is short it forgets sessions ({eviction}): what is sent twice could then be done twice"
        yield Check(_NAME, WARNING, text, "redis-cli CONFIG SET maxmemory-policy noeviction")
    elif eviction != "noeviction":
        text = f"when memory is short it forgets keys ({eviction}), also locks"
        yield Check(_NAME, FAULT, text, "redis-cli CONFIG SET maxmemory-policy noeviction")
    if 0 < int(settings["maxmemory"]) <= int(settings["used_memory"]):
        text = "its memory is full: it takes no more writes"
        yield Check(_NAME, FAULT, text, "redis-cli CONFIG SET maxmemory 0  # or more than it has")
    if int(settings["connected_slaves"]):
        text = "it has replicas: a failover to one may lose what was confirmed last, also locks (docs/reference/stores.md)"
        yield Check(_NAME, WARNING, text, "redis-cli INFO replication")


def _check_postgres(settings: Mapping[str, Any]) -> Iterator[Check]:
    yield Check(_NAME, OK, f"PostgreSQL {settings['server_version'].partition(' ')[0]}")
    unsafe = [f"{name} = off" for name in ("fsync", "full_page_writes") if settings[name] == "off"]
    for setting in unsafe:
        text = f"{setting}: a crash of the machine loses what it confirmed, also locks, and may damage all of it"
        fix = f"psql -c 'ALTER SYSTEM SET {setting.replace('off', 'on')}' -c 'SELECT pg_reload_conf()'"
        yield Check(_NAME, FAULT, text, fix)
    if not unsafe:
        commit = settings["synchronous_commit"]
        yield Check(_NAME, OK, f"what it confirms survives a crash (fsync on, synchronous_commit {commit} for swarm)")
    if settings["standbys"] and not settings["synchronous_standby_names"]:
        text = "its standbys are not synchronous: a failover may lose what was confirmed last (docs/reference/stores.md)"
        yield Check(_NAME, WARNING, text, "psql -c 'SHOW synchronous_standby_names'")


def _check_etcd(settings: Mapping[str, Any]) -> Iterator[Check]:
    version = settings["version"]
    if version in _ETCD_LOSING:
        text = f"etcd {version} may lose on a member what was confirmed when that is killed (etcd's issue 13766)"
        yield Check(_NAME, FAULT, text, "etcd --version  # install 3.5.6 or newer, or 3.4.22 or newer")
    else:
        yield Check(_NAME, OK, f"etcd {version}")
    for error in settings["errors"]:
        yield Check(_NAME, FAULT, f"it reports {error}", "etcdctl alarm list")
    if settings["database_bytes"] > _ETCD_LARGE:
        text = "its database grows towards its quota, beyond which it takes no more writes"
        fix = "etcd --auto-compaction-retention=1h  # or in its configuration; then etcdctl defrag"
        yield Check(_NAME, WARNING, text, fix)
