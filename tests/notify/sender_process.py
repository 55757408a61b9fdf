"""A notifier in a process of its own, for tests: STORE, HOST-NAME, TTL."""

from __future__ import annotations

import sys
import time

from swarm.notify.channels import stored_channels
from swarm.notify.delivery import Delivery
from swarm.notify.notifier import Notifier
from swarm.stores.registry import open_store


def main(address: str, name: str, ttl: str) -> None:
    store = open_store(address)
    deliver = Delivery("shop").deliver
    with Notifier(store, name, deliver, lambda: stored_channels(store), ttl=float(ttl)):
        sys.stdout.write("up\n")
        sys.stdout.flush()
        time.sleep(300)


if __name__ == "__main__":
    main(*sys.argv[1:])
