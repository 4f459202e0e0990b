import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mindserve.cli.planes import Plane, plane_servers
from mindserve.cli.sockets import bind_all
from mindserve.cli.tls import server_context, tls_contexts
from mindserve.config.listen import Listen, TlsFiles
from mindserve.config.settings import ServeSettings
from mindserve.errors import StartupError

NewAuthority = Callable[[str], Any]


def problem(tls: TlsFiles) -> str:
    with pytest.raises(StartupError) as caught:
        server_context(tls)
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def answer_ok(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def serving(tls: TlsFiles) -> AsyncIterator[int]:
    """An application behind TLS; gives its port."""
    address = Listen(host="127.0.0.1", port=0, tls=tls)
    (bound,) = bind_all([address])
    plane = Plane(address, bound, tls_contexts([address])[0])
    (server,) = plane_servers((plane,), answer_ok, ServeSettings())
    task = asyncio.create_task(server.serve(sockets=[bound]))
    await server.listening.wait()
    try:
        yield bound.getsockname()[1]
    finally:
        server.stop(force=False)
        await task


async def get(port: int, context: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return await reader.read()
    finally:
        writer.close()


async def is_refused(port: int, context: ssl.SSLContext) -> bool:
    """In TLS 1.3 a client may learn only when it reads that its certificate was not taken."""
    try:
        return await get(port, context) == b""
    except (ssl.SSLError, ConnectionError):
        return True


def client(trusted: Path, *certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=trusted)
    if certificate:
        context.load_cert_chain(*certificate)
    return context


async def test_https_without_client_certificates(authority: NewAuthority) -> None:
    root = authority("root")
    cert, key = root.issue("server")
    async with serving(TlsFiles(prefix="tls", cert=cert, key=key)) as port:
        assert (await get(port, client(root.file))).endswith(b"ok")


async def test_tls_1_2_is_not_spoken(authority: NewAuthority) -> None:
    root = authority("root")
    cert, key = root.issue("server")
    context = client(root.file)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with serving(TlsFiles(prefix="tls", cert=cert, key=key)) as port:
        assert await is_refused(port, context)


async def test_with_an_authority_only_its_clients_are_served(authority: NewAuthority) -> None:
    root, clients, strangers = authority("root"), authority("clients"), authority("strangers")
    cert, key = root.issue("server")
    async with serving(TlsFiles(prefix="tls", cert=cert, key=key, ca=(clients.file,))) as port:
        assert (await get(port, client(root.file, *clients.issue("friend")))).endswith(b"ok")
        for context in (client(root.file), client(root.file, *strangers.issue("stranger"))):
            assert await is_refused(port, context)


async def test_a_revoked_client_is_not_served(authority: NewAuthority) -> None:
    root, clients = authority("root"), authority("clients")
    cert, key = root.issue("server")
    friend, former = clients.issue("friend"), clients.issue("former")
    tls = TlsFiles(prefix="tls", cert=cert, key=key, ca=(clients.file,), crl=(clients.revoke(former[0]),))
    async with serving(tls) as port:
        assert (await get(port, client(root.file, *friend))).endswith(b"ok")
        assert await is_refused(port, client(root.file, *former))


def test_an_encrypted_key_opens_with_the_password_in_its_file(authority: NewAuthority, tmp_path: Path) -> None:
    cert, key = authority("root").issue("server", password="open sesame")
    password = tmp_path / "password"
    password.write_text("open sesame\nand a second line\n")
    server_context(TlsFiles(prefix="tls", cert=cert, key=key, key_password=password))
    password.write_text("wrong")
    wrong = TlsFiles(prefix="tls", cert=cert, key=key, key_password=password)
    assert problem(wrong) == f"ServerConfig.tlsPkPwd: {password} does not hold the password of {key}"
    password.write_text("")
    assert problem(wrong) == f"ServerConfig.tlsPkPwd: {password} does not hold the password of {key}"
    password.unlink()
    assert problem(wrong) == f"ServerConfig.tlsPkPwd: {password} cannot be read: No such file or directory"


def test_an_encrypted_key_without_a_password_file(authority: NewAuthority) -> None:
    cert, key = authority("root").issue("server", password="open sesame")
    tls = TlsFiles(prefix="managementTls", cert=cert, key=key)
    assert problem(tls).startswith("ServerConfig.managementTlsPkPwd: the private key is encrypted")


def test_the_password_file_of_an_open_key_is_not_looked_for(authority: NewAuthority, tmp_path: Path) -> None:
    cert, key = authority("root").issue("server")
    server_context(TlsFiles(prefix="tls", cert=cert, key=key, key_password=tmp_path / "nowhere"))


def test_a_key_of_another_certificate(authority: NewAuthority) -> None:
    root = authority("root")
    cert, _ = root.issue("server")
    _, key = root.issue("other")
    assert problem(TlsFiles(prefix="tls", cert=cert, key=key)) == (
        f"ServerConfig.tlsPk: {key} is not the key of the certificate {cert}"
    )


def test_files_that_are_something_else(authority: NewAuthority, tmp_path: Path) -> None:
    root = authority("root")
    cert, key = root.issue("server")
    text = tmp_path / "text"
    text.write_text("not a key")
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    missing = tmp_path / "missing"

    def told(**changes: Any) -> str:
        return problem(TlsFiles(**{"prefix": "tls", "cert": cert, "key": key, **changes}))

    assert told(key=text) == f"ServerConfig.tlsPk: {text} holds no PEM block PRIVATE KEY"
    assert told(cert=key) == f"ServerConfig.tlsCert: {key} holds no PEM block CERTIFICATE"
    assert told(key=missing).startswith(f"ServerConfig.tlsPk: {missing} cannot be read")
    assert told(cert=broken).startswith(f"ServerConfig.tlsCert: {broken} and {key} cannot be used")
    assert told(ca=(root.file, text)) == f"ServerConfig.tlsCaFile[1]: {text} holds no PEM block CERTIFICATE"
    assert told(ca=(broken,)).startswith(f"ServerConfig.tlsCaFile[0]: {broken} cannot be used")
    assert told(ca=(root.file,), crl=(cert,)) == f"ServerConfig.tlsCrlFiles[0]: {cert} holds no PEM block X509 CRL"
    assert told(cert=None) == "ServerConfig.tlsCert and ServerConfig.tlsPk are needed for https"
