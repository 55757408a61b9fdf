"""A cluster of etcd whose three members have a network each, so that they can be parted from each other and from nobody else.

Each is plugged into two bridges: over one it talks to its peers, over the other to its clients, who are in the first namespace
with both bridges. One that is parted is unplugged from its peers: it still sends, and nobody hears or answers it; no packet is
refused, and clients reach it as before. Members wait as long for each other as they do by default.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.namespaces import MORTAL, inside, kept, run
from tests.support.servers.etcd import EtcdCluster, EtcdServer
from tests.support.servers.server import wait_until

_CLIENTS, _PEERS = "10.77.0", "10.78.0"  # the networks, one for each bridge
_CLIENT = 1  # the clients' number in theirs; those of the members follow
_COUNT = 3
_PATIENCE = (100, 1000)
_STAY = "ip link set lo up && echo ready && exec sleep 3600"


class ClusterApart(EtcdCluster):
    """Members by their namespaces, which processes keep: `switch` that of the bridges, `keepers` theirs."""

    def __init__(self, directory: Path, switch: int, keepers: list[int]) -> None:
        names = {f"member{number}": f"{_address(_PEERS, number)}:2380" for number in range(_COUNT)}
        self.members = [
            EtcdServer(
                directory,
                name=name,
                members=names,
                host=_address(_CLIENTS, number),
                port=2379,
                prefix=(*MORTAL, "nsenter", "--target", str(keepers[number]), "--net", "--"),
                patience=_PATIENCE,
            )
            for number, name in enumerate(names)
        ]
        self._at_switch = ("nsenter", "--target", str(switch), "--net", "ip", "link", "set")

    def start(self) -> None:
        for member in self.members:
            member.start(wait=False)
        self.wait_until_well()

    def wait_until_well(self) -> None:
        """All of them are there again, and know of each other."""
        wait_until(lambda: all(member.is_well() for member in self.members), "a member does not get well")

    def part(self, member: EtcdServer) -> None:
        """From now on it does not hear of the others, nor they of it."""
        run(*self._at_switch, f"peer{self.members.index(member)}", "nomaster")

    def heal(self, member: EtcdServer) -> None:
        run(*self._at_switch, f"peer{self.members.index(member)}", "master", "peers")

    def follower(self) -> EtcdServer:
        leader = self.leader()
        return next(member for member in self.members if member is not leader)


@contextmanager
def cluster_apart(directory: Path) -> Iterator[ClusterApart]:
    """A cluster that runs; in this block this thread, and whoever it starts, is where its clients are."""
    with ExitStack() as stack:
        bridges = "ip link add clients type bridge && ip link add peers type bridge"
        ready = f"ip address add {_CLIENTS}.{_CLIENT}/24 dev clients && ip link set clients up && ip link set peers up"
        switch = stack.enter_context(kept("unshare", "--net", "sh", "-c", f"{bridges} && {ready} && {_STAY}"))
        keepers = [stack.enter_context(kept("unshare", "--net", "sh", "-c", _STAY)) for _ in range(_COUNT)]
        for number, keeper in enumerate(keepers):
            _plug_in(number, keeper, switch)
        stack.enter_context(inside(switch))
        cluster = ClusterApart(directory, switch, keepers)
        stack.callback(cluster.remove)
        cluster.start()
        yield cluster


def _plug_in(number: int, keeper: int, switch: int) -> None:
    """Who has which address is known to all: nobody has to answer that question, so that one who is parted does not find out."""
    at_switch = ("nsenter", "--target", str(switch), "--net", "ip")
    there = ("nsenter", "--target", str(keeper), "--net", "ip")
    for kind, network in (("client", _CLIENTS), ("peer", _PEERS)):
        port = f"{kind}{number}"
        other = ("peer", "name", kind, "address", _mac(network, number), "netns", str(keeper))
        run(*at_switch, "link", "add", port, "type", "veth", *other)
        run(*at_switch, "link", "set", port, "master", f"{kind}s", "up")
        run(*there, "address", "add", f"{_address(network, number)}/24", "dev", kind)
        run(*there, "link", "set", kind, "up")
    for peer in range(_COUNT):
        if peer != number:
            known = (_address(_PEERS, peer), "lladdr", _mac(_PEERS, peer), "dev", "peer", "nud", "permanent")
            run(*there, "neigh", "replace", *known)


def _address(network: str, number: int) -> str:
    return f"{network}.{_CLIENT + 1 + number}"


def _mac(network: str, number: int) -> str:
    return f"02:00:00:00:{network.split('.')[1]}:{_CLIENT + 1 + number:02x}"
