"""A cluster of three etcd members that can be separated from each other, not from clients.

Each member has a network namespace with two bridges: one to its peers, one to its clients.
The clients are in the first namespace, with both bridges. A separated member is unplugged
from its peers. It still sends, and gets no answer; no packet is refused, and clients reach
it as before. The members have etcd's default timeouts for each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.namespaces import MORTAL, inside, kept, run
from tests.support.servers.etcd import EtcdCluster, EtcdServer
from tests.support.servers.server import wait_until

_CLIENTS, _PEERS = "10.77.0", "10.78.0"  # the networks, one for each bridge
_CLIENT = 1  # the number of the clients in their network; the members follow
_COUNT = 3
_ELECTION = (100, 1000)
_STAY = "ip link set lo up && echo ready && exec sleep 3600"


class ClusterApart(EtcdCluster):
    """The members, each in a network namespace that a process keeps open.

    `switch` is the process for the bridges, `keepers` are those for the members.
    """

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
                election=_ELECTION,
            )
            for number, name in enumerate(names)
        ]
        self._at_switch = ("nsenter", "--target", str(switch), "--net", "ip", "link", "set")

    def start(self) -> None:
        for member in self.members:
            member.start(wait=False)
        self.wait_until_well()

    def wait_until_well(self) -> None:
        """Connect all members again, and wait until they know each other."""
        wait_until(
            lambda: all(member.is_well() for member in self.members), "a member does not get well"
        )

    def cut_off(self, member: EtcdServer) -> None:
        """Separate a member from the others."""
        run(*self._at_switch, f"peer{self.members.index(member)}", "nomaster")

    def heal(self, member: EtcdServer) -> None:
        run(*self._at_switch, f"peer{self.members.index(member)}", "master", "peers")

    def follower(self) -> EtcdServer:
        leader = self.leader()
        return next(member for member in self.members if member is not leader)


@contextmanager
def cluster_apart(directory: Path) -> Iterator[ClusterApart]:
    """Run a cluster. In this block, this thread and its processes are in the clients' network."""
    with ExitStack() as stack:
        bridges = "ip link add clients type bridge && ip link add peers type bridge"
        ready = (
            f"ip address add {_CLIENTS}.{_CLIENT}/24 dev clients && ip link set clients up && "
            f"ip link set peers up"
        )
        switch = stack.enter_context(
            kept("unshare", "--net", "sh", "-c", f"{bridges} && {ready} && {_STAY}")
        )
        keepers = [
            stack.enter_context(kept("unshare", "--net", "sh", "-c", _STAY)) for _ in range(_COUNT)
        ]
        for number, keeper in enumerate(keepers):
            _plug_in(number, keeper, switch)
        stack.enter_context(inside(switch))
        cluster = ClusterApart(directory, switch, keepers)
        stack.callback(cluster.remove)
        cluster.start()
        yield cluster


def _plug_in(number: int, keeper: int, switch: int) -> None:
    """Write all addresses into all tables, so that no member notices a separation by ARP."""
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
            known = (
                _address(_PEERS, peer),
                "lladdr",
                _mac(_PEERS, peer),
                "dev",
                "peer",
                "nud",
                "permanent",
            )
            run(*there, "neigh", "replace", *known)


def _address(network: str, number: int) -> str:
    return f"{network}.{_CLIENT + 1 + number}"


def _mac(network: str, number: int) -> str:
    return f"02:00:00:00:{network.split('.')[1]}:{_CLIENT + 1 + number:02x}"
