"""Checks for `swarm doctor`: could a server lose a change that it has confirmed, and can
others read or change what is sent to it?

A driver reports the settings of its server, and this module judges the settings. Each
warning or fault has a command that shows or fixes the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from swarm.admin.check import FAULT, OK, WARNING, Check
from swarm.errors import StoreError
from swarm.settings import variable
from swarm.stores.address import Address, is_loopback
from swarm.stores.registry import driver_of
from swarm.stores.server.base import ServerStore

_NAME = "store"
_READERS = "others on the network can read and change everything"
_UNVERIFIED = "the server's certificate is not verified: a false server gets all that is sent"
_ETCD_LOSING = ("3.5.0", "3.5.1", "3.5.2")  # may lose confirmed writes when a member is killed
_ETCD_LARGE = 1_500_000_000  # bytes of a database; etcd's default quota is 2 GiB


def check_server(store: ServerStore[Any]) -> Iterator[Check]:
    """Judge the settings of a store's server."""
    engine = _engine(store.address)
    yield from check_encryption(store.address)
    try:
        settings = store.server_settings()
    except StoreError:
        if not engine.settings_command:
            raise
        text = (
            "the server's settings cannot be read, so it is unknown whether a crash loses "
            "confirmed changes"
        )
        yield Check(_NAME, WARNING, text, engine.settings_command)
        return
    yield from engine.judge(settings)


def check_encryption(address: Address) -> Iterator[Check]:
    """Warn of an address whose connection others can read or take over."""
    yield from _engine(address).check_encryption(address)


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


def _check_redis_encryption(address: Address) -> Iterator[Check]:
    if not address.hosts:
        return  # the address is a local socket
    if address.scheme not in ("rediss", "valkeys"):
        secure = "valkeys" if address.scheme == "valkey" else "rediss"
        has_password = bool(address.password or variable("REDISCLI_AUTH"))
        yield from _plain_text(address, 6379, secure, has_password=has_password)
    elif address.options.get("ssl_cert_reqs", "required") != "required" or address.options.get(
        "ssl_check_hostname", "true"
    ).lower() not in ("true", "yes", "1"):
        text = f"{_UNVERIFIED} (options ssl_cert_reqs, ssl_check_hostname)"
        yield Check(_NAME, WARNING, text, f"openssl s_client -connect {address.hosts} -brief")


def _check_etcd_encryption(address: Address) -> Iterator[Check]:
    if address.scheme != "etcds":
        user, password = variable("ETCDCTL_USER"), variable("ETCDCTL_PASSWORD")
        has_password = bool(address.password or password or ":" in user)
        yield from _plain_text(address, 2379, "etcds", has_password=has_password)


def _plain_text(address: Address, port: int, secure: str, *, has_password: bool) -> Iterator[Check]:
    """Warn of hosts that are not on this machine."""
    far = [host for host, _ in address.hosts_and_ports(port) if not is_loopback(host)]
    if far:
        password = " and the password" if has_password else ""
        text = f"the connection to {', '.join(far)} has no encryption: {_READERS}{password}"
        yield Check(_NAME, WARNING, text, f"export SWARM_STORE='{secure}://…'  # and TLS there")


def _check_redis(settings: Mapping[str, Any]) -> Iterator[Check]:
    yield Check(_NAME, OK, settings["version"])
    if settings["appendonly"] != "yes":
        text = "the server has no append-only file: a crash loses confirmed changes, also locks"
        yield Check(
            _NAME, WARNING, text, "redis-cli CONFIG SET appendonly yes  # and in its configuration"
        )
    elif settings["appendfsync"] != "always":
        sync = settings["appendfsync"]
        text = (
            f"the append-only file is synced {sync}: a crash of the machine loses the last changes"
        )
        yield Check(
            _NAME,
            WARNING,
            text,
            "redis-cli CONFIG SET appendfsync always  # and in its configuration",
        )
    else:
        text = "confirmed changes survive a crash (appendonly yes, appendfsync always)"
        yield Check(_NAME, OK, text)
    eviction = settings["maxmemory-policy"]
    if eviction.startswith("volatile"):
        text = (
            f"when memory is short the server deletes sessions ({eviction}): a change could be "
            f"made twice"
        )
        yield Check(_NAME, WARNING, text, "redis-cli CONFIG SET maxmemory-policy noeviction")
    elif eviction != "noeviction":
        text = f"when memory is short the server deletes keys ({eviction}), also locks"
        yield Check(_NAME, FAULT, text, "redis-cli CONFIG SET maxmemory-policy noeviction")
    if 0 < int(settings["maxmemory"]) <= int(settings["used_memory"]):
        text = "the memory of the server is full: it refuses writes"
        yield Check(
            _NAME, FAULT, text, "redis-cli CONFIG SET maxmemory 0  # or more than is in use"
        )
    if int(settings["connected_slaves"]):
        text = "the server has replicas: a failover may lose changes (docs/reference/stores.md)"
        yield Check(_NAME, WARNING, text, "redis-cli INFO replication")


def _check_postgres(settings: Mapping[str, Any]) -> Iterator[Check]:
    yield Check(_NAME, OK, f"PostgreSQL {settings['server_version'].partition(' ')[0]}")
    unsafe_tls = {
        "none": f"the connection has no encryption: {_READERS}",
        "unverified": _UNVERIFIED,
    }
    if settings["tls"] in unsafe_tls:
        text = f"{unsafe_tls[settings['tls']]} (sslmode)"
        yield Check(_NAME, WARNING, text, "export PGSSLMODE=verify-full PGSSLROOTCERT=…")
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
            f"confirmed changes survive a crash (fsync on, synchronous_commit {commit} for swarm)"
        )
        yield Check(_NAME, OK, text)
    if settings["standbys"] and not settings["synchronous_standby_names"]:
        text = (
            "the server's standbys are asynchronous: a failover may lose confirmed changes "
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
        yield Check(_NAME, FAULT, f"etcd reports {error}", "etcdctl alarm list")
    if settings["database_bytes"] > _ETCD_LARGE:
        text = "the database is close to its quota, after which etcd refuses writes"
        fix = "etcd --auto-compaction-retention=1h  # or in its configuration; then etcdctl defrag"
        yield Check(_NAME, WARNING, text, fix)


class _Engine(NamedTuple):
    """The advice about one kind of server, such as PostgreSQL."""

    judge: Callable[[Mapping[str, Any]], Iterator[Check]]
    reach: Callable[[Address], str]
    check_encryption: Callable[[Address], Iterator[Check]]
    """Judge the address. PostgreSQL reports its encryption among its settings."""
    settings_command: str = ""
    """The command that shows settings which the server may hide from swarm."""


_ENGINES = {  # by the name of the driver
    "redis": _Engine(
        _check_redis, _reach_redis, _check_redis_encryption, "redis-cli CONFIG GET append*"
    ),
    "postgres": _Engine(_check_postgres, _reach_postgres, lambda _: iter(())),
    "etcd": _Engine(_check_etcd, _reach_etcd, _check_etcd_encryption),
}


def _engine(address: Address) -> _Engine:
    return _ENGINES[driver_of(address.scheme).name]
