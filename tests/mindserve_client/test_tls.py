"""Whom a client trusts, and whom it says it is."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from mindserve_client import APIConnectionError, Tls
from tests.mindserve.cli.conftest import Authority
from tests.mindserve_client.asking import KINDS, asking
from tests.mindserve_client.wire import GOOD, wire

pytestmark = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def authority(tmp_path: Path) -> Callable[[str], Authority]:
    return lambda name: Authority(tmp_path, name)


def _server(root: Authority, clients: Authority | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=clients.file if clients else None)
    context.load_cert_chain(*root.issue("server"))
    context.verify_mode = ssl.CERT_REQUIRED if clients else ssl.CERT_NONE
    return context


async def test_an_authority_of_ones_own(kind: str, authority: Callable[[str], Authority]) -> None:
    root, other = authority("root"), authority("other")
    with wire(GOOD, GOOD, GOOD, context=_server(root)) as server:
        async with asking(kind, server.url, tls=Tls(ca_file=root.file)) as client:
            await client.whole()
        for tls in (None, Tls(ca_file=other.file)):
            async with asking(kind, server.url, tls=tls, max_retries=0) as client:
                with pytest.raises(APIConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
                    await client.whole()


async def test_without_looking(kind: str, authority: Callable[[str], Authority]) -> None:
    with wire(GOOD, context=_server(authority("root"))) as server:
        async with asking(kind, server.url, tls=Tls(verify=False)) as client:
            await client.whole()


async def test_a_certificate_of_the_clients(kind: str, authority: Callable[[str], Authority]) -> None:
    root, clients = authority("root"), authority("clients")
    cert, key = clients.issue("friend", password="open sesame")
    own = Tls(ca_file=root.file, client_cert_file=cert, client_key_file=key, client_key_password="open sesame")
    with wire(GOOD, GOOD, context=_server(root, clients)) as server:
        async with asking(kind, server.url, tls=own) as client:
            await client.whole()
        async with asking(kind, server.url, tls=Tls(ca_file=root.file), max_retries=0) as client:
            with pytest.raises(APIConnectionError):
                await client.whole()
    assert "open sesame" not in repr(own)


def test_files_that_are_not_there(kind: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Tls(ca_file=tmp_path / kind).context()
