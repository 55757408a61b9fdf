"""Which driver opens which URL. A driver is imported when its URL is opened, so that its client is needed only then."""

from __future__ import annotations

from swarm.errors import BadInput, StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from swarm.stores.contract import Cache, Store
    from swarm.system.clock import Clock


_SERVERS = {  # the schemes of a store on a server: its module, its class, and the extra that brings its client
    "redis": ("stores.redis", "RedisStore", "redis"),
    "rediss": ("stores.redis", "RedisStore", "redis"),
    "redis+unix": ("stores.redis", "RedisStore", "redis"),
    "valkey": ("stores.redis", "RedisStore", "redis"),
    "valkeys": ("stores.redis", "RedisStore", "redis"),
    "postgresql": ("stores.postgres", "PostgresStore", "postgres"),
    "postgres": ("stores.postgres", "PostgresStore", "postgres"),
    "etcd": ("stores.etcd", "EtcdStore", "etcd"),
    "etcds": ("stores.etcd", "EtcdStore", "etcd"),
}


def open_store(
    url: str,
    *,
    trusted: bool = True,
    log_max_bytes: int = 0,
    durable: bool = False,
    clock: Clock | None = None,
    cache: Callable[[str], Cache] | None = None,
) -> Store:
    """The store that a URL names; a plain path or file: URL is a directory. Not `trusted`: refuse another user's directory.
    `cache` tells where what was found out about a store on a server is kept on this machine, by default in memory."""
    scheme, colon, rest = url.partition("://")
    if not colon or scheme == "file":
        from_module = __import__("swarm.stores.file.store", fromlist=["FileStore"])
        path = rest if colon else url
        store: Store = from_module.FileStore(path, clock=clock, trusted=trusted, log_max_bytes=log_max_bytes, durable=durable)
        return store
    if scheme == "memory":
        store = __import__("swarm.stores.memory", fromlist=["MemoryStore"]).MemoryStore(clock=clock)
        return store
    if scheme not in _SERVERS:
        raise BadInput(
            f"{scheme[:40]}:// names no store that swarm knows: give a directory, postgresql://…, redis://… or etcd://…"
        )
    from swarm.stores.address import Address

    address = Address(url)
    store = _driver(scheme)(address, clock=clock, cache=cache(address.shown) if cache else None)
    return store


def _driver(scheme: str) -> Callable[..., Store]:
    module, name, extra = _SERVERS[scheme]
    import sys

    if "site" not in sys.modules:  # the scripts start without it, to be quick; clients of servers are installed there
        import site

        site.main()
    try:
        driver: Callable[..., Store] = getattr(__import__(f"swarm.{module}", fromlist=[name]), name)
    except ImportError as error:
        if (error.name or "").startswith("swarm"):
            raise
        raise StoreError(
            f"{scheme}:// needs the package {error.name}. Run: {sys.executable} -m pip install 'swarm-coordination[{extra}]'"
        ) from None
    return driver
