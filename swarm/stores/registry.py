"""The drivers of stores, and the schemes of the URLs that they open.

A driver is imported when a URL of its scheme is opened. A driver that is not used needs
no client library.
"""

from __future__ import annotations

from typing import NamedTuple

from swarm.errors import BadInput, StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from swarm.stores.contract import Cache, Store
    from swarm.system.clock import Clock


class ServerDriver(NamedTuple):
    """A driver of a store on a server.

    The driver NAME is the module `swarm.stores.NAME`. The extra NAME installs its
    client library.
    """

    name: str
    schemes: tuple[str, ...]
    """The schemes of the driver's URLs. Users see the first scheme."""
    store_class: str
    client: str
    """The Python package that the driver needs; "" for none."""
    variables: tuple[str, ...]
    """The variables of the server's own tools that the driver reads.

    Processes that agents start get these variables.
    """


SERVER_DRIVERS = (
    ServerDriver(
        "redis",
        ("redis", "rediss", "redis+unix", "valkey", "valkeys"),
        "RedisStore",
        "redis",
        ("REDISCLI_AUTH",),
    ),
    ServerDriver(
        "postgres",
        ("postgresql", "postgres"),
        "PostgresStore",
        "psycopg",
        ("PGUSER", "PGPASSWORD", "PGPASSFILE", "PGSSLMODE", "PGSSLROOTCERT"),
    ),
    ServerDriver(
        "etcd",
        ("etcd", "etcds"),
        "EtcdStore",
        "",
        ("ETCDCTL_USER", "ETCDCTL_PASSWORD", "ETCDCTL_CACERT", "ETCDCTL_CERT", "ETCDCTL_KEY"),
    ),
)


def open_store(
    url: str,
    *,
    trusted: bool = True,
    log_max_bytes: int = 0,
    durable: bool = False,
    clock: Clock | None = None,
    cache: Callable[[str], Cache] | None = None,
) -> Store:
    """Open the store of a URL. A plain path, or a file: URL, names a directory.

    With `trusted=False`, refuse a directory of another user. `cache(address)` returns
    this machine's cache for a store on a server; the default is a cache in memory.
    Raise BadInput for an invalid URL, and StoreError if the driver's client is not
    installed.
    """
    scheme, colon, rest = url.partition("://")
    if not colon or scheme == "file":
        file_store = _load("swarm.stores.file.store", "FileStore")
        return file_store(
            rest if colon else url,
            clock=clock,
            trusted=trusted,
            log_max_bytes=log_max_bytes,
            durable=durable,
        )
    if scheme == "memory":
        return _load("swarm.stores.memory", "MemoryStore")(clock=clock)
    from swarm.stores.address import Address

    driver = driver_of(scheme)
    address = Address(url)
    server_store = _load_server_store(driver, scheme)
    return server_store(address, clock=clock, cache=cache(address.shown) if cache else None)


def driver_of(scheme: str) -> ServerDriver:
    """Return the driver for the URLs of a scheme. Raise BadInput if no driver has the
    scheme.
    """
    for driver in SERVER_DRIVERS:
        if scheme in driver.schemes:
            return driver
    known = ", ".join(f"{driver.schemes[0]}://…" for driver in SERVER_DRIVERS)
    raise BadInput(
        f"{scheme[:40]}:// is not a store that swarm knows. Use a directory, or one of {known}."
    )


def _load_server_store(driver: ServerDriver, scheme: str) -> Callable[..., Store]:
    import sys

    if "site" not in sys.modules:  # the scripts start Python without `site`, to be fast
        import site

        site.main()  # clients of servers are installed in site-packages
    try:
        return _load(f"swarm.stores.{driver.name}", driver.store_class)
    except ImportError as error:
        if (error.name or "").startswith("swarm"):
            raise
        raise StoreError(
            f"{scheme}:// needs the Python package {error.name}, which is not installed. "
            f"Run: {sys.executable} -m pip install 'swarm-coordination[{driver.name}]'"
        ) from None


def _load(module: str, name: str) -> Callable[..., Store]:
    store_class: Callable[..., Store] = getattr(__import__(module, fromlist=[name]), name)
    return store_class
