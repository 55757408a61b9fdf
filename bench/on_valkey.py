"""Peers on Redis and Valkey."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

import redis

from bench.marks import mark
from bench.on_huey import HueyQueue
from bench.peers import Acquire, LockPeer, Peers, QueuePeer, Release, module

_COMPARE_AND_DELETE = (
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
)


def peers() -> Peers:
    return Peers(
        locks=[
            LockPeer("raw SET NX PX, compare and DEL", _raw_lock, "no", "yes", "yes", "yes"),
            LockPeer("redis-py Lock", _redis_py_lock, "no", "yes", "yes", "yes"),
            LockPeer("python-redis-lock", _python_redis_lock, "no", "yes", "yes", "yes"),
        ],
        appends={"raw XADD": _xadd},
        wakes={
            "raw PUBLISH, SUBSCRIBE": (_subscribed, _published),
            "raw XADD, XREAD BLOCK": (_read_stream, _added_to_stream),
        },
        queues={"raw LMOVE, LREM": RawQueue, "huey": huey_queue, "rq": RqQueue},
    )


def _client(port: int) -> Any:
    return redis.Redis(port=port)


# Locks --------------------------------------------------------------------------------


def _raw_lock(port: int) -> tuple[Acquire, Release]:
    client, me = _client(port), os.urandom(16)
    script = client.register_script(_COMPARE_AND_DELETE)

    def acquire(name: str) -> None:
        while not client.set(f"raw:{name}", me, nx=True, px=30_000):
            time.sleep(0.001)

    return acquire, lambda name: script(keys=[f"raw:{name}"], args=[me])


def _redis_py_lock(port: int) -> tuple[Acquire, Release]:
    client = _client(port)
    held: dict[str, Any] = {}

    def acquire(name: str) -> None:
        held[name] = client.lock(f"redis-py:{name}", timeout=30)
        assert held[name].acquire()

    return acquire, lambda name: held.pop(name).release()


def _python_redis_lock(port: int) -> tuple[Acquire, Release]:
    client, kind = _client(port), module("redis_lock").Lock
    held: dict[str, Any] = {}

    def acquire(name: str) -> None:
        held[name] = kind(client, name, expire=30)
        assert held[name].acquire()

    return acquire, lambda name: held.pop(name).release()


# The log ------------------------------------------------------------------------------


def _xadd(port: int) -> Callable[[bytes], object]:
    client = _client(port)
    return lambda line: client.xadd("raw-log", {"line": line})


def _subscribed(port: int) -> Callable[[], object]:
    listener = _client(port).pubsub(ignore_subscribe_messages=True)
    listener.subscribe("raw-channel")
    listener.get_message(timeout=1.0)

    def wait_for_one() -> None:
        while listener.get_message(timeout=30.0) is None:
            pass

    return wait_for_one


def _published(port: int) -> Callable[[], object]:
    client = _client(port)
    return lambda: client.publish("raw-channel", b"")


def _read_stream(port: int) -> Callable[[], object]:
    client = _client(port)
    last = "$"

    def wait_for_one() -> None:
        nonlocal last
        last = client.xread({"raw-news": last}, count=1, block=30_000)[0][1][0][0]

    return wait_for_one


def _added_to_stream(port: int) -> Callable[[], object]:
    client = _client(port)
    return lambda: client.xadd("raw-news", {"line": b"{}"})


# Queues -------------------------------------------------------------------------------


class RawQueue:
    """A taken task is in a list of its worker.

    The task of a dead worker is not lost, but no other worker finds it.
    """

    def __init__(self, port: int, name: str) -> None:
        self._port, self._name = port, f"raw:{name}"

    def fill(self, numbers: range) -> None:
        _client(self._port).rpush(self._name, *numbers)

    def open(self, worker: str) -> Callable[[], bool]:
        client, taken = _client(self._port), f"{self._name}:{worker}"

        def step() -> bool:
            number = client.lmove(self._name, taken, "LEFT", "RIGHT")
            if number is None:
                return False
            mark(int(number))
            client.lrem(taken, 1, number)
            return True

        return step


def huey_queue(port: int, name: str) -> HueyQueue:
    return HueyQueue("RedisHuey", name=name, port=port, blocking=False)


class RqQueue:
    """rq with the worker that runs tasks in its own process. rq's usual worker forks
    for each task.
    """

    def __init__(self, port: int, name: str) -> None:
        logging.getLogger("rq.worker").setLevel(logging.ERROR)
        self._port, self._name = port, name

    def fill(self, numbers: range) -> None:
        queue = module("rq").Queue(self._name, connection=_client(self._port))
        queue.enqueue_many([queue.prepare_data(mark, (number,)) for number in numbers])

    def open(self, worker: str) -> Callable[[], bool]:
        rq, client = module("rq"), _client(self._port)
        hand = rq.SimpleWorker(
            [rq.Queue(self._name, connection=client)],
            name=f"{self._name}-{worker}",
            connection=client,
        )
        hand.register_birth()

        def step() -> bool:
            found = hand.dequeue_job_and_maintain_ttl(None)
            if found is None:
                return False
            hand.execute_job(*found)
            return True

        return step


_: tuple[Callable[[int, str], QueuePeer], ...] = (RawQueue, huey_queue, RqQueue)
