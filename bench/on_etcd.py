"""Peers on etcd, used as swarm does: JSON over HTTP."""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from bench.marks import mark
from bench.peers import Acquire, LockPeer, Peers, QueuePeer, Release


def peers() -> Peers:
    return Peers(
        locks=[
            LockPeer("raw put if absent, delete", _raw_lock, "no", "no", "no", "yes"),
            LockPeer("etcd's own lock, under a lease", _own_lock, "yes", "yes", "yes", "yes"),
        ],
        appends={"raw put": _put},
        wakes={"raw put, watch": (_watching, _putting)},
        queues={"raw range, move, delete": RawQueue},
    )


class _Client:
    def __init__(self, port: int) -> None:
        self._wire = HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, verb: str, **body: object) -> Any:
        return json.loads(self.open(verb, **body).read())

    def open(self, verb: str, **body: object) -> HTTPResponse:
        self._wire.request(
            "POST", f"/v3/{verb}", json.dumps(body), {"Content-Type": "application/json"}
        )
        answer = self._wire.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{verb}: {answer.status} {answer.read(500)!r}")
        return answer


def _text(data: str) -> str:
    return b64encode(data.encode()).decode()


# Locks --------------------------------------------------------------------------------


def _raw_lock(port: int) -> tuple[Acquire, Release]:
    client = _Client(port)

    def acquire(name: str) -> None:
        key = _text(f"raw/{name}")
        absent = {"key": key, "target": "CREATE", "createRevision": "0"}
        while not client.ask(
            "kv/txn", compare=[absent], success=[{"requestPut": {"key": key, "value": key}}]
        ).get("succeeded"):
            time.sleep(0.001)

    return acquire, lambda name: client.ask("kv/deleterange", key=_text(f"raw/{name}"))


def _own_lock(port: int) -> tuple[Acquire, Release]:
    client = _Client(port)
    lease = client.ask("lease/grant", TTL="60")["ID"]
    held: dict[str, str] = {}

    def acquire(name: str) -> None:
        held[name] = client.ask("lock/lock", name=_text(f"own/{name}"), lease=lease)["key"]

    return acquire, lambda name: client.ask("lock/unlock", key=held.pop(name))


# The log ------------------------------------------------------------------------------


def _put(port: int) -> Callable[[bytes], object]:
    client, number = _Client(port), time.time_ns()

    def put(line: bytes) -> None:
        nonlocal number
        number += 1
        client.ask("kv/put", key=_text(f"log/{number}"), value=b64encode(line).decode())

    return put


def _watching(port: int) -> Callable[[], object]:
    news = _Client(port).open("watch", create_request={"key": _text("news")})
    news.readline()  # the answer which says that the watch has begun
    return news.readline


def _putting(port: int) -> Callable[[], object]:
    client = _Client(port)
    return lambda: client.ask("kv/put", key=_text("news"), value="")


# Queues -------------------------------------------------------------------------------


class RawQueue:
    """A taken task is moved to another key. The tasks of a dead worker are never found."""

    def __init__(self, port: int, name: str) -> None:
        self._port, self._ready, self._taken = port, f"raw-ready/{name}/", f"raw-taken/{name}/"

    def fill(self, numbers: range) -> None:
        client = _Client(self._port)
        for start in range(numbers.start, numbers.stop, 100):
            some = range(start, min(start + 100, numbers.stop))
            puts = [
                {"requestPut": {"key": _text(f"{self._ready}{number:06d}"), "value": ""}}
                for number in some
            ]
            client.ask("kv/txn", success=puts)

    def open(self, worker: str) -> Callable[[], bool]:
        client = _Client(self._port)
        first = {
            "key": _text(self._ready),
            "range_end": _text(f"{self._ready[:-1]}0"),
            "limit": "1",
        }

        def step() -> bool:
            while found := client.ask("kv/range", **first).get("kvs"):
                number = b64decode(found[0]["key"]).decode().rpartition("/")[2]
                taken = _text(f"{self._taken}{number}")
                still = {
                    "key": found[0]["key"],
                    "target": "MOD",
                    "modRevision": found[0]["mod_revision"],
                }
                move = [
                    {"requestDeleteRange": {"key": found[0]["key"]}},
                    {"requestPut": {"key": taken, "value": _text(worker)}},
                ]
                if client.ask("kv/txn", compare=[still], success=move).get("succeeded"):
                    mark(int(number))
                    client.ask("kv/deleterange", key=taken)
                    return True
            return False

        return step


_: Callable[[int, str], QueuePeer] = RawQueue
