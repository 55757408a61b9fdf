"""Which servers get a password, and which connections `swarm doctor` warns of."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.abc import ConnDict

from swarm.admin.check import WARNING
from swarm.admin.server_checks import check_encryption, check_server
from swarm.errors import StoreError
from swarm.stores import postgres_tls
from swarm.stores.address import Address
from swarm.stores.postgres import PostgresStore
from tests.support.disks import needs_root
from tests.support.namespaces import inside, kept
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.proxy import Proxy, certificate
from tests.support.servers.server import running

ELSEWHERE = "10.77.0.1"  # no loopback address, in a network of its own
PASSWORD = "TopSecretPw"
ASK_FOR_PASSWORD = b"R" + struct.pack("!II", 8, 3)  # in clear


class FalseServer:
    """A server with the certificate of another, or none, that asks for the password."""

    def __init__(self, certificate: Path | None) -> None:
        self._listener = socket.create_server((ELSEWHERE, 0))
        self.port: int = self._listener.getsockname()[1]
        self.heard = b""
        self._tls: ssl.SSLContext | None = None
        if certificate:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client:
                client.settimeout(5)
                try:
                    self._ask(client)
                except OSError:
                    pass  # the client does not trust this server

    def _ask(self, client: socket.socket) -> None:
        self.heard += client.recv(8)
        client.sendall(b"S" if self._tls else b"N")
        with self._tls.wrap_socket(client, server_side=True) if self._tls else client as spoken:
            self.heard += spoken.recv(1000)
            spoken.sendall(ASK_FOR_PASSWORD)
            self.heard += spoken.recv(1000)


@pytest.fixture
def elsewhere() -> Iterator[None]:
    """Put the test into a network in which ELSEWHERE is this machine."""
    address = f"ip link set lo up && ip address add {ELSEWHERE}/32 dev lo"
    with (
        kept("unshare", "--net", "sh", "-c", f"{address} && echo ready && exec sleep 600") as pid,
        inside(pid),
    ):
        yield


@pytest.fixture(params=["another certificate", "no certificate"])
def false_server(
    request: pytest.FixtureRequest, elsewhere: None, tmp_path: Path
) -> Iterator[FalseServer]:
    made = FalseServer(certificate(tmp_path) if request.param == "another certificate" else None)
    yield made
    made.close()


def refusal(server: FalseServer, options: str = "") -> str:
    url = f"postgresql://u:{PASSWORD}@{ELSEWHERE}:{server.port}/d?timeout=2{options}"
    with pytest.raises(StoreError) as refused:
        PostgresStore(Address(url)).read("locks/a")
    return str(refused.value)


@needs_root
class TestPostgres:
    def test_a_false_server_on_another_machine_does_not_get_the_password(
        self, false_server: FalseServer
    ) -> None:
        message = refusal(false_server)
        assert "?sslrootcert=FILE" in message and "?sslmode=disable" in message
        assert PASSWORD.encode() not in false_server.heard and PASSWORD not in message
        assert false_server.heard, "swarm did not connect at all"

    def test_the_sslmode_of_the_address_takes_precedence(self, false_server: FalseServer) -> None:
        refusal(false_server, "&sslmode=prefer")
        assert PASSWORD.encode() in false_server.heard

    def test_the_sslmode_of_the_variable_takes_precedence(
        self, false_server: FalseServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PGSSLMODE", "prefer")
        refusal(false_server)
        assert PASSWORD.encode() in false_server.heard

    def test_a_server_whose_certificate_is_verified_is_used(
        self, elsewhere: None, tmp_path: Path
    ) -> None:
        """The server of the wheel has no TLS: a proxy in front of it has."""
        path = certificate(tmp_path, f"IP:{ELSEWHERE}")
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(path)
        tls.set_alpn_protocols(["postgresql"])
        with (
            running(PostgresServer(host=f"127.0.0.1,{ELSEWHERE}")) as server,
            Proxy(server.port, tls, host=ELSEWHERE) as proxy,
        ):
            login = f"postgresql://{server.user}:{server.quoted_password}@{ELSEWHERE}"
            url = f"{login}:{proxy.port}/postgres?sslnegotiation=direct"
            assert concerns(f"{url}&sslrootcert={path}") == []
            assert concerns(f"{url}&sslmode=require") == ["certificate is not verified"]
            with pytest.raises(StoreError, match="certificate verify failed"):
                concerns(url)
            plain = f"{login}:{server.port}/postgres"
            assert concerns(f"{plain}?sslmode=disable") == ["has no encryption"]
            with pytest.raises(StoreError, match="server does not support SSL"):
                concerns(plain)


def concerns(url: str) -> list[str]:
    """Return the known parts of doctor's warnings about encryption."""
    store = PostgresStore(Address(url))
    try:
        store.create("locks/a", b"x")
        texts = [check.text for check in check_server(store) if check.state == WARNING]
    finally:
        store.close()
    known = ("certificate is not verified", "has no encryption")
    return [part for text in texts for part in known if part in text]


@pytest.mark.parametrize(
    ("host", "there"),
    [
        ({"host": "localhost", "hostaddr": "127.0.0.1"}, "local"),
        ({"host": "db.example", "hostaddr": "::1"}, "local"),
        ({"host": "/run/postgresql"}, "local"),
        ({"host": "@abstract"}, "local"),
        ({}, "local"),
        ({"host": "localhost", "hostaddr": "10.1.2.3"}, "remote"),
        ({"host": "db.example", "hostaddr": "10.1.2.3"}, "remote"),
        ({"host": "db.example"}, "remote"),
        ({"host": "db.example", "hostaddr": "fe80::1"}, "remote"),
    ],
)
def test_only_another_machine_needs_a_certificate(host: ConnDict, there: str) -> None:
    secured = postgres_tls.secured({"dbname": "d", **host}, chosen=False)
    assert secured.get("sslmode") == (None if there == "local" else "verify-full")


def test_the_host_and_the_sslmode_of_a_service_file_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "services").write_text(
        "[plain]\nhost=db.example\n[own]\nhost=db.example\nsslmode=disable\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    for name, chosen in (("plain", False), ("own", True)):
        options = postgres_tls.effective_options({"service": name})
        assert options["host"] == "db.example"
        assert postgres_tls.is_chosen({"service": name}, options) is chosen


@pytest.mark.parametrize(
    ("url", "warned_of"),
    [
        ("redis://cache.example/0", ["no encryption"]),
        ("valkey://u:pw@10.0.0.1/0", ["no encryption", "the password"]),
        ("etcd://localhost,e2.example", ["no encryption", "e2.example"]),
        ("etcd://u:pw@e2.example", ["no encryption", "the password"]),
        ("rediss://cache.example/0?ssl_cert_reqs=none", ["not verified"]),
        ("rediss://cache.example/0?ssl_check_hostname=false", ["not verified"]),
        ("rediss://cache.example/0", []),
        ("etcds://e1.example", []),
        ("redis://u:pw@127.0.0.7/0", []),
        ("redis://[::1]/0", []),
        ("redis+unix:///run/redis.sock", []),
        ("etcd://localhost", []),
    ],
)
def test_the_doctor_names_connections_that_others_can_read(url: str, warned_of: list[str]) -> None:
    found = list(check_encryption(Address(url)))
    assert len(found) == bool(warned_of)
    assert all(check.state == WARNING and check.fix for check in found)
    assert all(part in check.text for part in warned_of for check in found)


def test_a_password_of_a_variable_is_sent_in_clear_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDISCLI_AUTH", "pw")
    (warning,) = check_encryption(Address("redis://cache.example/0"))
    assert "the password" in warning.text
